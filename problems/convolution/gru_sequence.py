"""A gated recurrent layer over a whole sequence: little work a step, and no step before the last one is done."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 8, "steps": 32, "width": 128}, "full": {"batch": 64, "steps": 256, "width": 512}}


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs, last = self.layer(x)
        return outputs, last.squeeze(0)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["steps"], at["width"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"]]
