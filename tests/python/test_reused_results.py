"""Kernels on the CPU that write where a product or convolution lies which nothing reads afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from test_emitted_modes import load
from torch import nn

from kernelwright import library
from kernelwright.capture import export

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(8, 24, generator=GENERATOR)
WEIGHT = torch.randn(24, 24, generator=GENERATOR) / 5
WIDE = torch.randn(300, 16, generator=GENERATOR) / 5
IMAGE = torch.randn(2, 3, 9, 9, generator=GENERATOR)
FILTERS = torch.randn(4, 3, 3, 3, generator=GENERATOR) / 5


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ WEIGHT


def kept(x: torch.Tensor) -> Any:
    made = x @ WEIGHT
    return F.relu(made) * 2, made


def read_later(x: torch.Tensor) -> torch.Tensor:
    made = x @ WEIGHT
    return (F.relu(made) * 2) @ WEIGHT + made


def viewed(x: torch.Tensor) -> Any:
    made = x @ WEIGHT
    return F.relu(made) * 2, made[2:5]


def two_products(x: torch.Tensor) -> torch.Tensor:
    return (x @ WEIGHT) * torch.sigmoid(F.linear(x, WEIGHT))


def chained(x: torch.Tensor) -> torch.Tensor:
    """Wider at one end than two products that are one kernel."""
    return torch.tanh(torch.tanh(torch.tanh(x @ WIDE) @ WEIGHT[:16, :16]) @ WIDE.mT)


# What forward computes, of what, and how many kernels' results lie where a library's lay.
CASES: dict[str, tuple[Callable[..., Any], torch.Tensor, int]] = {
    "after a product": (lambda x: F.relu(product(x)) * 2, X, 1),
    "after a convolution": (lambda x: F.relu6(F.conv2d(x, FILTERS)), IMAGE, 1),
    "of two, one": (two_products, X, 1),
    "each of several": (chained, WIDE[:, :8].mT, 3),
    "what is returned as well": (kept, X, 0),
    "what is read later": (read_later, X, 1),
    "what a view shows": (viewed, X, 0),
    "moved elements": (lambda x: product(x).flip(1) * 2, X, 0),
    "transposed": (lambda x: F.relu(product(F.pad(x, (0, 0, 0, 16)))).t().contiguous() + 1, X, 0),
    "neighbours": (lambda x: product(x)[:, 1:] - product(x)[:, :-1], X, 0),
    "rows": (lambda x: torch.softmax(product(x), -1), X, 0),
    "another type": (lambda x: product(x).double() * 2, X, 0),
    "a view of the input": (lambda x: torch.einsum("ij->ji", x) * 2, X, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_results_in_place(name: str, tmp_path: Path) -> None:
    function, x, count = CASES[name]
    module = Wrapped(function)
    source = library.compile_graph(export.export_module(module, (x,)), "cpu")["source"]
    body = source.partition("def kernel_forward")[2].partition("EXPECTED")[0]
    lines = [line.split(" = ") for line in body.splitlines() if " = " in line]
    assert sum(len(parts) == 2 and parts[1].isidentifier() for parts in lines) == count, body
    before = x.clone()
    with torch.no_grad():
        made = load(source, tmp_path).ModelNew(module)
        first, second, expected = made(x), made(x), module(x)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, expected)
    assert torch.equal(x, before)
