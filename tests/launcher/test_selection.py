"""Which tests a run takes where it does not take all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import selection


def family(name: str, parameters: list[dict[str, Any]], *ways: str, parts: int = 0) -> list[Any]:
    marks = {"in_turns": SimpleNamespace(args=ways)} if ways else {}
    if parts:
        marks["by_day"] = SimpleNamespace(args=(parts,))
    return [
        SimpleNamespace(
            path="test_x.py",
            name=f"{name}[{number}]",
            originalname=name,
            cls=None,
            callspec=SimpleNamespace(params=one),
            get_closest_marker=marks.get,
        )
        for number, one in enumerate(parameters)
    ]


FORMS, WAYS = ["rows", "columns", "middle", "row", "batch"], ["f64", "f32", "f16", "bf16"]
MATRIX = [{"form": form, "dtype": way, "special": special} for form in FORMS for way in WAYS for special in (0, 1)]


@pytest.mark.parametrize(
    "order", [MATRIX, sorted(MATRIX, key=lambda one: one["dtype"])], ids=["ways_within", "ways_around"]
)
def test_each_case_is_taken_in_one_way(order: list[dict[str, Any]]) -> None:
    taken = [item.callspec.params for item in selection.in_turns(family("test_a", order, "dtype"))]
    assert Counter((one["form"], one["special"]) for one in taken) == {(f, s): 1 for f in FORMS for s in (0, 1)}
    # Each way more than once, and not with every second case only.
    assert {one["dtype"] for one in taken} == set(WAYS)
    assert len({(one["dtype"], one["special"]) for one in taken}) > len(WAYS)


def test_parameters_may_make_a_way_together() -> None:
    ways = [(2, 16), (3, 32), (4, 64), (7, 16)]  # two of one block
    every = [{"rows": rows, "block": block, "case": case} for case in FORMS for rows, block in ways]
    taken = [item.callspec.params for item in selection.in_turns(family("test_a", every, "rows", "block"))]
    assert [one["case"] for one in taken] == FORMS
    assert {(one["rows"], one["block"]) for one in taken} == set(ways)


def test_what_is_no_matrix_is_taken_whole() -> None:
    both = family("test_a", MATRIX, "dtype") + family("test_b", MATRIX)
    taken = Counter(item.originalname for item in selection.in_turns(both))
    assert taken == {"test_a": 10, "test_b": 40}


def test_days_in_a_row_take_every_case_once() -> None:
    both = family("test_a", MATRIX, "dtype", parts=3) + family("test_b", MATRIX)
    every = {item.name for item in selection.in_turns(both)}
    days = [Counter(item.name for item in selection.of_the_day(selection.in_turns(both), day)) for day in (7, 8, 9)]
    assert [sum(name.startswith("test_a") for name in day) for day in days] == [3, 3, 4]
    assert all(sum(name.startswith("test_b") for name in day) == 40 for day in days)
    assert set().union(*days) == every


def test_the_quick_run_takes_a_few_of_each() -> None:
    both = family("test_a", MATRIX) + family("test_b", MATRIX[:1])
    assert [item.name for item in selection.spread(both)] == ["test_a[10]", "test_a[30]", "test_b[0]"]
