"""Builds candidates ahead of their first run: several at once, each in a forked child, into the caches in which their
kernels are looked up.

A process of its own, that never touches a GPU, answers this method, so that compiling goes on beside timing.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch  # noqa: F401  (before the fork: each child would import it anew)

from . import errors
from .errors import summary
from .running import problem as problems
from .running.scratch import Scratch

Progress = Callable[[str, float], None]

_LIMIT_SECONDS = 120.0


# What CUDA's driver calls a device's compute capability.
_MAJOR, _MINOR = 75, 76


def _sm_here() -> int:
    """Of the first GPU, asked without beginning to use it."""
    driver, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()

    def ask(name: str, *arguments: Any) -> int:
        if getattr(driver, name)(*arguments) != 0:
            raise errors.missing_error("no-gpu", "CUDA's driver shows no GPU.")
        return value.value

    ask("cuInit", 0)
    device = ask("cuDeviceGet", ctypes.byref(value), 0)
    major = ask("cuDeviceGetAttribute", ctypes.byref(value), _MAJOR, device)
    return 10 * major + ask("cuDeviceGetAttribute", ctypes.byref(value), _MINOR, device)


@dataclass
class _Work:
    """Every `parts`-th kernel of a file from `part` on; a C++ file has one part."""

    path: str
    sm: int
    part: int = 0
    parts: int = 1

    def do(self) -> None:
        """Compile what the file's ModelNew will look up on its first call."""
        module, _ = problems.load_module(self.path, kind="candidate")
        if hasattr(module, "load_kernels"):
            module.load_kernels()
        for entry in (getattr(module, "KERNEL_SIGNATURES", None) or [])[self.part :: self.parts]:
            from .compile_only import compile_entry

            compile_entry(module, entry, self.sm)


def _start(work: _Work, scratch: str) -> tuple[int, int]:
    """Process id, and the descriptor from which the reason of a failure can be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    status = 1
    os.environ["TMPDIR"] = scratch  # for the compiler's own files, which it leaves where it is killed
    try:
        work.do()
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
    jobs = max(1, int(params.get("jobs") or 1))
    sm, parts = 0, 1
    if any("import triton" in Path(path).read_text(encoding="utf-8") for path in paths):
        import triton  # noqa: F401

        sm = int(params.get("sm") or 0) or _sm_here()
        parts = jobs if len(paths) == 1 else 1
    waiting = [_Work(path, sm, part, parts) for path in paths for part in range(parts)]
    results = {path: {"path": path, "ok": True, "seconds": 0.0, "error": ""} for path in paths}
    running: dict[int, tuple[_Work, int, float]] = {}
    count = len(waiting)
    while waiting or running:
        while waiting and len(running) < jobs:
            work = waiting.pop(0)
            child, reading = _start(work, scratch)
            running[reading] = (work, child, time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for reading, (work, child, began) in list(running.items()):
            late = time.monotonic() - began > _LIMIT_SECONDS
            if reading not in ready and not late:
                continue
            if late:
                os.kill(child, 9)
            message = os.read(reading, 4096).decode(errors="replace")
            os.close(reading)
            _, status = os.waitpid(child, 0)
            del running[reading]
            result = results[work.path]
            result["seconds"] += time.monotonic() - began
            if status != 0:
                result |= {"ok": False, "error": "took too long to compile" if late else message}
            progress("building", 1 - (len(waiting) + len(running)) / count)
    return {"results": list(results.values())}
