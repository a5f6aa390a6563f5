"""One step of decoding: a single query per head over a long cache, of which only the first entries count. All of it is reading."""

import torch
import torch.nn as nn

SIZES = {
    "cpu": {"batch": 4, "heads": 8, "cache": 1024, "dim": 64},
    "full": {"batch": 16, "heads": 16, "cache": 4096, "dim": 128},
}


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        scores = (q.unsqueeze(-2) * k).sum(dim=-1) * q.shape[-1] ** -0.5
        valid = torch.arange(k.shape[2], device=k.device) < length[:, None, None]
        weight = torch.softmax(scores.masked_fill(~valid, float("-inf")), dim=-1)
        return (weight.unsqueeze(-1) * v).sum(dim=-2)


def get_inputs(size="full"):
    at = SIZES[size]
    shape = (at["batch"], at["heads"], at["cache"], at["dim"])
    return [
        torch.randn(at["batch"], at["heads"], at["dim"]),
        torch.randn(shape),
        torch.randn(shape),
        torch.randint(1, at["cache"] + 1, (at["batch"],)),
    ]


def get_init_inputs():
    return []
