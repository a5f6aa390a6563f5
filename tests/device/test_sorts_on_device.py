"""Sorts and topk on the GPU: the cases that are interpreted elsewhere, and rows as long as a program holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from movement_cases import Case, Draw, Wrapped, fault_of
from recipe_check import load
from sort_cases import AROUND, CASES

from kernelwright import library
from kernelwright.capture import export


def check(case: Case, device: str, target: str, folder: Path) -> None:
    # PyTorch's sorts of some lengths go by the bits on a GPU, where a NaN with a sign is the least.
    case.arguments = tuple(
        torch.where(argument.isnan(), torch.nan, argument).to(argument.dtype).to(device)
        if argument.is_floating_point()
        else argument.to(device)
        for argument in case.arguments
    )
    emitted = library.compile_graph(export.export_module(Wrapped(case.function), case.arguments, device=device), target)
    assert emitted["library_ops"] == []
    path = folder / "candidate.py"
    path.write_text(emitted["source"])
    fault = fault_of(case, load(path), AROUND)
    assert not fault, f"{fault}\n{emitted['source']}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_every_case(name: str, seed: int, device: str, target: str, tmp_path: Path) -> None:
    if device == "cpu" and target == "triton":
        pytest.skip("what a GPU's kernels sort is decided by the graph's device")
    check(CASES[name](Draw(100 + seed)), device, target, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize(("rows", "length"), [(3000, 64), (1031, 257), (513, 512)])
def test_rows_that_fit_a_program(
    rows: int, length: int, dtype: torch.dtype, device: str, target: str, tmp_path: Path
) -> None:
    x = (torch.randn(rows, length) * 100).to(dtype)
    check(
        Case(lambda x: (*torch.sort(x, dim=1), *torch.sort(x, dim=1, descending=True)), (x,)), device, target, tmp_path
    )


@pytest.mark.parametrize("count", [1, 8, 16])
@pytest.mark.parametrize(("rows", "length"), [(5000, 64), (700, 4099), (64, 16384)])
def test_a_few_of_long_rows(rows: int, length: int, count: int, device: str, target: str, tmp_path: Path) -> None:
    check(
        Case(lambda x: torch.topk(x, count, dim=1), (torch.randn(rows, length).bfloat16(),)), device, target, tmp_path
    )
