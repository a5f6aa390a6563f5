"""Names in emitted files: nothing of Python's, of C's or of the user's is hidden behind one of ours."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_emitted_modes import load
from torch import nn

from kernelwright import library
from kernelwright.capture import export

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
AWKWARD = (
    "class",
    "lambda",
    "int",
    "self",
    "torch",
    "tl",
    "sum",
    "kernel_forward",
    "load_kernels",
    "threads",
    "row",
    "div",
    "exp",
    "bounded",
    "exp_f32",
    "y0",
    "out_",
    "ctypes",
)


class Awkward(nn.Module):
    """Buffers that are called like keywords, builtins, functions of C and parts of the emitted file."""

    def __init__(self) -> None:
        super().__init__()
        for index, name in enumerate(AWKWARD):
            self.register_buffer(name, torch.full((8,), float(index)))

    def forward(
        self, input: torch.Tensor, len: list[torch.Tensor], repr: float = 2.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = input
        for name in AWKWARD:
            total = total + self._buffers[name]
        return total.exp() / total.sum(-1, keepdim=True), total * len[0] * repr


class Slices(nn.Module):
    """Reductions over two axes beside added and largest values: what takes names like sum, max and slice."""

    def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, ...]:
        added = input + 1.0
        return (
            added.abs().amax((1, 3)),
            (added + input).sum((1, 3)),
            torch.softmax(added + input, -1),
            input.round().exp().log(),
        )


class Tiles(nn.Module):
    """Products on tiles, whose kernels look for the largest, the smallest and any that is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv3d(3, 64, 3)
        self.sum = nn.Linear(2048, 2048)

    def forward(self, image: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.filter(image).amax(1), self.sum(rows).sum(0)


def sources(module: nn.Module, *arguments: Any) -> dict[str, str]:
    graphs = {
        "cpu": export.export_module(module, arguments),
        "triton": export.export_module(module, arguments, device="cuda"),
    }
    return {target: library.compile_graph(graph, target)["source"] for target, graph in graphs.items()}


CASES = {"awkward": lambda: sources(Awkward(), X, [X]), "slices": lambda: sources(Slices(), torch.randn(2, 3, 4, 5))}


ON_TILES = {"tiles": lambda: sources(Tiles(), torch.empty(8, 3, 16, 32, 32), torch.empty(2048, 2048))}


@pytest.mark.parametrize("case", CASES | ON_TILES)
def test_no_builtin_is_hidden(case: str) -> None:
    emitted = (CASES | ON_TILES)[case]()
    assert ("tl.dot(" in emitted["triton"]) == (case in ON_TILES)
    for source in emitted.values():
        tree = ast.parse(source)
        forward = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")
        theirs = {argument.arg for argument in forward.args.args}
        modules = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        assigned = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} - theirs - {"self"}
        assert not (assigned | parameters) & (set(dir(builtins)) | modules)


@pytest.mark.parametrize("case", CASES)
def test_no_function_of_c_is_hidden(case: str) -> None:
    kernels = CASES[case]()["cpu"].partition("}  // namespace")[2].partition('"""')[0]
    declared = set(re.findall(r"(?:float|double|bool|\w+_t)\*? (\w+)(?=[ ,;\[)])", kernels))
    assert {"x", "row", "input"} & declared and not declared & {
        "exp",
        "log",
        "div",
        "abs",
        "y0",
        "index",
        "round",
        "gamma",
        "bounded",
        "exp_f32",
    }


def test_awkward_names_compute_what_they_should(tmp_path: Path) -> None:
    module = Awkward()
    made = load(library.compile_graph(export.export_module(module, (X, [X])), "cpu")["source"], tmp_path).ModelNew(
        module
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        torch.testing.assert_close(made(input=X, len=[X]), module(X, [X]))
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        torch.testing.assert_close(made(X, [X, X], repr=3.0), module(X, [X, X], repr=3.0))
    assert len(caught) == 1 and "other arguments" in str(caught[0].message)


PROBLEM = """
import torch
from torch import all, any, nn
import math as re

zip = 3
functools = "the user's"
KERNEL_PARAMETERS = 4
OWN = GUARDS = PLACES = "the user's"
remember = "the user's"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))  # enough tensors to be checked at once
        self.constant = nn.Linear(8, 8)

    def forward(self, x):
        assert KERNEL_PARAMETERS == 4 and functools == OWN == GUARDS == PLACES == remember and zip == 3
        return self.constant(self.layers(torch.where(any(x > 0) & ~all(x > 9), x * re.pi, x)))


def get_inputs():
    return [torch.ones(4, 8)]


def get_init_inputs():
    return []
"""


def test_the_users_own_globals_stay_theirs(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    graph = export.run({"problem": str(path), "device": "cpu"}, lambda stage, fraction: None)["graph"]
    loaded: ModuleType = load(library.compile_graph(graph, "cpu", problem_source=PROBLEM)["source"], tmp_path)
    torch.manual_seed(0)
    model = loaded.Model()
    torch.manual_seed(0)
    made = loaded.ModelNew()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        torch.testing.assert_close(made(X), model(X))
    with pytest.warns(UserWarning, match="not a tensor of shape"):
        torch.testing.assert_close(made(X[:2]), model(X[:2]))
