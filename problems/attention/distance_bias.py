"""Attention with linear biases: each head forgets at its own rate, the bias is arithmetic and never a tensor."""

import torch
import torch.nn as nn

SIZES = {
    "cpu": {"batch": 1, "heads": 8, "length": 256, "dim": 64},
    "full": {"batch": 2, "heads": 16, "length": 2048, "dim": 64},
}


class Model(nn.Module):
    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slope", 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float32) / heads))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        distance = position[:, None] - position[None, :]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - self.slope[:, None, None] * distance.float()
        return torch.softmax(torch.where(distance >= 0, scores, float("-inf")), dim=-1) @ v


def get_inputs(size="full"):
    at = SIZES[size]
    shape = (at["batch"], at["heads"], at["length"], at["dim"])
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs(size="full"):
    return [SIZES[size]["heads"]]
