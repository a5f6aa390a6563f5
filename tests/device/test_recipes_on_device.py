"""The random modules of tests/property on the GPU, NaN and infinities included; eager on the same device is the
yardstick.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from random_modules import (
    REDUCTIONS,
    normalisation,
    normalisation_recipes,
    pointwise_recipes,
    reduction,
    reduction_recipes,
)
from recipe_check import Recipe, check, emit, examples, load

counted = settings(max_examples=examples(full=25, quick=5), deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


def check_on_device(recipe: Recipe, folder: Path, device: str, target: str) -> None:
    emitted = emit(recipe, target, device)
    path = folder / f"candidate_{hashlib.sha256(emitted['source'].encode()).hexdigest()[:16]}.py"
    path.write_text(emitted["source"])
    check(recipe, load(path), device)


@pytest.mark.parametrize("core", REDUCTIONS)
def test_every_reduction(core: str, folder: Path, device: str, target: str) -> None:
    for axis in (0, 1):
        check_on_device(reduction(core, [65, 1031], (axis,), prologue=["scale"]), folder, device, target)


@pytest.mark.parametrize("core", ["softmax", "log_softmax", "layer_norm", "rms_norm", "l2_normalize"])
def test_long_rows_with_nan_and_infinities(core: str, folder: Path, device: str, target: str) -> None:
    check_on_device(normalisation(core, [6, 131_075], axis=1), folder, device, target)


@pytest.mark.time_limit(600)
@counted
@given(recipe=pointwise_recipes())
def test_random_pointwise(recipe: Recipe, folder: Path, device: str, target: str) -> None:
    check_on_device(recipe, folder, device, target)


@pytest.mark.time_limit(600)
@counted
@given(recipe=reduction_recipes())
def test_random_reductions(recipe: Recipe, folder: Path, device: str, target: str) -> None:
    check_on_device(recipe, folder, device, target)


@pytest.mark.time_limit(600)
@counted
@given(recipe=normalisation_recipes())
def test_random_normalisations(recipe: Recipe, folder: Path, device: str, target: str) -> None:
    check_on_device(recipe, folder, device, target)
