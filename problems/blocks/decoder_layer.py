"""A decoder layer of a current language model: RMSNorm, rotary grouped-query attention, RMSNorm, gated MLP, two residuals."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "cpu": {"batch": 1, "length": 128, "heads": 8, "groups": 2, "dim": 32, "hidden": 704},
    "full": {"batch": 2, "length": 2048, "heads": 32, "groups": 8, "dim": 128, "hidden": 14336},
}


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5) * self.weight


class Model(nn.Module):
    def __init__(self, length: int, heads: int, groups: int, dim: int, hidden: int):
        super().__init__()
        self.heads, self.groups, self.dim = heads, groups, dim
        width = heads * dim
        self.attention_norm, self.mlp_norm = RMSNorm(width), RMSNorm(width)
        self.query = nn.Linear(width, heads * dim, bias=False)
        self.key_value = nn.Linear(width, 2 * groups * dim, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        angle = torch.arange(length)[:, None] * 500000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        normed = self.attention_norm(x)
        query = self.query(normed).view(batch, length, self.heads, self.dim).transpose(1, 2)
        key, value = self.key_value(normed).view(batch, length, 2, self.groups, self.dim).permute(2, 0, 3, 1, 4).unbind(0)
        repeats = self.heads // self.groups
        key, value = self.rotated(key).repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        attended = F.scaled_dot_product_attention(self.rotated(query), key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["batch"], at["length"], at["heads"] * at["dim"])]


def get_init_inputs(size="full"):
    return [SIZES[size][name] for name in ("length", "heads", "groups", "dim", "hidden")]
