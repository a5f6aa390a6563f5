"""Decoded pictures (bytes, channels last) to a network's input: cast, mirror, normalise per channel, channels first."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"batch": 16, "side": 224}, "full": {"batch": 1024, "side": 224}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        planes = picture.permute(0, 3, 1, 2).flip(3).float() / 255.0
        return (planes - self.mean) / self.deviation


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randint(0, 256, (at["batch"], at["side"], at["side"], 3), dtype=torch.uint8)]


def get_init_inputs():
    return []
