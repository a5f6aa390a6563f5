"""Kernels for a GPU with less shared memory than a Hopper fit it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from case_checks import compile_for_gpu, machine_code

pytest.importorskip("triton")

# An A10G, as the worker describes it.
CARD = {"name": "NVIDIA A10G", "sm": 86, "multiprocessors": 80, "l2_bytes": 6 << 20, "shared_bytes": 99 << 10}


class Attention(torch.nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)


def _heads(width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(4, 16, 512, width, dtype=dtype) for _ in range(3)]


class Deep(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right


MODULES: dict[str, Callable[[], tuple[torch.nn.Module, list[torch.Tensor]]]] = {
    "product": lambda: (torch.nn.Linear(2048, 2048), [torch.randn(2048, 2048)]),
    "deep_product": lambda: (Deep(), [torch.randn(256, 65536), torch.randn(65536, 256)]),
    "attention": lambda: (Attention(), _heads(128, torch.float32)),
    "wide_attention": lambda: (Attention(), _heads(256, torch.float32)),
    "convolution": lambda: (torch.nn.Conv2d(64, 128, 3), [torch.randn(16, 64, 64, 64)]),
    "lstm": lambda: (torch.nn.LSTM(128, 256, 2), [torch.randn(64, 10, 128)]),
}


@pytest.mark.parametrize("name", MODULES)
def test_kernels_fit_the_shared_memory_of_the_device(name: str, tmp_path: Path) -> None:
    module, arguments = MODULES[name]()
    emitted: dict[str, Any] = compile_for_gpu(module, *arguments, card=CARD)
    code = machine_code(emitted, tmp_path, CARD["sm"])
    assert code
    for kernel, compiled in code.items():
        assert compiled.metadata.shared <= CARD["shared_bytes"], kernel
