"""Cosine similarity of paired embeddings: three sums over the same row, of two operands."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"rows": 2048, "width": 1024}, "full": {"rows": 131072, "width": 1024}}


class Model(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(left, right, dim=-1)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["rows"], at["width"]), torch.randn(at["rows"], at["width"])]


def get_init_inputs():
    return []
