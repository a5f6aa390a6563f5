"""Depthwise convolutions whose threads have several rows, and the check of a candidate in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import convolution_cases
import torch
import torch.nn.functional as F
from contraction_cases import Case
from convolution_cases import conv, transposed

Tensor = torch.Tensor


def _residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w, b, padding=1, groups=6) + r) * 0.5


def _of_what_is_made(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(F.relu(x), w, b, padding=1, groups=6)


def _channels_last(drawn: list[Tensor]) -> list[Tensor]:
    return [drawn[0].contiguous(memory_format=torch.channels_last), *drawn[1:]]


def _two(name: str, taps: int | tuple[int, int], image: tuple[int, int] = (9, 11), **options: Any) -> Case:
    taps = (taps, taps) if isinstance(taps, int) else taps
    return Case(name, conv(groups=6, **options), ((2, 6, *image), (6, 1, *taps), (6,)))


CASES = [
    _two("three", 3, padding=1),
    _two("five", 5, padding=2),
    _two("seven", 7, padding=3),
    _two("nine", 9, padding=4),  # more taps than are unrolled
    _two("three_strided", 3, padding=1, stride=2),
    _two("five_strided", 5, (13, 15), padding=2, stride=2),
    _two("seven_strided", 7, (13, 10), padding=3, stride=2),
    _two("three_dilated", 3, padding=2, dilation=2),
    _two("five_strided_dilated", 5, (14, 13), padding=4, stride=2, dilation=2),
    _two("without_padding", 3, (8, 6)),
    _two("wide_padding", 3, (4, 5), padding=4),
    _two("other_strides", 3, (13, 12), padding=(1, 0), stride=(1, 2), dilation=(2, 1)),
    _two("strides_without_shared_rows", 2, (13, 12), stride=(3, 1)),
    _two("columns", (1, 5), padding=(0, 2)),
    _two("rows", (5, 1), padding=(2, 0)),
    _two("one_row", 3, (1, 40), padding=1),
    _two("several_blocks", 3, (21, 33), padding=1),
    Case("two_filters", conv(groups=6, padding=1), ((2, 6, 9, 11), (12, 1, 3, 3), (12,))),
    Case("one_dimension", conv(groups=6, padding=2), ((2, 6, 40), (6, 1, 5), (6,))),
    Case("three_dimensions", conv(groups=3, padding=1), ((2, 3, 4, 7, 6), (3, 1, 3, 3, 3), (3,))),
    Case(
        "three_dimensions_strided",
        conv(groups=3, padding=2, stride=(1, 2, 2), dilation=(1, 1, 2)),
        ((2, 3, 4, 7, 9), (3, 1, 3, 5, 3)),
    ),
    Case("residual", _residual, ((2, 6, 9, 11), (6, 1, 3, 3), (6,), (2, 6, 9, 11))),
    Case("of_what_is_made", _of_what_is_made, ((2, 6, 9, 11), (6, 1, 3, 3), (6,))),
    Case("channels_last", conv(groups=6, padding=1), ((2, 6, 9, 11), (6, 1, 3, 3), (6,)), arrange=_channels_last),
    Case("transposed", transposed(groups=6, padding=1), ((2, 6, 7, 6), (6, 1, 3, 3), (6,))),
    Case("transposed_strided", transposed(groups=6, stride=2, padding=1), ((2, 6, 7, 6), (6, 1, 4, 3), (6,))),
    Case("halves", conv(groups=6, padding=1), ((2, 6, 9, 11), (6, 1, 3, 3), (6,)), dtype=torch.float16),
    Case("bfloat16", conv(groups=6, padding=2), ((2, 6, 9, 11), (6, 1, 5, 5), (6,)), dtype=torch.bfloat16),
]


def interpreted(request: dict[str, Any]) -> str:
    return convolution_cases.interpreted(request, CASES)
