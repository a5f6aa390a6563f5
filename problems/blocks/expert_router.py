"""The router of a mixture of experts: softmax over experts, the best two renormalised, and the load-balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"tokens": 2048, "width": 256, "experts": 16}, "full": {"tokens": 32768, "width": 4096, "experts": 64}}


class Model(nn.Module):
    def __init__(self, width: int, experts: int):
        super().__init__()
        self.experts = experts
        self.score = nn.Linear(width, experts, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        probability = torch.softmax(self.score(x), dim=-1)
        weight, chosen = torch.topk(probability, 2, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        load = F.one_hot(chosen, self.experts).sum(dim=1).float().mean(dim=0)
        balance = self.experts * (load * probability.mean(dim=0)).sum()
        return weight, chosen, balance


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["tokens"], SIZES[size]["width"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["width"], SIZES[size]["experts"]]
