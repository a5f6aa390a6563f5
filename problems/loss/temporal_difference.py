"""Huber loss of deep Q-learning with importance weights: the value of the action that was taken against a bootstrapped one."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 65536, "actions": 18}, "full": {"batch": 1 << 22, "actions": 18}}


class Model(nn.Module):
    def __init__(self, discount: float):
        super().__init__()
        self.discount = discount

    def forward(self, q: torch.Tensor, action: torch.Tensor, reward: torch.Tensor, next_q: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        taken = q.gather(1, action).squeeze(1)
        target = reward + self.discount * next_q.amax(dim=1)
        return (weight * F.smooth_l1_loss(taken, target, reduction="none")).mean()


def get_inputs(size="full"):
    batch, actions = SIZES[size]["batch"], SIZES[size]["actions"]
    return [
        torch.randn(batch, actions),
        torch.randint(0, actions, (batch, 1)),
        torch.randn(batch),
        torch.randn(batch, actions),
        torch.rand(batch),
    ]


def get_init_inputs():
    return [0.99]
