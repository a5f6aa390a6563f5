"""Quantised linear layers round and saturate exactly as their modules do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import interpreter_of, with_ours
from interpreter_process import InterpreterProcess
from quantised_cases import CASES, fault_of

from kernelwright import library
from kernelwright.capture import export

PRODUCT = {"block_m": 16, "block_n": 32, "block_k": 16, "stages": 2, "num_warps": 4}

interpreter = interpreter_of("quantised_cases:interpreted")


@pytest.mark.parametrize("name", CASES)
def test_modules_reach_ties_and_both_ends(name: str) -> None:
    """Or the other tests would show less than they seem to."""
    make, draw = CASES[name]
    x = draw()
    if name in ("static", "corrected"):
        steps = x / 0.25
        assert (steps % 1 == 0.5).any() and (steps > 124).any() and (steps < -131).any()
    results = make().eval()(x)
    for codes in (
        [one for one in results if one.dtype in (torch.int8, torch.uint8)] if isinstance(results, tuple) else []
    ):
        info = torch.iinfo(codes.dtype)
        assert codes.max() == info.max and codes.min() <= info.min + 1


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    make, draw = CASES[name]
    graph = export.export_module(make().eval(), (draw(),), device="cpu")
    fault = fault_of(library.compile_graph(graph, "cpu")["source"], name)
    assert not fault, fault


@pytest.mark.by_day(2)
@pytest.mark.in_turns("scheme")
@pytest.mark.parametrize("scheme", [1, 0], ids=["split", "f32"])
@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, scheme: int, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """With a product that the planner would leave to the library for its size."""
    make, draw = CASES[name]
    emitted = with_ours(make().eval(), [draw()], "contraction", PRODUCT | {"scheme": scheme})
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(case=name, candidate=str(path))
    assert not fault, fault
