"""The whole gated MLP of a language model: two products of one input, their gate, and a third product."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"tokens": 64, "width": 512, "hidden": 1408}, "full": {"tokens": 4096, "width": 4096, "hidden": 11008}}


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["tokens"], SIZES[size]["width"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"], SIZES[size]["hidden"]]
