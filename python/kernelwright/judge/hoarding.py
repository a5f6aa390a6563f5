"""Who is at fault where the judge runs out of a GPU's memory beside a candidate's process.

PyTorch's own allocator keeps to the share that the process was given (running/limits.py); a file can lift that, or ask
CUDA itself. It shows where the judge needs the memory.
"""

from __future__ import annotations

import time
from typing import Callable, Protocol

import torch

from ..errors import candidate_error
from ..running.limits import size_text
from ..timing.memory_turn import let_go

# What a process has beside its tensors: the context, kernels, workspaces of libraries.
_BESIDE_TENSORS = 2 << 30

# How long the driver may take to have the memory of a process that has ended.
_SECONDS_TO_FREE = 3.0


class Ending(Protocol):
    def close(self) -> None: ...


class Sharing(Protocol):
    """A candidate's process (remote.py)."""

    device: torch.device
    memory_share: int | None

    @property
    def host(self) -> Ending: ...


def answer_for_memory(candidate: Sharing, error: BaseException, again: Callable[[], object]) -> None:
    """After `error`, for which the judge had no memory. Where the candidate's process may hold more than its share, end
    it. If it did, and what the judge wanted goes well without it (`again`), that is the candidate's failure, and
    otherwise `error` is raised. Returns where its process is not to blame, and lives.

    Others may hold the device's memory as well: what a process held is what is free once it has ended.
    """
    share, device = candidate.memory_share, candidate.device
    if share is None or device.type != "cuda":
        return
    let_go(error)
    torch.cuda.empty_cache()
    before, total = torch.cuda.mem_get_info(device)
    allowed = share + _BESIDE_TENSORS
    if total - before - torch.cuda.memory_reserved(device) <= allowed:
        return
    candidate.host.close()
    held = _freed(device, before, allowed)
    if held <= allowed:
        raise error
    try:
        again()
    except torch.OutOfMemoryError:
        raise error from None
    raise candidate_error(
        "memory-held",
        f"The candidate's process held {size_text(held)} of the GPU's memory, where {size_text(share)} were its share, "
        "and left too little to judge it with.",
        hint="Free what a call does not return, or take it from PyTorch, which keeps to the share.",
    ) from None


def _freed(device: torch.device, before: int, enough: int) -> int:
    """How many bytes more than `before` are free, once they are more than `enough` or no more come."""
    deadline = time.monotonic() + _SECONDS_TO_FREE
    while True:
        freed = torch.cuda.mem_get_info(device)[0] - before
        if freed > enough or time.monotonic() > deadline:
            return freed
        time.sleep(0.02)
