"""A depthwise and a pointwise convolution with folded norms and clipped ReLUs between them, a mobile network's unit."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 64, "side": 56}, "full": {"batch": 128, "channels": 144, "side": 56}}


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(self.pointwise(F.relu6(self.depthwise(x))))


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
