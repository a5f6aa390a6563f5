"""Squeeze and excitation: a global average, two small layers, and a gate on all that was averaged."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 8, "channels": 96, "side": 56}, "full": {"batch": 128, "channels": 240, "side": 112}}


class Model(nn.Module):
    def __init__(self, channels: int, ratio: int = 4):
        super().__init__()
        self.reduce = nn.Linear(channels, channels // ratio)
        self.expand = nn.Linear(channels // ratio, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = x.mean(dim=(2, 3))
        gate = torch.sigmoid(self.expand(torch.relu(self.reduce(pooled))))
        return x * gate[:, :, None, None]


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
