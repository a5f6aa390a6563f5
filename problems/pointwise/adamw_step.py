"""One AdamW step of a weight: four tensors read, two moments updated in place, the new weight out."""

import torch
import torch.nn as nn

SIZES = {"cpu": {"elements": 1 << 20}, "full": {"elements": 1 << 26}}


class Model(nn.Module):
    def __init__(self, elements: int, rate: float = 1e-3, decay: float = 0.01, beta1: float = 0.9, beta2: float = 0.95, eps: float = 1e-8):
        super().__init__()
        self.rate, self.decay, self.beta1, self.beta2, self.eps = rate, decay, beta1, beta2, eps
        self.register_buffer("mean", torch.zeros(elements))
        self.register_buffer("square", torch.ones(elements))

    def forward(self, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(gradient, 1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        step = self.mean / (self.square.abs().sqrt() + self.eps)
        return weight * (1.0 - self.rate * self.decay) - self.rate * step


def get_inputs(size="full"):
    elements = SIZES[size]["elements"]
    return [torch.randn(elements), torch.randn(elements)]


def get_init_inputs(size="full"):
    return [SIZES[size]["elements"]]
