"""Depthwise convolutions: threads that have several rows compute what PyTorch does, and load what those share once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code
from contraction_cases import Case
from depthwise_cases import CASES
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only

interpreter = interpreter_of("depthwise_cases:interpreted")


@pytest.mark.by_day(2)
@pytest.mark.in_turns("rows", "block")
@pytest.mark.parametrize("rows, block", [(2, 16), (3, 32), (4, 64), (7, 16)])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_rows_of_a_thread_are_pytorchs(
    case: Case, rows: int, block: int, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    parameters = {"block_n": block, "num_warps": 1, "rows": rows}
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=True)
    assert not fault, fault


LARGE = {
    "three": (torch.nn.Conv2d(64, 64, 3, padding=1, groups=64), (16, 64, 512, 512), 8),
    "five_strided": (torch.nn.Conv2d(672, 672, 5, stride=2, padding=2, groups=672), (10, 672, 112, 112), 4),
    "seven": (torch.nn.Conv2d(96, 96, 7, padding=3, groups=96), (8, 96, 112, 112), 8),
    "short_rows": (torch.nn.Conv2d(96, 96, 3, padding=1, groups=96), (32, 96, 7, 7), 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_thread_loads_every_row_of_its_windows_once(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself: weights, the bias, and for each column of taps the rows of all windows."""
    pytest.importorskip("triton")
    part, shape, rows = LARGE[name]
    emitted = compile_for_gpu(part, torch.empty(shape))
    (group,) = emitted["schedule"]["groups"]
    assert (group["scheduler"], group["parameters"]["rows"]) == ("convolution", rows)
    (code,) = machine_code(emitted, tmp_path).values()
    assert compile_only._resources(code)["spills"] in (0, None)
    taps, stride = part.kernel_size[0], part.stride[0]
    window = stride * (rows - 1) + taps
    assert code.asm["ptx"].count("st.global") == rows
    assert code.asm["ptx"].count("ld.global") == taps * taps + 1 + taps * window


def test_schedules_without_rows_have_one() -> None:
    part, shape, _ = LARGE["three"]
    emitted = compile_for_gpu(part, torch.empty(shape))
    schedule = emitted["schedule"]
    (group,) = schedule["groups"]
    group["parameters"] = {"block_n": 1024, "num_warps": 2}
    source = compile_for_gpu(part, torch.empty(shape), schedule=schedule)["source"]
    assert "tl.arange(0, 1024)" in source and source.count("tl.store(") == 1
