"""Skips this folder where there is no GPU. KW_DEVICE_TESTS_ON_CPU=1 runs its own logic on the CPU instead, with the
`cpu` target.
"""

import os
from pathlib import Path

import pytest
import torch

ON_CPU = bool(os.environ.get("KW_DEVICE_TESTS_ON_CPU"))
HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ON_CPU or torch.cuda.is_available():
        return
    skip = pytest.mark.skip(
        reason="needs a GPU: torch.cuda.is_available() is false (KW_DEVICE_TESTS_ON_CPU=1 tries the tests themselves on the CPU)"
    )
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def device() -> str:
    return "cpu" if ON_CPU else "cuda"


@pytest.fixture(scope="session")
def target() -> str:
    return "cpu" if ON_CPU else "triton"
