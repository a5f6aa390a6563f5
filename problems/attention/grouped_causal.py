"""Grouped-query attention under a causal mask, written out: eight query heads share the keys and values of one."""

import torch
import torch.nn as nn

SIZES = {
    "cpu": {"batch": 1, "heads": 8, "groups": 2, "length": 256, "dim": 64},
    "full": {"batch": 2, "heads": 32, "groups": 4, "length": 2048, "dim": 128},
}


class Model(nn.Module):
    def __init__(self, length: int):
        super().__init__()
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1) @ v


def get_inputs(size="full"):
    at = SIZES[size]
    shared = (at["batch"], at["groups"], at["length"], at["dim"])
    return [torch.randn(at["batch"], at["heads"], at["length"], at["dim"]), torch.randn(shared), torch.randn(shared)]


def get_init_inputs(size="full"):
    return [SIZES[size]["length"]]
