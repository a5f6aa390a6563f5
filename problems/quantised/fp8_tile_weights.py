"""8-bit float weights with a scale per tile of 128 by 128, back to bf16."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"rows": 1024, "columns": 1024}, "full": {"rows": 18432, "columns": 7168}}


class Model(nn.Module):
    def forward(self, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        rows, columns = weight.shape
        tiles = weight.float().reshape(rows // 128, 128, columns // 128, 128)
        return (tiles * scale[:, None, :, None]).to(torch.bfloat16).reshape(rows, columns)


def get_inputs(size="full"):
    rows, columns = SIZES[size]["rows"], SIZES[size]["columns"]
    return [torch.randn(rows, columns).to(torch.float8_e4m3fn), torch.rand(rows // 128, columns // 128)]


def get_init_inputs():
    return []
