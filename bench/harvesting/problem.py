"""A small problem: a module, the arguments of one call, and how to draw them again."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch.utils import _pytree as pytree


class NoProblem(Exception):
    """This name stands for nothing: the sample does not exist, or eager PyTorch raises on it."""


@dataclass
class Problem:
    """`redraw(seed)` gives other legal arguments of the same form; None where the examples' own spread says enough."""

    name: str
    module: torch.nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    redraw: Callable[[int], tuple[Any, ...]] | None = None


class Call(torch.nn.Module):
    """A function as a module: a tensor among its arguments is an input, everything else a constant of the module."""

    def __init__(
        self, function: Callable[..., Any], structure: Any, constants: list[Any], neighbours: bool = False
    ) -> None:
        super().__init__()
        self.function = function
        self.structure = structure
        self.constants = constants
        self.neighbours = neighbours

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self.constants]
        arguments, keywords = pytree.tree_unflatten(leaves, self.structure)
        result = self.function(*arguments, **keywords)
        return _with_neighbours(result, tensors) if self.neighbours else result


class _Place:
    def __deepcopy__(self, memo: Any) -> _Place:
        return self


_TENSOR = _Place()


def _with_neighbours(result: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
    """What stands beside an operator in ordinary code: something pointwise behind it, another reader in front."""

    def scaled(tensor: torch.Tensor) -> torch.Tensor:
        return torch.logical_not(tensor) if tensor.dtype is torch.bool else tensor * 2

    return pytree.tree_map_only(torch.Tensor, scaled, result), [scaled(one) for one in tensors]


def of_call(
    name: str,
    function: Callable[..., Any],
    draw: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]],
    neighbours: bool = False,
) -> Problem:
    """The problem of `function(*arguments, **keywords)`, where `draw(seed)` gives both."""
    seed_all(0)
    leaves, structure = pytree.tree_flatten(_detached(draw(0)))
    constants = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def redraw(seed: int) -> tuple[Any, ...]:
        seed_all(seed)
        return tuple(leaf for leaf in pytree.tree_leaves(_detached(draw(seed))) if isinstance(leaf, torch.Tensor))

    module = Call(function, structure, constants, neighbours)
    return Problem(name, module, tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), {}, redraw)


def _detached(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), value)


def seed_all(seed: int) -> None:
    import numpy

    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def stable_hash(text: str) -> int:
    """The same in every process, unlike hash()."""
    return zlib.crc32(text.encode())


def dtype_named(name: str) -> torch.dtype:
    return getattr(torch, name)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
