"""Steps of a loop that read and write other slices of the same tensors are launches of one kernel, and so are equal
blocks of a network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, load, machine_code
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from step_cases import CASES, STEPS, Loop, fault_of

from kernelwright import library
from kernelwright.capture import export

interpreter = interpreter_of("step_cases:interpreted")


def emitted_of(case: Loop, target: str) -> dict[str, Any]:
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    return library.compile_graph(graph, target)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_steps_are_pytorchs_in_few_kernels(case: Loop, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = emitted_of(case, "triton")
    assert len(emitted["kernels"]) == case.kernels
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault
    machine_code(emitted, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_steps_on_a_cpu(case: Loop) -> None:
    emitted = emitted_of(case, "cpu")
    assert len(emitted["kernels"]) == case.kernels
    fault = fault_of(load(emitted["source"]), case)
    assert not fault, fault


def test_each_step_is_launched_at_its_slice() -> None:
    source = emitted_of(CASES[0], "triton")["source"]
    moved = r"(\w+)\.as_strided\(\(1,\), \(1,\), \1\.storage_offset\(\) \+ (\d+)\)"
    starts = [int(start) for _, start in re.findall(moved, source)]
    assert starts == [48 * step for step in range(STEPS - len(starts), STEPS)] and len(starts) >= STEPS - 2


def test_a_kernel_that_is_used_once_keeps_its_offset() -> None:
    graph = export.export_module(Wrapped(lambda x: torch.sin(x[:, 3]) * 2), (torch.randn(4, 8, 16),), device="cpu")
    source = library.compile_graph(graph, "triton")["source"]
    assert "as_strided" not in source.split("def kernel_forward", 1)[1].split("def ", 1)[0]


class Blocks(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_equal_blocks_have_the_same_kernels() -> None:
    one, two, four = (compile_for_gpu(Blocks(count), torch.empty(8, 32, 64))["kernels"] for count in (1, 2, 4))
    assert len(one) == len(two) == len(four)
