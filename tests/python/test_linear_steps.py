"""Loops of h = a[t] * h + b[t] are one kernel each, which walks the steps: right on a CPU and in the interpreter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, machine_code
from interpreter_process import InterpreterProcess
from linear_step_cases import CASES, Case, _from_zeros, interpreted
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export

interpreter = interpreter_of("linear_step_cases:interpreted")
SPECIAL = ("from_zeros", "from_a_state", "of_which_the_last_is_read", "of_a_decay_for_each_row", "running_sum")


def emitted_for(case: Case, target: str, **options: Any) -> dict[str, Any]:
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    return library.compile_graph(graph, target, **options)


def written(emitted: dict[str, Any], folder: Path) -> str:
    path = folder / "candidate.py"
    path.write_text(emitted["source"])
    return str(path)


def walks_of(emitted: dict[str, Any]) -> int:
    return sum(group["scheduler"] == "recurrence" for group in emitted["schedule"]["groups"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_linear_steps_are_pytorchs_on_a_cpu(case: Case, tmp_path: Path) -> None:
    emitted = emitted_for(case, "cpu")
    assert walks_of(emitted) == case.kernels
    assert case.kernels == 0 or "aten.cat" not in emitted["library_ops"]
    fault = interpreted({"candidate": written(emitted, tmp_path), "case": case.name})
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_linear_steps_are_pytorchs_in_the_interpreter(
    case: Case, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = emitted_for(case, "triton")
    assert walks_of(emitted) == case.kernels
    fault = interpreter.fault(candidate=written(emitted, tmp_path), case=case.name)
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_not_finite_stays_where_eager_has_it(
    name: str, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == name)
    fault = interpreted({"candidate": written(emitted_for(case, "cpu"), tmp_path), "case": name, "special": True})
    assert not fault, fault
    emitted = emitted_for(case, "triton")
    fault = interpreter.fault(candidate=written(emitted, tmp_path), case=name, special=True)
    assert not fault, fault


@pytest.mark.parametrize("parameters", [{"block_n": 16, "stages": 1}, {"block_n": 128, "stages": 5, "num_warps": 4}])
@pytest.mark.parametrize("name", ["from_a_state", "of_which_the_last_is_read"])
def test_blocks_of_any_size_are_right(
    name: str, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    case = next(one for one in CASES if one.name == name)
    schedule = emitted_for(case, "triton")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "recurrence":
            group["parameters"] = parameters
    emitted = emitted_for(case, "triton", schedule=schedule)
    fault = interpreter.fault(candidate=written(emitted, tmp_path), case=name)
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.parametrize("name", ["from_zeros", "along_the_last", "of_one_decay", "of_which_the_last_is_read"])
def test_the_librarys_steps_are_pytorchs(name: str, tmp_path: Path) -> None:
    """What is written where no kernel takes them."""
    case = next(one for one in CASES if one.name == name)
    schedule = emitted_for(case, "cpu")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "recurrence":
            group["scheduler"], group["parameters"] = "extern", {}
    emitted = emitted_for(case, "cpu", schedule=schedule)
    assert " = linear_steps(" in emitted["source"]
    fault = interpreted({"candidate": written(emitted, tmp_path), "case": name})
    assert not fault, f"{fault}\n{emitted['source']}"


def test_halves_stay_steps() -> None:
    """Each step of theirs is rounded."""
    arguments = [one.half() for one in CASES[0].arguments()]
    graph = export.export_module(Wrapped(_from_zeros), tuple(arguments), device="cpu")
    emitted = library.compile_graph(graph, "cpu")
    assert walks_of(emitted) == 0
    namespace: dict[str, Any] = {}
    exec(emitted["source"], namespace)
    ours, eager = namespace["ModelNew"](torch.nn.Module())(*arguments), _from_zeros(*arguments)
    torch.testing.assert_close(ours, eager, rtol=0.01, atol=0.002)


def test_long_loops_are_one_short_kernel_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    emitted = compile_for_gpu(Wrapped(_from_zeros), torch.rand(300, 4, 64), torch.rand(300, 4, 64))
    assert walks_of(emitted) == 1 and emitted["library_ops"] == []
    code = machine_code(emitted, tmp_path)["linear_steps_kernel"]
    assert "st.local" not in code.asm["ptx"]
    # Eight steps' operands are in flight together.
    assert len(re.findall(r"ld\.global", code.asm["ptx"])) == 17
