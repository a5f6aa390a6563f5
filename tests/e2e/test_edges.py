"""Edges of what tensors hold and how they lie: kernels for both targets answer as PyTorch does, on the CPU for real and
in Triton's interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_checks import compile_for_gpu, interpreter_of
from edge_cases import EDGES, check
from interpreter_process import InterpreterProcess

from kernelwright import compile_only, library
from kernelwright.capture import export
from kernelwright.running import problem

each_edge = pytest.mark.parametrize("name", EDGES)


def emitted(name: str, target: str, folder: Path) -> tuple[dict[str, Any], Path]:
    edge = EDGES[name]
    module, inputs = edge.module(), tuple(edge.inputs())
    made = (
        library.compile_graph(export.export_module(module, inputs, device="cpu"), target)
        if target == "cpu"
        else compile_for_gpu(module, *inputs)
    )
    if edge.ours:
        assert made["kernels"] and made["library_ops"] == []
    path = folder / f"{name}_{target}.py"
    path.write_text(made["source"])
    return made, path


@pytest.mark.time_limit(400)
@each_edge
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    _, path = emitted(name, "cpu", tmp_path)
    check(EDGES[name], problem.load_module(path, kind="candidate")[0])


interpreter = interpreter_of("edge_cases:interpreted")


@pytest.mark.by_day(2)
@pytest.mark.time_limit(400)
@each_edge
def test_in_triton(name: str, tmp_path: Path, interpreter: InterpreterProcess) -> None:
    pytest.importorskip("triton")
    made, path = emitted(name, "triton", tmp_path)
    # The interpreter runs one program at a time: kernels whose programs wait for each other run in tests/device.
    if "its kernels' programs wait for each other" not in path.read_text():
        fault = interpreter.fault(edge=name, candidate=str(path))
        assert not fault, fault
    rows = (
        compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"] if made["kernels"] else []
    )
    assert all(row["ok"] for row in rows), [row["error"] for row in rows]
