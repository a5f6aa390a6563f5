"""A decoder's step: a transposed convolution of stride two, instance norm and leaky ReLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 32, "side": 32}, "full": {"batch": 32, "channels": 128, "side": 64}}


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 4, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(channels // 2, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.norm(self.up(x)), 0.2)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
