"""Answers `prepare`: makes ahead what a verification needs beside the candidate, while the process has nothing else to do."""

from __future__ import annotations

from typing import Any, Iterator

from . import nursing
from .yardstick import Yardstick

# At most one, that of the request that came last.
_prepared: dict[str, Yardstick] = {}


def _key(params: dict[str, Any]) -> str:
    return repr(
        [
            params.get(name)
            for name in ("problem", "size", "device", "seed", "draws", "tolerance_policy", "memory_limit_bytes")
        ]
    )


def work(params: dict[str, Any]) -> Iterator[None]:
    """The steps, to be taken one at a time."""
    _prepared.clear()
    yardstick = _prepared[_key(params)] = Yardstick(params)
    nursing.nursery()  # starts where there is none
    yield from yardstick.ahead()


def yardstick_for(params: dict[str, Any]) -> Yardstick:
    """What was prepared for these parameters, or one made now."""
    yardstick = _prepared.pop(_key(params), None) or Yardstick(params)
    yardstick.rewind()
    return yardstick
