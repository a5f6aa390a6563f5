"""A plain RNN's cell over 100 steps, too large for threads to hold a block's terms; the last state is read."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(features, hidden)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        for now in x.unbind(1):
            h = self.cell(now, h)
        return h


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 100, 512), torch.randn(64, 1024)]


def get_init_inputs() -> list[int]:
    return [512, 1024]
