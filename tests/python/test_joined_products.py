"""Linear layers of the same few rows as one product with their weights concatenated, in evaluation mode."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import graph_text
import pytest
import torch
import torch.nn.functional as F
from case_checks import compile_for_gpu
from interpreter_process import InterpreterProcess
from test_emitted_modes import load

from kernelwright import library
from kernelwright.capture import export

FEATURES = 96


class Attention(torch.nn.Module):
    """Queries, keys and values, of which keys have no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(FEATURES, FEATURES, bias=name != "k") for name in "qkv")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).view(*x.shape[:2], 3, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v)


class Gated(torch.nn.Module):
    """A SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(FEATURES, 2 * FEATURES, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(2 * FEATURES, FEATURES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Apart(torch.nn.Module):
    """Two layers, one by a matrix with its outputs last, whose columns stay apart."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.randn(FEATURES, 2 * FEATURES)) for _ in range(2))
        self.bias = torch.nn.Parameter(torch.randn(2 * FEATURES))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.flatten(0, 1)
        return torch.addmm(self.bias, rows, self.first) + 1.0, (rows @ self.second) * 2.0


class Words(torch.nn.Module):
    """Layers of rows that are looked up: on a GPU the host looks at each call at the indices that kernels refused."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.gated = torch.nn.Embedding(50, FEATURES), Gated()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gated(self.words(x.long().abs()[..., 0]) * 2.0)


# Each with the layers that are joined, and the calls of the library that are left on a GPU.
MODULES: dict[str, tuple[type[torch.nn.Module], list[str], int]] = {
    "attention": (Attention, ["q.weight", "k.weight", "v.weight"], 2),
    "gated": (Gated, ["gate.weight", "up.weight"], 2),
    "apart": (Apart, ["first", "second"], 1),
    "words": (Words, ["gated.gate.weight", "gated.up.weight"], 2),
}


def module_of(name: str) -> torch.nn.Module:
    torch.manual_seed(4)
    return MODULES[name][0]().eval()


def rows(count: int = 4) -> torch.Tensor:
    return torch.randn(1, count, FEATURES, generator=torch.Generator().manual_seed(5)) * 3


def parts(source: str) -> tuple[str, str]:
    """prepared_weights and kernel_forward."""
    found = [
        source.partition(f"def {name}(")[2].partition("\n\n\n")[0] for name in ("prepared_weights", "kernel_forward")
    ]
    return found[0].partition("def kernel_forward(")[0], found[1]


@pytest.mark.parametrize("name", MODULES)
def test_few_rows_are_multiplied_at_once_with_what_is_made_once(name: str) -> None:
    pytest.importorskip("triton")
    _, weights, calls = MODULES[name]
    made = compile_for_gpu(module_of(name), rows())
    prepared, forward = parts(made["source"])
    assert made["library_calls"] == calls
    assert all(weight.replace(".", "_") + "," in prepared for weight in weights)
    assert "cat_kernel" in prepared and "cat_kernel" not in forward and "joined_weight" in forward


@pytest.mark.parametrize("name", MODULES)
def test_many_rows_and_training_stay_apart(name: str) -> None:
    pytest.importorskip("triton")
    for module, x in ((module_of(name), rows(17)), (module_of(name).train(), rows())):
        assert "joined_weight" not in compile_for_gpu(module, x)["source"]


@pytest.mark.parametrize("name", MODULES)
def test_they_stay_apart_on_a_cpu(name: str) -> None:
    made = library.compile_graph(export.export_module(module_of(name), (rows(),)), "cpu")
    assert "joined_weight" not in made["source"]


def interpreted(request: dict[str, Any]) -> str:
    """Calls in the interpreter, between which one weight after the other changes in place."""
    path, name = Path(request["path"]), request["name"]
    module, file = module_of(name), load(path.read_text(), path.parent, "joined")
    ours, prepare, times = file.ModelNew(module), file.prepared_weights, 0

    def counted(*weights: torch.Tensor) -> Any:
        nonlocal times
        times += 1
        return prepare(*weights)

    file.prepared_weights = counted

    def check(so_often: int) -> None:
        torch.testing.assert_close(ours(rows()), module(rows()), equal_nan=True)
        assert times == so_often, times

    with torch.no_grad():
        check(1)
        check(1)
        for count, weight in enumerate(MODULES[name][1], 2):
            module.get_parameter(weight).mul_(0.5)
            check(count)
            check(count)
        for number in (float("inf"), float("nan")):
            module.get_parameter(MODULES[name][1][0])[3, 5] = number
            torch.testing.assert_close(ours(rows()), module(rows()), equal_nan=True)
    return ""


@pytest.mark.parametrize("name", MODULES)
def test_results_are_right_when_a_weight_has_changed(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "candidate.py"
    path.write_text(compile_for_gpu(module_of(name), rows())["source"])
    process = InterpreterProcess(tmp_path, "test_joined_products:interpreted")
    assert process.fault(path=str(path), name=name) == ""
    process.close()


@pytest.mark.parametrize("number", [0.5, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["attention", "gated", "apart"])
def test_the_graph_computes_the_same(home: Path, tmp_path: Path, name: str, dtype: torch.dtype, number: float) -> None:
    module, x = module_of(name).to(dtype), rows().to(dtype)
    with torch.no_grad():
        module.get_parameter(MODULES[name][1][0])[3, 5] = number
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(export.export_module(module, (x,))))
    tool = [str(home / "build/tests/unit/graph_tool"), str(path), "triton"]
    texts = [
        subprocess.run([*tool, "canonicalise", *passes, "dead_code"], capture_output=True, text=True, check=True).stdout
        for passes in ([], ["joined_products"])
    ]
    assert ["joined_weight" in text for text in texts] == [False, True]
    with torch.no_grad():
        apart, joined = (graph_text.run(text, module, {"x": x}) for text in texts)
    for one, other in zip(joined, apart, strict=True):
        assert torch.equal(one.isfinite(), other.isfinite())
        torch.testing.assert_close(one, other, equal_nan=True)
