"""How modules are compiled and cases (movement_cases and the like) are checked: for real on the CPU, in Triton's
interpreter, and compiled for Hopper.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import types
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch
from interpreter_process import InterpreterProcess
from movement_cases import Case, Draw, Wrapped, fault_of

from kernelwright import compile_only, library
from kernelwright.capture import export

SEEDS = range(int(os.environ.get("KW_EXAMPLES") or (3 if os.environ.get("KW_TEST_ALL") else 1)))


def emit(case: Case, target: str) -> dict[str, Any]:
    return library.compile_graph(export.export_module(Wrapped(case.function), case.arguments), target)


def compile_for_gpu(module: torch.nn.Module, *arguments: Any, **options: Any) -> dict[str, Any]:
    """From the graph as it would be captured on a GPU."""
    graph = json.dumps(export.export_module(module, arguments, device="cpu")).replace('"cpu"', '"cuda"')
    return library.compile_graph(json.loads(graph), "triton", **options)


def as_one_group(
    module: torch.nn.Module,
    arguments: list[torch.Tensor],
    scheduler: str,
    parameters: dict[str, int],
    target: str = "triton",
) -> dict[str, Any]:
    """The candidate in which everything that the module does is one group of this scheduler."""
    graph = export.export_module(module, tuple(arguments), device="cpu")
    schedule = library.compile_graph(graph, target, caution="unfused")["schedule"]
    nodes = sorted({node for group in schedule["groups"] for node in group["nodes"]})
    schedule["groups"] = [{"nodes": nodes, "scheduler": scheduler, "parameters": parameters}]
    return library.compile_graph(graph, target, schedule=schedule)


def with_ours(
    module: torch.nn.Module, arguments: list[torch.Tensor], scheduler: str, parameters: dict[str, int], **options: Any
) -> dict[str, Any]:
    """The candidate whose library calls are groups of this scheduler, however small they are."""
    graph = export.export_module(module, tuple(arguments), device="cpu")
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "extern":
            group |= {"scheduler": scheduler, "parameters": parameters}
    return library.compile_graph(graph, "triton", schedule=schedule, **options)


def machine_code(emitted: dict[str, Any], folder: Path, sm: int = 90) -> dict[str, Any]:
    """A candidate's kernels by name, compiled for an H100, or for another compute capability."""
    path = folder / "candidate.py"
    path.write_text(emitted["source"])
    specification = importlib.util.spec_from_file_location("candidate", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return {entry["kernel"]: compile_only.compile_entry(module, entry, sm) for entry in module.KERNEL_SIGNATURES}


def emit_for_gpu(case: Case) -> dict[str, Any]:
    return compile_for_gpu(Wrapped(case.function), *case.arguments)


def interpreter_of(function: str) -> Callable[..., Iterator[InterpreterProcess]]:
    """A module's fixture: the process in which `function` ("module:name") checks candidates."""

    @pytest.fixture(scope="module")
    def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InterpreterProcess]:
        pytest.importorskip("triton")
        process = InterpreterProcess(tmp_path_factory.mktemp("interpreter"), function)
        yield process
        process.close()

    return interpreter


def load(source: str) -> types.ModuleType:
    candidate = types.ModuleType("candidate")
    exec(source, candidate.__dict__)
    return candidate


def check_on_the_cpu(
    make: Callable[[Draw], Case], around: Callable[[], Any] = contextlib.nullcontext, seeds: range = SEEDS
) -> None:
    for seed in seeds:
        case = make(Draw(seed))
        emitted = emit(case, "cpu")
        assert emitted["library_ops"] == [], f"seed {seed}: {emitted['library_ops']}"
        fault = fault_of(case, load(emitted["source"]), around)
        assert not fault, f"seed {seed}: {fault}\n{emitted['source']}"


def check_in_triton(
    name: str,
    emit_of: Callable[[Draw], dict[str, Any]],
    interpreter: InterpreterProcess,
    folder: Path,
    seeds: range = SEEDS,
) -> None:
    """`name` is what the interpreter's process knows the case by."""
    from kernelwright import compile_only

    for seed in seeds:
        emitted = emit_of(Draw(seed))
        assert emitted["library_ops"] == []
        path = folder / f"candidate_{seed}.py"
        path.write_text(emitted["source"])
        fault = interpreter.fault(case=name, seed=seed, candidate=str(path))
        assert not fault, f"seed {seed}: {fault}\n{emitted['source']}"
        if seed == seeds[0]:
            rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
            assert all(row["ok"] for row in rows), [row["error"] for row in rows]
