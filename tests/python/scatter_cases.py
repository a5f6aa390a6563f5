"""Ops that write where indices say, as small functions with random inputs: shared by the tests and by the interpreter's
process.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable

import torch
from movement_cases import Case, Draw, fault_of

from kernelwright.running import problem

Tensor = torch.Tensor
FOLDED = (torch.float32, torch.float32, torch.float64, torch.int64, torch.int32)
MOVED = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
)

# It warns once that it may change, which would count as the candidate's fallback.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.ones(1).index_reduce(0, torch.zeros(1, dtype=torch.int64), torch.ones(1), "prod")

CASES: dict[str, Callable[[Draw], Case]] = {}


def case(make: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    CASES[make.__name__] = make
    return make


def numbers(d: Draw, shape: list[int], dtype: torch.dtype) -> Tensor:
    """Numbers of any dtype; whole ones go to the ends of their range, so that sums overflow."""
    if dtype.is_floating_point:
        return d.floats(shape, dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=d.generator).bool()
    ends = torch.iinfo(dtype)
    drawn = torch.randint(-50 if ends.min < 0 else 0, 50, shape, generator=d.generator).to(dtype)
    return torch.where(torch.rand(shape, generator=d.generator) < 0.1, torch.full_like(drawn, ends.max), drawn)


def different(d: Draw, size: int, shape: list[int], dim: int) -> Tensor:
    """Indices that differ along `dim`, so that no element is written twice."""
    ranks = torch.rand(
        [size if axis == dim else length for axis, length in enumerate(shape)], generator=d.generator
    ).argsort(dim)
    return ranks.narrow(dim, 0, shape[dim]).contiguous()


def target(d: Draw, rank: int) -> tuple[list[int], int]:
    shape = d.shape(rank)
    return shape, d.number(0, rank - 1)


def smaller(d: Draw, shape: list[int], dim: int, most: int) -> list[int]:
    return [d.number(1, most) if axis == dim else d.number(1, size) for axis, size in enumerate(shape)]


# --- Sums
# ------------------------------------------------------------------------------------------------------------------------


@case
def index_add(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 4))
    dtype, alpha = d.choice(FOLDED), d.choice([1, 1, 3])
    count = d.number(1, 30)
    source = [count if axis == dim else size for axis, size in enumerate(shape)]
    arguments = (numbers(d, shape, dtype), d.indices(shape[dim], [count]), numbers(d, source, dtype))
    return Case(lambda x, i, s: x.index_add(dim, i, s, alpha=alpha), arguments, exact=False)


@case
def messages(d: Draw) -> Case:
    nodes, edges, width = d.number(1, 20), d.number(1, 200), d.number(1, 40)

    def function(x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return x + torch.zeros_like(x).index_add(0, target, x[source] * weight[:, None])

    return Case(
        function,
        (d.plain(nodes, width), d.indices(nodes, [edges]), d.indices(nodes, [edges]), d.plain(edges)),
        exact=False,
    )


@case
def counted_messages(d: Draw) -> Case:
    nodes, edges, width = d.number(1, 20), d.number(1, 200), d.number(1, 40)

    def function(x: Tensor, target: Tensor) -> Tensor:
        sums = torch.zeros(nodes, width, dtype=x.dtype).index_add(0, target, x)
        counts = torch.zeros(nodes, dtype=x.dtype).index_add(0, target, torch.ones(edges, dtype=x.dtype))
        return sums / counts.clamp(min=1)[:, None]

    return Case(function, (d.plain(edges, width), d.indices(nodes, [edges])), exact=False)


@case
def scatter_add(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 4))
    index, dtype = smaller(d, shape, dim, 30), d.choice(FOLDED)
    source = [size + d.number(0, 2) for size in index]
    arguments = (numbers(d, shape, dtype), d.indices(shape[dim], index, narrow=False), numbers(d, source, dtype))
    return Case(lambda x, i, s: x.scatter_add(dim, i, s), arguments, exact=False)


@case
def scatter_add_by_slices(d: Draw) -> Case:
    rows, width, count = d.number(1, 9), d.number(1, 40), d.number(1, 40)
    arguments = (d.plain(rows, width), d.indices(rows, [count], narrow=False), d.plain(count, width))
    return Case(
        lambda x, i, s: (x * 2).scatter_add(0, i[:, None].expand(count, width), s.exp()).relu(), arguments, exact=False
    )


@case
def scatter_add_of_a_number(d: Draw) -> Case:
    rows, count = d.number(1, 9), d.number(1, 40)
    return Case(
        lambda x, i: x.scatter_add(0, i[:1].expand(count), torch.ones(count, dtype=x.dtype)),
        (d.plain(rows), d.indices(rows, [count], narrow=False)),
        exact=False,
    )


@case
def put_accumulating(d: Draw) -> Case:
    shape, count = d.shape(3), d.number(1, 30)
    dtype = d.choice(FOLDED)
    arguments = (
        numbers(d, shape, dtype),
        d.indices(shape[0], [count], True),
        d.indices(shape[1], [count], True),
        numbers(d, [count, shape[2]], dtype),
    )
    return Case(lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), arguments, exact=False)


@case
def put_accumulating_apart(d: Draw) -> Case:
    shape, rows, count = d.shape(3), d.number(1, 5), d.number(1, 9)
    arguments = (
        d.plain(*shape),
        d.indices(shape[0], [rows, 1], True, narrow=False),
        d.indices(shape[2], [count], True, narrow=False),
        d.plain(1, count, 1),
    )
    return Case(lambda x, i, j, v: torch.ops.aten.index_put(x, [i, None, j], v, True), arguments, exact=False)


@case
def chained(d: Draw) -> Case:
    rows, width, count = d.number(1, 9), d.number(1, 20), d.number(1, 20)
    arguments = (d.plain(rows, width), d.indices(rows, [count]), d.plain(count, width))
    return Case(lambda x, i, s: (x.index_add(0, i, s).index_add(0, i, s, alpha=2), x + 1), arguments, exact=False)


@case
def into_itself(d: Draw) -> Case:
    rows, width = d.number(1, 9), d.number(1, 20)

    def function(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y.index_add(0, i, y), y.T

    return Case(function, (d.plain(rows, width), d.indices(rows, [rows])), exact=False)


# --- Other folds
# --------------------------------------------------------------------------------------------------------------------


def folded(d: Draw, reduce: str) -> Case:
    shape, dim = target(d, d.number(1, 3))
    index, dtype = smaller(d, shape, dim, 30), d.choice(FOLDED)
    include = bool(d.number(0, 1))
    x, source = numbers(d, shape, dtype), numbers(d, index, dtype)
    if dtype.is_floating_point:
        for tensor in (x, source):
            if tensor.numel() > 2 and reduce != "mean":
                tensor[tuple(0 for _ in shape)] = d.choice([math.nan, math.inf, -math.inf, -0.0])
    arguments = (x, d.indices(shape[dim], index, narrow=False), source)
    return Case(
        lambda x, i, s: x.scatter_reduce(dim, i, s, reduce, include_self=include),
        arguments,
        exact=reduce in ("amax", "amin"),
    )


@case
def reduced_sum(d: Draw) -> Case:
    return folded(d, "sum")


@case
def reduced_product(d: Draw) -> Case:
    return folded(d, "prod")


@case
def reduced_mean(d: Draw) -> Case:
    return folded(d, "mean")


@case
def reduced_largest(d: Draw) -> Case:
    return folded(d, "amax")


@case
def reduced_smallest(d: Draw) -> Case:
    return folded(d, "amin")


@case
def index_reduced(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 3))
    count, reduce, include = d.number(1, 20), d.choice(["amax", "amin", "prod"]), bool(d.number(0, 1))
    source = [count if axis == dim else size for axis, size in enumerate(shape)]
    arguments = (d.plain(*shape), d.indices(shape[dim], [count]), d.plain(*source))
    return Case(lambda x, i, s: x.index_reduce(dim, i, s, reduce, include_self=include), arguments, exact=False)


# --- Overwriting
# --------------------------------------------------------------------------------------------------------------------


@case
def scatter(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 4))
    index, dtype = smaller(d, shape, dim, shape[dim]), d.choice(MOVED)
    return Case(
        lambda x, i, s: x.scatter(dim, i, s),
        (numbers(d, shape, dtype), different(d, shape[dim], index, dim), numbers(d, index, dtype)),
    )


@case
def scatter_a_number(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 4))
    index, dtype = smaller(d, shape, dim, 12), d.choice(MOVED)
    number = True if dtype == torch.bool else 3
    return Case(
        lambda x, i: x.scatter(dim, i, number), (numbers(d, shape, dtype), d.indices(shape[dim], index, narrow=False))
    )


@case
def set_rows(d: Draw) -> Case:
    shape = d.shape(3, least=2)
    count, dtype = d.number(1, shape[0]), d.choice(MOVED)
    places = different(d, shape[0], [count], 0) - (shape[0] if d.number(0, 1) else 0)

    def function(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        y = x.clone()
        y[i] = v
        return y

    return Case(function, (numbers(d, shape, dtype), places, numbers(d, [count, *shape[1:]], dtype)))


@case
def set_columns_to_a_number(d: Draw) -> Case:
    shape = d.shape(3)

    def function(x: Tensor, i: Tensor) -> Tensor:
        y = x * 2
        y[:, i] = 0.5
        return y

    return Case(function, (d.plain(*shape), d.indices(shape[1], [d.number(1, 12)], True, narrow=False)), exact=False)


@case
def index_copy(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 3))
    count = d.number(1, shape[dim])
    source = [count if axis == dim else size for axis, size in enumerate(shape)]
    arguments = (d.floats(shape, torch.float32), different(d, shape[dim], [count], 0), d.floats(source, torch.float32))
    return Case(lambda x, i, s: x.index_copy(dim, i, s), arguments)


@case
def index_fill(d: Draw) -> Case:
    shape, dim = target(d, d.number(1, 3))
    return Case(
        lambda x, i: x.index_fill(dim, i, 2.5), (d.floats(shape), d.indices(shape[dim], [d.number(1, 9)], narrow=False))
    )


@case
def one_of_many(d: Draw) -> Case:
    rows, classes = d.number(1, 30), d.number(1, 12)
    return Case(
        lambda i: torch.zeros(rows, classes).scatter(1, i[:, None], 1.0), (d.indices(classes, [rows], narrow=False),)
    )


@case
def in_place(d: Draw) -> Case:
    shape, count = d.shape(2), d.number(1, 20)

    def function(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
        y = x + 1
        y.index_add_(0, i, s)
        return y * 2

    return Case(function, (d.plain(*shape), d.indices(shape[0], [count]), d.plain(count, shape[1])), exact=False)


def interpreted(request: dict[str, Any]) -> str:
    """{"case": name, "seed", "candidate": path}, in Triton's interpreter."""
    return fault_of(
        CASES[request["case"]](Draw(request["seed"])), problem.load_module(request["candidate"], kind="candidate")[0]
    )
