"""Token and position embeddings added and scaled: rows of a table at places that the data say."""

import torch
import torch.nn as nn

SIZES = {
    "cpu": {"batch": 8, "length": 512, "vocabulary": 8000, "width": 512},
    "full": {"batch": 64, "length": 2048, "vocabulary": 50000, "width": 1024},
}


class Model(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.scale = width**0.5

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) * self.scale + self.positions


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randint(0, at["vocabulary"], (at["batch"], at["length"]))]


def get_init_inputs(size="full"):
    at = SIZES[size]
    return [at["vocabulary"], at["length"], at["width"]]
