"""Pooling and unfolding as the planner's own kernels: values, the positions of ties and NaN, and what fuses with them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

from test_plan_semantics import check, randn

Tensor = torch.Tensor


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(torch.relu(x) * 2, 3, 2, 1),
        lambda x: torch.tanh(F.avg_pool2d(x, 3, 2, 1) + 1) * 0.5,
        lambda x: F.lp_pool2d(x, 2.0, 3, 2),
        lambda x: F.adaptive_avg_pool2d(x, (4, 2)),
        lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True),
        lambda x: F.adaptive_avg_pool2d(torch.relu(x), (5, 3)) * 2,
        lambda x: F.adaptive_max_pool2d(x, (7, 20), return_indices=True),
        lambda x: x + F.avg_pool2d(x, 3, 1, 1),
        lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1)),
        lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 1), stride=(2, 1)) * 2,
        lambda x: F.unfold(F.pad(x, (1, 0, 2, 0)), 2),
    ],
)
def test_one_kernel(function: Callable[[Tensor], object], tmp_path: Path) -> None:
    check(function, randn(2, 4, 12, 14), tmp_path=tmp_path, launches=1)


def test_channels_last(tmp_path: Path) -> None:
    x = randn(2, 4, 9, 10).to(memory_format=torch.channels_last)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, tmp_path=tmp_path)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf, 0.0])
def test_positions_of_equals(special: float, tmp_path: Path) -> None:
    """PyTorch keeps the first of equal elements and the last of several NaN; a window of −∞ alone has its first
    element's place.
    """
    x = torch.randint(-1, 2, (2, 3, 7, 8)).float()
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.4] = special
    x[0, 0] = special
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, tmp_path=tmp_path)
    check(lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True), x, tmp_path=tmp_path)


@pytest.mark.parametrize(
    "pool, shape, several",
    [
        (lambda x: F.max_pool2d(torch.relu(x), 3, 1, 1), (2, 2, 37, 64), {"rows=4", "columns=4"}),
        (lambda x: F.avg_pool2d(x, 2, 1), (1, 2, 62, 60), {"rows=2", "columns=4"}),
        (lambda x: F.avg_pool3d(x * 2, 3, 2, 1, count_include_pad=False), (1, 4, 17, 33, 64), {"rows=8", "slices=2"}),
    ],
    ids=["rows", "columns", "slices"],
)
def test_several_results_in_one_program(pool: Any, shape: tuple[int, ...], several: set[str], tmp_path: Path) -> None:
    """Windows that overlap are computed several at a time where the device has many: the last rows, slices and columns
    of results are not full.
    """
    text = check(pool, randn(*shape), tmp_path=tmp_path, launches=1, multiprocessors=1)
    assert several <= set(text.split()), text


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_that_reach_beyond_both_ends(ceil_mode: bool, tmp_path: Path) -> None:
    x = randn(1, 2, 1, 5)
    check(lambda x: F.max_pool2d(x, 5, 2, 2, 1, ceil_mode), x, tmp_path=tmp_path)
    check(lambda x: F.avg_pool2d(x, 5, 3, 2, ceil_mode, count_include_pad=False), x, tmp_path=tmp_path)
    check(lambda x: F.avg_pool2d(x, (1, 2), 3, 0, ceil_mode), x, tmp_path=tmp_path)


@pytest.mark.parametrize("special", [math.nan, -math.inf])
def test_positions_in_windows_of_uneven_sizes(special: float, tmp_path: Path) -> None:
    x = torch.randint(-1, 2, (2, 3, 7, 11)).float()
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.4] = special
    x[0, 0] = special
    for size in ((3, 4), (5, 2), (7, 13), (1, 4)):
        check(lambda x, size=size: F.adaptive_max_pool2d(x, size, return_indices=True), x, tmp_path=tmp_path)
    check(lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), x[0], tmp_path=tmp_path)
    check(lambda x: F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True), x, tmp_path=tmp_path)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 13, 64])
def test_uneven_windows_of_every_count(length: int, tmp_path: Path) -> None:
    check(lambda x: [F.adaptive_avg_pool1d(x, count) for count in range(1, 9)], randn(2, 3, length), tmp_path=tmp_path)


def test_windows_that_step_over_the_input_are_the_librarys(tmp_path: Path) -> None:
    check(
        lambda x: F.max_pool2d(x, 2, 1, 1, 3, return_indices=True),
        randn(1, 2, 2, 2),
        tmp_path=tmp_path,
        library_calls=1,
    )


def test_costly_producers_of_many_windows_are_stored(tmp_path: Path) -> None:
    check(lambda x: F.max_pool2d(F.mish(x), 5, 1, 2), randn(1, 2, 8, 9), tmp_path=tmp_path, launches=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_windows_that_start_where_random_numbers_say(dtype: torch.dtype, tmp_path: Path) -> None:
    """In PyTorch's own arithmetic: a start that is one off shows at once in the positions."""
    samples = torch.rand(10, 3, 3, generator=torch.Generator().manual_seed(7)).to(dtype)
    x = randn(10, 3, 97, 41, dtype=dtype)
    for size in ((1, 1), (2, 7), (60, 39), (95, 20)):
        check(
            lambda x, s, size=size: torch.ops.aten.fractional_max_pool2d(x, [3, 2], size, s),
            x,
            samples[..., :2].contiguous(),
            tmp_path=tmp_path,
            launches=1,
        )
    boxes = randn(10, 3, 41, 8, 12, dtype=dtype)
    check(
        lambda x, s: torch.ops.aten.fractional_max_pool3d(torch.relu(x), [2, 1, 3], [9, 6, 5], s),
        boxes,
        samples * 9 - 4,
        tmp_path=tmp_path,
        launches=1,
    )


@pytest.mark.parametrize("size", [3, 4])
def test_local_response_norm(size: int, tmp_path: Path) -> None:
    check(lambda x: F.local_response_norm(x, size), randn(2, 5, 6, 7), tmp_path=tmp_path)
    check(lambda x: F.local_response_norm(x, size), randn(2, 5, 6), tmp_path=tmp_path)
