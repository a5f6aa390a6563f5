"""Discounted returns of many episodes: a running sum from the end of each row."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"episodes": 4096, "steps": 256}, "full": {"episodes": 262144, "steps": 256}}


class Model(nn.Module):
    def __init__(self, steps: int, discount: float):
        super().__init__()
        self.register_buffer("weight", discount ** torch.arange(steps, dtype=torch.float32))

    def forward(self, reward: torch.Tensor) -> torch.Tensor:
        discounted = reward * self.weight
        return torch.flip(torch.cumsum(torch.flip(discounted, (1,)), dim=1), (1,)) / self.weight


def get_inputs(size="full"):
    return [torch.rand(SIZES[size]["episodes"], SIZES[size]["steps"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["steps"], 0.99]
