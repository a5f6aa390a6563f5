"""Data movement, lookups and what is built on them, as small functions with random inputs: shared by the tests and by
the interpreter's process.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.running import problem

Tensor = torch.Tensor
FLOATS = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(*arguments)


class Draw:
    """Random shapes, numbers and indices from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def choice(self, options: Any) -> Any:
        return options[self.number(0, len(options) - 1)]

    def shape(self, rank: int, most: int = 9, least: int = 1) -> list[int]:
        return [self.number(least, most) for _ in range(rank)]

    def floats(self, shape: list[int], dtype: torch.dtype | None = None) -> Tensor:
        """Contiguous, permuted or a slice of something larger."""
        dtype = dtype or self.choice(FLOATS)
        layout = self.choice(["contiguous", "contiguous", "permuted", "sliced"])
        if layout == "permuted":
            return torch.randn(shape[::-1], generator=self.generator).to(dtype).permute(*reversed(range(len(shape))))
        if layout == "sliced":
            return torch.randn([*shape[:-1], shape[-1] + 3], generator=self.generator).to(dtype)[..., 2:-1]
        return torch.randn(shape, generator=self.generator).to(dtype)

    def plain(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype)

    def indices(self, size: int, shape: list[int], negative: bool = False, narrow: bool = True) -> Tensor:
        drawn = torch.randint(-size if negative else 0, size, shape, generator=self.generator)
        return drawn.to(self.choice([torch.int64, torch.int32])) if narrow else drawn


@dataclass
class Case:
    """A function and its arguments; `exact` where nothing is computed, so that every bit must agree."""

    function: Callable[..., Any]
    arguments: tuple[Tensor, ...]
    exact: bool = True


CASES: dict[str, Callable[[Draw], Case]] = {}


def case(make: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    CASES[make.__name__] = make
    return make


# --- Lookups
# ----------------------------------------------------------------------------------------------------------------------


@case
def pictures_of_few_channels(draw: Draw) -> Case:
    """Rows of pixels whose channels are few and no power of two, mirrored or not, whatever their last block leaves out."""
    channels, width = draw.choice([(3, 80), (3, 164), (5, 48), (6, 160)])
    picture = torch.randint(
        0, 256, (draw.number(2, 3), draw.number(30, 37), width, channels), generator=draw.generator
    ).to(torch.uint8)
    bias, flips = draw.plain(channels, 1, 1), draw.choice([[3], [2, 3], []])
    return Case(lambda x, b: x.permute(0, 3, 1, 2).flip(flips).float() - b, (picture, bias))


@case
def embedding(d: Draw) -> Case:
    rows = d.number(1, 20)
    return Case(
        lambda w, i: F.embedding(i, w), (d.floats([rows, d.number(1, 70)]), d.indices(rows, d.shape(d.number(1, 3))))
    )


@case
def embedding_fused(d: Draw) -> Case:
    rows, width = d.number(2, 20), d.number(2, 70)
    x = d.indices(rows, d.shape(2))
    return Case(
        lambda w, i, p: F.layer_norm(F.embedding(i, w) + p, [width]),
        (d.plain(rows, width), x, d.plain(x.shape[1], width)),
        exact=False,
    )


@case
def embedding_of_computed_table_and_index(d: Draw) -> Case:
    rows = d.number(2, 20)
    return Case(
        lambda w, i: F.embedding((i + 1) % rows, w * 2).relu(),
        (d.plain(rows, d.number(1, 40)), d.indices(rows, d.shape(2))),
        exact=False,
    )


@case
def index_select(d: Draw) -> Case:
    shape = d.shape(d.number(1, 4))
    dim = d.number(0, len(shape) - 1)
    return Case(lambda x, i: torch.index_select(x, dim, i), (d.floats(shape), d.indices(shape[dim], [d.number(1, 12)])))


@case
def gather(d: Draw) -> Case:
    shape = d.shape(d.number(1, 4))
    dim = d.number(0, len(shape) - 1)
    wanted = [d.number(1, 12) if axis == dim else d.number(1, size) for axis, size in enumerate(shape)]
    return Case(lambda x, i: torch.gather(x, dim, i), (d.floats(shape), d.indices(shape[dim], wanted, narrow=False)))


@case
def take_along_dim(d: Draw) -> Case:
    shape = d.shape(2)
    return Case(
        lambda x, i: torch.take_along_dim(x, i, 1),
        (d.floats(shape), d.indices(shape[1], [shape[0], d.number(1, 12)], narrow=False)),
    )


@case
def take(d: Draw) -> Case:
    shape = d.shape(2)
    return Case(
        lambda x, i: torch.take(x, i),
        (d.plain(*shape), d.indices(shape[0] * shape[1], d.shape(2), negative=True, narrow=False)),
    )


@case
def index_rows(d: Draw) -> Case:
    shape = d.shape(d.number(1, 4), least=2)
    return Case(
        lambda x, i: x[i], (d.floats(shape), d.indices(shape[0], d.shape(d.number(1, 2), least=2), negative=True))
    )


@case
def index_inner(d: Draw) -> Case:
    shape = d.shape(3, least=2)
    return Case(
        lambda x, i: x[:, i], (d.floats(shape), d.indices(shape[1], d.shape(d.number(1, 2), least=2), negative=True))
    )


@case
def index_neighbours_that_broadcast(d: Draw) -> Case:
    shape = d.shape(4)
    rows, columns = d.number(1, 5), d.number(1, 5)
    arguments = (
        d.plain(*shape),
        d.indices(shape[1], [rows, 1], negative=True),
        d.indices(shape[2], [columns], negative=True),
    )
    return Case(lambda x, i, j: x[:, i, j], arguments)


@case
def index_apart(d: Draw) -> Case:
    shape, count = d.shape(4, least=2), d.number(2, 6)
    return Case(
        lambda x, i, j: x[:, i, :, j],
        (d.floats(shape), d.indices(shape[1], [count], negative=True), d.indices(shape[3], [count])),
    )


@case
def index_of_padded(d: Draw) -> Case:
    shape = d.shape(2)
    return Case(
        lambda x, i: F.pad(x, (1, 2))[:, i] * 2,
        (d.plain(*shape), d.indices(shape[1] + 3, [d.number(1, 9)], negative=True)),
        exact=False,
    )


@case
def index_reduced(d: Draw) -> Case:
    shape = d.shape(3)
    return Case(
        lambda x, i: x[:, i].sum(1),
        (d.plain(*shape), d.indices(shape[1], [d.number(1, 12)], negative=True)),
        exact=False,
    )


@case
def index_in_one_half_of_cat(d: Draw) -> Case:
    shape = d.shape(2)
    return Case(lambda x, i: torch.cat([x, x[i]]), (d.plain(*shape), d.indices(shape[0], [d.number(1, 6)])))


@case
def slices_that_leave_padding_out(d: Draw) -> Case:
    """Every second row of a picture padded to an even number of rows: only one of the slices reaches the padding."""
    rows, width = 2 * d.number(1, 9) + 1, d.number(1, 20)

    def merged(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 0, 1))
        return torch.cat([padded[:, start::2] for start in (0, 1)], -1)

    if d.number(0, 1):
        return Case(lambda x: F.layer_norm(merged(x), [2 * width]), (d.plain(2, rows, width),), exact=False)
    return Case(lambda x: merged(x.neg()), (d.plain(2, rows, width),))


@case
def cut_and_gone_round(d: Draw) -> Case:
    """Of circular padding one side takes elements away, and what is left goes round."""
    length = d.number(4, 8)
    cut, added = d.number(1, 3), d.number(1, length - 3)
    widths = [-cut, added] if d.number(0, 1) else [added, -cut]
    widths += [0, 2] if d.number(0, 1) else [1, -1]
    return Case(lambda x: F.pad(x, widths, mode="circular"), (d.floats((2, 3, 5, length)),))


# --- Borders, rolls and resizing
# ------------------------------------------------------------------------------------------------------


def bordered(d: Draw, mode: str, rank: int) -> Case:
    shape = [*d.shape(2), *d.shape(rank, least=2)]
    widths = [d.number(-1 if shape[-1 - at // 2] > 3 else 0, shape[-1 - at // 2] - 1) for at in range(2 * rank)]
    return Case(lambda x: F.pad(x, widths, mode=mode), (d.floats(shape),))


@case
def reflected(d: Draw) -> Case:
    return bordered(d, "reflect", d.number(1, 3))


@case
def replicated(d: Draw) -> Case:
    return bordered(d, "replicate", d.number(1, 3))


@case
def circular(d: Draw) -> Case:
    return bordered(d, "circular", d.number(1, 3))


@case
def rolled(d: Draw) -> Case:
    shape = d.shape(3)
    dims = d.choice([[0], [1, 2], [2, 0], [0, 1, 2], [-1]])
    shifts = [d.number(-12, 12) for _ in dims]
    return Case(lambda x: torch.roll(x, shifts, dims), (d.floats(shape),))


@case
def rolled_flat(d: Draw) -> Case:
    shift = d.number(-30, 30)
    return Case(lambda x: torch.roll(x, shift), (d.floats(d.shape(2)),))


@case
def rolled_between(d: Draw) -> Case:
    shape = d.shape(2, least=2)
    return Case(lambda x, y: torch.roll(x.exp(), 1, 1).sum(1) + y, (d.plain(*shape), d.plain(shape[0])), exact=False)


@case
def diagonals_of_matrices(d: Draw) -> Case:
    offset = d.number(-2, 2)
    return Case(lambda x: torch.diag_embed(x, offset) + 1, (d.floats(d.shape(d.number(1, 3))),), exact=False)


@case
def evenly_spaced(d: Draw) -> Case:
    steps = d.number(1, 40)
    return Case(
        lambda x: x * torch.linspace(-1.5, 3, steps, dtype=x.dtype),
        (d.plain(d.number(1, 5), steps, dtype=d.choice([torch.float32, torch.float64])),),
        exact=False,
    )


def resized(d: Draw, mode: str, rank: int, exact: bool = False, **options: Any) -> Case:
    shape = [*d.shape(2, most=4), *d.shape(rank, most=12)]
    x = d.plain(*shape, dtype=d.choice(FLOATS))
    if d.number(0, 1):
        size = [d.number(1, 25) for _ in range(rank)]
        return Case(lambda x: F.interpolate(x, size=size, mode=mode, **options), (x,), exact)
    factors = [d.choice([0.5, 1.0, 1.3, 2.0, 2.0, 2.7, 3.0]) for _ in range(rank)]
    factors = [factor if size * factor >= 1 else 2.0 for factor, size in zip(factors, shape[2:])]
    return Case(lambda x: F.interpolate(x, scale_factor=factors, mode=mode, **options), (x,), exact)


@case
def nearest(d: Draw) -> Case:
    return resized(d, "nearest", d.number(1, 3), exact=True)


@case
def nearest_exact(d: Draw) -> Case:
    return resized(d, "nearest-exact", d.number(1, 3), exact=True)


@case
def linear(d: Draw) -> Case:
    return resized(d, "linear", 1, align_corners=bool(d.number(0, 1)))


@case
def bilinear(d: Draw) -> Case:
    return resized(d, "bilinear", 2, align_corners=bool(d.number(0, 1)))


@case
def trilinear(d: Draw) -> Case:
    return resized(d, "trilinear", 3, align_corners=bool(d.number(0, 1)))


@case
def bicubic(d: Draw) -> Case:
    return resized(d, "bicubic", 2, align_corners=bool(d.number(0, 1)))


@case
def resized_within_pointwise(d: Draw) -> Case:
    x = d.plain(2, 3, d.number(2, 9), d.number(2, 9))
    return Case(lambda x: F.interpolate(x.relu(), scale_factor=2, mode="bilinear").sigmoid() + 1, (x,), exact=False)


# --- Losses that look up
# ----------------------------------------------------------------------------------------------------------------


def class_loss(d: Draw, loss: Callable[..., Tensor], weighted: bool, **options: Any) -> Case:
    classes = d.number(2, 40)
    shape = d.choice([[], [d.number(1, 30)], [d.number(1, 5), d.number(1, 4), 3]])
    target = d.indices(classes, shape, narrow=False)
    ignored = d.choice([-100, 1])
    if ignored < 0 and target.numel() > 2:
        target.view(-1)[0] = ignored
    scores = d.plain(*shape[:1], classes, *shape[1:])
    arguments = (scores, target) + ((d.plain(classes).abs(),) if weighted else ())
    reduction = d.choice(["mean", "sum", "none"])
    return Case(
        lambda x, t, *w: loss(x, t, weight=w[0] if w else None, ignore_index=ignored, reduction=reduction, **options),
        arguments,
        exact=False,
    )


@case
def cross_entropy(d: Draw) -> Case:
    return class_loss(d, F.cross_entropy, weighted=False)


@case
def cross_entropy_weighted(d: Draw) -> Case:
    return class_loss(d, F.cross_entropy, weighted=True)


@case
def cross_entropy_smoothed(d: Draw) -> Case:
    return class_loss(d, F.cross_entropy, weighted=bool(d.number(0, 1)), label_smoothing=0.1)


@case
def cross_entropy_of_shares(d: Draw) -> Case:
    shape = [d.number(1, 9), d.number(2, 9), d.number(1, 4)]
    reduction, smoothing = d.choice(["mean", "sum", "none"]), d.choice([0.0, 0.2])
    arguments = (d.plain(*shape), d.plain(*shape).softmax(1), d.plain(shape[1]).abs())
    return Case(
        lambda x, t, w: F.cross_entropy(x, t, weight=w, reduction=reduction, label_smoothing=smoothing),
        arguments,
        exact=False,
    )


@case
def nll_weighted(d: Draw) -> Case:
    return class_loss(d, F.nll_loss, weighted=True)


@case
def multi_margin(d: Draw) -> Case:
    rows, classes = d.number(1, 9), d.number(2, 12)
    p, reduction = d.choice([1, 2]), d.choice(["mean", "sum", "none"])
    return Case(
        lambda x, t: F.multi_margin_loss(x, t, p=p, reduction=reduction),
        (d.plain(rows, classes), d.indices(classes, [rows], narrow=False)),
        exact=False,
    )


@case
def gaussian_nll(d: Draw) -> Case:
    shape, full, reduction = d.shape(2), bool(d.number(0, 1)), d.choice(["mean", "sum", "none"])
    arguments = (d.plain(*shape), d.plain(*shape), d.plain(shape[0], 1).abs())
    return Case(lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=full, reduction=reduction), arguments, exact=False)


@case
def multilabel_margin(d: Draw) -> Case:
    rows, classes, reduction = d.number(1, 6), d.number(2, 12), d.choice(["mean", "sum", "none"])
    target = torch.stack([torch.randperm(classes, generator=d.generator) for _ in range(rows)])
    target[torch.rand(rows, classes, generator=d.generator) < 0.3] = -1
    return Case(
        lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), (d.plain(rows, classes), target), exact=False
    )


@case
def fold(d: Draw) -> Case:
    size, dilation, stride = ([d.number(1, 4) for _ in range(2)] for _ in range(3))
    padding = [d.number(0, 2) for _ in range(2)]
    image = [d.number(max(1, dilation[dim] * (size[dim] - 1) + 1 - 2 * padding[dim]), 14) for dim in range(2)]
    counts = [
        (image[dim] + 2 * padding[dim] - dilation[dim] * (size[dim] - 1) - 1) // stride[dim] + 1 for dim in range(2)
    ]
    columns = d.floats([*d.shape(d.number(0, 1), 3), d.number(1, 3) * size[0] * size[1], counts[0] * counts[1]])
    return Case(lambda x: F.fold(torch.relu(x), image, size, dilation, padding, stride) * 2, (columns,), exact=False)


@case
def fold_side_by_side(d: Draw) -> Case:
    size, counts = [d.number(1, 4) for _ in range(2)], [d.number(1, 6) for _ in range(2)]
    columns = d.floats([d.number(1, 3), d.number(1, 3) * size[0] * size[1], counts[0] * counts[1]])
    image = [size[dim] * counts[dim] for dim in range(2)]
    return Case(lambda x: F.fold(x, image, size, stride=size), (columns,))


@case
def bag_of_rows(d: Draw) -> Case:
    rows, mode = d.number(2, 20), d.choice(["sum", "mean", "max"])
    return Case(
        lambda w, i: F.embedding_bag(i, w, mode=mode),
        (d.plain(rows, d.number(1, 40)), d.indices(rows, d.shape(2), narrow=False)),
        exact=False,
    )


@case
def bag_of_weighted_rows(d: Draw) -> Case:
    rows, shape = d.number(2, 20), d.shape(2)
    arguments = (d.plain(rows, d.number(1, 40)), d.indices(rows, shape, narrow=False), d.plain(*shape))
    return Case(lambda w, i, s: F.embedding_bag(i, w, per_sample_weights=s, mode="sum"), arguments, exact=False)


def _offsets(d: Draw, bags: int, entries: int, last: bool) -> Tensor:
    """Where each of the bags begins, empty ones among them."""
    cuts = torch.randint(0, entries + 1, (bags - 1,), generator=d.generator).sort().values
    return torch.cat((torch.zeros(1, dtype=torch.int64), cuts, torch.full((1 if last else 0,), entries)))


@case
def bag_of_any_size(d: Draw) -> Case:
    rows, mode, bags, entries, last = (
        d.number(2, 20),
        d.choice(["sum", "mean", "max"]),
        d.number(1, 9),
        d.number(2, 40),
        bool(d.number(0, 1)),
    )
    padding = d.choice([None, 0, -1])
    arguments = (
        d.floats([rows, d.choice([1, 3, 16, 40])]),
        d.indices(rows, [entries], narrow=False),
        _offsets(d, bags, entries, last),
    )
    return Case(
        lambda w, i, o: (
            F.embedding_bag(
                i, torch.relu(w) if rows < 4 else w, o, mode=mode, include_last_offset=last, padding_idx=padding
            )
            * 2
        ),
        arguments,
        exact=False,
    )


@case
def weighted_bag_of_any_size(d: Draw) -> Case:
    rows, bags, entries, padding = d.number(2, 20), d.number(1, 9), d.number(2, 40), d.choice([None, 1])
    weight = d.plain(rows, d.number(1, 40))
    arguments = (weight, d.indices(rows, [entries], narrow=False), _offsets(d, bags, entries, False), d.plain(entries))
    return Case(
        lambda w, i, o, s: F.embedding_bag(i, w, o, per_sample_weights=s * 3, mode="sum", padding_idx=padding),
        arguments,
        exact=False,
    )


def _pooled_at_random(d: Draw, dims: int) -> Case:
    """A window ends where the axis does, and where the others start is a matter of the last bit of the numbers."""
    kernel = [d.number(1, 4) for _ in range(dims)]
    output = [d.number(1, 9) for _ in range(dims)]
    planes = d.shape(d.number(1, 2), 3)
    dtype = d.choice(
        [torch.float32, torch.float32, torch.float16, torch.float64]
    )  # Triton's interpreter does not round to bfloat16
    x = d.floats([*planes, *(k + o - 1 + d.number(1, 14) for k, o in zip(kernel, output))], dtype).clone().round_()
    for special in (float("nan"), float("-inf")):
        x[torch.rand(x.shape, generator=d.generator) < 0.05] = special
    samples = torch.rand(planes[0] if len(planes) == 2 else 1, planes[-1], dims, generator=d.generator).to(x.dtype)
    samples[samples == 1] = 0  # rounded up
    pool = getattr(torch.ops.aten, f"fractional_max_pool{dims}d")
    return Case(lambda x, s: pool(torch.relu(x) if kernel[0] == 3 else x, kernel, output, s), (x, samples))


@case
def fractional_pool_2d(d: Draw) -> Case:
    return _pooled_at_random(d, 2)


@case
def fractional_pool_3d(d: Draw) -> Case:
    return _pooled_at_random(d, 3)


@case
def masked_scatter(d: Draw) -> Case:
    shape = d.shape(d.number(1, 4), 6)
    mask = torch.rand([d.choice([1, size]) for size in shape], generator=d.generator) < d.choice([0.0, 0.4, 1.0])
    marked = int(mask.expand(shape).sum())
    x = d.floats(shape)
    source = d.floats([d.number(1, 3), marked + 1], x.dtype)
    return Case(lambda x, m, s: torch.masked_scatter(x, m, s), (x, mask, source))


# --- What the tests do with a case
# --------------------------------------------------------------------------------------------------


def fault_of(case: Case, candidate: Any, around: Callable[[], Any] = contextlib.nullcontext) -> str:
    """What is wrong with a candidate's outputs, or nothing. `around`: what eager runs in."""
    module = Wrapped(case.function)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to the original would warn
        with around():
            expected = module(*case.arguments)
        exact = module(*(a.double() if a.is_floating_point() else a for a in case.arguments))
        actual = candidate.ModelNew(module)(*case.arguments)
    if hasattr(candidate, "raise_refused"):
        candidate.raise_refused()  # no index was out of range
    leaves = torch.utils._pytree.tree_leaves
    for ours, eager, reference in zip(leaves(actual), leaves(expected), leaves(exact), strict=True):
        if (ours.dtype, ours.shape) != (eager.dtype, eager.shape) or _strides(ours) != _strides(eager):
            return f"{ours.dtype} {tuple(ours.shape)} {ours.stride()}, eager's {eager.dtype} {tuple(eager.shape)} {eager.stride()}"
        if case.exact or not eager.is_floating_point():
            if not torch.equal(ours.nan_to_num(7), eager.nan_to_num(7)):
                return f"{int((ours != eager).sum())} of {ours.numel()} elements differ: {ours} for {eager}"
            continue
        if not torch.equal(ours.isnan(), eager.isnan()):
            return "NaN elsewhere than in eager's"
        scale = reference.abs().nan_to_num(0).max().item() if reference.numel() else 0.0
        bound = 2 * (eager.double() - reference).abs() + 8 * torch.finfo(eager.dtype).eps * max(scale, 1e-30)
        difference = (ours.double() - reference).abs()
        if not bool((difference <= bound).logical_or(ours == eager).logical_or(eager.isnan()).all()):
            return f"{difference.nan_to_num(0).max()} beyond {bound.nan_to_num(0).max()}"
    return ""


def _strides(tensor: Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def interpreted(request: dict[str, Any]) -> str:
    """{"case": name, "seed", "candidate": path}, in Triton's interpreter."""
    return fault_of(
        CASES[request["case"]](Draw(request["seed"])), problem.load_module(request["candidate"], kind="candidate")[0]
    )
