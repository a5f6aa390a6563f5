"""Tile programs printed as C++ compute what PyTorch does."""

from __future__ import annotations

import pytest
from test_tile_programs import NAMES, RUNS, drawn, tool
from tile_cases import expected, fault_of
from tile_functions import Functions

THREADS = 2
HERE = [number for number, (case, _) in enumerate(RUNS) if case.on_cpu]


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [tool("cpu", RUNS[number][0].file, RUNS[number][1]) for number in HERE]


@pytest.fixture(scope="module")
def functions(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Functions:
    return Functions(tmp_path_factory.mktemp("cpu"), sources)


@pytest.mark.parametrize("number", range(len(HERE)), ids=[NAMES[number] for number in HERE])
def test_printed_functions_compute_what_pytorch_does(functions: Functions, sources: list[str], number: int) -> None:
    assert max(map(len, sources[number].rpartition("}  // namespace")[2].splitlines())) <= 120
    case, _ = RUNS[HERE[number]]
    made = {name: tensor.contiguous() for name, tensor in drawn(case).items()}
    wanted = expected(case, made)
    functions.call(number, made, THREADS, case.sizes)
    assert fault_of(case, made, wanted) == ""
