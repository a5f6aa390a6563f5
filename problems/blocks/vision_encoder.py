"""A vision transformer's patch embedding with class token and positions, and its first encoder layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 2, "side": 96, "width": 192, "heads": 3}, "full": {"batch": 128, "side": 224, "width": 768, "heads": 12}}


class Model(nn.Module):
    def __init__(self, side: int, width: int, heads: int, patch: int = 16):
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.patches(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs(size="full"):
    return [torch.randn(SIZES[size]["batch"], 3, SIZES[size]["side"], SIZES[size]["side"])]


def get_init_inputs(size="full"):
    return [SIZES[size]["side"], SIZES[size]["width"], SIZES[size]["heads"]]
