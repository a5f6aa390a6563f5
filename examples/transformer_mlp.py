"""The feed-forward half of a transformer block: RMSNorm, gated MLP activation, residual and a final softmax head."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.up = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        normed = x * scale * self.norm_weight
        value, gate = self.up(normed).chunk(2, dim=-1)
        hidden = value * F.gelu(gate, approximate="tanh")
        return torch.softmax(x + self.down(hidden), dim=-1)


def get_inputs():
    return [torch.randn(16, 256, 512)]


def get_init_inputs():
    return [512, 1024]
