"""Random modules, captured, scheduled and printed for the CPU, compute what eager PyTorch computes, in kernels of our own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from random_modules import normalisation, normalisation_recipes, pointwise_recipes, reduction_recipes, scan, scan_recipes
from random_pools import pooling, pooling_recipes
from recipe_check import Recipe, check, emit, examples, load

# 25 of each family take a minute where no kernel is in the cache yet: most of it is the compiler's.
counted = settings(max_examples=examples(full=25, quick=4), deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


def check_on_cpu(recipe: Recipe, folder: Path) -> None:
    emitted = emit(recipe, "cpu")
    if recipe["inputs"][0]["dtype"] == "float32":
        # Library calls alone would be right, too.
        assert emitted["kernels"] and all(f"void {name}(" in emitted["source"] for name in emitted["kernels"]), emitted["library_ops"]
        if recipe["family"] != "normalisation":
            assert emitted["library_ops"] == []
    path = folder / f"candidate_{hashlib.sha256(emitted['source'].encode()).hexdigest()[:16]}.py"
    path.write_text(emitted["source"])
    check(recipe, load(path))


@pytest.mark.time_limit(400)
@counted
@given(recipe=pointwise_recipes())
def test_pointwise(recipe: Recipe, folder: Path) -> None:
    check_on_cpu(recipe, folder)


@pytest.mark.time_limit(400)
@counted
@given(recipe=reduction_recipes())
def test_reductions(recipe: Recipe, folder: Path) -> None:
    check_on_cpu(recipe, folder)


@pytest.mark.time_limit(400)
@counted
@given(recipe=normalisation_recipes())
@example(recipe=normalisation("batch_norm", [2, 2, 2], layout="transposed"))  # its result is contiguous
@example(recipe=normalisation("batch_norm_eval", [3, 4, 5, 2], layout="transposed"))
def test_normalisations(recipe: Recipe, folder: Path) -> None:
    check_on_cpu(recipe, folder)


@pytest.mark.time_limit(400)
@counted
@given(recipe=pooling_recipes())
@example(recipe=pooling("max_pool", [2, 1, 2], [2], [1], padding=[1], dilation=[3]))  # a window of padding alone
@example(recipe=pooling("avg_pool", [1, 2, 22, 23], [11, 11], [11, 11]))
@example(recipe=pooling("max_pool", [1, 2, 40, 41], [9, 9], [3, 3], padding=[4, 4], ceil_mode=True))
@example(recipe=pooling("avg_pool", [1, 2, 5, 7], [3, 3], [2, 2], padding=[1, 1], ceil_mode=True, count_include_pad=False))
def test_pooling(recipe: Recipe, folder: Path) -> None:
    check_on_cpu(recipe, folder)


@pytest.mark.time_limit(400)
@counted
@given(recipe=scan_recipes())
@example(recipe=scan("cumsum", [2, 4999]))  # more than one block, the last one not full
@example(recipe=scan("cumsum", [2, 4999], form="exclusive_reversed"))
@example(recipe=scan("cummax", [2, 4999], form="reversed"))
@example(recipe=scan("cumprod", [2, 37, 70], axis=1, form="reversed"))
def test_scans(recipe: Recipe, folder: Path) -> None:
    check_on_cpu(recipe, folder)
