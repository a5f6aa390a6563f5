"""A residual block of a diffusion U-Net: two normed convolutions with the time embedding added between them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 64, "side": 32, "time": 256}, "full": {"batch": 16, "channels": 320, "side": 64, "time": 1280}}


class Model(nn.Module):
    def __init__(self, channels: int, time: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(time, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(hidden)))


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"]), torch.randn(at["batch"], at["time"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"], SIZES[size]["time"]]
