"""A layer of a neural vocoder: a causal dilated convolution, tanh times sigmoid, a residual and a skip result."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 1, "channels": 32, "samples": 8000}, "full": {"batch": 16, "channels": 128, "samples": 64000}}


class Model(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        signal, gate = self.filter(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        residual, skip = self.out(torch.tanh(signal) * torch.sigmoid(gate)).chunk(2, dim=1)
        return x + residual, skip


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["samples"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"], 16]
