"""One step of an LSTM: two products, four gates, the new state and output from one pass over the gates."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 64, "width": 256, "hidden": 512}, "full": {"batch": 1024, "width": 1024, "hidden": 2048}}


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.of_input = nn.Linear(width, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden)

    def forward(self, x: torch.Tensor, state: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        entry, forget, candidate, output = (self.of_input(x) + self.of_state(state)).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
        return torch.sigmoid(output) * torch.tanh(cell), cell


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["width"]), torch.randn(at["batch"], at["hidden"]), torch.randn(at["batch"], at["hidden"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"], SIZES[size]["hidden"]]
