"""Lookups and other data movement in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for Hopper."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
from interpreter_process import InterpreterProcess
from movement_cases import CASES, Case, Draw, Wrapped, fault_of

from kernelwright import export, library

QUICK = bool(os.environ.get("KW_TEST_QUICK"))
SEEDS = range(int(os.environ.get("KW_EXAMPLES") or (1 if QUICK else 3)))


def emit(case: Case, target: str) -> dict[str, Any]:
    return library.compile_graph(export.export_module(Wrapped(case.function), case.arguments), target)


def load(source: str) -> types.ModuleType:
    candidate = types.ModuleType("candidate")
    exec(source, candidate.__dict__)
    return candidate


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    for seed in SEEDS:
        case = CASES[name](Draw(seed))
        emitted = emit(case, "cpu")
        assert emitted["library_ops"] == [], f"seed {seed}: {emitted['library_ops']}"
        fault = fault_of(case, load(emitted["source"]))
        assert not fault, f"seed {seed}: {fault}\n{emitted['source']}"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InterpreterProcess]:
    pytest.importorskip("triton")
    process = InterpreterProcess(tmp_path_factory.mktemp("movement"), "movement_cases:interpreted")
    yield process
    process.close()


@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    from kernelwright import compile_only

    for seed in SEEDS:
        emitted = emit(CASES[name](Draw(seed)), "triton")
        assert emitted["library_ops"] == []
        path = tmp_path / f"candidate_{seed}.py"
        path.write_text(emitted["source"])
        fault = interpreter.fault(case=name, seed=seed, candidate=str(path))
        assert not fault, f"seed {seed}: {fault}\n{emitted['source']}"
        if seed == SEEDS[0]:
            rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
            assert all(row["ok"] for row in rows), [row["error"] for row in rows]


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
        with pytest.raises(IndexError, match="out of range"):
            candidate(x, torch.tensor(wrong))
        assert torch.equal(candidate(x, good), function(x, good))
