"""Loops over a sequence, which export unrolls, are recurrences again: right on a CPU and as kernels of each step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, machine_code
from interpreter_process import InterpreterProcess
from loop_cases import CASES, build, interpreted

from kernelwright import library
from kernelwright.capture import export

interpreter = interpreter_of("loop_cases:interpreted")


def emitted_for(name: str, target: str, **options: Any) -> dict[str, Any]:
    module, arguments = build(name)
    graph = export.export_module(module, tuple(arguments), device="cpu")
    return library.compile_graph(graph, target, **options)


@pytest.mark.parametrize("name", CASES)
def test_loops_are_pytorchs_on_a_cpu(name: str, tmp_path: Path) -> None:
    emitted = emitted_for(name, "cpu")
    # One kernel, or a call of the library's own steps, for each.
    walks = re.findall(r"( = (?:rnn|lstm|gru)_steps\(|\.(?:rnn|lstm|gru)_steps_kernel\w*\()", emitted["source"])
    assert len(walks) == CASES[name][1]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreted({"candidate": str(path), "case": name})
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.parametrize("name", ["cell", "lstm", "other_gates", "gru", "gru_batch_first"])
def test_steps_of_the_library_are_pytorchs(name: str, tmp_path: Path) -> None:
    """What is written where no kernel takes the recurrence."""
    schedule = emitted_for(name, "cpu")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "recurrence":
            group["scheduler"], group["parameters"] = "extern", {}
    emitted = emitted_for(name, "cpu", schedule=schedule)
    assert len(re.findall(r" = (?:rnn|lstm|gru)_steps\(", emitted["source"])) == CASES[name][1]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreted({"candidate": str(path), "case": name})
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_each_step_are_pytorchs(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """The interpreter runs programs one by one: none may wait for another."""
    schedule = emitted_for(name, "triton")["schedule"]
    found = [group for group in schedule["groups"] if group["scheduler"] == "recurrence"]
    assert len(found) == CASES[name][1]
    for group in found:
        group["parameters"] = {"block_k": 16, "persistent": 0}
    emitted = emitted_for(name, "triton", schedule=schedule)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=name)
    assert not fault, f"{fault}\n{emitted['source']}"


def test_weights_that_want_gradients_run_without_them() -> None:
    """Where the caller has not switched gradients off, the module is eager's."""
    module, arguments = build("cell")
    namespace: dict[str, Any] = {}
    exec(emitted_for("cell", "cpu")["source"], namespace)
    ours = namespace["ModelNew"](module)
    ours(*arguments)[0].sum().backward()
    assert module.cell.weight_hh.grad is not None


@pytest.mark.parametrize("name", ["gru_of_all_steps", "gru_of_two_layers", "gru_of_layers"])
def test_infinities_and_nans_of_a_loop_are_eagers(name: str) -> None:
    module, (x, h) = build(name)
    x[1, 0, 2], x[3, 1, 0], h[2, 4] = float("inf"), float("nan"), float("-inf")
    namespace: dict[str, Any] = {}
    exec(emitted_for(name, "cpu")["source"], namespace)
    with torch.no_grad():
        ours, eager = namespace["ModelNew"](module)(x, h), module(x, h)
    for mine, theirs in zip(*(one if isinstance(one, tuple) else (one,) for one in (ours, eager)), strict=True):
        assert theirs.isnan().any() and theirs.isfinite().any()
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_loops_in_bfloat16_stay_steps() -> None:
    module, arguments = build("gru")
    graph = export.export_module(module.bfloat16(), tuple(one.bfloat16() for one in arguments), device="cpu")
    emitted = library.compile_graph(graph, "cpu")
    assert all(group["scheduler"] != "recurrence" for group in emitted["schedule"]["groups"])
    assert "_steps(" not in emitted["source"]
    namespace: dict[str, Any] = {}
    exec(emitted["source"], namespace)
    with torch.no_grad():
        arguments = [one.bfloat16() for one in arguments]
        torch.testing.assert_close(namespace["ModelNew"](module)(*arguments), module(*arguments), rtol=0.05, atol=0.02)


def test_a_loop_of_gru_cells_is_one_launch_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")

    class Long(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(256, 256)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            outs = []
            for now in x.unbind(0):
                h = self.cell(now, h)
                outs.append(h)
            return torch.stack(outs)

    emitted = compile_for_gpu(Long(), torch.randn(64, 8, 256), torch.randn(8, 256))
    assert emitted["source"].count("launch_cooperative_grid=True") == 1
    assert len(emitted["library_ops"]) <= 1  # the input's product
    assert "st.local" not in machine_code(emitted, tmp_path)["rnn_steps_kernel"].asm["ptx"]


def test_a_loop_is_one_launch_on_a_gpu(tmp_path: Path) -> None:
    """Of 256 steps, with weights in registers, which do not spill."""
    pytest.importorskip("triton")

    class Long(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = torch.nn.Linear(1280, 256), torch.nn.Linear(256, 128)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            outs = []
            for now in x.unbind(0):
                h = torch.tanh(self.hidden(torch.cat((now, h), 1)))
                outs.append(self.out(h))
            return torch.stack(outs)

    emitted = compile_for_gpu(Long(), torch.randn(256, 8, 1024), torch.randn(8, 256))
    assert emitted["source"].count("launch_cooperative_grid=True") == 1
    assert len(emitted["library_ops"]) <= 1  # the outputs' small product
    code = machine_code(emitted, tmp_path)["rnn_steps_kernel"]
    assert "st.local" not in code.asm["ptx"]


def test_cells_can_be_traced_for_a_gpu() -> None:
    """PyTorch's own kernels of cells for a GPU cannot."""
    for name in ("gru", "lstm"):
        module, arguments = build(name)
        graph = export.export_module(module, tuple(arguments), device="cuda")
        operators = {node["op"] for node in graph["nodes"]}
        assert "aten.linear.default" in operators and "aten.sigmoid.default" in operators
        assert not any("cell" in operator for operator in operators)
