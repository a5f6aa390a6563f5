"""Modules whose concatenations grow, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
from case_checks import load

Tensor = torch.Tensor


@dataclass(frozen=True)
class Growing:
    """`copies`: how many parts are copied; `wholes`: how many concatenations have memory of their own."""

    name: str
    function: Callable[..., Any]
    copies: int
    wholes: int
    shape: tuple[int, ...] = (2, 4, 4, 4)

    def arguments(self) -> list[Tensor]:
        return [torch.randn(self.shape, generator=torch.Generator().manual_seed(7))]


def _block(x: Tensor) -> Tensor:
    """As DenseNet has them: each of all parts so far."""
    parts = [x, x.cos()]
    for _ in range(3):
        parts.append(torch.relu(torch.cat(parts, 1)).mean(1, keepdim=True) + x.sin())
    return torch.cat(parts, 1)


def _nested(x: Tensor) -> Tensor:
    """Each of the one before and a new part."""
    whole = torch.cat([x, x.sin()], 1)
    for _ in range(2):
        whole = torch.cat([whole, torch.relu(whole).mean(1, keepdim=True) * x.cos()], 1)
    return whole


def _middle(x: Tensor) -> Tensor:
    """One whose parts are the middle ones of another."""
    a, b = x.sin(), x.cos()
    inner = torch.relu(torch.cat([a, b], 1)).mean(1, keepdim=True)
    return torch.cat([x, a, b, inner * x], 1)


def _returned(x: Tensor) -> Any:
    """One that is returned is memory of its own, and so its parts are copied."""
    a = x.sin()
    first = torch.cat([x, a], 1)
    return first, torch.cat([x, a, first.mean(1, keepdim=True) * x], 1)


def _turned(x: Tensor) -> Tensor:
    """Parts in another order lie in no larger one."""
    a = x.sin()
    first = torch.relu(torch.cat([a, x], 1)).mean(1, keepdim=True)
    return torch.cat([x, a, first * x], 1)


def _viewed(x: Tensor) -> Tensor:
    """One that is read by a view of it keeps its strides."""
    a = x.sin()
    first = torch.relu(torch.cat([x, a], 1).transpose(2, 3)).mean(1, keepdim=True)
    return torch.cat([x, a, first * x], 1)


def _by_library(x: Tensor) -> Tensor:
    """One that a library call reads keeps its strides."""
    a = x.sin()
    first = torch.linalg.matrix_exp(torch.cat([x, a], 1)).mean(1, keepdim=True)
    return torch.cat([x, a, first * x], 1)


def _along_rows(x: Tensor) -> Tensor:
    a = x.sin()
    first = torch.relu(torch.cat([x, a], 2)).mean(2, keepdim=True)
    return torch.cat([x, a, first * x], 2)


def _channels_last(x: Tensor) -> Tensor:
    return _block(x.contiguous(memory_format=torch.channels_last))


CASES = (
    Growing("a block", _block, copies=1, wholes=1),
    Growing("nested", _nested, copies=1, wholes=1),
    Growing("the middle", _middle, copies=1, wholes=1),
    Growing("one that is returned", _returned, copies=4, wholes=2),
    Growing("another order", _turned, copies=4, wholes=2),
    Growing("one that is viewed", _viewed, copies=4, wholes=2),
    Growing("one that the library reads", _by_library, copies=4, wholes=2),
    Growing("along rows", _along_rows, copies=1, wholes=1),
    Growing("channels last", _channels_last, copies=0, wholes=1),
    # 9 numbers of a channel are no multiple of 16 bytes: what begins there is copied, once.
    Growing("places that are not aligned", _block, copies=4, wholes=1, shape=(2, 1, 3, 3)),
    Growing("one sample", _block, copies=1, wholes=1, shape=(1, 4, 4, 4)),
)


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: whether a candidate computes what PyTorch does."""
    with open(request["candidate"]) as file:
        candidate = load(file.read())
    case = next(one for one in CASES if one.name == request["case"])
    arguments = case.arguments()
    with torch.no_grad():
        ours, expected = candidate.ModelNew(torch.nn.Module())(*arguments), case.function(*arguments)
    for one, other in zip(*([x] if torch.is_tensor(x) else x for x in (ours, expected))):
        if one.stride() != other.stride():
            return f"strides {one.stride()}, PyTorch's {other.stride()}"
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-4):
            return f"{(one - other).abs().max()} apart"
    return ""
