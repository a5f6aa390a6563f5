"""What PyTorch refuses, our kernels refuse: on the CPU at once, on a GPU at the next call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import compile_for_gpu, emit, interpreter_of, load, machine_code
from index_cases import CASES, inputs, message
from interpreter_process import InterpreterProcess
from movement_cases import Case, Wrapped

# A loss over one class never asks which one.
ONE_ROW = [name for name in CASES if "entropy" not in name and "nll" not in name]
EACH = pytest.mark.parametrize("name, rows", [*((name, 5) for name in CASES), *((name, 1) for name in ONE_ROW)])


@EACH
def test_on_the_cpu(name: str, rows: int) -> None:
    function, wrong = CASES[name]
    good, bad = inputs(rows, 0), inputs(rows, wrong)
    candidate = load(emit(Case(function, good), "cpu")["source"]).ModelNew(Wrapped(function))
    with torch.no_grad():
        torch.testing.assert_close(candidate(*good), function(*good))
        with pytest.raises((IndexError, RuntimeError)):
            function(*bad)
        with pytest.raises(IndexError, match=message(wrong, rows)):
            candidate(*bad)
        torch.testing.assert_close(candidate(*good), function(*good))


interpreter = interpreter_of("index_cases:interpreted")


@EACH
def test_at_the_next_call_in_triton(name: str, rows: int, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(emit(Case(CASES[name][0], inputs(rows, 0)), "triton")["source"])
    fault = interpreter.fault(case=name, rows=rows, candidate=str(path))
    assert not fault, f"{fault}\n{path.read_text()}"


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", CASES)
def test_kernels_become_machine_code(name: str, tmp_path: Path) -> None:
    """The interpreter takes an address for many where the compiler does not."""
    pytest.importorskip("triton")
    machine_code(compile_for_gpu(Wrapped(CASES[name][0]), *inputs(5, 0)), tmp_path)


ONE_PLACE = {
    "amax": lambda x, i: x.scatter_reduce(0, i[:, None], torch.ones(1, 1, device=x.device), "amax"),
    "amin": lambda x, i: x.scatter_reduce(0, i[:, None], torch.ones(1, 1, device=x.device), "amin"),
    "prod": lambda x, i: x.scatter_reduce(0, i[:, None], torch.full((1, 1), 3.0, device=x.device), "prod"),
    "put": lambda x, i: x.scatter(0, i[:, None], 2.0),
}


@pytest.mark.parametrize("name", ONE_PLACE)
def test_a_scatter_to_one_place_becomes_machine_code(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    x, place = torch.randn(5, 4), torch.tensor([2])
    machine_code(compile_for_gpu(Wrapped(ONE_PLACE[name]), x, place), tmp_path)


def test_a_class_that_is_ignored_may_be_anything() -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, target, ignore_index=77)

    x, target = torch.randn(6, 4), torch.tensor([0, 77, 3, 77, 1, 2])
    candidate = load(emit(Case(loss, (x, target)), "cpu")["source"]).ModelNew(Wrapped(loss))
    with torch.no_grad():
        torch.testing.assert_close(candidate(x, target), loss(x, target))
        with pytest.raises(IndexError, match=message(-100, 4)):
            candidate(x, torch.tensor([0, 77, 3, -100, 1, 2]))
