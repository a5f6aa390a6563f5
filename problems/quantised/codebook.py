"""Four-bit weights of a codebook, sixteen values that are no line: each nibble looks its number up, blocks of 64 share a scale."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"bytes": 1 << 19}, "full": {"bytes": 1 << 26}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        quantile = torch.linspace(0.02, 0.98, 16)
        values = torch.erfinv(2.0 * quantile - 1.0)
        self.register_buffer("table", values / values.abs().max())

    def forward(self, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        nibbles = torch.stack([packed >> 4, packed & 15], dim=-1).reshape(-1, 64).long()
        return self.table[nibbles] * scale.unsqueeze(-1)


def get_inputs(size="full"):
    count = SIZES[size]["bytes"]
    return [torch.randint(0, 256, (count,), dtype=torch.uint8), torch.rand(count // 32)]


def get_init_inputs():
    return []
