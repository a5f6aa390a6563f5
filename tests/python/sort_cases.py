"""Sorts of rows and what fuses with them, as small functions with random inputs: shared by the tests and by the
interpreter's process.

Where eager leaves ties open, equal elements stand in the order in which they stood, so that every answer has one form.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable

import torch
from movement_cases import Case, Draw, Tensor, fault_of
from scatter_cases import MOVED, numbers, target

from kernelwright.judge.ties import Ties
from kernelwright.running import problem

WIDE = (torch.int64, torch.float64)
AROUND = partial(Ties, as_they_stand=True)

CASES: dict[str, Callable[[Draw], Case]] = {}
CPU_CASES: dict[str, Callable[[Draw], Case]] = {}


def case(make: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    CASES[make.__name__] = make
    return make


def on_the_cpu(make: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    CPU_CASES[make.__name__] = make
    return make


def rows(
    d: Draw, most: int = 70, dtypes: Any = (*MOVED, torch.float32, torch.float32), least: int = 1
) -> tuple[Tensor, int]:
    """Rows with ties, NaN, infinities and both zeros, and the dim along which they lie."""
    shape, dim = target(d, d.number(1, 3))
    shape[dim] = max(least, d.choice([1, 2, 17, 64, d.number(3, most)]))
    dtype = d.choice(dtypes)
    x = numbers(d, shape, dtype)
    if not dtype.is_floating_point:
        return x, dim
    chosen = torch.randint(0, 12, shape, generator=d.generator)
    for place, number in enumerate([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0, -math.nan]):
        x = torch.where(chosen == place, torch.tensor(number, dtype=dtype), x)
    return x, dim


def finite(d: Draw, *shape: int) -> Tensor:
    return (d.plain(*shape) * 4).round() / 2


@case
def sort(d: Draw) -> Case:
    x, dim = rows(d)
    descending, stable = bool(d.number(0, 1)), bool(d.number(0, 1))
    return Case(lambda x: torch.sort(x, dim=dim, descending=descending, stable=stable), (x,))


@case
def sort_of_narrow_elements(d: Draw) -> Case:
    x, dim = rows(d, dtypes=(torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.bool))
    descending = bool(d.number(0, 1))
    return Case(lambda x: torch.sort(x, dim=dim, descending=descending), (x,))


@case
def sorted_values(d: Draw) -> Case:
    x, dim = rows(d)
    return Case(lambda x: torch.sort(x, dim=dim).values, (x,))


@case
def sorted_values_of_whole_numbers(d: Draw) -> Case:
    x, _ = rows(d, dtypes=(torch.int64, torch.int64, torch.int16))
    return Case(lambda x: torch.msort(x), (x,))


@case
def signs_of_sorted_zeros(d: Draw) -> Case:
    x = d.choice([0.0, 1.0]) * d.plain(d.number(1, 5), d.number(2, 30)).sign()
    return Case(lambda x: 1 / torch.sort(x, dim=1, stable=True, descending=True).values, (x,))


@case
def argsort(d: Draw) -> Case:
    x, dim = rows(d)
    return Case(lambda x: torch.argsort(x, dim=dim, stable=True), (x,))


@case
def ranks(d: Draw) -> Case:
    x, dim = rows(d, dtypes=(torch.float32,))
    return Case(lambda x: x.argsort(dim=dim, stable=True).argsort(dim), (x,))


@case
def largest(d: Draw) -> Case:
    x, dim = rows(d, dtypes=(torch.float32, torch.float16, torch.bfloat16, torch.int32))
    count, most, in_order = d.number(1, x.shape[dim]), bool(d.number(0, 1)), bool(d.number(0, 1))
    return Case(lambda x: torch.topk(x, count, dim=dim, largest=most, sorted=in_order), (x,))


@case
def a_few_of_many(d: Draw) -> Case:
    x, dim = rows(d, least=40, dtypes=(torch.float32, torch.float32, torch.float16, torch.uint8))
    count, most = d.choice([1, 2, 8, 9, 12, 16]), bool(d.number(0, 1))
    return Case(lambda x: torch.topk(x, count, dim=dim, largest=most), (x,))


@case
def largest_values(d: Draw) -> Case:
    x, dim = rows(d, dtypes=(torch.float32, torch.float64, torch.int64))
    count = d.number(1, x.shape[dim])
    return Case(lambda x: torch.topk(x, count, dim=dim).values, (x,))


@case
def largest_of_wide_elements(d: Draw) -> Case:
    x, dim = rows(d, most=40, dtypes=WIDE)
    count = d.number(1, x.shape[dim])
    return Case(lambda x: (*torch.topk(x, count, dim=dim), torch.sort(x, dim=dim).indices), (x,))


@case
def several_of_one_row(d: Draw) -> Case:
    x = finite(d, d.number(1, 9), d.number(20, 60))
    return Case(lambda x: (x.topk(3, 1), x.topk(5, 1, largest=False), x.sort(1).values, x.topk(17, 1).indices), (x,))


@case
def between_pointwise(d: Draw) -> Case:
    x = d.plain(d.number(1, 9), d.number(2, 50)).half()
    count = d.number(1, x.shape[1])

    def function(x: Tensor) -> Any:
        values, at = (x * 2 + 1).topk(count, dim=1)
        return values.relu() * 3, at % 4, values > 0

    return Case(function, (x,))


@case
def what_stands_there(d: Draw) -> Case:
    x = finite(d, d.number(1, 9), d.number(2, 50))
    return Case(lambda x, y: torch.gather(y, 1, x.argsort(1)), (x, d.plain(*x.shape)))


@case
def scaled_by_another(d: Draw) -> Case:
    x = finite(d, d.number(1, 9), d.number(2, 50))
    count = d.number(1, x.shape[1])
    return Case(lambda x, y: x.topk(count, dim=1).values * y, (x, d.plain(x.shape[0], count)))


@case
def sorted_and_summed(d: Draw) -> Case:
    return Case(
        lambda x: torch.sort(x.abs() + 1).values.cumsum(1), (d.plain(d.number(1, 9), d.number(1, 40)),), exact=False
    )


@case
def largest_summed(d: Draw) -> Case:
    x = d.plain(d.number(1, 9), d.number(2, 40))
    count = d.number(1, x.shape[1])
    return Case(lambda x: torch.topk(x, count).values.cumsum(1), (x,), exact=False)


@case
def sums_sorted(d: Draw) -> Case:
    return Case(lambda x: torch.cumsum(x, 1).sort(1), (finite(d, d.number(1, 9), d.number(1, 40)),))


@case
def turned_round(d: Draw) -> Case:
    return Case(
        lambda x: tuple(part.flip(1) for part in x.flip(1).sort(1)), (finite(d, d.number(1, 9), d.number(1, 40)),)
    )


@case
def with_more_behind(d: Draw) -> Case:
    return Case(
        lambda x: torch.cat((x.sort(1).values, x * 2, x[:, :1]), 1), (finite(d, d.number(1, 9), d.number(1, 40)),)
    )


@case
def of_transposed_rows(d: Draw) -> Case:
    return Case(lambda x: x.t().sort(0, descending=True), (finite(d, d.number(2, 40), d.number(1, 30)),))


@on_the_cpu
def sort_of_long_rows(d: Draw) -> Case:
    x, dim = rows(d, most=3000, least=700)
    descending = bool(d.number(0, 1))
    return Case(lambda x: torch.sort(x, dim=dim, descending=descending), (x,))


@on_the_cpu
def largest_of_long_rows(d: Draw) -> Case:
    x, dim = rows(d, most=5000, least=900, dtypes=(torch.float32, torch.float64, torch.int64, torch.bfloat16))
    count, most = d.choice([1, 7, 24, 25, 100, 500]), bool(d.number(0, 1))
    return Case(lambda x: torch.topk(x, count, dim=dim, largest=most), (x,))


@on_the_cpu
def row_beyond_the_stack(d: Draw) -> Case:
    return Case(lambda x: (x * 2).sort(1), (d.plain(2, 70001),))


def interpreted(request: dict[str, Any]) -> str:
    """{"case": name, "seed", "candidate": path}, in Triton's interpreter."""
    return fault_of(
        CASES[request["case"]](Draw(request["seed"])),
        problem.load_module(request["candidate"], kind="candidate")[0],
        AROUND,
    )
