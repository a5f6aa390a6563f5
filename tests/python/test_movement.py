"""Lookups and other data movement in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import check_in_triton, check_on_the_cpu, emit, interpreter_of, load
from interpreter_process import InterpreterProcess
from movement_cases import CASES, Case, Wrapped


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    check_on_the_cpu(CASES[name])


interpreter = interpreter_of("movement_cases:interpreted")


@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    check_in_triton(name, lambda draw: emit(CASES[name](draw), "triton"), interpreter, tmp_path)


OUT_OF_RANGE = {
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), [5]),
    "negative embedding": (lambda x, i: torch.nn.functional.embedding(i, x), [-1]),
    "index_select": (lambda x, i: torch.index_select(x, 0, i), [5]),
    "gather": (lambda x, i: torch.gather(x, 0, i[:, None]), [5]),
    "index": (lambda x, i: x[i], [5]),
    "bag": (lambda x, i: torch.nn.functional.embedding_bag(i.repeat(2), x, i.new_zeros(1)), [5]),
    "negative index": (lambda x, i: x[i], [-6]),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.parametrize("rows", [5, 1])
def test_an_index_out_of_range_raises_on_the_cpu(name: str, rows: int) -> None:
    function, wrong = OUT_OF_RANGE[name]
    x, good = torch.randn(rows, 4), torch.tensor([0])
    candidate = load(emit(Case(function, (x, good)), "cpu")["source"]).ModelNew(Wrapped(function))
    with torch.no_grad():
        assert torch.equal(candidate(x, good), function(x, good))
        with pytest.raises((IndexError, RuntimeError)):
            function(x, torch.tensor(wrong))
        with pytest.raises(IndexError, match=f"{wrong[0]}\\b.* is out of range for a dimension of size {rows}"):
            candidate(x, torch.tensor(wrong))
        assert torch.equal(candidate(x, good), function(x, good))
