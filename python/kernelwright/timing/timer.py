"""Timing one call on one device: caches flushed, contents of the inputs changed before it, device events cross-checked
with the clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import statistics
import time
from typing import Any, Callable

import torch
from torch.utils import _pytree as pytree


Call = Callable[[], Any]

_LARGEST_FLUSH = 256 << 20

# A loop that shows whether its threads have cores of their own; for how long it is repeated, in seconds; and what is
# about the fastest.
_SLICE_BYTES, _LONGEST_SPREADING, _ABOUT = 4 << 20, 0.02, 1.5

# How many elements of an input change places among each other between two timed calls: what that takes in memory.
_MOVED_AT_ONCE = 1 << 24

# Drawing integers anew before each call should not take much of the time for which is measured; otherwise so many draws
# are kept.
_QUICK_DRAW_SECONDS = 0.02
_KEPT_DRAWS = 6


def cache_bytes(device: torch.device) -> int:
    """Size of the last cache before the device's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    sizes = []
    for index in range(8):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
                text = file.read().strip()
            sizes.append(int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1))
    return max(sizes, default=32 << 20)


# mallopt(3): nothing is mapped for itself, which would be unmapped and mapped anew each time; the heap never shrinks.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER_TRIMMED = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees, as on a GPU; False where the C library is not glibc.

    By default glibc gives large blocks back, and the end of its heap once enough of it is free. Whether a call of eager
    ends in that state depends on what happened to be allocated before: the same call takes 7 ms in one process and
    18 ms, most of them page faults, in the next.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIMMED))


class Timer:
    """Times calls on `device`, each from cold caches."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self.flush_bytes = min(max(2 * cache_bytes(device), 16 << 20), _LARGEST_FLUSH)
        self._flush = torch.zeros(self.flush_bytes // 4, dtype=torch.int32, device=device)
        self._slice, self._fastest = self._flush[: _SLICE_BYTES // 4], math.inf
        if self.is_cuda:
            self._events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        else:
            keep_freed_memory()

    @property
    def name(self) -> str:
        return "cuda-events" if self.is_cuda else "steady_clock"

    def sample(self, call: Call) -> float:
        """Milliseconds of one call."""
        self.prepare()
        return self.timed(call)

    def prepare(self) -> None:
        """On a CPU: empty the caches. On a GPU: wait until it is idle, since emptying its caches belongs right before
        the call.
        """
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
        else:
            self._flush.add_(1)
            self._spread_threads()

    def _spread_threads(self) -> None:
        """Go on until two short loops take about what the fastest did: woken at once, threads may share a core until
        the scheduler moves one, and a call takes ten times as long meanwhile.
        """
        quick, until = 0, time.perf_counter() + _LONGEST_SPREADING
        while quick < 2 and (began := time.perf_counter()) < until:
            self._slice.add_(1)
            taken = time.perf_counter() - began
            self._fastest = min(self._fastest, taken)
            quick = quick + 1 if taken < _ABOUT * self._fastest else 0

    def timed(self, call: Call) -> float:
        """Milliseconds of one call, right after `prepare`."""
        if not self.is_cuda:
            began = time.perf_counter()
            result = call()
            ended = time.perf_counter()
            # Freeing a large result takes time that is not the call's.
            del result
            return (ended - began) * 1e3
        start, end = self._events
        # Not waited for: while the flush runs the host gets ahead, as it does in the middle of a model.
        self._flush.add_(1)
        start.record()
        result = call()
        end.record()
        end.synchronize()
        stream_done = time.perf_counter()
        torch.cuda.synchronize(self.device)
        # Work on another stream ends after the event does; what the host needs to notice is some 20 microseconds.
        hidden = max(0.0, (time.perf_counter() - stream_done) * 1e3 - 0.03)
        del result
        return start.elapsed_time(end) + hidden

    def wall(self, call: Call, repeats: int = 5) -> float:
        """Median milliseconds by the clock, from an idle device to an idle device, caches as they are."""
        samples = []
        for _ in range(repeats):
            self.synchronise()
            began = time.perf_counter()
            call()
            self.synchronise()
            samples.append((time.perf_counter() - began) * 1e3)
        return statistics.median(samples)

    def synchronise(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize(self.device)


class Perturbation:
    """Other contents for every timed call: all floating elements of the inputs change places, in place, so that no part
    of a result can be kept, and integers are drawn anew where `redraw` gives other arguments of the same form.
    """

    def __init__(self, inputs: list[Any], redraw: Callable[[int], list[Any]] | None = None) -> None:
        leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.numel()]
        self.integers = [leaf for leaf in leaves if not (leaf.is_floating_point() or leaf.is_complex())]
        moving = {
            leaf.untyped_storage().data_ptr(): leaf for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()
        }
        self.flats = [_elements(leaf) for leaf in moving.values()]
        self.redraw = redraw
        self.drawn: list[list[torch.Tensor]] = []
        self.draws_each_time = True
        self.step = 0

    def apply(self) -> None:
        self.step += 1
        for flat in self.flats:
            for part in flat.split(_MOVED_AT_ONCE):
                if part.numel() > 1:
                    part.copy_(part.roll(1 + self.step * 7919 % (part.numel() - 1)))
        if self.integers and self.redraw is not None:
            for leaf, fresh in zip(self.integers, self._fresh_integers(self.redraw)):
                if fresh.shape == leaf.shape and fresh.dtype == leaf.dtype:
                    leaf.copy_(fresh)

    def _fresh_integers(self, redraw: Callable[[int], list[Any]]) -> list[torch.Tensor]:
        """Never seen before where a draw takes a moment; else one of a few that are drawn once."""
        if self.draws_each_time or len(self.drawn) < _KEPT_DRAWS:
            began = time.perf_counter()
            leaves = [
                leaf
                for leaf in pytree.tree_leaves(redraw(self.step))
                if isinstance(leaf, torch.Tensor) and leaf.numel()
            ]
            fresh = [leaf for leaf in leaves if not (leaf.is_floating_point() or leaf.is_complex())]
            self.draws_each_time = time.perf_counter() - began < _QUICK_DRAW_SECONDS
            if not self.draws_each_time:
                self.drawn.append(fresh)
            return fresh
        return self.drawn[self.step % len(self.drawn)]


def _elements(leaf: torch.Tensor) -> torch.Tensor:
    """All that a tensor's storage holds, as real numbers; 8-bit floats, which have no roll on a GPU, as bytes."""
    dtype = leaf.dtype.to_real() if leaf.is_complex() else leaf.dtype
    storage = torch.empty(0, dtype=torch.uint8, device=leaf.device).set_(leaf.untyped_storage())
    whole = storage[: storage.numel() // dtype.itemsize * dtype.itemsize]
    return whole if dtype.itemsize == 1 else whole.view(dtype)


def is_settled(samples: list[float], tolerance: float = 0.01) -> bool:
    """Whether the 95 % confidence interval of the median (by order statistics) is within `tolerance` of it on either
    side.
    """
    count = len(samples)
    if count < 10:
        return False
    ordered = sorted(samples)
    reach = 0.98 * count**0.5
    low, high = ordered[max(0, int(count / 2 - reach))], ordered[min(count - 1, int(count / 2 + reach))]
    middle = statistics.median(ordered)
    return high - low <= 2 * tolerance * middle
