"""Views that PyTorch's tracing takes for copies, and views that count from where their tensor's memory begins."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kernelwright

BASE = torch.arange(48.0).reshape(4, 12)
ATEN = torch.ops.aten


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def compiled(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    module = Calls(function).eval()
    return module, kernelwright.optimize(module, tensors)


ALIASES = {
    "dropout in evaluation": lambda x: F.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: F.dropout(input=x, p=0.0),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, False),
    "aten.dropout": lambda x: ATEN.dropout.default(x, 0.5, False),
    "nn.Dropout": nn.Dropout().eval(),
    "lift_fresh": lambda x: ATEN.lift_fresh(x),
}


@pytest.mark.parametrize("name", ALIASES)
def test_what_returns_its_argument_keeps_the_strides(name: str) -> None:
    x = BASE[:, ::2]
    module, made = compiled(ALIASES[name], x)
    assert made(x).stride() == module(x).stride() == (12, 2)
    torch.testing.assert_close(made(x), module(x))


@pytest.mark.parametrize("name", ALIASES)
def test_writing_to_it_reaches_the_argument(name: str) -> None:
    function = ALIASES[name]

    def forward(x: torch.Tensor) -> torch.Tensor:
        function(x).add_(1)
        return x * 2

    module, made = compiled(forward, BASE.clone())
    ours, theirs = BASE.clone(), BASE.clone()
    torch.testing.assert_close(made(ours), module(theirs))
    torch.testing.assert_close(ours, theirs)


def test_dropout_in_training_draws() -> None:
    module, made = compiled(lambda x: F.dropout(x, 0.5) + 1, BASE[:, ::2])
    torch.manual_seed(3)
    ours = made(BASE[:, ::2])
    torch.manual_seed(3)
    torch.testing.assert_close(ours, module(BASE[:, ::2]))


def test_copy_keeps_gaps_between_elements() -> None:
    x, y = BASE[:, ::2], torch.randn(4, 6)
    module, made = compiled(lambda x, y: ATEN.copy(x, y), x, y)
    assert made(x, y).stride() == module(x, y).stride() == (12, 2)
    torch.testing.assert_close(made(x, y), y)


WINDOWS = {
    "from the memory's beginning": lambda x: x.as_strided((2, 2), (2, 1), 0) * 2,
    "from where the tensor begins": lambda x: x.as_strided((2, 2), (2, 1)),
    "asked for": lambda x: x.as_strided((2, 2), (2, 1), x.storage_offset()) + 1,
    "of a part": lambda x: x[1:].as_strided((2, 2), (2, 1), 3) + 1,
    "of a result": lambda x: (x * 2)[1:].as_strided((2, 2), (2, 1), 0) + 1,
}
PLACES = {"whole": BASE.clone(), "rows of a larger one": BASE[1:3], "with gaps": BASE[1:, 1::2]}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("window", WINDOWS)
def test_as_strided_of_a_part_of_memory(window: str, place: str) -> None:
    x = PLACES[place]
    module, made = compiled(WINDOWS[window], x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(made(x), module(x))


def test_a_tensor_that_begins_elsewhere_runs_in_the_original() -> None:
    module, made = compiled(WINDOWS["from the memory's beginning"], BASE[1:3])
    with pytest.warns(UserWarning, match="does not begin at element 12 of its memory"):
        torch.testing.assert_close(made(BASE[2:4]), module(BASE[2:4]))
