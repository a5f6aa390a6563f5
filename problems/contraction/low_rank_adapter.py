"""A frozen linear layer with a low-rank adapter beside it: a large product and two thin ones with the same input."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"tokens": 128, "width": 768, "rank": 16}, "full": {"tokens": 8192, "width": 4096, "rank": 16}}


class Model(nn.Module):
    def __init__(self, width: int, rank: int, alpha: float):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down = nn.Parameter(torch.randn(rank, width) * 0.02)
        self.up = nn.Parameter(torch.randn(width, rank) * 0.02)
        self.scale = alpha / rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + (x @ self.down.t()) @ self.up.t() * self.scale


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["tokens"], SIZES[size]["width"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"], SIZES[size]["rank"], 32.0]
