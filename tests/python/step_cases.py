"""Loops whose steps are kernels of their own, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
from case_checks import load

Tensor = torch.Tensor
STEPS = 32


@dataclass(frozen=True)
class Loop:
    """`kernels`: how many are emitted; `width`: of the state."""

    name: str
    function: Callable[..., Any]
    kernels: int
    width: int = 48

    def arguments(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(7)
        shapes = ((4, STEPS, self.width), (self.width, self.width))
        x, w = (torch.randn(shape, generator=generator) for shape in shapes)
        return [x, w / self.width]


def _reads(x: Tensor, w: Tensor) -> Tensor:
    h, states = torch.ones_like(x[:, 0]), []
    for step in range(STEPS):
        h = torch.sin(h @ w * x[:, step]) + h
        states.append(h)
    return torch.stack(states, 1)


def _reads_two(x: Tensor, w: Tensor) -> Tensor:
    """Of each step and the one before."""
    h = x[:, 0]
    for step in range(1, STEPS):
        h = torch.sin(h @ w * x[:, step]) + x[:, step - 1]
    return h


def _backwards(x: Tensor, w: Tensor) -> Tensor:
    h = torch.ones_like(x[:, 0])
    for step in reversed(range(STEPS)):
        h = torch.sin(h @ w * x[:, step]) + h
    return h


def _writes(x: Tensor, w: Tensor) -> Tensor:
    """Into slices of a tensor."""
    h, states = torch.ones_like(x[:, 0]), torch.zeros_like(x)
    for step in range(STEPS):
        h = torch.sin(h @ w * x[:, step]) + h
        states[:, step] = h
    return states


CASES = (
    Loop("reads", _reads, 3),
    Loop("reads two slices", _reads_two, 3),
    Loop("backwards", _backwards, 3),
    Loop("writes", _writes, 5),
    # Of 47 numbers every fourth slice begins where 16 bytes divide the address, the others do not say so.
    Loop("slices that are not aligned", _reads, 4, width=47),
)


def fault_of(candidate: Any, case: Loop) -> str:
    arguments = case.arguments()
    with torch.no_grad():
        ours, expected = candidate.ModelNew(torch.nn.Module())(*arguments), case.function(*arguments)
    return "" if torch.allclose(ours, expected, rtol=1e-4, atol=1e-4) else f"{(ours - expected).abs().max()} apart"


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: whether a candidate computes what PyTorch does."""
    with open(request["candidate"]) as file:
        candidate = load(file.read())
    return fault_of(candidate, next(one for one in CASES if one.name == request["case"]))
