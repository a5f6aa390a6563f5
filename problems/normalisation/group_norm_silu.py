"""Group norm and SiLU in front of a diffusion U-Net's convolutions: rows too long for a core's registers, weights per channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 2, "channels": 128, "side": 64}, "full": {"batch": 32, "channels": 320, "side": 128}}


class Model(nn.Module):
    def __init__(self, channels: int, groups: int = 32):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
