"""Random modules, captured, scheduled and printed, compute in kernels of our own what eager PyTorch computes: on the
CPU for real, and in Triton's interpreter, where every kernel is compiled for Hopper too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from hypothesis import example, given, settings
from interpreter_process import InterpreterProcess
from random_modules import (
    normalisation,
    normalisation_recipes,
    pointwise_recipes,
    reduction,
    reduction_recipes,
    scan,
    scan_recipes,
)
from random_pools import pooling, pooling_recipes
from recipe_check import Recipe, check, emit, examples, load

Check = Callable[[Recipe], None]

# 20 of each family take a minute on the CPU where no kernel is in the cache yet: most of it is the compiler's.
counted = settings(max_examples=examples(full=6, quick=3), deadline=None, derandomize=True)


def kernels_of(recipe: Recipe, target: str, folder: Path) -> tuple[Path, list[str]]:
    """The candidate's file and the names of its kernels."""
    emitted = emit(recipe, target)
    if recipe["inputs"][0]["dtype"] == "float32":
        # Library calls alone would be right, too.
        head = "void {}(" if target == "cpu" else "def {}("
        assert emitted["kernels"] and all(head.format(name) in emitted["source"] for name in emitted["kernels"]), (
            emitted["library_ops"]
        )
        if recipe["family"] != "normalisation":
            assert emitted["library_ops"] == []
    path = folder / f"candidate_{hashlib.sha256(emitted['source'].encode()).hexdigest()[:16]}.py"
    path.write_text(emitted["source"])
    return path, emitted["kernels"]


def check_compiled(path: Path, kernels: list[str]) -> None:
    from kernelwright import compile_only

    rows: list[dict[str, Any]] = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
    assert {row["name"] for row in rows} == set(kernels)
    assert all(row["ok"] for row in rows), [row["error"] for row in rows]


@pytest.fixture(scope="module", params=["cpu", "triton"])
def check_recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """Checks one recipe's kernels for the target."""
    target, folder = request.param, tmp_path_factory.mktemp("recipes")
    if target == "cpu":
        yield lambda recipe: check(recipe, load(kernels_of(recipe, target, folder)[0]))
        return
    pytest.importorskip("triton")
    interpreter = InterpreterProcess(folder, "recipe_check:interpreted")

    def check_in_triton(recipe: Recipe) -> None:
        path, kernels = kernels_of(recipe, target, folder)
        fault = interpreter.fault(recipe=recipe, candidate=str(path))
        assert not fault, fault
        check_compiled(path, kernels)

    yield check_in_triton
    interpreter.close()


@pytest.mark.time_limit(400)
@counted
@given(recipe=pointwise_recipes())
def test_pointwise(recipe: Recipe, check_recipe: Check) -> None:
    check_recipe(recipe)


@pytest.mark.time_limit(400)
@counted
@given(recipe=reduction_recipes())
@example(recipe=reduction("argmax", [1]))  # 0 whatever the input holds, so that no kernel reads it
def test_reductions(recipe: Recipe, check_recipe: Check) -> None:
    check_recipe(recipe)


@pytest.mark.time_limit(400)
@counted
@given(recipe=normalisation_recipes())
@example(recipe=normalisation("batch_norm", [2, 2, 2], layout="transposed"))  # its result is contiguous
@example(recipe=normalisation("batch_norm_eval", [3, 4, 5, 2], layout="transposed"))
def test_normalisations(recipe: Recipe, check_recipe: Check) -> None:
    check_recipe(recipe)


@pytest.mark.time_limit(400)
@counted
@given(recipe=pooling_recipes())
@example(recipe=pooling("max_pool", [2, 1, 2], [2], [1], padding=[1], dilation=[3]))  # a window of padding alone
@example(recipe=pooling("avg_pool", [1, 2, 22, 23], [11, 11], [11, 11]))
@example(recipe=pooling("max_pool", [1, 2, 40, 41], [9, 9], [3, 3], padding=[4, 4], ceil_mode=True))
@example(
    recipe=pooling("avg_pool", [1, 2, 5, 7], [3, 3], [2, 2], padding=[1, 1], ceil_mode=True, count_include_pad=False)
)
@example(
    recipe=pooling("max_pool", [3, 5, 64], [3], [1], padding=[1], prologue=["sigmoid"])
)  # four results side by side
@example(recipe=pooling("avg_pool", [3, 5, 72], [3], [1]))  # the last vector of elements reaches past the end
@example(
    recipe=pooling("avg_pool", [3, 5, 64], [3], [2], padding=[1], dtype="bfloat16", count_include_pad=False)
)  # two results side by side
@example(
    recipe=pooling("max_pool", [2, 7, 64], [2, 3], [1, 1], padding=[1, 1], prologue=["relu"])
)  # tiles of rows and vectors
@example(recipe=pooling("adaptive_avg_pool", [2, 5, 60, 60], [7, 9]))  # windows of uneven sizes that lie far apart
@example(
    recipe=pooling("adaptive_max_pool", [3, 130], [48], prologue=["sigmoid"])
)  # and side by side, of a value that is computed
@example(recipe=pooling("adaptive_max_pool", [2, 3, 5, 3], [7, 1, 5]))  # more windows than elements, and one window
@example(recipe=pooling("adaptive_avg_pool", [2, 2, 67, 3], [2, 1], dtype="bfloat16"))
@example(
    recipe=pooling("adaptive_max_pool", [2, 5, 12, 17], [2, 5, 6], prologue=["sigmoid"])
)  # rows are folded before windows
@example(
    recipe=pooling("adaptive_avg_pool", [40, 97], [11])
)  # windows that start anywhere, of more than a vector's elements
def test_pooling(recipe: Recipe, check_recipe: Check) -> None:
    check_recipe(recipe)


@pytest.mark.time_limit(400)
@counted
@given(recipe=scan_recipes())
@example(recipe=scan("cumsum", [2, 4999]))  # more than one block, the last one not full
@example(recipe=scan("cumsum", [2, 4999], form="exclusive_reversed"))
@example(recipe=scan("cummax", [2, 4999], form="reversed"))
@example(recipe=scan("cumprod", [2, 37, 70], axis=1, form="reversed"))
def test_scans(recipe: Recipe, check_recipe: Check) -> None:
    check_recipe(recipe)
