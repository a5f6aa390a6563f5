"""A graph layer's messages: rows gathered by the edges' sources, weighted, and added up at their targets."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"nodes": 4000, "edges": 30000, "width": 64}, "full": {"nodes": 200_000, "edges": 2_000_000, "width": 128}}


class Model(nn.Module):
    def forward(self, features: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        messages = features.index_select(0, source) * weight.unsqueeze(1)
        return features + torch.zeros_like(features).index_add(0, target, messages)


def get_inputs(size="full"):
    at = SIZES[size]
    return [
        torch.randn(at["nodes"], at["width"]),
        torch.randint(0, at["nodes"], (at["edges"],)),
        torch.randint(0, at["nodes"], (at["edges"],)),
        torch.rand(at["edges"]),
    ]


def get_init_inputs():
    return []
