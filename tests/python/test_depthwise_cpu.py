"""Depthwise convolutions as C++ kernels of ours: what PyTorch computes, next to borders and numbers that are not finite
too, and planned where the model has them faster.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from case_checks import as_one_group, load
from contraction_cases import Case
from convolution_cases import conv, interpreted, padded, transposed
from depthwise_cases import CASES as GPU_CASES
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export

Tensor = torch.Tensor


def _two(name: str, taps: int | tuple[int, int], image: tuple[int, int] = (9, 11), **options: Any) -> Case:
    taps = (taps, taps) if isinstance(taps, int) else taps
    return Case(name, conv(groups=6, **options), ((2, 6, *image), (6, 1, *taps), (6,)))


def _normed(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.hardswish(F.conv2d(x, w, padding=1, groups=6) * scale[:, None, None] + shift[:, None, None])


CASES = [case for case in GPU_CASES if case.dtype == torch.float32 and case.name != "channels_last"] + [
    _two("long_rows", 3, (5, 41), padding=1),
    _two("long_rows_of_five", 5, (6, 40), padding=2),
    _two("long_strided_rows", 3, (9, 83), padding=1, stride=2),
    _two("long_strided_rows_of_five", 5, (7, 75), padding=2, stride=2),
    _two("stride_three", 5, (14, 13), padding=2, stride=3),
    _two("stride_of_more_than_taps", 2, (14, 13), stride=4),
    _two("stride_and_dilation", 4, (15, 16), padding=(3, 1), stride=(3, 2), dilation=(2, 3)),
    Case("one_place", conv(groups=12, padding=1), ((2, 12, 1, 1), (12, 1, 3, 3), (12,))),
    _two("one_result", 5, (5, 5)),
    _two("one_column", 3, (40, 1), padding=1),
    _two("one_tap", 1, (7, 7)),
    _two("padding_beyond_the_taps", 3, (4, 40), padding=(6, 5)),
    _two("padding_on_one_side", (4, 2), padding="same"),
    _two("part_of_the_image", 3, (12, 12), stride=5),
    Case("three_filters", conv(groups=5, padding=2, stride=2), ((3, 5, 14, 13), (15, 1, 5, 5), (15,))),
    Case("one_channel", conv(padding=1), ((2, 1, 9, 11), (4, 1, 3, 3), (4,))),
    Case("one_sample_and_channel", conv(padding=1), ((1, 1, 9, 11), (1, 1, 3, 3))),
    Case("one_dimension_strided", conv(groups=6, padding=3, stride=2, dilation=2), ((2, 6, 41), (6, 1, 4), (6,))),
    Case("one_dimension_by_four", conv(groups=6, stride=4), ((2, 6, 41), (6, 1, 3))),
    Case("volume_of_five", conv(groups=3, padding=2), ((2, 3, 5, 6, 7), (3, 1, 5, 5, 5), (3,))),
    Case("long_volume", conv(groups=3, padding=(0, 1, 1), stride=2), ((1, 3, 5, 6, 70), (3, 1, 2, 3, 3))),
    Case("normed", _normed, ((2, 6, 9, 12), (6, 1, 3, 3), (6,), (6,))),
    Case("reflected", padded("reflect", 1, 1, 1, 1, groups=6), ((2, 6, 9, 12), (6, 1, 3, 3), (6,))),
    Case("round", padded("circular", 2, 2, 2, 2, groups=6, stride=2), ((2, 6, 9, 12), (6, 1, 5, 5), (6,))),
    Case("transposed_of_five", transposed(groups=6, padding=1), ((2, 6, 7, 6), (6, 1, 5, 5), (6,))),
    Case("transposed_cropped", transposed(groups=6, padding=4), ((2, 6, 9, 8), (6, 1, 3, 3), (6,))),
    Case("transposed_by_three", transposed(groups=6, stride=3, padding=(2, 1)), ((2, 6, 5, 6), (6, 1, 5, 4), (6,))),
    Case("transposed_less_than_a_stride", transposed(groups=6, stride=(2, 4)), ((2, 6, 7, 6), (6, 1, 1, 2), (6,))),
    Case(
        "transposed_dilated",
        transposed(groups=6, stride=2, padding=1, dilation=2, output_padding=1),
        ((2, 6, 4, 5), (6, 1, 3, 3)),
    ),
    Case("transposed_volume", transposed(groups=3, stride=2), ((1, 3, 2, 3, 4), (3, 1, 2, 3, 3), (3,))),
]


def emitted(function: Callable[..., Any], arguments: list[Tensor]) -> str:
    made = as_one_group(Wrapped(function), arguments, "convolution", {}, target="cpu")
    assert made["library_ops"] == []
    return made["source"]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_depthwise_convolutions_are_pytorchs(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(emitted(case.function, case.arguments()))
    found = interpreted({"candidate": str(path), "case": case.name, "exact": True}, CASES)
    assert not found, found
    arguments = case.arguments()
    result = load(path.read_text()).ModelNew(Wrapped(case.function))(*arguments)
    assert result.stride() == case.function(*arguments).stride()


@pytest.mark.parametrize("taps, stride", [(3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize("side", [9, 40])
@pytest.mark.parametrize("size", [math.inf, -math.inf, math.nan], ids=str)
def test_what_is_not_finite_reaches_its_windows_alone(size: float, side: int, taps: int, stride: int) -> None:
    """At corners, borders and inside: neither zeros around the image nor what lies between rows makes a NaN of it."""
    torch.manual_seed(0)

    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=taps // 2, stride=stride, groups=3)

    x, w = torch.randn(2, 3, side, side), torch.randn(3, 1, taps, taps)
    for row, column in ((0, 0), (0, side - 1), (side - 1, 0), (side - 1, side - 1), (0, 4), (4, 0), (5, side - 1)):
        x[row % 2, column % 3, row, column] = size
    result = load(emitted(function, [x, w])).ModelNew(Wrapped(function))(x, w)
    right = function(x.double(), w.double())
    assert result.isfinite().any()
    torch.testing.assert_close(result.double(), right, rtol=1e-5, atol=1e-5, equal_nan=True)


def schedulers(module: torch.nn.Module, *shape: int, **options: Any) -> list[str]:
    x = torch.empty(shape, dtype=next(module.parameters()).dtype).contiguous(**options)
    made = library.compile_graph(export.export_module(module.eval(), (x,)), "cpu")
    return [group["scheduler"] for group in made["schedule"]["groups"]]


def depthwise(channels: int, taps: int = 3, **options: Any) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(channels, channels, taps, padding=taps // 2, groups=channels, **options)


OURS: dict[str, tuple[torch.nn.Module, tuple[int, ...]]] = {
    "large": (depthwise(32), (1, 32, 112, 112)),
    "batch": (depthwise(144), (16, 144, 56, 56)),
    "middle": (depthwise(192), (4, 192, 28, 28)),
    "small": (depthwise(960), (1, 960, 7, 7)),
    "strided": (depthwise(240, stride=2), (1, 240, 28, 28)),
    "five_strided": (depthwise(240, 5, stride=2), (1, 240, 28, 28)),
    "five": (depthwise(480, 5), (1, 480, 14, 14)),
}


@pytest.mark.parametrize("name", OURS)
def test_is_ours(name: str) -> None:
    module, shape = OURS[name]
    assert schedulers(module, *shape) == ["convolution"]


def test_what_follows_is_in_the_same_group() -> None:
    unit = torch.nn.Sequential(depthwise(144), torch.nn.BatchNorm2d(144), torch.nn.ReLU6())
    assert schedulers(unit, 1, 144, 56, 56) == ["convolution"]


LEFT_TO_PYTORCH: dict[str, tuple[torch.nn.Module, tuple[int, ...]]] = {
    "strided_in_memory": (depthwise(240, stride=2), (16, 240, 28, 28)),
    "five_in_memory": (depthwise(960, 5), (16, 960, 7, 7)),
    "no_samples": (depthwise(32), (0, 32, 28, 28)),
    "many_taps": (depthwise(32, 13), (1, 32, 56, 56)),
    "double": (depthwise(32).double(), (1, 32, 112, 112)),
    "halves": (depthwise(32).bfloat16(), (1, 32, 112, 112)),
}


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_stays_the_librarys(name: str) -> None:
    module, shape = LEFT_TO_PYTORCH[name]
    assert "convolution" not in schedulers(module, *shape)


def test_channels_last_stays_the_librarys() -> None:
    assert schedulers(depthwise(32), 1, 32, 112, 112, memory_format=torch.channels_last) == ["extern"]
    unit = torch.nn.Sequential(depthwise(32), torch.nn.Hardswish()).eval()
    x = torch.randn(2, 32, 40, 40).contiguous(memory_format=torch.channels_last)
    made = library.compile_graph(export.export_module(unit, (x,)), "cpu")
    with torch.no_grad():
        result = load(made["source"]).ModelNew(unit)(x)
    torch.testing.assert_close(result, unit(x))
    assert result.stride() == unit(x).stride()
