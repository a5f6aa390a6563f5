"""Energy score of out-of-distribution detection: a tempered logsumexp of many short rows."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 16384, "classes": 100}, "full": {"rows": 1 << 20, "classes": 100}}


class Model(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return -self.temperature * torch.logsumexp(logits / self.temperature, dim=1)


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["rows"], SIZES[size]["classes"]) * 4.0]


def get_init_inputs():
    return [1.5]
