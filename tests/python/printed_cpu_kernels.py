"""Kernels in text form as the CPU target prints them, numbers for them, and what their results are held to."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import torch
from dtype_names import DTYPES

HOME = Path(__file__).resolve().parent.parent.parent
PRINTER = HOME / "build" / "tests" / "unit" / "print_cpu_module"

FLOATS = ["f64", "f32"]
STORED_FLOATS = ["f64", "f32", "f16", "bf16"]
INTEGERS = ["i64", "i32", "i16", "i8", "u8"]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-40, 3e38, 88.8, -88.8, -104.0, 1e-5]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile into a folder of this run, so that nothing stale is loaded."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


def build(folder: Path, *kernels: str) -> ModuleType:
    """The module that the CPU target prints for kernels in text form."""
    if not PRINTER.exists():
        pytest.fail(f"{PRINTER} is missing: build with -DKW_TESTS=ON")
    files = []
    for index, text in enumerate(kernels):
        files.append(folder / f"{index}.txt")
        files[-1].write_text(text)
    printed = subprocess.run([PRINTER, *files], capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    path = folder / "kernels.py"
    path.write_text(printed.stdout)
    spec = importlib.util.spec_from_file_location(f"kernels_{abs(hash(path))}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(dtype: str, count: int, seed: int, special: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == "b1":
        return torch.rand(count, generator=generator) > 0.7
    if dtype in INTEGERS:
        return torch.randint(0 if dtype == "u8" else -9, 10, (count,), generator=generator).to(DTYPES[dtype])
    values = torch.randn(count, generator=generator) * 2
    if special:
        where = torch.rand(count, generator=generator) < 0.02
        values[where] = torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), (int(where.sum()),), generator=generator)]
    return values.to(DTYPES[dtype])


def close(actual: torch.Tensor, expected: torch.Tensor, ulps: float = 4.0) -> None:
    if not expected.is_floating_point():
        assert torch.equal(actual, expected)
        return
    epsilon = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(
        actual, expected, rtol=ulps * epsilon, atol=ulps * torch.finfo(expected.dtype).tiny, equal_nan=True
    )
