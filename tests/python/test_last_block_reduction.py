"""Last-block reductions, two kernels in one launch: what the last program makes of the others' partial results, call
after call, and what is compiled ahead for it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter_process import InterpreterProcess

from kernelwright import compile_only, library
from kernelwright.capture import export
from kernelwright.running import problem

pytest.importorskip("triton")


class Losses(torch.nn.Module):
    """A scalar, and statistics of few columns: both are cut into parts."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((x - y) ** 2).mean() + 1, (x * 2).sum(0), y.amin(0)


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(9000, 8, generator=generator) for _ in range(2)]


def made(folder: Path) -> Path:
    answer = library.compile_graph(export.export_module(Losses(), tuple(inputs()), device="cpu"), "triton")
    assert answer["library_ops"] == []
    path = folder / "candidate.py"
    path.write_text(answer["source"])
    return path


def check(request: dict[str, Any]) -> str:
    """In the interpreter: three calls, for the counter must be back at 0 after each."""
    module, _ = problem.load_module(Path(request["path"]), kind="candidate")
    for _ in range(3):
        results = module.kernel_forward(*inputs())
        for ours, theirs in zip(results, Losses()(*inputs()), strict=True):
            if not torch.allclose(ours, theirs, rtol=2e-5, atol=1e-3):
                return f"{ours} instead of {theirs}"
    return ""


def test_the_last_program_adds_the_parts(tmp_path: Path) -> None:
    path = made(tmp_path)
    source = path.read_text()
    launches = re.findall(r"^    launch\(\s*(\w+),", source, re.M)
    assert launches and all("_in_one_kernel" in name for name in launches), launches
    process = InterpreterProcess(tmp_path, "test_last_block_reduction:check")
    assert process.fault(path=str(path)) == ""
    process.close()


def test_both_kernels_are_compiled_as_one(tmp_path: Path) -> None:
    path = made(tmp_path)
    module, _ = problem.load_module(path, kind="candidate")
    launches = set(re.findall(r"^    launch\(\s*(\w+),", path.read_text(), re.M))
    assert {entry["kernel"] for entry in module.KERNEL_SIGNATURES} == launches
    for entry in module.KERNEL_SIGNATURES:
        code = compile_only.compile_entry(module, entry, 90).asm["ptx"]
        # All of a program's stores come before its count, and the last program's loads after it.
        assert re.search(r"atom\.global\.gpu\.acq_rel\.add|atom\.add\.acq_rel|atom\.global\.acq_rel\.gpu\.add", code), (
            re.findall(r"atom[.\w]*", code)
        )
