"""The processes that a run of `kw` consists of, as they stand in /proc, and what is left of them afterwards.

Whoever watches adopts orphans, so that everything that a run ever started stays among its descendants.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from pathlib import Path

_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on descendants whose parent dies become this process's own children."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_NEW_MOUNTS, _PRIVATE = 0x00020000, 1 << 18 | 16384


def have_own_shared_memory() -> None:
    """A /dev/shm in which nobody else leaves anything; where that is not permitted, everybody's stays in sight."""
    library = ctypes.CDLL(None)
    if os.geteuid() == 0 and library.unshare(_NEW_MOUNTS) == 0:
        library.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None)
        library.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def children(process: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            found += [int(word) for word in _read(f"/proc/{process}/task/{task}/children").split()]
    return found


def state(process: int) -> str:
    """One letter as in `ps`, "Z" for a zombie; "" where there is no such process."""
    return _read(f"/proc/{process}/stat").rpartition(")")[2][1:2]


def kinds(kw: int) -> dict[int, str]:
    """What each process of the run whose first process is `kw` is there for."""
    found: dict[int, str] = {}

    def visit(process: int, parent: str) -> None:
        for child in children(process):
            found[child] = kind = _kind(child, parent)
            visit(child, kind)

    visit(os.getpid(), "")
    if kw not in found:
        return {}
    found[kw] = "kw"
    return {process: kind for process, kind in found.items() if kind and state(process) not in ("Z", "")}


def _kind(process: int, parent: str) -> str:
    command = _read(f"/proc/{process}/cmdline").replace("\0", " ")
    name = os.path.basename(command.split(" ", 1)[0])
    if not name:  # it is ending
        return ""
    if name == "kw":
        return "bench worker" if "bench-worker" in command else "kw"
    begun_again = re.search(r" - \d+ $", command) is not None  # by host/start.py, which standard input gives
    if "kernelwright.worker" in command or begun_again and parent in ("kw", "bench worker"):
        return "worker"
    if begun_again:  # forked from the nursery, or the nursery itself
        inherited = {"nursery": "keeper", "keeper": "first or candidate", "first or candidate": "candidate"}
        return inherited.get(parent, "candidate" if parent == "candidate" else "nursery")
    return "compiler" if parent in ("worker", "candidate", "first or candidate", "compiler") else "probe"


def reap(kw: int) -> None:
    """Take note of the end of adopted processes; `kw` itself is its starter's to wait for."""
    for child in children(os.getpid()):
        if child != kw:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def left_over(kw: int, patience: float) -> list[str]:
    """What still runs, or is dead and not waited for, once the first process has ended and `patience` is over; it is
    ended then.
    """
    deadline = time.monotonic() + patience
    while True:
        reap(kw)
        found = _descendants(kw)
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    told = [f"{state(process)} {_read(f'/proc/{process}/cmdline')[:200]!r}" for process in found]
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    time.sleep(0.1 if found else 0)
    reap(kw)
    return told


def _descendants(kw: int) -> list[int]:
    found, waiting = [], [os.getpid()]
    while waiting:
        for child in children(waiting.pop()):
            if child != kw:
                found.append(child)
            waiting.append(child)
    return found
