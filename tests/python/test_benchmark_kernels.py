"""The kernels of bench/tile_programs.py, of few elements and under the schedules that it times, in Triton's interpreter:
all of tests/device/test_tile_kernels_on_device.py but the GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import interpreter_process
import pytest
import torch
from benchmark_rows import bound_of, tile_programs

# What is smaller in each kernel's text.
PRODUCT = {"4096": "256"}
SMALL = {
    "linear_halves": PRODUCT,
    "linear_bf16": PRODUCT,
    "linear_tf32": PRODUCT,
    "norm_linear_f32": PRODUCT,
    "norm_linear_bf16": PRODUCT,
    "norm_linear_tf32": PRODUCT,
    "attention": {"256": "2", "2048": "192"},
    "attention_causal": {"[64,": "[2,", "256": "8", "2048": "256"},
    "convolution": {"200704": "3136", "image: f32[64,": "image: f32[1,", "y: f32[64,": "y: f32[1,"},
    "lstm": {"512": "6"},
    "state_space": {"chunk = 64": "chunk = 3", "[64, 64, 64]": "[3, 64, 64]", "decay: f32[64": "decay: f32[3"},
}
# The interpreter does not know warps with work of their own.
ROWS = [row for row in tile_programs.ROWS if "consumers" not in row.schedule]


def small(row: tile_programs.Row) -> str:
    text = row.text
    for old, new in SMALL[row.kernel].items():
        assert old in text
        text = text.replace(old, new)
    return text


def run_row(request: dict[str, Any]) -> str:
    """In the interpreter's process."""
    row = next(one for one in ROWS if one.name == request["row"])
    torch.manual_seed(0)
    problem = row.problem(tile_programs.shapes_of(small(row)))
    errors = tile_programs.errors_of(problem, tile_programs.launch_of(Path(request["printed"])))
    assert errors
    return ", ".join(
        f"{name} is off by {error:.1e}" for name, error in errors.items() if not error <= bound_of(row, name)
    )


@pytest.fixture(scope="module")
def triton_process(tmp_path_factory: pytest.TempPathFactory) -> Any:
    process = interpreter_process.InterpreterProcess(
        tmp_path_factory.mktemp("triton"), "test_benchmark_kernels:run_row"
    )
    yield process
    process.close()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_kernels_compute_what_double_precision_does(
    triton_process: Any, tmp_path: Path, row: tile_programs.Row
) -> None:
    if not tile_programs.TOOL.exists():
        pytest.fail("build/tests/unit/tile_tool is missing: configure with -DKW_TESTS=ON and build")
    printed = tile_programs.print_row(row, tmp_path, small(row))
    assert triton_process.fault(row=row.name, printed=str(printed)) == ""
