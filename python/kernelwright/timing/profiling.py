"""Where a call's time goes: to the candidate's own kernels or to library calls, and to which of them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

# Operators that allocate or describe memory; what they take is not a library's computing.
_BOOKKEEPING = (
    "aten::empty",
    "aten::view",
    "aten::as_strided",
    "aten::reshape",
    "aten::detach",
    "aten::resize_",
    "aten::_unsafe_view",
)

_MOST_PARTS = 8
_CPU_RUNS = 3


@dataclass
class Profile:
    """Of one call."""

    share: float | None = (
        None  # of the time that runs in the candidate's own kernels, between 0 and 1; None where the profiler gives nothing to go by
    )
    parts: list[dict[str, Any]] = field(
        default_factory=list
    )  # {"name", "share", "ours" (None: nobody named the candidate's kernels)}, the largest first: kernels, or on a CPU operators


def profile_call(call: Callable[[], Any], kernels: list[str], device: torch.device) -> Profile:
    """On a GPU: each kernel's time; `kernels` names the candidate's own.

    On the CPU, where the kernels are called through ctypes and the profiler does not see them, theirs is what is left of the call when the time in
    ATen's operators is taken away.
    """
    from torch.profiler import ProfilerActivity, profile

    with contextlib.suppress(RuntimeError):
        if device.type == "cuda":
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
                call()
                torch.cuda.synchronize(device)
            taken: dict[str, float] = {}
            for event in profiler.events():
                if event.device_type == torch.autograd.DeviceType.CUDA:
                    taken[event.name] = taken.get(event.name, 0.0) + event.device_time_total
            return _profile(
                taken, {name for name in taken if any(_is_named(name, kernel) for kernel in kernels)}, bool(kernels)
            )
        best = Profile()
        for _ in range(_CPU_RUNS if kernels else 1):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                began = time.perf_counter()
                call()
                total = (time.perf_counter() - began) * 1e6
            taken = {}
            for event in profiler.events():
                if event.name.startswith("aten::") and not event.name.startswith(_BOOKKEEPING):
                    taken[event.name] = taken.get(event.name, 0.0) + event.self_cpu_time_total
            rest = "the candidate's own C++" if kernels else "outside PyTorch's operators"
            taken[rest] = max(0.0, total - sum(taken.values()))
            found = _profile(taken, {rest} if kernels else set(), bool(kernels))
            best = found if best.share is None or (found.share is not None and found.share > best.share) else best
        return best
    return Profile(None if kernels else 0.0)


def _profile(taken: dict[str, float], ours: set[str], has_kernels: bool) -> Profile:
    total = sum(taken.values())
    if not total:
        return Profile(None if has_kernels else 0.0)
    parts = [
        {"name": name, "share": seconds / total, "ours": name in ours if has_kernels else None}
        for name, seconds in sorted(taken.items(), key=lambda one: -one[1])
    ]
    return Profile(sum((part["share"] for part in parts if part["ours"]), 0.0), parts[:_MOST_PARTS])


def _is_named(event: str, kernel: str) -> bool:
    """Triton appends a suffix to a kernel's name, and a C++ kernel's name carries its signature."""
    return (
        event == kernel
        or event.startswith((kernel + "_", kernel + "(", kernel + "<"))
        or f" {kernel}(" in event
        or f" {kernel}<" in event
    )
