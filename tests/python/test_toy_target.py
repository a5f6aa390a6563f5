"""A target that only the tests have (tests/unit/toy): what the compiler makes for it runs, and is right."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from kernelwright.api import _load
from kernelwright.capture.export import export_module

TOOL = Path(__file__).resolve().parent.parent.parent / "build" / "tests" / "unit" / "toy_tool"


class SumsOfProducts(torch.nn.Module):
    """A kernel with a fold, and one of the library behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin((x * self.weight - 1).sum(1))


class LargestAndPadded(torch.nn.Module):
    """Rows that no chunk divides, columns, and elements that are only there in part."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 2 - 1).amax(1), x.sum(0), torch.nn.functional.pad(x, (1, 2)) + 1


@pytest.mark.parametrize("module, shape", [(SumsOfProducts(), (6, 5)), (LargestAndPadded(), (7, 13))])
def test_what_is_compiled_for_a_new_target_runs(module: torch.nn.Module, shape: tuple, tmp_path: Path) -> None:
    assert TOOL.exists(), "configure with -DKW_TESTS=ON and build"
    x = torch.randn(*shape)
    graph = export_module(module, (x,), {}, device="cpu")
    (tmp_path / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    made = subprocess.run([TOOL, tmp_path / "graph.json"], capture_output=True, text=True, check=True).stdout
    assert "sum(" in made and "@triton" not in made
    with torch.no_grad():
        torch.testing.assert_close(_load(made)(module)(x), module(x))
