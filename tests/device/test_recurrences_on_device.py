"""Recurrent layers whose kernels are launched once for each step, beside PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import kernelwright
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"num_layers": 3, "batch_first": True}),
    ("GRU", {"num_layers": 3}),
    ("LSTM", {"num_layers": 2, "bidirectional": True}),
    ("GRU", {"num_layers": 2, "bidirectional": True, "bias": False}),
    ("RNN", {"num_layers": 2}),
]


class Draws(torch.nn.Module):
    """Begins with states that each call draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(32, 64, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, torch.randn(2, x.shape[1], 64, device=x.device))[0]


def made_of(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    made = kernelwright.optimize(model, [x], target="triton", draws=5)
    assert made.report["verdict"] == "pass" and made.report["library_calls"] <= 1
    assert made.report["cuda_graph"]
    return made


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("kind, options", KINDS)
@torch.no_grad()
def test_layers_are_pytorchs_in_every_call(
    kind: str, options: dict[str, Any], tf32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    torch.manual_seed(0)
    model = getattr(torch.nn, kind)(32, 72, **options).cuda()
    reference = copy.deepcopy(model)
    shape = (10, 100, 32) if options.get("batch_first") else (100, 10, 32)
    made = made_of(model, torch.randn(shape, device="cuda"))
    close = {"rtol": 2e-3, "atol": 2e-3} if tf32 else {"rtol": 1e-5, "atol": 1e-5}
    for _ in range(5):
        x = torch.randn(shape, device="cuda")
        torch.testing.assert_close(made(x), reference(x), **close)


@torch.no_grad()
def test_what_a_graph_draws_is_what_eager_does() -> None:
    model = Draws().cuda()
    reference = copy.deepcopy(model)
    x = torch.randn(100, 10, 32, device="cuda")
    made = made_of(model, x)
    for seed in (1, 2):
        torch.cuda.manual_seed(seed)
        found = [made(x) for _ in range(5)]
        after = torch.randn(4, device="cuda")
        torch.cuda.manual_seed(seed)
        for one in found:
            torch.testing.assert_close(one, reference(x), rtol=2e-3, atol=2e-3)
        assert torch.equal(after, torch.randn(4, device="cuda"))
