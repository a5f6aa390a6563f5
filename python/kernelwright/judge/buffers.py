"""Other contents for buffers that a checkpoint may replace, as far as the model keeps its meaning.

Drawn    what the constructor draws from the random generator (an 8-bit weight and its scales, a fixed projection):
         that of another construction.
Masks    two values, one of them 0 and the other 1 or a huge negative number: each row takes the one before. So no row
         becomes empty, even where forward takes a corner of the mask: it was a row of that corner before.
Neither  tables of positions or indices, constants, counters: their values are the model's meaning, and stay. So do
         buffers outside of the state_dict.
"""

from __future__ import annotations

import torch

from ..running.problem import Problem

# A score that softmax makes zero of.
_HUGE = -1e4

# Elements of a model that is constructed a second time to see which of its buffers are drawn, and of a mask.
_MOST_ELEMENTS = 1 << 26

_MASK_TYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class OtherBuffers:
    """The model's own contents of some buffers, and others. The model has its own ones at first."""

    @torch.no_grad()
    def __init__(self, problem: Problem, model: torch.nn.Module, device: torch.device, seed: int) -> None:
        self.own: dict[str, torch.Tensor] = {}
        self.other: dict[str, torch.Tensor] = {}
        self.tensors = _buffers(model)
        if not self.tensors:
            return
        drawn = _drawn(problem, model, self.tensors, device, seed)
        for name, tensor in self.tensors.items():
            other = drawn.get(name)
            if other is None and is_mask(tensor):
                other = moved(tensor)
            if other is not None:
                self.own[name], self.other[name] = tensor.clone(), other

    @torch.no_grad()
    def put(self, *, own: bool) -> None:
        for name, contents in (self.own if own else self.other).items():
            self.tensors[name].copy_(contents)

    def forget(self) -> None:
        """Keep to the model's own contents from now on."""
        self.put(own=True)
        self.own, self.other = {}, {}


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    stored = set(model.state_dict())
    return {
        name: tensor
        for name, tensor in model.named_buffers()
        if name in stored and tensor.numel() > 1 and not tensor.is_meta and name.rpartition(".")[2] not in _STATISTICS
    }


def _drawn(
    problem: Problem, model: torch.nn.Module, buffers: dict[str, torch.Tensor], device: torch.device, seed: int
) -> dict[str, torch.Tensor]:
    """The buffers that come out otherwise under another seed, as they come out then."""
    if sum(value.numel() for value in model.state_dict().values() if isinstance(value, torch.Tensor)) > _MOST_ELEMENTS:
        return {}
    try:
        constructed = _buffers(problem.construct(device, seed=seed))
    except Exception:  # a constructor that does not work under every seed
        return {}
    if any(name not in constructed or _form(constructed[name]) != _form(tensor) for name, tensor in buffers.items()):
        return {}
    return {name: constructed[name] for name, tensor in buffers.items() if not _same_bits(constructed[name], tensor)}


def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def is_mask(tensor: torch.Tensor) -> bool:
    if tensor.numel() > _MOST_ELEMENTS or tensor.dtype not in _MASK_TYPES:
        return False
    if tensor.dtype == torch.bool:
        return bool(tensor.any()) and not bool(tensor.all())
    low, high = tensor.min().item(), tensor.max().item()
    if not ((low == 0 and high == 1) or (low <= _HUGE and high == 0)):
        return False
    return bool(((tensor == low) | (tensor == high)).all())


def moved(mask: torch.Tensor) -> torch.Tensor | None:
    """The mask with each row (along the last dimension but one) in the place of the next, the first in its own too;
    where that changes nothing, with its columns moved round by one; None where neither does.
    """
    if mask.dim() > 1:
        other = torch.cat([mask.narrow(-2, 0, 1), mask.narrow(-2, 0, mask.shape[-2] - 1)], dim=-2)
        if not torch.equal(other, mask):
            return other
    other = mask.roll(1, -1)
    return None if torch.equal(other, mask) else other
