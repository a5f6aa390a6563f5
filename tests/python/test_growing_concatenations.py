"""Concatenations that grow live in one memory: what PyTorch computes, and each part copied once at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from case_checks import interpreter_of
from growing_cases import CASES, Growing, interpreted
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export
from kernelwright.errors import Error

interpreter = interpreter_of("growing_cases:interpreted")


def emitted_in_place(case: Growing, target: str) -> dict[str, Any]:
    """Each node a group of its own, and every concatenation stored in place."""
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    schedule = library.compile_graph(graph, target, caution="unfused")["schedule"]
    for group in schedule["groups"]:
        before = dict(group)
        group |= {"scheduler": "in_place", "parameters": {}}
        try:
            emitted = library.compile_graph(graph, target, schedule=schedule)
        except Error as error:
            assert "is no concatenation" in str(error)
            group |= before
    assert "aten.cat" not in emitted["library_ops"] and not any("cat" in name for name in emitted["kernels"])
    return emitted


def memories(source: str) -> int:
    """How many concatenations have memory of their own."""
    return len(re.findall(r"\bcat\w* = torch\.empty", source))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_growing_ones_are_pytorchs(case: Growing, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = emitted_in_place(case, "triton")
    assert (emitted["source"].count(".narrow("), memories(emitted["source"])) == (case.copies, case.wholes)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_growing_ones_on_a_cpu(case: Growing, tmp_path: Path) -> None:
    emitted = emitted_in_place(case, "cpu")
    assert (emitted["source"].count(".narrow("), memories(emitted["source"])) == (case.copies, case.wholes)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreted({"candidate": str(path), "case": case.name})
    assert not fault, fault
