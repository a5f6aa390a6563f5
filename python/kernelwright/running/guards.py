"""What is watched while a candidate runs: the memory around its allocations, and work that outlives the call."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any, Callable

import torch
from torch.overrides import TorchFunctionMode

from . import threads

# Wide enough for the tail of a whole block of a kernel that forgot its mask.
GUARD_BYTES = 1 << 16
_GUARD = 0xC3
_POISON = 0x5B

_ALLOCATORS = {
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.empty_permuted,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
}


class GuardedAllocations(TorchFunctionMode):
    """Gives every uninitialised tensor that Python code asks for guard bands on both sides and a poisoned body (NaN in
    floats).

    `budget` bounds the bytes kept alive for checking; past it, tensors are poisoned but not guarded.
    """

    def __init__(self, budget: int) -> None:
        super().__init__()
        self.budget = budget
        self.held: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        self.unguarded = 0

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _ALLOCATORS:
            tensor = self._allocate(func, args, kwargs)
            if tensor is not None:
                return tensor
        return func(*args, **kwargs)

    def _allocate(self, func: Callable, args: tuple, kwargs: dict) -> torch.Tensor | None:
        if any(kwargs.get(name) for name in ("out", "pin_memory", "requires_grad", "names")):
            return None
        if kwargs.get("layout") not in (None, torch.strided):
            return None
        like = args[0] if args and isinstance(args[0], torch.Tensor) else None
        device = kwargs.get("device")
        device = (
            torch.device(device)
            if device is not None
            else like.device
            if like is not None
            else torch.get_default_device()
        )
        if device.type not in ("cpu", "cuda") or (
            like is not None and (like.layout is not torch.strided or like.requires_grad)
        ):
            return None
        shape = func(*args, **{**kwargs, "device": "meta"})
        extent = (
            1 + sum((size - 1) * stride for size, stride in zip(shape.shape, shape.stride())) if shape.numel() else 0
        )
        body = extent * shape.element_size()
        total = 2 * GUARD_BYTES + -(-body // 256) * 256
        if total > self.budget:
            self.unguarded += 1
            return poison(func(*args, **kwargs))
        self.budget -= total
        memory = torch.empty(total, dtype=torch.uint8, device=device)
        memory[:GUARD_BYTES] = _GUARD
        memory[GUARD_BYTES + body :] = _GUARD
        flat = memory[GUARD_BYTES : GUARD_BYTES + body].view(shape.dtype)
        poison(flat)
        tensor = flat.as_strided(shape.shape, shape.stride())
        self.held.append((memory, body, tensor))
        return tensor

    def violations(self) -> list[str]:
        """One sentence for each allocation whose guard bands were written to."""
        found = []
        for memory, body, tensor in self.held:
            before = memory[:GUARD_BYTES] != _GUARD
            after = memory[GUARD_BYTES + body :] != _GUARD
            if bool(before.any()) or bool(after.any()):
                side = "before" if bool(before.any()) else "behind"
                touched = int(before.sum()) + int(after.sum())
                found.append(
                    f"{touched} bytes {side} a {str(tensor.dtype)[6:]} tensor of shape {list(tensor.shape)} were overwritten."
                )
        return found


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill with what no correct kernel leaves behind: NaN, or a conspicuous integer."""
    if tensor.numel() == 0:
        return tensor
    if tensor.dtype == torch.bool:
        return tensor.fill_(True)
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(math.nan)
    return tensor.fill_(int.from_bytes(bytes([_POISON]) * min(tensor.element_size(), 8), "little"))


def address_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First and past-the-last byte that a strided tensor reaches; an empty range for an empty tensor."""
    if tensor.numel() == 0:
        return (0, 0)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (tensor.data_ptr(), tensor.data_ptr() + extent * tensor.element_size())


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.device != other.device:
        return False
    (low, high), (other_low, other_high) = address_range(one), address_range(other)
    return low < other_high and other_low < high


class Activity:
    """The threads and child processes of this process, and whether something keeps it busy."""

    PATIENCE = 0.35  # seconds

    def __init__(self) -> None:
        self.threads = {thread.ident for thread in threading.enumerate()}
        self.children = _children()
        self.tasks = threads.numbers("self")

    def leftovers(self) -> list[str]:
        """What appeared since and does not end by itself within a third of a second."""
        deadline = time.monotonic() + self.PATIENCE
        while True:
            found = self._new() + _busy()
            if not found or time.monotonic() > deadline:
                return found

    def _new(self) -> list[str]:
        names = [
            thread.name for thread in threading.enumerate() if thread.ident not in self.threads and thread.is_alive()
        ]
        if names and not threads.idle("self", self.tasks):
            return [f"{len(names)} Python thread(s) still run after forward returned: {', '.join(names)}."]
        if children := _children() - self.children:
            return [f"{len(children)} child process(es) still run after forward returned."]
        return []

    def more_threads(self) -> int:
        """How many threads of any kind were added, when those that are about to end have ended."""
        deadline = time.monotonic() + self.PATIENCE
        while True:
            more = len(threads.numbers("self")) - len(self.tasks)
            if more <= 0 or threads.idle("self", self.tasks) or time.monotonic() > deadline:
                return max(more, 0)
            time.sleep(0.005)


def _children() -> set[str]:
    found: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                found.update(file.read().split())
        except OSError:
            continue
    return found


def _busy(sample: float = 0.012) -> list[str]:
    """Whether threads other than this one use the processor."""
    before, start = time.process_time(), time.monotonic()
    time.sleep(sample)
    share = (time.process_time() - before) / (time.monotonic() - start)
    return [f"Threads keep using {share:.0%} of a core after forward returned."] if share > 0.35 else []
