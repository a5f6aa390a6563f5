"""Kernels lowered from a schedule (bench/tile_kernels) on the GPU, at their own sizes: products with a normalisation
before and bias, GELU and sums of rows after them, attention, an LSTM, a convolution and a state-space scan, beside
double precision.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from benchmark_rows import bound_of, tile_programs

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU"),
    pytest.mark.skipif(
        not tile_programs.TOOL.exists(),
        reason=f"{tile_programs.TOOL} prints the kernels and is not built: configure with -DKW_TESTS=ON",
    ),
]


@pytest.mark.parametrize("row", tile_programs.ROWS, ids=lambda row: row.name)
def test_kernels_compute_what_double_precision_does(row: tile_programs.Row, tmp_path: Path) -> None:
    torch.manual_seed(0)
    problem = row.problem(tile_programs.shapes_of(row.text))
    launch = tile_programs.launch_of(tile_programs.print_row(row, tmp_path))
    errors = tile_programs.errors_of(problem, launch)
    assert errors and all(error <= bound_of(row, name) for name, error in errors.items()), errors
    del problem, launch
    gc.collect()
    torch.cuda.empty_cache()
