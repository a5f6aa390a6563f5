"""Answers `prepare`: makes ahead what a verification needs beside the candidate, while the process has nothing else to
do.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch
from torch.utils import _pytree as pytree

from ..timing.memory_turn import fills_memory
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
    if "compile" in (params.get("baselines") or []):
        nursing.start_compilers()
    if not fills_memory(yardstick.device, _bytes_of_inputs(yardstick)):
        yield from yardstick.ahead()


def _bytes_of_inputs(yardstick: Yardstick) -> int:
    """Of what a GPU would hold; 0 where that shows only when they are made."""
    if yardstick.device.type == "cpu":
        return 0
    with contextlib.suppress(Exception):
        leaves = pytree.tree_leaves(yardstick.problem.inputs(0, torch.device("meta")))
        return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
    return 0


def yardstick_for(params: dict[str, Any]) -> Yardstick:
    """What was prepared for these parameters, or one made now."""
    yardstick = _prepared.pop(_key(params), None) or Yardstick(params)
    yardstick.rewind()
    return yardstick
