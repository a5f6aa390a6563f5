"""Gradient clipping by the global norm: a whole tensor folds to one number that scales it all, so it is read twice at best."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"elements": 3_000_001}, "full": {"elements": 200_000_001}}


class Model(nn.Module):
    def __init__(self, limit: float):
        super().__init__()
        self.limit = limit

    def forward(self, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        norm = torch.linalg.vector_norm(gradient)
        return gradient * torch.clamp(self.limit / (norm + 1e-6), max=1.0), norm


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["elements"])]


def get_init_inputs():
    return [1.0]
