"""What modules in evaluation mode make of their weights alone, on a GPU and where a CUDA graph reads it."""

from __future__ import annotations

import copy
import warnings

import kernelwright
import pytest
import torch
from kernelwright import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(64, 128, 3, padding=1)
        self.linear = torch.nn.Linear(4096, 2048)

    def forward(self, image: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.convolution(image)), torch.sigmoid(self.linear(rows))


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(32, 64, 64, 64, device="cuda"), torch.randn(2048, 4096, device="cuda")


@pytest.mark.parametrize("graphs", ["on", "off"])
@torch.no_grad()
def test_what_is_kept_follows_the_weights(graphs: str) -> None:
    model = Net().cuda().eval()
    reference = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api.UnverifiedKernelsWarning)
        made = kernelwright.optimize(
            model, list(inputs()), target="triton", graphs=graphs, unverified_kernels_may_be_wrong=True
        )
    names = type(made).forward.__globals__
    times = 0
    prepare = names["prepared_weights"]

    def counted(*weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal times
        times += 1
        return prepare(*weights)

    names["prepared_weights"] = counted
    for change in range(3):
        for part in (made.module, reference):
            with torch.random.fork_rng(devices=["cuda"]):
                torch.manual_seed(change)
                for weight in part.parameters():
                    weight.copy_(torch.randn_like(weight) / 16)
        for _ in range(5):
            given = inputs()
            for mine, theirs in zip(made(*given), reference(*given), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    assert times == 3


@torch.no_grad()
def test_each_stream_has_its_own() -> None:
    model = Net().cuda().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api.UnverifiedKernelsWarning)
        made = kernelwright.optimize(
            model, list(inputs()), target="triton", graphs="off", unverified_kernels_may_be_wrong=True
        )
    given = inputs()
    expected = made(*given)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        results = made(*given)
    torch.cuda.synchronize()
    for mine, theirs in zip(results, expected, strict=True):
        assert torch.equal(mine, theirs)
    assert len(type(made).forward.__globals__["KEPT_WEIGHTS"][made].made) == 2
