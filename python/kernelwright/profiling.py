"""Which share of a call's time runs in the candidate's own kernels rather than in library calls."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable

import torch

# Operators that allocate or describe memory; what they take is not a library's computing.
_BOOKKEEPING = ("aten::empty", "aten::view", "aten::as_strided", "aten::reshape", "aten::detach", "aten::resize_", "aten::_unsafe_view")


def share_in_kernels(call: Callable[[], Any], kernels: list[str], device: torch.device) -> float | None:
    """Between 0 and 1; None where the profiler gives nothing to go by.

    On a GPU: time of the kernels named in `kernels` over that of all kernels. On the CPU, where the kernels are called through ctypes and
    the profiler does not see them: what is left of the call when the time in ATen's operators is taken away.
    """
    if not kernels:
        return 0.0
    from torch.profiler import ProfilerActivity, profile

    with contextlib.suppress(RuntimeError):
        if device.type == "cuda":
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
                call()
                torch.cuda.synchronize(device)
            total = ours = 0.0
            for event in profiler.events():
                if event.device_type == torch.autograd.DeviceType.CUDA:
                    total += event.device_time_total
                    if any(_is_named(event.name, kernel) for kernel in kernels):
                        ours += event.device_time_total
            return ours / total if total else None
        best = None
        for _ in range(3):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                began = time.perf_counter()
                call()
                total = (time.perf_counter() - began) * 1e6
            library = sum(
                event.self_cpu_time_total for event in profiler.events() if event.name.startswith("aten::") and not event.name.startswith(_BOOKKEEPING)
            )
            share = max(0.0, 1.0 - library / total) if total else None
            best = share if best is None or (share is not None and share > best) else best
        return best
    return None


def _is_named(event: str, kernel: str) -> bool:
    """Triton appends a suffix to a kernel's name, and a C++ kernel's name carries its signature."""
    return event == kernel or event.startswith((kernel + "_", kernel + "(", kernel + "<")) or f" {kernel}(" in event or f" {kernel}<" in event
