"""Cross-entropy over a vocabulary with label smoothing, a padding label that does not count, and the mean over those that do."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"tokens": 128, "vocabulary": 32000}, "full": {"tokens": 8192, "vocabulary": 32000}}


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target, ignore_index=0, label_smoothing=0.1)


def get_inputs(size="full"):
    at = SIZES[size]
    return [torch.randn(at["tokens"], at["vocabulary"]), torch.randint(0, at["vocabulary"], (at["tokens"],))]


def get_init_inputs():
    return []
