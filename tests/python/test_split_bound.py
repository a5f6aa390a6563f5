"""Products by halves are as exact as docs/precision.md says, whatever their operands' distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import as_one_group, interpreter_of
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from split_cases import DEPTH, DISTRIBUTIONS, LEFT_OUT, SIDE, exact, meeting_zeros, operands
from split_errors import product, split

OPERANDS = {name: (a, b) for name, a, b in operands(48, 1024)}


def left_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What the three products are off by without any rounding of sums."""
    (a_high, a_low, a_scale), (b_high, b_low, b_scale) = ([part.double() for part in split(one)[:3]] for one in (a, b))
    kept = a_high @ (b_high + b_low).T + a_low @ b_high.T
    return (kept * a_scale * b_scale.T - exact(a, b)[0]).abs()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_halves_leave_out_is_bounded(name: str) -> None:
    a, b = OPERANDS[name]
    _, sizes = exact(a, b)
    _, kept = product(a, b)
    assert kept.any() and bool((left_out(a, b) <= LEFT_OUT * sizes)[kept].all())


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if "2^30" not in name])
def test_they_are_at_least_as_exact_as_single_precision(name: str) -> None:
    a, b = OPERANDS[name]
    right, sizes = exact(a, b)
    ours, kept = product(a, b)
    mine, theirs = (((one.double() - right).abs() / sizes)[kept].mean() for one in (ours, a @ b.T))
    assert mine <= 1.05 * theirs


def test_where_they_would_fail_single_precision_is_taken() -> None:
    a, b = meeting_zeros(32, 1024)
    _, sizes = exact(a, b)
    _, kept = product(a, b)
    assert (left_out(a, b) / sizes).max() > 10 * LEFT_OUT and not kept.any()


interpreter = interpreter_of("split_cases:interpreted")


@pytest.mark.parametrize("scheme", [1, 3], ids=["split", "streamed"])
def test_kernels_keep_the_bound(scheme: int, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    parameters = {"block_m": 16, "block_n": 32, "block_k": 64, "stages": 2, "num_warps": 4, "scheme": scheme}
    arguments = [torch.empty(SIDE, DEPTH), torch.empty(SIDE, DEPTH).t()]
    emitted = as_one_group(Wrapped(torch.mm), arguments, "contraction", parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), block_k=parameters["block_k"])
    assert not fault, fault
