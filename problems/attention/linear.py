"""Linear attention with a positive feature map: keys and values fold to a small matrix first, no score is ever made."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "cpu": {"batch": 2, "heads": 8, "length": 1024, "dim": 32},
    "full": {"batch": 8, "heads": 16, "length": 8192, "dim": 64},
}


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
        summary = k.transpose(-1, -2) @ v
        weight = (q * k.sum(dim=2, keepdim=True)).sum(dim=-1, keepdim=True)
        return (q @ summary) / (weight + 1e-6)


def get_inputs(size="full"):
    at = SIZES[size]
    shape = (at["batch"], at["heads"], at["length"], at["dim"])
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
