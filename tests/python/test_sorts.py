"""Sorts and topk in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for Hopper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator

import pytest
from case_checks import SEEDS, check_in_triton, check_on_the_cpu
from interpreter_process import InterpreterProcess
from movement_cases import Case, Wrapped
from sort_cases import AROUND, CASES, CPU_CASES

from kernelwright import export, library


def seeds_of(name: str) -> range:
    """A third of what other cases get, since these overlap; other shapes and dtypes for each."""
    first = list(CASES | CPU_CASES).index(name)
    return range(first, first + max(1, len(SEEDS) // 3))


@pytest.mark.parametrize("name", CASES | CPU_CASES)
def test_on_the_cpu(name: str) -> None:
    check_on_the_cpu((CASES | CPU_CASES)[name], AROUND, seeds_of(name))


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InterpreterProcess]:
    pytest.importorskip("triton")
    process = InterpreterProcess(tmp_path_factory.mktemp("sorts"), "sort_cases:interpreted")
    yield process
    process.close()


def emit_for_gpu(case: Case) -> dict[str, Any]:
    """From the graph as it would be captured on a GPU."""
    graph = json.dumps(export.export_module(Wrapped(case.function), case.arguments)).replace('"cpu"', '"cuda"')
    return library.compile_graph(json.loads(graph), "triton")


@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    check_in_triton(name, lambda draw: emit_for_gpu(CASES[name](draw)), interpreter, tmp_path, seeds_of(name))
