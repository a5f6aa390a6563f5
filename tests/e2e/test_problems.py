"""The suite in problems/: every module is plain PyTorch, described, emitted for both targets at both sizes, and
verified on the CPU.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright import library
from kernelwright.capture import export
from kernelwright.judge import verification
from kernelwright.running import problem

SUITE = Path(__file__).resolve().parent.parent.parent / "problems"
FILES = sorted(SUITE.glob("*/*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
CATEGORIES = {
    "pointwise", "reduction", "normalisation", "scan", "pooling", "loss",
    "movement", "quantised", "contraction", "attention", "convolution", "blocks",
}  # fmt: skip
# Nothing in these may be left to the library.
ALL_OURS = {"pointwise", "reduction", "normalisation"}
PLACES = {"cpu": "cpu", "triton": "cuda"}


def test_the_suite_is_whole() -> None:
    count = Counter(path.parent.name for path in FILES)
    assert count.keys() == CATEGORIES
    assert min(count.values()) >= 5 and sum(count.values()) >= 60


def test_every_module_is_described() -> None:
    page = (SUITE / "README.md").read_text()
    for path in FILES:
        assert f"`{path.stem}`" in page, f"problems/README.md says nothing of {path.parent.name}/{path.stem}"
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_every_module_has_both_sizes_and_is_full_without_a_choice() -> None:
    for path in FILES:
        loaded = problem.load(path)
        assert list(loaded.module.SIZES) == ["cpu", "full"], path
        assert inspect.signature(loaded.get_inputs).parameters["size"].default == "full", path
        with torch.device("meta"):
            assert (
                _forms(loaded.get_inputs()) == _forms(loaded.get_inputs("full")) != _forms(loaded.get_inputs("cpu"))
            ), path


def _forms(inputs: list[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(one.shape, one.dtype) for one in inputs]


@functools.cache
def emitted(path: Path, target: str, size: str) -> dict[str, Any]:
    loaded = problem.load(path, size)
    return library.compile_graph(export.capture(loaded, PLACES[target]), target, problem_source=loaded.source)


@pytest.mark.by_day(3)
@each_file
def test_emits_for_both_targets_at_both_sizes(path: Path) -> None:
    for target in PLACES:
        for size in ("cpu", "full"):
            made = emitted(path, target, size)
            compile(made["source"], path.name, "exec")
            assert made["kernels"] or made["library_calls"]
            if path.parent.name in ALL_OURS:
                assert made["library_ops"] == [], f"{target}, {size}"


@pytest.mark.by_day(3)
@each_file
def test_verifies_on_the_cpu(path: Path, tmp_path: Path) -> None:
    candidate = tmp_path / f"{path.stem}_kw.py"
    candidate.write_text(emitted(path, "cpu", "cpu")["source"])
    request = {
        "problem": str(path),
        "size": "cpu",
        "candidate": str(candidate),
        "device": "cpu",
        "seed": 20,
        "draws": 3,
    }
    verdict = library.judge(verification.run(request, lambda stage, fraction: None), "reference")
    assert verdict["verdict"] == "pass", verdict["reason"]
