"""Observations brought to zero mean and unit variance by running statistics, which every batch updates in place before it is normalised."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 2048, "width": 512}, "full": {"rows": 131072, "width": 1024}}


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.variance.lerp_(x.var(0), 0.1)
        return (x - self.mean) * torch.rsqrt(self.variance + 1e-5)


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["rows"], SIZES[size]["width"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"]]
