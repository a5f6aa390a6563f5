"""Convolutions with what follows them, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F
from contraction_cases import Case
from convolution_images import PRODUCED, Produced

Tensor = torch.Tensor


def conv(**options: Any) -> Callable[..., Tensor]:
    def function(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim](x, w, b, **options)

    return function


def transposed(**options: Any) -> Callable[..., Tensor]:
    def function(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}[x.ndim](x, w, b, **options)

    return function


def _channels_last(drawn: list[Tensor]) -> list[Tensor]:
    kind = torch.channels_last if drawn[0].ndim == 4 else torch.channels_last_3d
    return [drawn[0].contiguous(memory_format=kind), *drawn[1:]]


def padded(mode: str, *amounts: int, **options: Any) -> Callable[..., Tensor]:
    """What nn.Conv2d and its siblings do of a padding mode."""
    return lambda x, w, b=None: conv(**options)(F.pad(x, amounts, mode=mode), w, b)


def _residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w, b, padding=1) + r) * 0.5


def _transposed_residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.relu(F.conv_transpose2d(x, w, b, stride=2, padding=1) + r) * 0.5


def _by_channel(x: Tensor, w: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    return torch.tanh(F.conv_transpose2d(x, w, b, stride=2, padding=1) * scale[:, None, None] - 1.0)


CASES = [
    Case("plain", conv(), ((2, 5, 9, 11), (18, 5, 3, 3))),
    Case("bias", conv(padding=1), ((2, 5, 9, 11), (18, 5, 3, 3), (18,))),
    Case("many_channels", conv(padding=1), ((2, 35, 6, 5), (18, 35, 3, 3), (18,))),
    Case("channels_of_whole_steps", conv(padding=(1, 0)), ((2, 32, 6, 5), (20, 32, 3, 2), (20,))),
    Case("strided", conv(stride=(2, 3), padding=(2, 1)), ((2, 5, 12, 13), (18, 5, 4, 3))),
    Case("dilated", conv(dilation=(2, 3), padding=2), ((2, 5, 12, 13), (18, 5, 3, 3))),
    Case("groups", conv(groups=2, padding=1), ((2, 6, 7, 6), (36, 3, 3, 3), (36,))),
    Case("one_channel", conv(padding=1), ((2, 1, 9, 11), (18, 1, 3, 3), (18,))),
    Case("depthwise", conv(groups=6, padding=1, stride=2), ((2, 6, 9, 11), (6, 1, 3, 3), (6,))),
    Case("depthwise_of_two", conv(groups=6, dilation=2), ((2, 6, 9, 11), (12, 1, 3, 2))),
    Case("pointwise", conv(), ((2, 20, 9, 7), (18, 20, 1, 1), (18,))),
    Case("as_large_as_the_image", conv(), ((3, 4, 5, 5), (18, 4, 5, 5))),
    Case("one_place_read_of_many", conv(stride=4), ((2, 4, 9, 9), (18, 4, 1, 1))),
    Case("large_image", conv(padding=1), ((2, 4, 20, 20), (18, 4, 3, 3), (18,))),
    Case("one_dimension", conv(padding=3, dilation=2), ((2, 5, 40), (18, 5, 4), (18,))),
    Case("three_dimensions", conv(padding=(1, 0, 1)), ((2, 3, 5, 6, 7), (18, 3, 3, 2, 3), (18,))),
    Case("residual", _residual, ((2, 5, 9, 11), (18, 5, 3, 3), (18,), (2, 18, 9, 11))),
    Case("channels_last", conv(padding=1), ((2, 8, 9, 11), (18, 8, 3, 3), (18,)), arrange=_channels_last),
    Case("transposed", transposed(padding=1), ((2, 5, 7, 6), (5, 18, 3, 3), (18,))),
    Case("transposed_dilated", transposed(dilation=(2, 1)), ((2, 5, 7, 6), (5, 18, 3, 3))),
    Case("transposed_strided", transposed(stride=2), ((2, 5, 7, 6), (5, 18, 3, 3), (18,))),
    Case(
        "transposed_in_all",
        transposed(stride=(3, 2), padding=(2, 1), output_padding=(1, 0)),
        ((2, 5, 5, 6), (5, 18, 5, 4), (18,)),
    ),
    Case("transposed_groups", transposed(stride=2, groups=2), ((2, 6, 5, 6), (6, 18, 3, 3))),
    Case("transposed_many_channels", transposed(stride=2, padding=1), ((2, 48, 5, 4), (48, 18, 3, 3))),
    Case("transposed_depthwise", transposed(stride=2, groups=6), ((2, 6, 3, 4), (6, 1, 3, 3), (6,))),
    Case("transposed_one_dimension", transposed(stride=4, padding=2), ((2, 5, 20), (5, 18, 6), (18,))),
    Case("transposed_three_dimensions", transposed(stride=2), ((2, 3, 2, 3, 2), (3, 18, 2, 3, 3), (18,))),
    Case(
        "transposed_strided_dilated", transposed(stride=2, padding=1, dilation=2), ((2, 5, 4, 5), (5, 18, 3, 3), (18,))
    ),
    Case("transposed_three_phases", transposed(stride=(2, 3), padding=(1, 2)), ((2, 5, 4, 3), (5, 18, 3, 5), (18,))),
    Case(
        "transposed_five_phases_dilated",
        transposed(stride=(5, 3), padding=1, dilation=(2, 4)),
        ((1, 5, 3, 4), (5, 18, 3, 3), (18,)),
    ),
    Case(
        "transposed_few_filters_of_a_group",
        transposed(stride=2, padding=1, output_padding=1, groups=2),
        ((1, 4, 2, 3, 3), (4, 6, 3, 5, 3), (12,)),
    ),
    Case("transposed_first_dimension", transposed(stride=(2, 1)), ((2, 5, 4, 6), (5, 18, 3, 2), (18,))),
    Case("transposed_four_phases", transposed(stride=4, padding=1), ((2, 5, 3, 4), (5, 18, 3, 5), (18,))),
    Case("transposed_less_than_a_stride", transposed(stride=(2, 4)), ((2, 5, 7, 6), (5, 18, 1, 2), (18,))),
    Case("transposed_even_filters", transposed(stride=2, padding=1), ((2, 5, 7, 6), (5, 18, 4, 4), (18,))),
    Case("transposed_wide_padding", transposed(stride=2, padding=3), ((2, 5, 9, 8), (5, 18, 4, 4), (18,))),
    Case("transposed_few_filters_3d", transposed(stride=2, padding=1), ((2, 5, 3, 4, 3), (5, 16, 3, 3, 3), (16,))),
    Case("transposed_residual", _transposed_residual, ((2, 5, 4, 5), (5, 18, 4, 4), (18,), (2, 18, 8, 10))),
    Case("transposed_by_channel", _by_channel, ((2, 5, 5, 4), (5, 18, 4, 4), (18,), (18,))),
    Case("same_size", conv(padding="same", dilation=(2, 1)), ((2, 5, 9, 11), (18, 5, 3, 5), (18,))),
    Case("same_size_of_even_filters", conv(padding="same", dilation=(1, 3)), ((2, 5, 9, 11), (18, 5, 4, 2))),
    Case("filters_larger_than_the_image", conv(padding=(3, 2)), ((2, 5, 3, 2), (18, 5, 7, 6), (18,))),
    Case("image_of_one_place", conv(padding=1), ((2, 12, 1, 1), (18, 12, 3, 3), (18,))),
    Case("transposed_image_of_one_place", transposed(stride=2), ((2, 12, 1, 1), (12, 18, 3, 3), (18,))),
    Case("one_of_everything", conv(padding=1), ((1, 1, 9, 11), (1, 1, 3, 3), (1,))),
    Case("transposed_one_of_everything", transposed(stride=2), ((1, 1, 4, 5), (1, 1, 3, 3), (1,))),
    Case("uneven_groups", conv(groups=3, padding=1), ((2, 15, 5, 6), (57, 5, 3, 3), (57,))),
    Case("groups_larger_than_a_block", conv(groups=2), ((1, 34, 5, 4), (38, 17, 3, 3))),
    Case("transposed_uneven_groups", transposed(stride=2, groups=3), ((1, 15, 3, 4), (15, 7, 3, 3), (21,))),
    Case("channels_last_3d", conv(padding=1), ((2, 4, 3, 4, 5), (18, 4, 3, 3, 3), (18,)), arrange=_channels_last),
    Case(
        "transposed_channels_last",
        transposed(stride=2, padding=1),
        ((2, 8, 5, 4), (8, 18, 3, 3), (18,)),
        arrange=_channels_last,
    ),
    Case(
        "transposed_channels_last_3d", transposed(), ((1, 4, 3, 2, 4), (4, 18, 2, 3, 2), (18,)), arrange=_channels_last
    ),
    Case("halves", conv(padding=1), ((2, 5, 9, 11), (18, 5, 3, 3), (18,)), dtype=torch.float16),
    Case("bfloat16", transposed(stride=2), ((2, 5, 7, 6), (5, 18, 3, 3), (18,)), dtype=torch.bfloat16),
]


# Padding that is not zeros stands in a kernel before the convolution's.
PADDED = [
    Case("reflect", padded("reflect", 1, 2, 2, 1), ((2, 5, 6, 7), (18, 5, 3, 3), (18,))),
    Case("replicate", padded("replicate", 1, 1, 1, 1, 0, 1), ((1, 3, 3, 4, 5), (18, 3, 3, 3, 3), (18,))),
    Case("circular", padded("circular", 3, 2, dilation=2), ((2, 5, 12), (18, 5, 3), (18,))),
]


def _of_largest(bound: Tensor, magnitude: Tensor) -> Tensor:
    return bound.amax(1, keepdim=True)


def _of_logarithm(bound: Tensor, magnitude: Tensor) -> Tensor:
    return bound.amax(1, keepdim=True) + 2.0**-20


def _of_shares(bound: Tensor, magnitude: Tensor) -> Tensor:
    return (2.0 * bound.amax(1, keepdim=True)).clamp(max=1.0).expand_as(bound) + 2.0**-20


@dataclass(frozen=True)
class Fold(Case):
    """A convolution, with what precedes a fold over its channels; the fold, which keeps their dimension; what follows."""

    before: Callable[..., Tensor] = conv()
    fold: Callable[[Tensor], Any] = lambda y: y
    # From bounds on errors before the fold, and from magnitudes there: bounds behind it. What follows adds nothing.
    error: Callable[[Tensor, Tensor], Tensor] = _of_largest


def _fold(
    name: str, before: Callable[..., Tensor], fold: Callable[[Tensor], Any], error: Any, shapes: Any, **options: Any
) -> Fold:
    return Fold(
        name, lambda *arguments: fold(before(*arguments)), shapes, before=before, fold=fold, error=error, **options
    )


def _scaled(x: Tensor, w: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    return F.conv2d(x, w, b, padding=1) * scale[:, None, None]


def _with_itself(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.amax(1, keepdim=True)


def _of_pool(bound: Tensor, magnitude: Tensor) -> Tensor:
    return 2.0 * F.max_pool2d(bound, 2)  # of steeper functions than the identity, too


def _of_large_pool(bound: Tensor, magnitude: Tensor) -> Tensor:
    return F.max_pool2d(bound, 4)


def _of_norm(bound: Tensor, magnitude: Tensor) -> Tensor:
    return 8.0 * bound.amax(-1, keepdim=True).expand_as(bound) + 2.0**-20  # of eight numbers and a variance of over 1


def _row_norm(y: Tensor, *parameters: Tensor) -> Tensor:
    return F.layer_norm(y, y.shape[-1:], *parameters, eps=1.0)


PLANE = ((2, 5, 9, 11), (18, 5, 3, 3), (18,))
POOLED = ((2, 5, 8, 12), (18, 5, 3, 3), (18,))

FOLDS = [
    _fold("amin", conv(padding=1), lambda y: torch.tanh(torch.tanh(y.amin(1, keepdim=True))), _of_largest, PLANE),
    _fold("min", conv(padding=1), lambda y: y.min(dim=1, keepdim=True)[0], _of_largest, PLANE),
    _fold(
        "amax_without_the_dimension",
        conv(stride=2),
        lambda y: y.amax(1),
        lambda bound, magnitude: bound.amax(1),
        ((2, 5, 9, 11), (40, 5, 3, 3)),
    ),
    _fold("amax_of_scaled", _scaled, lambda y: F.relu(y).amax(1, keepdim=True) * 0.5, _of_largest, (*PLANE, (18,))),
    _fold(
        "sum_in_one_dimension",
        conv(padding=2),
        lambda y: (-y).sum(1, keepdim=True),
        lambda bound, magnitude: bound.sum(1, keepdim=True),
        ((2, 5, 40), (18, 5, 4), (18,)),
    ),
    _fold(
        "mean_in_three_dimensions",
        conv(padding=(1, 0, 1)),
        lambda y: torch.sigmoid(y).mean(1, keepdim=True),
        lambda bound, magnitude: bound.mean(1, keepdim=True) + 2.0**-20,
        ((2, 3, 4, 4, 5), (18, 3, 3, 2, 3), (18,)),
    ),
    _fold(
        "logsumexp_of_transposed",
        transposed(stride=2, padding=1),
        lambda y: torch.logsumexp(y, 1, keepdim=True),
        _of_logarithm,
        ((2, 5, 7, 6), (5, 18, 4, 4), (18,)),
    ),
    _fold("amax_of_one_place", conv(), lambda y: y.amax(1, keepdim=True), _of_largest, ((1, 4, 5, 5), (18, 4, 5, 5))),
    _fold("softmax", conv(), lambda y: torch.softmax(y, 1), _of_shares, ((2, 16, 9, 11), (130, 16, 1, 1))),
    _fold(
        "softmax_of_transposed_in_three_dimensions",
        transposed(stride=2),
        lambda y: torch.sigmoid(torch.softmax(y, 1) - 0.5),
        _of_shares,
        ((2, 3, 3, 4, 3), (3, 18, 2, 3, 3), (18,)),
    ),
    _fold(
        "softmax_in_large_image",
        conv(padding=1),
        lambda y: torch.softmax(y, 1),
        _of_shares,
        ((2, 4, 20, 20), (18, 4, 3, 3)),
    ),
    _fold(
        "variance",
        conv(padding=1),
        lambda y: y.var(1, keepdim=True),
        lambda bound, magnitude: 4.0 * bound.amax(1, keepdim=True) * magnitude.amax(1, keepdim=True),
        PLANE,
    ),
    _fold(
        "amax_of_what_is_read_too",
        conv(padding=1),
        _with_itself,
        lambda bound, magnitude: (bound, bound.amax(1, keepdim=True)),
        PLANE,
    ),
    _fold(
        "amax_of_channels_last", conv(), lambda y: y.amax(1, keepdim=True), _of_largest, PLANE, arrange=_channels_last
    ),
    _fold("max_pool", conv(padding=1), lambda y: F.max_pool2d(F.hardswish(y - 0.5), 2), _of_pool, POOLED),
    _fold(
        "max_pool_of_rows_and_what_follows",
        conv(),
        lambda y: torch.tanh(F.max_pool2d(y, (2, 1)) * 2.0),
        lambda bound, magnitude: 2.0 * F.max_pool2d(bound, (2, 1)) + 2.0**-20,
        ((2, 5, 10, 11), (18, 5, 3, 3), (18,)),
    ),
    _fold(
        "average_pool",
        conv(padding=1),
        lambda y: F.avg_pool2d(torch.tanh(y - 0.5) - 0.2, 2),
        lambda bound, magnitude: F.avg_pool2d(bound, 2) + 2.0**-20,
        POOLED,
    ),
    _fold("pool_with_a_border", conv(), lambda y: F.max_pool2d(y, 4), _of_large_pool, ((2, 5, 13, 15), (18, 5, 3, 3))),
    _fold(
        "pool_of_one_sample", conv(padding=1), lambda y: F.max_pool2d(y, 2), _of_pool, ((1, 4, 20, 24), (18, 4, 3, 3))
    ),
    _fold(
        "pool_in_one_dimension",
        conv(),
        lambda y: F.max_pool1d(y, 8) + 1.0,
        lambda bound, magnitude: F.max_pool1d(bound, 8),
        ((3, 5, 60), (18, 5, 4), (18,)),
    ),
    _fold(
        "pool_in_three_dimensions",
        conv(padding=1),
        lambda y: F.max_pool3d(y, 2),
        lambda bound, magnitude: F.max_pool3d(bound, 2),
        ((2, 3, 4, 6, 5), (18, 3, 3, 3, 3), (18,)),
    ),
    _fold(
        "pool_of_transposed",
        transposed(padding=1),
        lambda y: F.hardtanh(F.max_pool2d(y, 2)),
        _of_pool,
        ((2, 5, 8, 6), (5, 18, 3, 3), (18,)),
    ),
    _fold(
        "pool_of_phases",
        transposed(stride=2, padding=1),
        lambda y: F.hardtanh(F.max_pool2d(F.hardswish(y - 0.5), 2)),
        _of_pool,
        ((2, 5, 4, 6), (5, 18, 3, 3), (18,)),  # 7 by 11: the last phase is in no window
    ),
    _fold(
        "average_of_phases_in_three_dimensions",
        transposed(stride=2),
        lambda y: F.avg_pool3d(torch.tanh(y), 2) + 1.0,
        lambda bound, magnitude: F.avg_pool3d(bound, 2) + 2.0**-20,
        ((2, 3, 2, 3, 2), (3, 18, 2, 3, 3), (18,)),
    ),
    _fold(
        "pool_of_phases_and_places",
        transposed(stride=2),
        lambda y: F.max_pool2d(y, 4) * 0.5,
        _of_large_pool,
        ((2, 5, 4, 5), (5, 18, 3, 3), (18,)),
    ),
    _fold(
        "pool_of_phases_beside_places",
        transposed(stride=(2, 1)),
        lambda y: F.max_pool2d(y, 2),
        _of_pool,
        ((2, 5, 4, 6), (5, 18, 3, 2), (18,)),
    ),
    _fold(
        "pool_of_phases_of_two_places",
        transposed(stride=2, padding=1),
        lambda y: F.max_pool2d(y, 2),
        _of_pool,
        ((2, 5, 4, 6), (5, 18, 4, 4), (18,)),
    ),
    _fold(
        "pool_of_the_last_dimensions_phases",
        transposed(stride=2, padding=1),
        lambda y: F.max_pool2d(y, (1, 2)),
        lambda bound, magnitude: F.max_pool2d(bound, (1, 2)),
        ((2, 5, 4, 6), (5, 18, 4, 4), (18,)),
    ),
    _fold("norm_of_rows", conv(padding=1), _row_norm, _of_norm, ((2, 5, 6, 8), (18, 5, 3, 3), (18,))),
    _fold(
        "norm_of_rows_of_phases",
        transposed(stride=2, padding=1, output_padding=1),
        lambda y: F.gelu(_row_norm(y - 0.5)) * 0.5,
        _of_norm,
        ((2, 5, 3, 4), (5, 18, 3, 3), (18,)),
    ),
    _fold(
        "norm_of_rows_of_phases_in_three_dimensions",
        transposed(stride=2, padding=1),
        _row_norm,
        _of_norm,
        ((2, 3, 2, 3, 4), (3, 18, 4, 4, 4), (18,)),
    ),
    _fold(
        "norm_of_rows_of_four_phases",
        transposed(stride=4),
        _row_norm,
        _of_norm,
        ((3, 5, 2), (5, 18, 4), (18,)),
    ),
    _fold("pool_of_groups", conv(groups=2), lambda y: F.max_pool2d(y, 2), _of_pool, ((2, 6, 8, 8), (36, 3, 3, 3))),
    _fold("amin_of_halves", conv(), lambda y: y.amin(1, keepdim=True), _of_largest, PLANE, dtype=torch.float16),
    _fold("softmax_of_bfloat16", conv(), lambda y: torch.softmax(y, 1), _of_shares, PLANE, dtype=torch.bfloat16),
]


# Phases of the outer dimensions that lack some taps of the window, and how many of them no rows of the product are.
LACK_TAPS = {
    Case("apart", transposed(stride=2, padding=1), ((1, 32, 3, 4), (32, 36, 3, 3), (36,))): 2,
    Case("apart_in_three_dimensions", transposed(stride=2), ((1, 32, 2, 3, 2), (32, 70, 3, 3, 3), (70,))): 4,
    Case("apart_dilated", transposed(stride=(3, 2), dilation=(2, 1)), ((1, 32, 3, 3), (32, 36, 3, 3), (36,))): 3,
    Case("apart_three_phases", transposed(stride=(3, 2)), ((1, 32, 3, 3), (32, 36, 4, 3), (36,))): 3,
    _fold(
        "apart_norm_of_rows",
        transposed(stride=2, padding=1, output_padding=1),
        _row_norm,
        _of_norm,
        ((1, 32, 3, 4), (32, 36, 3, 3), (36,)),
    ): 2,
    _fold(
        "apart_softmax",
        transposed(stride=2, padding=1),
        lambda y: torch.softmax(y, 1),
        _of_shares,
        ((1, 32, 3, 4), (32, 70, 3, 3), (70,)),
    ): 2,
}


def strewn(arguments: list[Tensor], which: int = 1) -> list[Tensor]:
    """Samples and filters of every magnitude, infinities and NaN, and numbers far from all others. `which`: the
    filters."""
    image, filters = arguments[0].clone(), arguments[which].clone()
    if image.dtype == torch.float32:
        filters[:, 0] *= 2.0**-40  # of a transposed one: of one channel, or filter
        filters[1:2] *= 2.0**60
        flat = image[0].flatten(1)
        flat[0, : flat.shape[1] // 3] *= 2.0**-70
        flat[-1, 0] = 2.0**50
        image[1:2] *= 2.0**-100
    for sample, place, value in ((-1, 7, float("inf")), (-1, -9, float("nan")), (0, 0, -float("inf"))):
        image[sample].put_(torch.tensor([place]), torch.tensor([value], dtype=image.dtype))
    changed = [image, *arguments[1:]]
    changed[which] = filters
    return changed


def _fault(actual: Tensor, eager: Tensor, exact: Tensor, bound: Tensor) -> str:
    if actual.shape != eager.shape or actual.dtype != eager.dtype or actual.stride() != eager.stride():
        return f"{actual.shape} {actual.dtype} {actual.stride()}, but eager's is {eager.shape} {eager.stride()}"
    if not torch.equal(actual.isnan(), exact.isnan()):
        return f"NaN in {int((actual.isnan() != exact.isnan()).sum())} other places than the reference's"
    infinite = exact.isinf() | actual.isinf()
    if not torch.equal(actual[infinite].double(), exact[infinite].to(eager.dtype).double()):
        return "infinities differ from the reference's"
    error = (actual.double() - exact).abs().where(torch.isfinite(exact), 0.0)
    return f"error {float((error / bound).max()):.3g} of what is allowed" if bool((error > bound).any()) else ""


def interpreted(request: dict[str, Any], cases: list[Any] = CASES + FOLDS + PRODUCED + PADDED + [*LACK_TAPS]) -> str:
    """In the interpreter's process: a candidate's results on drawn and on strewn arguments, held to a share of the sum
    of the products' magnitudes: of halves' 11 digits, or of single precision's 24; where halves hold no more, of the
    largest that a sample and a filter could make."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in cases if one.name == request["case"])
    ours = module.ModelNew(torch.nn.Module())
    digits = 2.0**-21 if request["exact"] and case.dtype == torch.float32 else 2.0**-10
    for draw in ("drawn", "strewn", "one filter") if isinstance(case, Fold) else ("drawn", "strewn"):
        arguments = case.arguments()
        if draw == "one filter":
            arguments[1] = arguments[1].clone()
            arguments[1].flatten()[:2] *= 2.0**-36  # so small that halves lose digits
        if draw == "strewn":
            which = len(arguments) - 1 if isinstance(case, Produced) else 1
            arguments = [new.clone(memory_format=torch.preserve_format) for new in strewn(arguments, which)]
        if fault := fault_of_results(case, ours, arguments, digits):
            return f"{draw}: {fault}"
    return ""


def fault_of_results(
    case: Any, ours: Callable[..., Any], arguments: list[Tensor], digits: float, home: str = ""
) -> str:
    """What `ours` returns, held to the bounds for so many digits. `home`: the device that the reference is computed on,
    where it is another than the arguments'."""
    wide = [one.to(home or one.device).double() for one in arguments]
    sizes = [one.abs().where(torch.isfinite(one), 0.0) for one in wide]
    with torch.no_grad():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = ours(*arguments)
        results = [found, case.function(*arguments), case.function(*wide)]
        bounds = case.bounds(sizes, digits) if isinstance(case, Produced) else _bounds(case, sizes, digits)
    for actual, eager, exact, bound in zip(*map(_as_tuple, [*results, bounds]), strict=True):
        exact = exact.to(eager.dtype).double()  # overflow
        if eager.dtype != torch.float32:
            bound = bound + 2 * torch.finfo(eager.dtype).eps * exact.abs().where(torch.isfinite(exact), 0.0)
        if fault := _fault(actual.to(exact.device), eager.to(exact.device), exact, bound):
            return fault
    return ""


def flagged_filters(request: dict[str, Any]) -> str:
    """In the interpreter's process: filters that a convolution of 48 channels computes again, of which the first has
    one number far below the others, and the second all but one."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    image, filters = torch.randn(2, 48, 6, 6), torch.randn(32, 48, 3, 3)
    filters[0, 5, 1, 1] *= 2.0**-20
    filters[1, 1:] *= 2.0**-20
    flags, launch = {}, module.launch

    def recorded(kernel: Any, grid: tuple[int, ...], *tensors: Tensor, **options: Any) -> None:
        launch(kernel, grid, *tensors, **options)
        flags.update(zip(kernel.arg_names, tensors, strict=False))

    module.launch = recorded
    module.ModelNew(torch.nn.Module())(image, filters)
    return str(flags["spoilt_filters"].flatten().nonzero().flatten().tolist())


def _bounds(case: Case, sizes: list[Tensor], digits: float) -> Any:
    largest = sizes[0].amax(tuple(range(1, sizes[0].ndim)), keepdim=True).expand_as(sizes[0])
    magnitude = _magnitude(case, sizes)
    bounds = digits * magnitude + digits * 2.0**-11 * _magnitude(case, [largest, *sizes[1:]]) + 2.0**-126
    if not isinstance(case, Fold):
        return bounds
    # What is folded has been rounded.
    if case.dtype != torch.float32:
        bounds = bounds + torch.finfo(case.dtype).eps * magnitude
    return case.error(bounds, magnitude)


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def _magnitude(case: Case, sizes: list[Tensor]) -> Tensor:
    """What follows a convolution here changes an error by a factor of at most one, or of a scale's."""
    if isinstance(case, Fold):
        return case.before(*sizes)
    if case.function is _residual:
        return F.conv2d(sizes[0], sizes[1], sizes[2], padding=1) + sizes[3]
    if case.function is _transposed_residual:
        return F.conv_transpose2d(sizes[0], sizes[1], sizes[2], stride=2, padding=1) + sizes[3]
    if case.function is _by_channel:
        summed = F.conv_transpose2d(sizes[0], sizes[1], sizes[2], stride=2, padding=1)
        return summed * sizes[3][:, None, None] + 1.0
    return case.function(*sizes)
