"""Edges of what tensors hold and how they lie: kernels for both targets answer as PyTorch does, on the CPU for real and in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from edge_cases import EDGES, check

from kernelwright import compile_only, export, library, problem

HERE = Path(__file__).resolve().parent
each_edge = pytest.mark.parametrize("name", EDGES)


def emitted(name: str, target: str, folder: Path) -> tuple[dict[str, Any], Path]:
    edge = EDGES[name]
    made = library.compile_graph(export.export_module(edge.module(), tuple(edge.inputs()), device="cpu"), target)
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


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    search = os.pathsep.join([str(HERE), str(HERE.parent.parent / "python"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": search}
    process = subprocess.Popen([sys.executable, str(HERE / "interpret_edges.py")], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    assert process.stdin
    process.stdin.close()
    process.wait(timeout=30)


@pytest.mark.time_limit(400)
@each_edge
def test_in_triton(name: str, tmp_path: Path, interpreter: subprocess.Popen[str]) -> None:
    pytest.importorskip("triton")
    made, path = emitted(name, "triton", tmp_path)
    # The interpreter runs one program at a time: kernels whose programs wait for each other run in tests/device.
    if "The programs of the row wait for each other." not in path.read_text():
        assert interpreter.stdin and interpreter.stdout
        print(json.dumps({"edge": name, "candidate": str(path)}), file=interpreter.stdin, flush=True)
        fault = json.loads(interpreter.stdout.readline())["fault"]
        assert not fault, fault
    rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"] if made["kernels"] else []
    assert all(row["ok"] for row in rows), [row["error"] for row in rows]
