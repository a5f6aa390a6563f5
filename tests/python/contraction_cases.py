"""Matrix products with what follows them, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    # What to make of the drawn arguments: views, mostly.
    arrange: Callable[[list[Tensor]], list[Tensor]] = staticmethod(lambda drawn: drawn)

    def arguments(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(7)
        return self.arrange([torch.randn(shape, generator=generator).to(self.dtype) for shape in self.shapes])


def transposed(*which: int) -> Callable[[list[Tensor]], list[Tensor]]:
    """Those arguments as views whose rows lie as columns."""
    return lambda drawn: [one.mT.contiguous().mT if place in which else one for place, one in enumerate(drawn)]


def _both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    product = x @ w
    return product, torch.sigmoid(product) * product


def _picking_one(drawn: list[Tensor]) -> list[Tensor]:
    rows, depth = drawn[0].shape
    places = torch.arange(rows) % depth
    scales = 2.0 ** -(places[:depth] % 2 * 30.0)
    return [torch.nn.functional.one_hot(places, depth).to(drawn[0].dtype), drawn[1] * scales[:, None]]


CASES = [
    Case("mm", torch.mm, ((70, 45), (45, 33))),
    # Each row meets one number of a column alone, however small that is; many others of the column are large.
    Case("rows_that_pick_one", torch.mm, ((70, 64), (64, 33)), arrange=_picking_one),
    Case("mm_left_transposed", torch.mm, ((70, 45), (45, 33)), arrange=transposed(0)),
    Case("mm_right_transposed", torch.mm, ((70, 45), (45, 33)), arrange=transposed(1)),
    Case("mm_both_transposed", torch.mm, ((70, 45), (45, 33)), arrange=transposed(0, 1)),
    Case("one_row", torch.mm, ((1, 45), (45, 33))),
    Case("one_column_of_depth_one", torch.mm, ((70, 1), (1, 1))),
    Case("slices", lambda x, w: x[3:43, 5:38] @ w[:, 2:], ((50, 40), (33, 20))),
    Case("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2.0, ((3, 20, 40), (24, 40), (24,))),
    Case("linear_residual", lambda x, w, b, r: F.linear(x, w, b) + r, ((2, 20, 40), (24, 40), (24,), (2, 20, 24))),
    Case(
        "linear_into_heads",
        lambda x, w: F.relu(F.linear(x, w)).view(2, 20, 4, 6).transpose(1, 2).contiguous(),
        ((2, 20, 40), (24, 40)),
    ),
    Case("rows_of_a_mask", lambda x, w, m: torch.where(m > 0, x @ w, 0.5), ((40, 30), (30, 20), (40, 1))),
    Case("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2.0), ((40, 20), (40, 30), (30, 20))),
    Case("addmm_bias", lambda c, a, b: torch.addmm(c, a, b), ((20,), (40, 30), (30, 20))),
    Case("addmm_without", lambda c, a, b: torch.addmm(c, a, b, beta=0), ((40, 20), (40, 30), (30, 20))),
    Case("bmm", torch.bmm, ((3, 20, 30), (3, 30, 18))),
    Case("bmm_tanh", lambda a, b: torch.tanh(torch.bmm(a, b)) - 1.0, ((3, 20, 30), (3, 30, 18)), arrange=transposed(1)),
    Case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=2.0), ((1, 20, 1), (3, 20, 30), (3, 30, 18))),
    Case("shared_right", torch.matmul, ((2, 3, 20, 30), (30, 18))),
    Case("broadcast_batches", torch.matmul, ((2, 1, 20, 30), (3, 30, 18))),
    Case("expanded", lambda a, b: torch.matmul(a.expand(4, 20, 30), b), ((1, 20, 30), (4, 30, 18))),
    Case("product_returned_too", _both, ((40, 30), (30, 20))),
    Case("halves", lambda x, w: F.relu(x @ w), ((40, 30), (30, 20)), dtype=torch.float16),
    Case("bfloat16", lambda x, w, b: F.silu(F.linear(x, w, b)), ((40, 30), (20, 30), (20,)), dtype=torch.bfloat16),
]


def _matrices(*which: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    """The arguments with zeros where matrices of these kinds have them."""
    return lambda drawn: [kind(one) for kind, one in zip(which, drawn)]


def _banded(x: Tensor) -> Tensor:
    return x.tril(2).triu(-1)


def _diagonal(x: Tensor) -> Tensor:
    return x.tril().triu()


# How operands lie and what they hold: sizes that nothing divides, axes of which every second or third element is read,
# elements that several rows share, matrices that are mostly zeros or equal their transpose.
SHAPED = [
    Case("primes", torch.mm, ((37, 41), (41, 29))),
    Case("linear_of_primes", lambda x, w, b: F.relu(F.linear(x, w, b)), ((3, 7, 43), (19, 43), (19,))),
    Case("every_second_column", lambda x, w: x[:, ::2] @ w, ((40, 66), (33, 20))),
    Case("every_third_of_both", lambda x, w: x[:, 1::3] @ w[::3, ::2], ((40, 100), (99, 40))),
    Case("rows_that_overlap", lambda x, w: x.unfold(0, 24, 3) @ w, ((81,), (24, 20))),
    Case("operands_that_overlap", lambda x: torch.mm(x[:20], x[3:23].t()), ((23, 30),)),
    Case("with_itself", lambda x: torch.mm(x, x), ((33, 33),)),
    Case("many_tiny", torch.bmm, ((67, 3, 5), (67, 5, 2))),
    Case("einsum_of_batches", lambda q, k: torch.einsum("bqd,bkd->bqk", q, k), ((2, 17, 24), (2, 19, 24))),
    Case("einsum_turned", lambda a, b: torch.einsum("bij,bjk->bki", a, b), ((2, 17, 24), (2, 24, 19))),
    Case("einsum_of_last", lambda x, w: torch.einsum("bijl,lk->bijk", x, w), ((2, 3, 5, 24), (24, 18))),
    Case("triangular", torch.mm, ((40, 40), (40, 40)), arrange=_matrices(torch.tril, torch.triu)),
    Case("banded", torch.mm, ((40, 40), (40, 30)), arrange=_matrices(_banded, lambda x: x)),
    Case("diagonal", torch.mm, ((40, 40), (40, 30)), arrange=_matrices(_diagonal, lambda x: x)),
    Case("two_diagonals", torch.mm, ((33, 33), (33, 33)), arrange=_matrices(_diagonal, _diagonal)),
    Case("symmetric", torch.mm, ((40, 40), (40, 30)), arrange=_matrices(lambda x: x + x.t(), lambda x: x)),
    Case("upper_of_product", lambda x, w: torch.mm(x, w).triu(), ((70, 45), (45, 90))),
    Case("lower_of_product", lambda x, w: F.relu(torch.mm(x, w)).tril(-9) + 1.0, ((70, 45), (45, 90))),
    Case("band_of_products", lambda x, w: torch.bmm(x, w).triu(-9).tril(20), ((3, 70, 45), (3, 45, 90))),
    # What the triangle drops is no number.
    Case(
        "upper_of_infinite",
        lambda x, w: torch.mm(x, w).triu(40),
        ((90, 45), (45, 90)),
        arrange=lambda drawn: [drawn[0].index_fill(0, torch.tensor([60]), float("inf")), drawn[1]],
    ),  # fmt: skip
    Case("wide_spread", torch.mm, ((40, 90), (90, 20)), arrange=_matrices(lambda x: torch.exp(4 * x), lambda x: x)),
]


# With one row or column of blocks of 16 or 32, and a depth that chunks of 16 divide.
STREAMS = [
    Case("few_rows", lambda x, w, b: F.relu(F.linear(x, w, b)), ((16, 64), (70, 64), (70,))),
    Case("few_columns", torch.mm, ((70, 64), (64, 30))),
    Case("one_row_of_blocks", torch.mm, ((13, 48), (48, 90)), arrange=transposed(0)),
    Case("few_rows_of_a_batch", torch.bmm, ((3, 16, 48), (3, 48, 70))),
]


# With depths that chunks of 16 divide, and parts of several chunks.
PARTS = [
    Case("deep", torch.mm, ((70, 96), (96, 33))),
    Case("deep_left_transposed", torch.mm, ((70, 96), (96, 33)), arrange=transposed(0)),
    Case("deep_right_transposed", torch.mm, ((40, 96), (96, 50)), arrange=transposed(1)),
    Case("deep_both_transposed", torch.mm, ((40, 96), (96, 50)), arrange=transposed(0, 1)),
    Case("deep_linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2.0, ((3, 20, 96), (24, 96), (24,))),
    Case("deep_addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2.0), ((40, 20), (40, 96), (96, 20))),
    Case("deep_bmm", lambda a, b: torch.tanh(torch.bmm(a, b)) - 1.0, ((3, 20, 96), (3, 96, 18))),
    Case("deep_few_rows", lambda x, w, b: F.relu(F.linear(x, w, b)), ((10, 96), (70, 96), (70,))),
    Case("deep_softmax", lambda x, w, b: torch.softmax(F.linear(x, w, b), -1), ((70, 96), (33, 96), (33,))),
    Case("deep_least_of_rows", lambda x, w: (x @ w).amin(-1), ((20, 96), (96, 20))),
]
PARTS_OF_HALVES = [
    Case("deep_bfloat16", lambda x, w, b: F.silu(F.linear(x, w, b)), ((16, 96), (40, 96), (40,)), dtype=torch.bfloat16),
    Case("deep_softmax_of_halves", lambda x, w: torch.softmax(x @ w, -1), ((40, 96), (96, 20)), dtype=torch.float16),
]


# Products of one input.
OF_ONE_INPUT = [
    Case(
        "queries_keys_values",
        lambda x, q, k, v: (F.linear(x, q), F.linear(x, k), F.linear(x, v)),
        ((70, 45), (33, 45), (33, 45), (20, 45)),
    ),
    Case("gate_and_up", lambda x, g, u: F.silu(F.linear(x, g)) * F.linear(x, u), ((3, 20, 40), (24, 40), (24, 40))),
    # Its rows are as many as its columns, and split in another direction.
    Case("rows_and_columns", lambda x, w: (x @ w, w @ x), ((40, 40), (40, 40))),
]


# Folds over all columns, which a block then has.
FOLDS = [
    Case("linear_softmax", lambda x, w, b: torch.softmax(F.linear(x, w, b), -1) * 2.0, ((70, 45), (33, 45), (33,))),
    Case("largest_in_a_row", lambda x, w: torch.tanh((x @ w).amax(-1)), ((70, 45), (45, 20))),
    Case("least_kept", lambda x, w: (x @ w).min(dim=-1, keepdim=True)[0], ((40, 30), (30, 40)), arrange=transposed(1)),
    Case("logsumexp", lambda x, w, b: torch.logsumexp(F.relu(F.linear(x, w, b)), -1), ((3, 20, 40), (24, 40), (24,))),
    Case(
        "linear_residual_layer_norm",
        lambda x, w, b, r: F.layer_norm(F.linear(x, w, b) + r, (24,)),
        ((2, 20, 40), (24, 40), (24,), (2, 20, 24)),
    ),
    Case("sum_of_one_row", lambda x, w: (x @ w).sum(-1, keepdim=True) + 1.0, ((1, 45), (45, 33))),
    Case("mean_of_batches", lambda a, b: torch.bmm(a, b).mean(-1), ((3, 20, 30), (3, 30, 18))),
    Case("softmax_of_halves", lambda x, w: torch.softmax(x @ w, -1), ((40, 30), (30, 20)), dtype=torch.float16),
]


def _kept_and_largest(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    kept = F.relu(x @ w) + 1.0
    return kept, kept.amax(0)


def _lowest_first(drawn: list[Tensor]) -> list[Tensor]:
    """The bias of the first 36 columns, which are more than a block has, is −∞; of one row all is."""
    bias = drawn[2].clone()
    bias[:36] = float("-inf")
    return [drawn[0], drawn[1], bias, torch.zeros(drawn[0].shape[0], 1).index_fill(0, torch.tensor([3]), float("-inf"))]


# Folds over rows or columns of which blocks have parts.
PARTIAL_FOLDS = [
    Case("largest_of_columns", lambda x, w: F.relu(x @ w).amax(0), ((70, 45), (45, 33))),
    Case("sums_of_columns", lambda x, w, b: F.gelu(F.linear(x, w, b)).sum(0), ((70, 45), (33, 45), (33,))),
    Case("sums_of_rows", lambda x, w, b: F.gelu(F.linear(x, w, b)).sum(-1) * 2.0, ((40, 45), (70, 45), (70,))),
    Case("mean_of_rows", lambda x, w: torch.sigmoid(x @ w).mean(-1, keepdim=True), ((40, 45), (45, 64))),
    Case("least_of_wide_rows", lambda x, w: torch.tanh((x @ w).amin(-1)), ((20, 24), (24, 300))),
    Case("kept_and_largest", _kept_and_largest, ((70, 45), (45, 33))),
    Case("logsumexp_of_rows", lambda x, w, b: F.mish(torch.logsumexp(F.linear(x, w, b) * 2.0, 1, keepdim=True)),
         ((40, 45), (70, 45), (70,))),
    Case("logsumexp_of_columns", lambda x, w: torch.logsumexp(x @ w, 0), ((70, 45), (45, 20)), arrange=transposed(1)),
    Case("lowest_are_infinite", lambda x, w, b, r: torch.logsumexp(F.linear(x, w, b) + r, -1),
         ((40, 45), (70, 45), (70,)), arrange=_lowest_first),
    Case("sum_and_largest", lambda x, w: (F.silu(x @ w).sum(-1), F.silu(x @ w).amax(-1)), ((40, 45), (45, 70))),
    Case("product_of_few_rows", lambda x, w: torch.sigmoid(x @ w).prod(0), ((20, 45), (45, 18))),
    Case("sums_of_batches", lambda a, b: torch.abs(torch.bmm(a, b)).sum(1), ((3, 40, 30), (3, 30, 18))),
    Case("rows_of_batches", lambda a, b, r: torch.amax(torch.bmm(a, b) + r, -1), ((3, 20, 30), (3, 30, 70), (3, 20, 70))),
    Case("one_row_of_many", lambda x, w: F.relu(x @ w).sum(-1), ((1, 45), (45, 70))),
    Case("one_column_of_many", lambda x, w: F.relu(x @ w).sum(0), ((70, 12), (12, 1))),
    Case("upper_folded", lambda x, w: (x @ w).triu(3).sum(0), ((70, 45), (45, 60))),
    Case("folded_bfloat16", lambda x, w: F.silu(x @ w).amax(0), ((70, 40), (40, 40)), dtype=torch.bfloat16),
]  # fmt: skip


# Folds over windows of neighbouring columns.
POOLED = [
    Case("max_pool", lambda x, w, b: F.max_pool1d(F.linear(x, w, b), 2), ((40, 45), (70, 45), (70,))),
    Case("average_pool", lambda x, w: F.avg_pool1d(F.gelu(x @ w), 8) * 2.0, ((40, 45), (45, 70))),
    Case("pool_of_batches", lambda a, b: F.relu(F.max_pool1d(torch.bmm(a, b), 4)), ((3, 20, 30), (3, 30, 64))),
    Case("pool_of_transposed", lambda x, w: F.max_pool1d(x @ w, 4), ((40, 45), (45, 64)), arrange=transposed(1)),
    Case("pool_of_bfloat16", lambda x, w: F.max_pool1d(x @ w, 2), ((40, 48), (48, 64)), dtype=torch.bfloat16),
]


def strewn(arguments: list[Tensor]) -> list[Tensor]:
    """Rows and columns of the first two of every magnitude, of zeros, subnormals, infinities and NaN."""
    if len(arguments) < 2:
        return arguments
    left, right = arguments[0].clone(), arguments[1].clone()
    if left.ndim == right.ndim == 3 and len(left) > 1:  # but for the last of the batch
        pairs = [strewn([left[one], right[one]]) for one in range(len(left) - 1)]
        return [torch.stack([*(pair[side] for pair in pairs), arguments[side][-1]]) for side in (0, 1)] + arguments[2:]
    if left.dtype != torch.float32 or left.ndim != 2 or min(left.shape) < 16:
        return [left, right, *arguments[2:]]
    for row, scale in enumerate((2.0**100, 2.0**-100, 2.0**-130, 0.0, 2.0**110, 1e-45)):
        left[row] *= scale
    right[:, 2] *= 2.0**-90
    left[8, 3], left[9, 4], left[10, 5] = float("inf"), float("-inf"), float("nan")
    left[11, 3], left[11, 4] = float("inf"), float("inf")
    right[7, 5], right[6, 9] = float("inf"), float("nan")
    # Far larger than the rest of their row or column: the others count where these meet zeros, or one another's others.
    left[12, 1], left[13, 2], right[3, 11], right[2, 12] = 2.0**58, -(2.0**58), 2.0**57, 2.0**40
    left[14, 3] = left[13, 3] = left[12, 2] = 0.0
    return [left, right, *arguments[2:]]


# Of a row in which TF32 is right by chance: last places of its largest number.
PLACES_OF_TF32 = 2**10


def in_tf32(x: Tensor) -> Tensor:
    """Each number rounded to TF32's 11 digits, as many fewer as it is below 2^-126."""
    if x.dtype != torch.float32:
        return x
    bits = (x.view(torch.int32) + 0x1000) & -0x2000
    return torch.where(x.isnan(), x, bits.view(torch.float32))


def fault_of(actual: Tensor, eager: Tensor, exact: Tensor, places: float = 4) -> str:
    """Rows of the result are held to a few times eager's own error, or to `places` last places of their largest; and to
    eager's places of NaN and infinities."""
    if actual.shape != eager.shape or actual.dtype != eager.dtype or actual.stride() != eager.stride():
        return f"{actual.shape} {actual.dtype} {actual.stride()}, but eager's is {eager.shape} {eager.stride()}"
    if not torch.equal(actual.isnan(), eager.isnan()):
        return f"NaN in {int((actual.isnan() != eager.isnan()).sum())} other places than eager's"
    infinite = eager.isinf() | actual.isinf()
    if not torch.equal(actual[infinite], eager[infinite]):
        return f"{int((actual[infinite] != eager[infinite]).sum())} infinities differ from eager's"
    finite = torch.isfinite(eager)
    mine, theirs = ((one.double() - exact).where(finite, 0.0).abs() for one in (actual, eager))
    size = exact.where(finite, 0.0).abs().amax(-1, keepdim=True)
    bound = 4 * theirs.amax(-1, keepdim=True) + places * torch.finfo(eager.dtype).eps * size + 2.0**-148
    return f"error {float((mine / bound).max()):.3g} of what is allowed" if bool((mine > bound).any()) else ""


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: a candidate's results on drawn and on strewn arguments."""
    cases = [*CASES, *SHAPED, *FOLDS, *PARTIAL_FOLDS, *POOLED, *STREAMS, *PARTS, *PARTS_OF_HALVES, *OF_ONE_INPUT]
    return fault_of_candidate(request, cases, strewn, PLACES_OF_TF32 if request.get("tf32") else 4)


def fault_of_candidate(
    request: dict[str, Any], cases: list[Case], strew: Callable[[list[Tensor]], list[Tensor]], places: float = 4
) -> str:
    """With `heads_side_by_side`, results lie as those of PyTorch's kernels of attention on a GPU; with `tf32`, errors
    may be those of PyTorch's products of what is rounded.
    """
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in cases if one.name == request["case"])
    ours = module.ModelNew(torch.nn.Module())
    for draw in ("drawn", "strewn"):
        arguments = case.arguments()
        if draw == "strewn":
            arguments = [new.as_strided(old.size(), old.stride()) if new.stride() == old.stride() else
                         torch.empty_strided(old.size(), old.stride(), dtype=old.dtype).copy_(new)
                         for new, old in zip(strew(arguments), arguments)]  # fmt: skip
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            given = [in_tf32(one) for one in arguments] if request.get("tf32") else arguments
            actual, eager = ours(*arguments), case.function(*given)
            if request.get("heads_side_by_side"):
                eager = eager.transpose(1, 2).contiguous().transpose(1, 2)
            exact = case.function(*(one.double() if one.is_floating_point() else one for one in arguments))
        for mine, theirs, right in zip(*((one,) if isinstance(one, Tensor) else one for one in (actual, eager, exact))):
            if fault := fault_of(mine, theirs, right, places):
                return f"{draw}: {fault}"
    return ""
