"""Activations behind a convolution that PyTorch rounds to TF32, and how far ours are from them."""

from __future__ import annotations

import importlib.util
from typing import Any, Callable

import torch
import torch.nn.functional as F

CHANNELS = 32
ROWS, COLUMNS = 16, 64

# What may be wrong, in halves of float32's last place: of the result; and beside that, of the input, or of 1 where that
# is larger.
FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "tanh": (torch.tanh, 12, 0),
    "sigmoid": (torch.sigmoid, 48, 0),  # the exponent's rounding grows with it
    "silu": (F.silu, 48, 0),
    "gelu": (F.gelu, 12, 4),
    "mish": (F.mish, 48, 0),
}


def activated(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda x, w: FUNCTIONS[name][0](F.conv2d(x, w))


def arguments() -> list[torch.Tensor]:
    """An image with eleven digits, from 2^-8 to 16, of either sign, with zero and a smaller number; and filters of
    which each passes the first channel on and nothing else: all that is multiplied and added is exact."""
    size = torch.exp2(torch.linspace(-8, 4, ROWS * COLUMNS // 2)).half().float()
    size[0], size[1] = 0.0, 2.0**-9
    image = torch.zeros(1, CHANNELS, ROWS, COLUMNS)
    image[:, 0] = torch.cat([size, -size]).reshape(ROWS, COLUMNS)
    filters = torch.zeros(CHANNELS, CHANNELS, 1, 1)
    filters[:, 0] = 1.0
    return [image, filters]


def interpreted(request: dict[str, Any]) -> str:
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    _, of_result, of_input = FUNCTIONS[request["name"]]
    image, filters = arguments()
    exact = activated(request["name"])(image.double(), filters.double())
    ours = module.ModelNew(torch.nn.Module())(image, filters)
    allowed = of_result * exact.abs() + of_input * image[:, :1].double().abs().clamp(max=1.0)
    error = (ours.double() - exact).abs() / (allowed * torch.finfo(torch.float32).eps / 2 + 2.0**-60)
    return "" if error.max() <= 1 else f"error {float(error.max()):.3g} of what is allowed"
