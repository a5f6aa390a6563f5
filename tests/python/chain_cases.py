"""Networks whose convolutions read what norms and activations make of each other's results, and the check of a
candidate for one in Triton's interpreter.
"""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn

Tensor = torch.Tensor


class Residual(nn.Module):
    """Two blocks of a ResNet, the first with a convolution on its shortcut, in inference or by the batch's statistics."""

    def __init__(self, channels: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.shortcut = nn.Conv2d(channels, 2 * channels, 1, stride=2, bias=False)
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False),
                nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, bias=False),
                nn.Conv2d(2 * channels, 2 * channels, 3, padding=1),
                nn.Conv2d(2 * channels, channels, 3, padding=1),
            ]
        )
        self.norms = nn.ModuleList([norm(channels), *(norm(2 * channels) for _ in range(4))])

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norms[0](x))
        y = torch.relu(self.norms[1](self.convolutions[0](x)))
        y = torch.relu(self.norms[2](self.convolutions[1](y)) + self.norms[3](self.shortcut(x)))
        z = self.norms[4](self.convolutions[2](y))
        return self.convolutions[3](torch.relu(z + y))


class Inverted(nn.Module):
    """Wide inside, with a depthwise convolution there."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.widen, self.narrow = nn.Conv2d(channels, wide, 1, bias=False), nn.Conv2d(wide, channels, 1, bias=False)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wide), nn.BatchNorm2d(wide), nn.BatchNorm2d(channels)])

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu6(self.norms[0](self.widen(x)))
        y = nn.functional.relu6(self.norms[1](self.depthwise(y)))
        return self.norms[2](self.narrow(y)) + x


class Dense(nn.Module):
    """Each convolution reads all results before it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(n * channels) for n in (1, 2, 3)])
        self.convolutions = nn.ModuleList([nn.Conv2d(n * channels, channels, 3, padding=1) for n in (1, 2, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = torch.cat([x, convolution(torch.relu(norm(x)))], 1)
        return x


@dataclass(frozen=True)
class Chain:
    name: str
    make: Callable[[int], nn.Module]  # with so many channels
    images: int  # how many convolutions make their image, where inputs are large

    def module(self, channels: int = 16) -> nn.Module:
        torch.manual_seed(11)
        module = self.make(channels)
        for one in module.modules():
            if isinstance(one, nn.BatchNorm2d):
                nn.init.normal_(one.weight)
                nn.init.normal_(one.bias)
                one.running_var.uniform_(0.5, 1.5)
        return module


CHAINS = [
    Chain("residual", Residual, 4),
    Chain("residual_in_inference", lambda channels: Residual(channels).eval(), 1),
    Chain("inverted", Inverted, 1),
    Chain("dense", Dense, 3),
]


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: results and buffers are as near to what double precision gives as products of
    numbers of 11 digits bring them."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CHAINS if one.name == request["case"])
    ours = case.module()
    exact = copy.deepcopy(ours).double()
    candidate = module.ModelNew(ours)
    for scale in (1.0, 2.0**-40):  # what halves hold, and what their kernels leave to others
        x = torch.randn((2, 16, 10, 9), generator=torch.Generator().manual_seed(7))
        x[-1] *= scale
        with torch.no_grad():
            found, right = candidate(x), exact(x.double())
        if fault := fault_of(ours, exact, found, right):
            return fault
    return ""


def fault_of(ours: nn.Module, exact: nn.Module, found: Tensor, right: Tensor) -> str:
    """Of a call's results, and of the buffers behind it."""
    pairs = [("result", found, right)]
    pairs += [(name, one, dict(exact.named_buffers())[name]) for name, one in ours.named_buffers()]
    for name, one, other in pairs:
        error = (one.double() - other.double()).abs().max() / other.double().abs().max().clamp(min=1.0)
        if not float(error) < 2.0**-7:
            return f"{name}: off by {float(error):.3g} of the largest"
    return ""
