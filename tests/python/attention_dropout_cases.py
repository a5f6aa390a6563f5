"""Attention whose weights are dropped in training, with the numbers of PyTorch's stream on a GPU."""

from __future__ import annotations

from typing import Any

import keep_mask_cases
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.running import problem

Tensor = torch.Tensor
SHAPES = {
    "queries": ((2, 2, 20, 24), (2, 2, 56, 24), (2, 2, 56, 20)),
    "an_odd_number_of_weights": ((1, 3, 5, 16), (1, 3, 19, 16), (1, 3, 19, 16)),
    "decoding": ((2, 3, 1, 24), (2, 3, 130, 24), (2, 3, 130, 20)),
}


class Dropping(nn.Module):
    def __init__(self, p: float, is_causal: bool = False) -> None:
        super().__init__()
        self.p = p
        self.is_causal = is_causal

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if self.is_causal:
            later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return torch.softmax(scores, dim=-1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.dropout(self.weights(q, k), self.p) @ v


def arguments(case: str, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES[case]]


def interpreted(request: dict[str, Any]) -> str:
    """{"candidate": path, "case", "dtype", "p", "is_causal", "seed", "offset"}, in Triton's interpreter."""
    candidate = problem.load_module(request["candidate"], kind="candidate")[0]
    held = keep_mask_cases.prepare(candidate, request["seed"], request["offset"])
    dtype, p = getattr(torch, request["dtype"]), request["p"]
    module = Dropping(p, request["is_causal"])
    q, k, v = arguments(request["case"], dtype)
    if not request["is_causal"]:  # masked keys are not visited, whatever their values are
        k[0, 0, 1, 2] = float("inf")  # scores of one key: infinite
        v[0, 1, 3, 4] = float("nan")
        v[0, 1, 4, 5] = float("-inf")
        q[0, 2 % q.shape[1], -1] = float("nan")
    weights = module.weights(q.double(), k.double())
    elements = weights.numel()
    vector, threads = keep_mask_cases.vector_of(elements, dtype), keep_mask_cases.threads_for(elements)
    drawn = keep_mask_cases.numbers(elements, vector, request["seed"], request["offset"], threads)
    kept = (drawn < torch.tensor(1.0 - p).item()).view(weights.shape)
    wanted = (weights * kept / (1.0 - p)) @ v.double()
    with torch.no_grad():
        ours = candidate.ModelNew(module)(q, k, v)
    if held[0] != request["offset"] + keep_mask_cases.advance(elements):
        return f"the generator is left at {held[0]}"
    tolerance = 2e-6 if dtype is torch.float32 else 0.03
    if not torch.equal(ours.isnan(), wanted.isnan()):
        return f"NaN at {int(ours.isnan().sum())} places, not {int(wanted.isnan().sum())}"
    wrong = ~torch.isclose(ours.double(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return f"{int(wrong.sum())} of {ours.numel()} elements differ" if wrong.any() else ""
