"""Weights of four bits, two in a byte, back to bf16 with a scale and a zero point per group of 128."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 1024, "columns": 2048}, "full": {"rows": 14336, "columns": 8192}}


class Model(nn.Module):
    def __init__(self, group: int):
        super().__init__()
        self.group = group

    def forward(self, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        low = torch.bitwise_and(packed, 15)
        high = torch.bitwise_right_shift(packed, 4)
        steps = torch.stack([low, high], dim=-1).reshape(packed.shape[0], -1, self.group)
        wide = (steps.float() - zero.unsqueeze(-1)) * scale.unsqueeze(-1)
        return wide.to(torch.bfloat16).reshape(packed.shape[0], -1)


def get_inputs(size="full"):
    rows, columns = SIZES[size]["rows"], SIZES[size]["columns"]
    groups = columns // 128
    return [
        torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8),
        torch.rand(rows, groups) * 0.1,
        torch.randint(0, 16, (rows, groups)).float(),
    ]


def get_init_inputs():
    return [128]
