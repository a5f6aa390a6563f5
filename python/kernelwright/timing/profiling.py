"""Where a call's time goes: to the candidate's own kernels or to library calls, and to which of them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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

# A GPU is kept busy for so long at most before the call, so that the host is ahead of it.
_LONGEST_LEAD_SECONDS = 0.5
_GPU_CLOCK = 2e9  # hertz at most

# With more of a GPU's time outside of operators and Triton's kernels, and more than their events take themselves, the
# profiler names what takes it.
_UNNAMED = 0.1
_EVENTS_MILLISECONDS = 0.01


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
    """On a GPU: the time of each ATen operator and each of Triton's kernels, and where that is not nearly all, of each
    kernel by PyTorch's profiler, whose start takes seconds; `kernels` names the candidate's own.

    On the CPU, where the kernels are called through ctypes and the profiler does not see them, theirs is what is left
    of the call when the time in ATen's operators is taken away.
    """
    # Not torch.profiler's, whose first start imports torch.compile's parts: seconds.
    from torch.autograd.profiler import profile

    with contextlib.suppress(RuntimeError):
        if device.type == "cuda":
            taken = _by_events(call, device)
            if taken is None:
                with profile(use_device="cuda") as profiler:
                    call()
                    torch.cuda.synchronize(device)
                taken = {}
                for event in profiler.function_events or ():
                    if event.device_type == torch.autograd.DeviceType.CUDA:
                        taken[event.name] = taken.get(event.name, 0.0) + event.device_time_total
            return _profile(
                taken, {name for name in taken if any(_is_named(name, kernel) for kernel in kernels)}, bool(kernels)
            )
        best = Profile()
        for _ in range(_CPU_RUNS if kernels else 1):
            with profile() as profiler:
                began = time.perf_counter()
                call()
                total = (time.perf_counter() - began) * 1e6
            taken = {}
            for event in profiler.function_events or ():
                if event.name.startswith("aten::") and not event.name.startswith(_BOOKKEEPING):
                    taken[event.name] = taken.get(event.name, 0.0) + event.self_cpu_time_total
            rest = "the candidate's own C++" if kernels else "outside PyTorch's operators"
            taken[rest] = max(0.0, total - sum(taken.values()))
            found = _profile(taken, {rest} if kernels else set(), bool(kernels))
            best = found if best.share is None or (found.share is not None and found.share > best.share) else best
        return best
    return Profile(None if kernels else 0.0)


class Intervals:
    """Pairs of a device's events by what ran between them; of those inside each other the innermost only. `event`:
    makes one that is recorded now.
    """

    def __init__(self, event: Callable[[], Any]) -> None:
        self.event = event
        self.pairs: list[tuple[str, Any, Any]] = []
        self._open: list[tuple[str, Any]] = []
        self._has_inner = False

    @contextlib.contextmanager
    def around(self, name: str) -> Iterator[None]:
        self.begin(name)
        yield
        self.end()

    def begin(self, name: str) -> None:
        self._open.append((name, self.event()))
        self._has_inner = False

    def end(self) -> None:
        name, start = self._open.pop()
        if not self._has_inner:
            self.pairs.append((name, start, self.event()))
        self._has_inner = True

    def milliseconds(self) -> dict[str, float]:
        taken: dict[str, float] = {}
        for name, start, end in self.pairs:
            taken[name] = taken.get(name, 0.0) + start.elapsed_time(end)
        return taken


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class _Operators(TorchDispatchMode):
    """Each ATen operator's time."""

    def __init__(self, intervals: Intervals) -> None:
        super().__init__()
        self.intervals = intervals

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this, the first operator under the mode imports torch.compile's front end: seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name
        if name.startswith(_BOOKKEEPING):
            return func(*args, **(kwargs or {}))
        with self.intervals.around(name):
            return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _triton_kernels(intervals: Intervals) -> Iterator[None]:
    """Each of Triton's launches' time too."""
    try:
        from triton import knobs

        enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        add, remove = (enter.add, leave.add), (enter.remove, leave.remove)
    except (ImportError, AttributeError):
        yield
        return
    hooks = (lambda launch: intervals.begin(launch.get()["name"])), (lambda launch: intervals.end())
    for change, hook in zip(add, hooks):
        change(hook)
    try:
        yield
    finally:
        for change, hook in zip(remove, hooks):
            change(hook)


def _by_events(call: Callable[[], Any], device: torch.device) -> dict[str, float] | None:
    """Milliseconds by operator and kernel; None where more than a little of the call ran outside of them."""

    def attempt(lead_seconds: float) -> tuple[dict[str, float], float, float]:
        inner, whole = Intervals(_recorded), Intervals(_recorded)
        torch.cuda.synchronize(device)
        with _triton_kernels(inner), _Operators(inner):
            if lead_seconds:
                torch.cuda._sleep(int(min(lead_seconds, _LONGEST_LEAD_SECONDS) * _GPU_CLOCK))
            began = time.perf_counter()
            with whole.around("all"):
                call()
            issued = time.perf_counter() - began
        torch.cuda.synchronize(device)
        own = _EVENTS_MILLISECONDS * (1 + len(inner.pairs))
        return inner.milliseconds(), whole.milliseconds()["all"] - own, issued

    with torch.cuda.device(device):
        _, _, seconds = attempt(0.0)
        taken, total, _ = attempt(2 * seconds)
    return taken if sum(taken.values()) >= (1 - _UNNAMED) * total else None


def _profile(taken: dict[str, float], ours: set[str], has_kernels: bool) -> Profile:
    total = sum(taken.values())
    if not total:
        return Profile(None if has_kernels else 0.0)
    parts: list[dict[str, Any]] = [
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
