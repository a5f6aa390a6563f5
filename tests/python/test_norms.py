"""Norms by the batch's statistics behind convolutions: one kernel's work, or statistics and a pointwise norm."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from case_checks import interpreter_of
from interpreter_process import InterpreterProcess
from norm_cases import CASES, Norm

from kernelwright import library
from kernelwright.capture import export

GRAPH_TOOL = Path(__file__).resolve().parents[2] / "build" / "tests" / "unit" / "graph_tool"

interpreter = interpreter_of("norm_cases:interpreted")


def _graph(case: Norm) -> dict[str, Any]:
    """As it would be captured on a GPU."""
    graph = json.dumps(export.export_module(case.block(), tuple(case.inputs()[:1]), device="cpu"))
    return json.loads(graph.replace('"cpu"', '"cuda"'))


def _operators(graph: dict[str, Any], folder: Path) -> list[str]:
    """Of the nodes that the planner sees."""
    assert GRAPH_TOOL.exists(), "configure with -DKW_TESTS=ON and build"
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    text = subprocess.run([GRAPH_TOOL, path, "all"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  %.* = aten\.(\w+)", text, re.M)


def _norm_apart(graph: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The planner's schedule with the norm as two groups: what is folded, and what follows."""
    operators = _operators(graph, folder)
    schedule = library.compile_graph(graph, "triton")["schedule"]
    (norm,) = (group for group in schedule["groups"] if group["scheduler"] == "normalisation")
    first, given = operators.index("var_mean"), operators.index("batch_norm")
    before = [node for node in norm["nodes"] if node < first]
    of_channels = [node for node in norm["nodes"] if first <= node < given or operators[node] == "_to_copy"]
    after = [node for node in norm["nodes"] if node not in of_channels and node > first]
    place = schedule["groups"].index(norm)
    schedule["groups"][place : place + 1] = [
        {"nodes": sorted({*before, *of_channels}), "scheduler": "reduction", "parameters": {"r_block": 64}},
        {"nodes": sorted({*before, *after}), "scheduler": "pointwise", "parameters": {"block": 128}},
    ]
    return schedule


@pytest.mark.parametrize("apart", [False, True], ids=["one group", "apart"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_norms_are_pytorchs(case: Norm, apart: bool, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    graph = _graph(case)
    emitted = library.compile_graph(graph, "triton", schedule=_norm_apart(graph, tmp_path) if apart else None)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=True)
    assert not fault, fault
