"""Values that a candidate's process answers with. What is none of what it should be raises ValueError or TypeError,
which `Remote` takes for a fault of the candidate's; what is too much for a report is cut.
"""

from __future__ import annotations

import math
from typing import Any

from ..timing.profiling import Profile

MOST_TEXTS, LONGEST_TEXT, LONGEST_STATE = 1000, 2000, 1 << 16


def milliseconds(value: Any) -> float:
    found = float(value)
    if not 0 <= found < math.inf:
        raise ValueError("no time")
    return found


def bounded(value: Any, most: int) -> int:
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError("out of bounds")
    return number


def span_of(value: Any) -> tuple[int, int]:
    """Where something lies in memory: its first address, and the one behind its last."""
    low, high = value
    return int(low), int(high)


def meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two spans have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]


def profile_of(value: Any) -> Profile:
    parts = [
        {
            "name": str(part["name"])[:500],
            "share": _share(part["share"]),
            "ours": part["ours"] if part["ours"] is None else bool(part["ours"]),
        }
        for part in value["parts"]
    ]
    return Profile(None if value["share"] is None else _share(value["share"]), parts)


def _share(value: Any) -> float:
    found = float(value)
    if not 0 <= found <= 1.01:
        raise ValueError("no share")
    return found


def texts(value: Any, longest: int = LONGEST_TEXT) -> list[str]:
    if not isinstance(value, (list, tuple, type(None))):
        raise ValueError("no list")
    return [str(one)[:longest] for one in (value or [])[:MOST_TEXTS]]
