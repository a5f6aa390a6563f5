"""Top-p sampling's cut over probabilities that are sorted already: which tokens lie within the first p of the mass, renormalised."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 64, "vocabulary": 32000}, "full": {"rows": 2048, "vocabulary": 128256}}


class Model(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, sorted_logits: torch.Tensor) -> torch.Tensor:
        probability = torch.softmax(sorted_logits, dim=-1)
        before = torch.cumsum(probability, dim=-1) - probability
        kept = torch.where(before < self.p, probability, 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)


def get_inputs(size="full"):
    logits = torch.randn(SIZES[size]["rows"], SIZES[size]["vocabulary"]) * 3.0
    return [logits.sort(dim=-1, descending=True).values]


def get_init_inputs():
    return [0.9]
