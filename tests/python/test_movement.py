"""Lookups and other data movement in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for
Hopper.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_checks import check_in_triton, check_on_the_cpu, emit, interpreter_of
from interpreter_process import InterpreterProcess
from movement_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    check_on_the_cpu(CASES[name])


interpreter = interpreter_of("movement_cases:interpreted")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    check_in_triton(name, lambda draw: emit(CASES[name](draw), "triton"), interpreter, tmp_path)
