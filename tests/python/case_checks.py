"""How a case of movement_cases or scatter_cases is checked: for real on the CPU, in Triton's interpreter, and compiled for Hopper."""

from __future__ import annotations

import contextlib
import os
import types
from pathlib import Path
from typing import Any, Callable

from interpreter_process import InterpreterProcess
from movement_cases import Case, Draw, Wrapped, fault_of

from kernelwright import export, library

QUICK = bool(os.environ.get("KW_TEST_QUICK"))
SEEDS = range(int(os.environ.get("KW_EXAMPLES") or (1 if QUICK else 3)))


def emit(case: Case, target: str) -> dict[str, Any]:
    return library.compile_graph(export.export_module(Wrapped(case.function), case.arguments), target)


def load(source: str) -> types.ModuleType:
    candidate = types.ModuleType("candidate")
    exec(source, candidate.__dict__)
    return candidate


def check_on_the_cpu(make: Callable[[Draw], Case], around: Callable[[], Any] = contextlib.nullcontext, seeds: range = SEEDS) -> None:
    for seed in seeds:
        case = make(Draw(seed))
        emitted = emit(case, "cpu")
        assert emitted["library_ops"] == [], f"seed {seed}: {emitted['library_ops']}"
        fault = fault_of(case, load(emitted["source"]), around)
        assert not fault, f"seed {seed}: {fault}\n{emitted['source']}"


def check_in_triton(name: str, emit_of: Callable[[Draw], dict[str, Any]], interpreter: InterpreterProcess, folder: Path, seeds: range = SEEDS) -> None:
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
