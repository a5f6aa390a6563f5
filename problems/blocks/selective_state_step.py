"""One decoding step of a selective state-space layer: a short convolution over a rolling buffer, then the state's update and readout."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"batch": 16, "inner": 512, "state": 16}, "full": {"batch": 512, "inner": 4096, "state": 16}}


class Model(nn.Module):
    def __init__(self, inner: int, state: int, taps: int = 4):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(inner, taps) * 0.3)
        self.taps_bias = nn.Parameter(torch.zeros(inner))
        self.log_decay = nn.Parameter(torch.log(torch.arange(1, state + 1, dtype=torch.float32)).repeat(inner, 1))
        self.step_bias = nn.Parameter(torch.zeros(inner))
        self.skip = nn.Parameter(torch.ones(inner))

    def forward(
        self, x: torch.Tensor, gate: torch.Tensor, step: torch.Tensor, enter: torch.Tensor, leave: torch.Tensor, recent: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        recent = torch.cat([recent[:, :, 1:], x.unsqueeze(-1)], dim=-1)
        x = F.silu((recent * self.taps).sum(dim=-1) + self.taps_bias)
        step = F.softplus(step + self.step_bias)
        decay = torch.exp(-step.unsqueeze(-1) * torch.exp(self.log_decay))
        state = state * decay + (step * x).unsqueeze(-1) * enter.unsqueeze(1)
        read = (state * leave.unsqueeze(1)).sum(dim=-1) + x * self.skip
        return read * F.silu(gate), recent, state


def get_inputs(size="full"):
    batch, inner, state = (SIZES[size][name] for name in ("batch", "inner", "state"))
    return [
        torch.randn(batch, inner),
        torch.randn(batch, inner),
        torch.randn(batch, inner),
        torch.randn(batch, state),
        torch.randn(batch, state),
        torch.randn(batch, inner, 4),
        torch.randn(batch, inner, state),
    ]


def get_init_inputs(size="full"):
    return [SIZES[size]["inner"], SIZES[size]["state"]]
