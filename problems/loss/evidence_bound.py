"""The negative evidence lower bound of a variational autoencoder: reconstruction and divergence, sums of different shapes in one number."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 512, "pixels": 3072, "latent": 128}, "full": {"batch": 32768, "pixels": 3072, "latent": 256}}


class Model(nn.Module):
    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def forward(self, decoded: torch.Tensor, picture: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
        reconstruction = F.mse_loss(decoded, picture, reduction="sum")
        divergence = -0.5 * (1.0 + log_variance - mean.square() - log_variance.exp()).sum()
        return (reconstruction + self.beta * divergence) / decoded.shape[0]


def get_inputs(size="full"):
    at = SIZES[size]
    return [
        torch.rand(at["batch"], at["pixels"]),
        torch.rand(at["batch"], at["pixels"]),
        torch.randn(at["batch"], at["latent"]),
        torch.randn(at["batch"], at["latent"]) * 0.5,
    ]


def get_init_inputs():
    return [0.5]
