"""The cyclic shift and window partition of a hierarchical vision transformer: pure movement."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 4, "side": 56, "channels": 96}, "full": {"batch": 256, "side": 56, "channels": 128}}


class Model(nn.Module):
    def __init__(self, window: int, shift: int):
        super().__init__()
        self.window, self.shift = window, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        shifted = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        w = self.window
        windows = shifted.view(batch, height // w, w, width // w, w, channels).permute(0, 1, 3, 2, 4, 5)
        return windows.reshape(-1, w * w, channels)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["side"], at["side"], at["channels"])]


def get_init_inputs():
    return [7, 3]
