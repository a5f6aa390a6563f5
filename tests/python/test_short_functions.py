"""Functions with few instructions, where what they are applied to has eleven digits."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest
import short_function_cases as cases
import torch
import torch.nn.functional as F
from case_checks import as_one_group, compile_for_gpu, interpreter_of
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

interpreter = interpreter_of("short_function_cases:interpreted")

SHORT = {"tanh": "short_tanh(", "gelu": "1.0 + short_erf(", "mish": "libdevice.fast_dividef("}
SIGMOID = "libdevice.fast_dividef(1.0, 1.0 + tl.exp2("


def _emit(function: Callable[..., torch.Tensor], scheme: int) -> str:
    parameters = {"block_m": 16, "block_n": 64, "block_k": 16, "stages": 2, "num_warps": 4, "scheme": scheme}
    source: str = as_one_group(Wrapped(function), cases.arguments(), "convolution", parameters)["source"]
    return source


@pytest.mark.parametrize("name", cases.FUNCTIONS)
def test_they_are_nearly_as_exact(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    source = _emit(cases.activated(name), scheme=0)
    assert SHORT.get(name, SIGMOID) in source
    path = tmp_path / "candidate.py"
    path.write_text(source)
    fault = interpreter.fault(candidate=str(path), name=name)
    assert not fault, fault


@pytest.mark.parametrize("name", cases.FUNCTIONS)
def test_exact_products_have_the_precise_ones(name: str) -> None:
    assert SHORT.get(name, SIGMOID) not in _emit(cases.activated(name), scheme=1)


def test_where_nothing_is_added_erf_is_precise() -> None:
    assert "short_erf" not in _emit(lambda x, w: torch.erf(F.conv2d(x, w)) * 2.0, scheme=0)


def _of_sums(x: torch.Tensor, w: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.cumsum(F.conv2d(x, w), -1) + shift)


@pytest.mark.parametrize("rows", [1, cases.ROWS])
def test_later_kernels_have_them_unless_something_exact_of_that_size_enters(rows: int) -> None:
    image, filters = cases.arguments()
    shift = torch.zeros(1, cases.CHANNELS, rows, cases.COLUMNS if rows > 1 else 1)
    emitted = compile_for_gpu(Wrapped(_of_sums), image, filters, shift)
    assert emitted["schedule"]["groups"][-1]["scheduler"] == "scan"
    assert ("short_tanh(" in emitted["source"]) == (rows == 1)


def test_what_pytorch_does_not_round_has_the_precise_ones_everywhere() -> None:
    image, filters = cases.arguments()
    shift = torch.zeros(1, cases.CHANNELS, 1, 1)
    emitted = compile_for_gpu(Wrapped(_of_sums), image, filters, shift, caution="exact-products")
    assert "short_tanh(" not in emitted["source"]
    graph_of_depthwise = compile_for_gpu(Wrapped(_of_depthwise), image, filters[:, :1], shift)
    assert "short_tanh(" not in graph_of_depthwise["source"]


def _of_depthwise(x: torch.Tensor, w: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.cumsum(F.conv2d(x, w, groups=cases.CHANNELS), -1) + shift)
