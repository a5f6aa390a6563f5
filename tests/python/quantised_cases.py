"""Linear layers in 8 and 4 bits: each module says itself how it rounds and where it saturates, and no other answer is
right.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from case_checks import load
from torch import nn

Tensor = torch.Tensor
ROWS, INPUTS, OUTPUTS, BLOCK = 33, 64, 40, 16


def whole(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(7))


def powers(*shape: int) -> Tensor:
    """Scales that leave every product exact."""
    return torch.exp2(whole(-3, 2, *shape).float())


def activations() -> Tensor:
    """Multiples of an eighth: many of them lie between two numbers of 8 bits, and many beyond the largest."""
    return whole(-3000, 3001, ROWS, INPUTS) * 0.125


class Static(nn.Module):
    """int8 by one scale and zero point, weights by a scale for each row; the result in 8 bits again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", whole(-128, 128, OUTPUTS, INPUTS).to(torch.int8))
        self.register_buffer("scales", powers(OUTPUTS))
        self.register_buffer("bias", whole(-99, 100, OUTPUTS).float() * 0.5)
        self.register_buffer("scale", torch.tensor(0.25))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes = (torch.round(x / self.scale) + 3).clamp(-128, 127).to(torch.int8)
        sums = F.linear(codes.float() - 3, self.weight.float())
        result = sums * (self.scale * self.scales) + self.bias
        return result, (torch.round(result / 64) - 5).clamp(-128, 127).to(torch.int8)


class Corrected(Static):
    """The same with the zero point behind the product, as kernels for whole numbers have it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes = (torch.round(x / self.scale) + 3).clamp(-128, 127).to(torch.int8)
        sums = F.linear(codes.float(), self.weight.float()) - 3 * self.weight.sum(1, dtype=torch.int32).float()
        result = torch.relu(sums * (self.scale * self.scales) + self.bias)
        return result, (result * 0.125).round().clamp(0, 255).to(torch.uint8)


class Dynamic(Static):
    """int8 by a scale for each row of a call's numbers."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = torch.exp2(torch.floor(torch.log2(x.abs().amax(1, keepdim=True) * 0.0078125)))  # short of the largest
        codes = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
        return F.linear(codes.float(), self.weight.float()) * scale * self.scales, codes, scale


class Float8(nn.Module):
    """e4m3 by a scale for each row of both operands."""

    def __init__(self) -> None:
        super().__init__()
        # Few digits, so that sums of products are exact.
        self.register_buffer("weight", (whole(-7, 8, OUTPUTS, INPUTS) * 2.0).to(torch.float8_e4m3fn))
        self.register_buffer("scales", powers(OUTPUTS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale = torch.exp2(torch.floor(torch.log2(x.abs().amax(1, keepdim=True))) - 7)  # to 128 … 256
        codes = (x / scale * 2).clamp(-448, 448).to(torch.float8_e4m3fn)
        return F.linear(codes.float(), self.weight.float()) * scale * self.scales, codes


class Int4(nn.Module):
    """Two weights in a byte, 0 … 15 for −8 … 7, with a scale for every block of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", whole(0, 256, OUTPUTS, INPUTS // 2).to(torch.uint8))
        self.register_buffer("scales", powers(OUTPUTS, INPUTS // BLOCK))

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.stack((self.packed & 15, self.packed >> 4), -1).view(OUTPUTS, INPUTS // BLOCK, BLOCK)
        weight = (codes.to(torch.int8) - 8).float() * self.scales[:, :, None]
        return F.linear(x, weight.view(OUTPUTS, INPUTS))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "static": (Static, activations),
    "corrected": (Corrected, activations),
    "dynamic": (Dynamic, activations),
    "float8": (Float8, activations),
    "int4": (Int4, lambda: whole(-100, 101, ROWS, INPUTS).float()),
}


def fault_of(source: str, name: str) -> str:
    make, draw = CASES[name]
    module, x = make().eval(), draw()
    with torch.no_grad():
        ours, eager = load(source).ModelNew(module)(x), module(x)
    for place, (mine, right) in enumerate(zip(*((one,) if isinstance(one, Tensor) else one for one in (ours, eager)))):
        if mine.dtype != right.dtype or not torch.equal(mine.float(), right.float()):
            return f"result {place} differs at {int((mine.float() != right.float()).sum())} places"
    return ""


def interpreted(request: dict[str, Any]) -> str:
    with open(request["candidate"]) as file:
        return fault_of(file.read(), request["case"])
