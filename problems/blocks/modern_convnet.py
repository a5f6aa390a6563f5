"""A block of a modernised convolutional network: 7x7 depthwise, layer norm over channels, two linear layers, layer scale, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 96, "side": 28}, "full": {"batch": 64, "channels": 192, "side": 56}}


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        hidden = self.scale * self.down(F.gelu(self.up(hidden)))
        return x + hidden.permute(0, 3, 1, 2)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
