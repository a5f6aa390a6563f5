"""An LSTM's cell over 128 steps, written as a loop, with an output of each step."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outs = []
        for step in range(x.shape[0]):
            h, c = self.cell(x[step], (h, c))
            outs.append(self.out(h))
        return torch.stack(outs), h, c


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 8, 256), torch.randn(8, 256), torch.randn(8, 256)]


def get_init_inputs() -> list[int]:
    return [256, 256, 64]
