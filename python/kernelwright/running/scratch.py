"""Folders for a while, which are told from those of processes that were killed by a lock: `kw` removes those that
nobody holds (src/support/scratch.cpp, which has the names too).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time

_MADE, _IN_USE = "kernelwright-", "kernelwright-run-"
_PATIENCE = 1.0  # seconds


class Scratch:
    """A new folder, until `close`."""

    def __init__(self) -> None:
        made = tempfile.mkdtemp(prefix=_MADE)
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under that name it may be removed as soon as nobody holds it.
        self.path = os.path.join(os.path.dirname(made), _IN_USE + os.path.basename(made).removeprefix(_MADE))
        os.rename(made, self.path)

    def close(self) -> None:
        # A process that was killed a moment ago, or a compiler that it had started, may be writing there still.
        deadline = time.monotonic() + _PATIENCE
        while True:
            shutil.rmtree(self.path, ignore_errors=True)
            if not os.path.exists(self.path) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        os.close(self._lock)
