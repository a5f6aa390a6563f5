"""Modules that put parts together, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Concatenated:
    """`products`: groups of nodes that are one kernel with a product or a convolution; `at`: the concatenation's node;
    `copies`: how many of its parts are not stored in place.
    """

    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    products: tuple[tuple[int, ...], ...]
    at: int
    copies: int = 0

    def arguments(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(7)
        return [torch.randn(shape, generator=generator) for shape in self.shapes]


def _fire(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.cat([F.relu(F.conv2d(x, v)), F.relu(F.conv2d(x, w, padding=1))], 1)


def _beside_input(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x, torch.tanh(F.conv2d(x, w, padding=1))], 1)


def _rows(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([torch.tanh(x), F.gelu(x @ w)], 0)


def _columns(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([F.gelu(x @ w), torch.sin(x)], -1)


def _views(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([F.gelu(x @ w).unsqueeze(1), torch.sin(x).unsqueeze(1)], 1)


def _channels_last(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return _fire(x.contiguous(memory_format=torch.channels_last), v, w)


def _read_again(x: Tensor, w: Tensor) -> Tensor:
    first = torch.tanh(x)
    return torch.cat([first, F.relu(x @ w)], 1) * first.sum()


FIRE = ((2, 8, 6, 6), (16, 8, 1, 1), (24, 8, 3, 3))
CASES = (
    Concatenated("two convolutions", _fire, FIRE, ((0, 1), (2, 3)), 4),
    Concatenated("an input beside one", _beside_input, ((2, 8, 6, 6), (16, 8, 3, 3)), ((0, 1),), 2, 1),
    Concatenated("along rows", _rows, ((12, 16), (16, 16)), ((1, 2),), 3),
    Concatenated("along columns", _columns, ((12, 16), (16, 20)), ((0, 1),), 3),
    Concatenated("of views", _views, ((12, 16), (16, 16)), ((0, 1),), 3),
    # 17 columns of the first are no multiple of 16 bytes.
    Concatenated("unaligned", _columns, ((12, 16), (16, 17)), ((0, 1),), 3, 1),
    Concatenated("channels last", _channels_last, FIRE, ((1, 2), (3, 4)), 5),
    Concatenated("one that others read", _read_again, ((12, 16), (16, 16)), ((1, 2),), 3),
)


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: whether a candidate computes what PyTorch does."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CASES if one.name == request["case"])
    arguments = case.arguments()
    with torch.no_grad():
        ours, expected = module.ModelNew(torch.nn.Module())(*arguments), case.function(*arguments)
    if ours.stride() != expected.stride():
        return f"strides {ours.stride()}, PyTorch's {expected.stride()}"
    return "" if torch.allclose(ours, expected, rtol=1e-3, atol=1e-3) else f"{(ours - expected).abs().max()} apart"
