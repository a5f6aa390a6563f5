"""Sorts and topk in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import SEEDS, check_in_triton, check_on_the_cpu, emit_for_gpu, interpreter_of
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from sort_cases import AROUND, CASES, CPU_CASES

from kernelwright import library
from kernelwright.capture import export


def seeds_of(name: str) -> range:
    """A third of what other cases get, since these overlap; other shapes and dtypes for each."""
    first = list(CASES | CPU_CASES).index(name)
    return range(first, first + max(1, len(SEEDS) // 3))


# On a CPU a topk whose positions are read is PyTorch's.
PICKED = [
    "largest",
    "a_few_of_many",
    "several_of_one_row",
    "between_pointwise",
    "largest_of_wide_elements",
    "largest_of_long_rows",
]


@pytest.mark.parametrize("name", [name for name in CASES | CPU_CASES if name not in PICKED])
def test_on_the_cpu(name: str) -> None:
    check_on_the_cpu((CASES | CPU_CASES)[name], AROUND, seeds_of(name))


def test_positions_of_the_largest_are_the_librarys_on_the_cpu() -> None:
    x = torch.randn(7, 40)
    both, values = (
        Wrapped(function) for function in (lambda x: torch.topk(x * 2, 3), lambda x: torch.topk(x * 2, 3).values)
    )
    assert [
        library.compile_graph(export.export_module(one, (x,)), "cpu")["library_ops"] != [] for one in (both, values)
    ] == [True, False]


interpreter = interpreter_of("sort_cases:interpreted")


@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    check_in_triton(name, lambda draw: emit_for_gpu(CASES[name](draw)), interpreter, tmp_path, seeds_of(name))
