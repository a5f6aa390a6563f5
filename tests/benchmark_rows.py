"""bench/tile_programs.py, for tests of its kernels."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = str(Path(__file__).resolve().parent.parent / "bench")

sys.path.insert(0, BENCH)
try:
    import tile_programs
finally:
    sys.path.remove(BENCH)

__all__ = ["bound_of", "tile_programs"]

SUM_IN_ANY_ORDER = 1e-5  # of thousands of numbers in single precision


def bound_of(row: tile_programs.Row, name: str) -> float:
    """What the error of a result may be."""
    return row.bound if name == "y" else max(row.bound, SUM_IN_ANY_ORDER)
