"""Gaussian radial basis expansion of interatomic distances: a small input, a large output, nothing read twice."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"pairs": 40000, "centres": 64}, "full": {"pairs": 1 << 20, "centres": 128}}


class Model(nn.Module):
    def __init__(self, centres: int, cutoff: float = 6.0):
        super().__init__()
        self.cutoff = cutoff
        self.centres = nn.Parameter(torch.linspace(0.0, cutoff, centres))
        self.gamma = nn.Parameter(torch.full((centres,), 10.0))

    def forward(self, distance: torch.Tensor) -> torch.Tensor:
        envelope = torch.where(distance < self.cutoff, 0.5 * (torch.cos(distance * (torch.pi / self.cutoff)) + 1.0), 0.0)
        spread = distance[:, None] - self.centres
        return envelope[:, None] * torch.exp(-self.gamma * spread * spread)


def get_inputs(size="full"):
    return [torch.rand(SIZES[size]["pairs"]) * 7.0]


def get_init_inputs(size="full"):
    return [SIZES[size]["centres"]]
