"""Exponential moving averages of two weights, updated in place as a teacher network's are, and how far each is from its student."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 1024, "columns": 1024}, "full": {"rows": 8192, "columns": 8192}}


class Model(nn.Module):
    def __init__(self, rows: int, columns: int, decay: float = 0.999):
        super().__init__()
        self.decay = decay
        self.register_buffer("weight", torch.randn(rows, columns))
        self.register_buffer("bias", torch.randn(columns))

    def forward(self, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.weight.mul_(self.decay).add_(weight, alpha=1.0 - self.decay)
        self.bias.lerp_(bias, 1.0 - self.decay)
        return weight - self.weight, bias - self.bias


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["rows"], at["columns"]), torch.randn(at["columns"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["rows"], SIZES[size]["columns"]]
