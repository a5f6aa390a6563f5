"""Which parameter sets of a test are taken where not all are: in the quick run a few, else of a matrix of cases and
ways each case in one way, and of some tests a part each day.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

QUICK_PARAMETER_SETS = 2


def _families(items: Iterable[Any]) -> Iterator[list[Any]]:
    """The parameter sets of each test, in order."""
    families: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        families.setdefault((item.path, getattr(item, "originalname", item.name), item.cls), []).append(item)
    yield from families.values()


def spread(items: Iterable[Any]) -> Iterator[Any]:
    """A few of each test, spread evenly: every test, not every case."""
    for family in _families(items):
        step = max(1.0, len(family) / QUICK_PARAMETER_SETS)
        yield from (family[int((index + 0.5) * step)] for index in range(min(len(family), QUICK_PARAMETER_SETS)))


def in_turns(items: Iterable[Any]) -> Iterator[Any]:
    """Of a test with the mark `in_turns(PARAMETER…)` each case in one of the ways that the parameters name together;
    all of others.
    """
    for family in _families(items):
        marker = family[0].get_closest_marker("in_turns")
        yield from _each_case_once(family, marker.args) if marker else family


def of_the_day(items: Iterable[Any], day: int) -> Iterator[Any]:
    """Of a test with the mark `by_day(PARTS)` every PARTS-th case, from another one each day; all of others."""
    for family in _families(items):
        marker = family[0].get_closest_marker("by_day")
        yield from family[day % marker.args[0] :: marker.args[0]] if marker else family


def _each_case_once(family: list[Any], parameters: tuple[str, ...]) -> Iterator[Any]:
    ways: dict[tuple[int, ...], int] = {}
    cases: dict[tuple[int, ...], int] = {}
    numbered = []
    for item in family:
        given = dict(item.callspec.params)
        way = tuple(id(given.pop(parameter)) for parameter in parameters)
        case = tuple(map(id, given.values()))
        numbered.append((item, cases.setdefault(case, len(cases)), ways.setdefault(way, len(ways))))
    for item, case, way in numbered:
        # A turn further in each round, so that no way stays with every second case.
        if (case + case // len(ways)) % len(ways) == way:
            yield item
