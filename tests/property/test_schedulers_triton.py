"""Random modules, captured, scheduled and printed for Triton, compute in its interpreter what eager PyTorch computes, and compile for Hopper."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Iterator

import pytest
from hypothesis import example, given, settings
from interpreter_process import InterpreterProcess
from random_modules import normalisation_recipes, pointwise_recipes, reduction, reduction_recipes, scan, scan_recipes
from random_pools import pooling, pooling_recipes
from recipe_check import Recipe, emit, examples

pytest.importorskip("triton")

counted = settings(max_examples=examples(full=20, quick=3), deadline=None, derandomize=True)


class Interpreter(InterpreterProcess):
    """Started once, with a folder for candidates."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "recipe_check:interpreted")
        self.folder = folder

    def file(self, source: str) -> Path:
        path = self.folder / f"candidate_{hashlib.sha256(source.encode()).hexdigest()[:16]}.py"
        path.write_text(source)
        return path


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    made = Interpreter(tmp_path_factory.mktemp("recipes"))
    yield made
    made.close()


def check_in_triton(recipe: Recipe, interpreter: Interpreter) -> None:
    from kernelwright import compile_only

    emitted = emit(recipe, "triton")
    if recipe["inputs"][0]["dtype"] == "float32":
        # Library calls alone would be right, too.
        assert emitted["kernels"] and all(f"def {name}(" in emitted["source"] for name in emitted["kernels"]), emitted["library_ops"]
        if recipe["family"] != "normalisation":
            assert emitted["library_ops"] == []
    path = interpreter.file(emitted["source"])
    fault = interpreter.fault(recipe=recipe, candidate=str(path))
    assert not fault, fault
    rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
    assert {row["name"] for row in rows} == set(emitted["kernels"])
    assert all(row["ok"] for row in rows), [row["error"] for row in rows]


@pytest.mark.time_limit(400)
@counted
@given(recipe=pointwise_recipes())
def test_pointwise(recipe: Recipe, interpreter: Interpreter) -> None:
    check_in_triton(recipe, interpreter)


@pytest.mark.time_limit(400)
@counted
@given(recipe=reduction_recipes())
@example(recipe=reduction("argmax", [1]))  # 0 whatever the input holds, so that no kernel reads it
def test_reductions(recipe: Recipe, interpreter: Interpreter) -> None:
    check_in_triton(recipe, interpreter)


@pytest.mark.time_limit(400)
@counted
@given(recipe=normalisation_recipes())
def test_normalisations(recipe: Recipe, interpreter: Interpreter) -> None:
    check_in_triton(recipe, interpreter)


@pytest.mark.time_limit(400)
@counted
@given(recipe=pooling_recipes())
@example(recipe=pooling("max_pool", [2, 1, 2], [2], [1], padding=[1], dilation=[3]))  # a window of padding alone
@example(recipe=pooling("avg_pool", [1, 2, 22, 23], [11, 11], [11, 11]))
@example(recipe=pooling("max_pool", [1, 2, 40, 41], [9, 9], [3, 3], padding=[4, 4], ceil_mode=True))
@example(recipe=pooling("avg_pool", [1, 2, 5, 7], [3, 3], [2, 2], padding=[1, 1], ceil_mode=True, count_include_pad=False))
@example(recipe=pooling("max_pool", [3, 5, 64], [3], [1], padding=[1], prologue=["sigmoid"]))  # four results side by side
@example(recipe=pooling("avg_pool", [3, 5, 72], [3], [1]))  # the last vector of elements reaches past the end
@example(recipe=pooling("avg_pool", [3, 5, 64], [3], [2], padding=[1], dtype="bfloat16", count_include_pad=False))  # two results side by side
@example(recipe=pooling("max_pool", [2, 7, 64], [2, 3], [1, 1], padding=[1, 1], prologue=["relu"]))  # tiles of rows and vectors
def test_pooling(recipe: Recipe, interpreter: Interpreter) -> None:
    check_in_triton(recipe, interpreter)


@pytest.mark.time_limit(400)
@counted
@given(recipe=scan_recipes())
@example(recipe=scan("cumsum", [2, 4999]))  # more than one block, the last one not full
@example(recipe=scan("cumsum", [2, 4999], form="exclusive_reversed"))
@example(recipe=scan("cummax", [2, 4999], form="reversed"))
@example(recipe=scan("cumprod", [2, 37, 70], axis=1, form="reversed"))
def test_scans(recipe: Recipe, interpreter: Interpreter) -> None:
    check_in_triton(recipe, interpreter)
