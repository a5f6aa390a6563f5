"""SwiGLU on the packed projection of a language model's MLP: the two halves of each row meet."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"tokens": 512, "hidden": 2816}, "full": {"tokens": 16384, "hidden": 7168}}


class Model(nn.Module):
    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, up = packed.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["tokens"], 2 * at["hidden"])]


def get_init_inputs():
    return []
