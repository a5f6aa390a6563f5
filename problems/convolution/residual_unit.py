"""A residual unit in inference: two 3x3 convolutions whose batch norms are constants, ReLU, and the input added."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 1, "channels": 64, "side": 28}, "full": {"batch": 64, "channels": 128, "side": 56}}


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.second_norm(self.second(hidden)))


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["channels"], at["side"], at["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["channels"]]
