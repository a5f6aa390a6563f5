"""Turns with a GPU's memory: what fills much of it waits for what does, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import traceback
from typing import Any, Callable

import torch

from . import device_lock

# Times a problem's bytes (plan/cost.hpp: bytes_in_work) that its verification takes: several copies, and the reference
# in double precision.
_COPIES = 6


def fills_memory(device: torch.device, input_bytes: int) -> bool:
    """Whether a problem of so many bytes takes turns with others on that device."""
    return _needs(device, input_bytes, 1 / 16)


def _needs(device: torch.device, input_bytes: int, share: float) -> bool:
    return device.type == "cuda" and _COPIES * input_bytes >= share * torch.cuda.mem_get_info(device)[1]


def in_memory_turn(
    params: dict[str, Any], progress: device_lock.Progress, work: Callable[[dict[str, Any], device_lock.Progress], Any]
) -> Any:
    """What `work` returns of the same two arguments, called when it is its turn: a problem that fills much of a GPU's
    memory waits until no other such problem is in work on it, and one that needs most of it until none is at all.

    Before the turn ends, all that `work` had in variables is gone and the GPU has its memory back: memory of dead
    tensors that PyTorch keeps for this process is not there for the next. Therefore a function and no `with` block.
    """
    device = torch.device(params.get("device") or "cpu")
    if device.type == "cpu":
        return work(params, progress)
    size, name = int(params.get("input_bytes") or 0), device_lock.name_of(device)
    with contextlib.ExitStack() as turns:
        shares = not _needs(device, size, 1 / 2)
        turns.enter_context(device_lock.hold(name + "-whole-memory", "filling it", progress, shared=shares))
        if fills_memory(device, size):
            turns.enter_context(device_lock.hold(name + "-memory", "filling it", progress))
        try:
            return work(params, progress)
        except BaseException as error:
            let_go(error)
            raise
        finally:
            gc.collect()
            torch.cuda.empty_cache()


def let_go(error: BaseException | None) -> None:
    """Forget the variables of the functions that an exception has come through, and those before it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
