"""Builds candidates ahead of their first run: several at once, each in a forked child, into the caches in which their kernels are looked up.

A process of its own, that never touches a GPU, answers this method, so that compiling goes on beside timing.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Any, Callable

import torch  # noqa: F401  (before the fork: each child would import it anew)

from .errors import summary
from .running import problem as problems
from .running.scratch import Scratch

Progress = Callable[[str, float], None]

_LIMIT_SECONDS = 120.0


def _build(path: str, sm: int) -> None:
    """Compile what the file's ModelNew will look up on its first call."""
    module, _ = problems.load_module(path, kind="candidate")
    if hasattr(module, "load_kernels"):
        module.load_kernels()
    for entry in getattr(module, "KERNEL_SIGNATURES", None) or []:
        from .compile_only import compile_entry

        compile_entry(module, entry, sm)


def _start(path: str, sm: int, scratch: str) -> tuple[int, int]:
    """Process id, and the descriptor from which the reason of a failure can be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    status = 1
    os.environ["TMPDIR"] = scratch  # for the compiler's own files, which it leaves where it is killed
    try:
        _build(path, sm)
        status = 0
    except BaseException as error:
        os.write(writing, summary(error).encode(errors="replace")[:4000])
    finally:
        os._exit(status)


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "build" (docs/worker-protocol.md)."""
    scratch = Scratch()
    try:
        return _run(params, progress, scratch.path)
    finally:
        scratch.close()


def _run(params: dict[str, Any], progress: Progress, scratch: str) -> dict[str, Any]:
    paths = list(params.get("candidates") or [])
    sm = int(params.get("sm") or 90)
    jobs = max(1, int(params.get("jobs") or 1))
    if any("import triton" in Path(path).read_text(encoding="utf-8") for path in paths):
        import triton  # noqa: F401
    waiting, running = list(enumerate(paths)), {}
    results: list[dict[str, Any]] = [{"path": path, "ok": False, "seconds": 0.0, "error": ""} for path in paths]
    while waiting or running:
        while waiting and len(running) < jobs:
            index, path = waiting.pop(0)
            child, reading = _start(path, sm, scratch)
            running[reading] = (index, child, time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for reading, (index, child, began) in list(running.items()):
            late = time.monotonic() - began > _LIMIT_SECONDS
            if reading not in ready and not late:
                continue
            if late:
                os.kill(child, 9)
            message = os.read(reading, 4096).decode(errors="replace")
            os.close(reading)
            _, status = os.waitpid(child, 0)
            del running[reading]
            results[index] |= {
                "ok": status == 0,
                "seconds": time.monotonic() - began,
                "error": "took too long to compile" if late else message,
            }
            progress("building", 1 - (len(waiting) + len(running)) / max(1, len(paths)))
    return {"results": results}
