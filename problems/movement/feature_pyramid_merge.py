"""The top-down path of a feature pyramid: a coarse map upsampled to its neighbour and added, beside a skip connection."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 2, "channels": 64, "side": 40}, "full": {"batch": 8, "channels": 256, "side": 100}}


class Model(nn.Module):
    def forward(self, coarse: torch.Tensor, lateral: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        merged = lateral + F.interpolate(coarse, scale_factor=2.0, mode="nearest")
        return torch.cat([torch.relu(merged), skip], dim=1)


def get_inputs(size="full"):
    batch, channels, side = (SIZES[size][name] for name in ("batch", "channels", "side"))
    return [
        torch.randn(batch, channels, side, side),
        torch.randn(batch, channels, 2 * side, 2 * side),
        torch.randn(batch, channels // 2, 2 * side, 2 * side),
    ]


def get_init_inputs():
    return []
