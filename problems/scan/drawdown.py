"""Drawdown of price series against their running maximum, and the worst of each: a scan whose result is reduced at once."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"series": 1000, "days": 2520}, "full": {"series": 50000, "days": 2520}}


class Model(nn.Module):
    def forward(self, price: torch.Tensor) -> torch.Tensor:
        peak = torch.cummax(price, dim=1).values
        return ((price - peak) / peak).amin(dim=1)


def get_inputs(size="full"):
    return [torch.rand(SIZES[size]["series"], SIZES[size]["days"]) + 0.5]


def get_init_inputs():
    return []
