"""Max pooling of a video in time and space at once: windows over three axes with padding in two of them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 32, "frames": 8, "side": 56}, "full": {"batch": 16, "channels": 64, "frames": 16, "side": 112}}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool3d(x, kernel_size=(2, 3, 3), stride=(2, 2, 2), padding=(0, 1, 1))


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["frames"], at["side"], at["side"])]


def get_init_inputs():
    return []
