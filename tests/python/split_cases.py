"""The bound of docs/precision.md for products by halves, over the distributions of bench/split_errors.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Iterator

import torch
from case_checks import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from split_errors import DISTRIBUTIONS  # noqa: E402

Tensor = torch.Tensor
SIDE, DEPTH = 40, 256
LEFT_OUT = 3 * 2.0**-22  # of a product, where neither number is small


def operands(side: int, depth: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Of each distribution a left operand, beside normal numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, draw in DISTRIBUTIONS.items():
            yield name, draw(side, depth), torch.randn(side, depth)


def meeting_zeros(side: int, depth: int) -> tuple[Tensor, Tensor]:
    """Rows of one enormous number each, which meets zeros: without them the others would lose nearly all their digits."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(side, depth, generator=generator) for _ in range(2))
    a[:, 0], b[:, 0] = 2.0**30, 0.0
    return a, b


def exact(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a bᵀ, and the sums of the products' sizes."""
    return a.double() @ b.double().T, a.double().abs() @ b.double().abs().T


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: a candidate's product of each pair is off by what is left out, and by what as many
    additions in single precision may be."""
    with open(request["candidate"]) as file:
        ours = load(file.read()).ModelNew(torch.nn.Module())
    bound = LEFT_OUT + (request["block_k"] + DEPTH / request["block_k"]) * 2.0**-24
    for name, a, b in [*operands(SIDE, DEPTH), ("one that meets zeros", *meeting_zeros(SIDE, DEPTH))]:
        right, sizes = exact(a, b)
        with torch.no_grad():
            error = ((ours(a, b.t()).double() - right).abs() / sizes.clamp(min=2.0**-120)).max()
        if not error <= bound:
            return f"{name}: {float(error):.3g} of the products' sizes, beyond {bound:.3g}"
    return ""
