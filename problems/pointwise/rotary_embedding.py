"""Rotary position embedding of queries, halves rotated against each other, with tables kept as buffers."""

import torch
import torch.nn as nn

SIZES = {
    "cpu": {"batch": 2, "heads": 8, "length": 512, "dim": 128},
    "full": {"batch": 8, "heads": 32, "length": 4096, "dim": 128},
}


class Model(nn.Module):
    def __init__(self, length: int, dim: int, base: float = 10000.0):
        super().__init__()
        frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], dim=-1))
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()], dim=-1))

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        half = q.shape[-1] // 2
        rotated = torch.cat([-q[..., half:], q[..., :half]], dim=-1)
        return q * self.cos + rotated * self.sin


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["heads"], at["length"], at["dim"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["length"], SIZES[size]["dim"]]
