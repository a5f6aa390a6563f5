"""Modules' graphs after passes, and what the tests of passes compare."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Callable

import graph_text
import pytest
import torch

from kernelwright.capture import export

EXACT = ["canonicalise", "fold", "layout", "identities", "cse", "dead_code"]


class Module(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(6, 8))
        self.register_buffer("running", torch.zeros(8))

    def forward(self, x, y, labels):
        return self.function(self, x, y, labels)


def graphs_after_passes(home: Path, tmp_path_factory):
    """The text of a module's graph after the named passes."""
    tool = home / "build" / "tests" / "unit" / "graph_tool"
    if not tool.exists():
        pytest.fail("build/tests/unit/graph_tool is missing: configure with -DKW_TESTS=ON and build")
    folder = tmp_path_factory.mktemp("graphs")

    def run(module: Module, inputs: dict[str, torch.Tensor], passes: list[str]) -> str:
        path = folder / f"{id(module.function)}-{inputs['x'].stride()}.json"
        if not path.exists():
            path.write_text(json.dumps(export.export_module(module, tuple(inputs.values()))))
        done = subprocess.run([tool, path, "cpu", *passes], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def drawn_inputs(special: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    if special:
        x.view(-1)[:10] = torch.tensor(
            [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3e38, -1.0, 1.0, -3e38]
        )
        y.view(-1)[:6] = torch.tensor([-0.0, 0.0, float("inf"), 2.0, float("nan"), -1e-42])
    return {"x": x, "y": y, "labels": torch.randint(0, 8, (6, 8))}


def strided_inputs() -> dict[str, torch.Tensor]:
    """The same sizes where memory is not row-major: transposed, expanded, a window of a larger tensor."""
    torch.manual_seed(8)
    return {
        "x": torch.randn(8, 6).t(),
        "y": torch.randn(1, 8).expand(6, 8),
        "labels": torch.randint(0, 8, (8, 10))[1:7, 1:9],
    }


def copied(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    copies = {}
    for name, tensor in inputs.items():
        extent = (
            tensor.storage_offset()
            + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            + 1
        )
        copies[name] = (
            tensor.as_strided((extent,), (1,), 0)
            .clone()
            .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        )
    return copies


def assert_same_bits(ours: torch.Tensor, theirs: torch.Tensor, text: str) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride()
    if ours.is_floating_point():
        assert torch.equal(ours.isnan(), theirs.isnan()), text
        ours, theirs = (
            torch.nan_to_num(ours, nan=7.0, posinf=8.0, neginf=9.0),
            torch.nan_to_num(theirs, nan=7.0, posinf=8.0, neginf=9.0),
        )
        assert torch.equal(ours.signbit(), theirs.signbit()), text
    assert torch.equal(ours, theirs), text


def assert_finite_where_eager_is(
    after_passes: Callable[..., str], module: Module, inputs: dict[str, torch.Tensor], passes: list[str]
) -> None:
    """With NaN and infinities among the inputs, each has what is finite, and NaN from NaN, in the same places."""
    has_nan = any(bool(one.isnan().any()) for one in inputs.values())
    text = after_passes(module, inputs, passes)
    with torch.no_grad():
        ours, eager = graph_text.run(text, module, copied(inputs)), module(**copied(inputs))
    for mine, theirs in zip(ours, eager, strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        if has_nan:
            assert torch.equal(mine.isnan(), theirs.isnan())
