"""Dropout in training mode gives on the GPU, bit for bit, what eager PyTorch gives from the same generator, and leaves
the generator as it does.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from movement_cases import Wrapped
from recipe_check import load
from torch import nn

from kernelwright import library
from kernelwright.capture import export

Tensor = torch.Tensor
pytestmark = pytest.mark.skipif(bool(os.environ.get("KW_DEVICE_TESTS_ON_CPU")), reason="a CPU's generator is another")


def dropped(x: Tensor) -> Tensor:
    """Exact around the dropout, so that eager's roundings are ours."""
    return F.dropout(torch.relu(x), 0.3) * 2.0


def dropped_first(x: Tensor) -> Tensor:
    return torch.abs(F.dropout(x, 0.9))


def several(x: Tensor) -> Tensor:
    noise = torch.randn_like(x)  # the library's, between two of ours
    return F.dropout(torch.abs(F.dropout(x * 2.0, 0.1)), 0.6) * 0.5 + 0.0 * noise


def whole_channels(x: Tensor) -> Tensor:
    return F.dropout1d(torch.relu(x).view(-1, 4, 25), 0.4) * 2.0


SIZES = [
    (1,),
    (2,),
    (255,),
    (257,),
    (1000,),
    (1002,),
    (64, 1000),
    (1 << 20,),
    (270_336 * 4 + 4,),
    (4_000_003,),
    (4_000_002,),
    (4_000_000,),
    (33, 1000, 1000),
]


def compiled(function: Callable[..., Any], x: Tensor, **options: Any) -> tuple[nn.Module, Any, dict[str, Any]]:
    module = Wrapped(function).train()
    emitted = library.compile_graph(export.export_module(module, (x,), device="cuda"), "triton", **options)
    return module, emitted["source"], emitted


def compare(function: Callable[..., Any], x: Tensor, tmp_path: Any, ours: bool = True) -> None:
    module, source, emitted = compiled(function, x)
    assert ("keep_mask_kernel" in emitted["kernels"]) == ours, emitted["library_ops"]
    path = tmp_path / "candidate.py"
    path.write_text(source)
    candidate = load(path).ModelNew(module)
    for seed in (0, 2**63 + 11):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.cuda.manual_seed(seed)
            first, second = module(x), module(x)
            state = torch.cuda.get_rng_state()
            torch.cuda.manual_seed(seed)
            mine = candidate(x)
            assert torch.equal(mine, first), f"{int((mine != first).sum())} of {first.numel()} elements differ"
            assert torch.equal(candidate(x), second)
            assert torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_masks_are_pytorchs(shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Any) -> None:
    x = torch.randn(shape, device="cuda").to(dtype)
    # Where halves are subnormal, doubling what eager has rounded is not exact.
    compare(dropped, torch.where(x.abs() < 1e-3, 0.0, x), tmp_path)


@pytest.mark.parametrize(
    "function, shape", [(several, (1000, 999)), (several, (512, 512)), (whole_channels, (300, 1000))]
)
def test_several_draws(function: Callable[..., Any], shape: tuple[int, ...], tmp_path: Any) -> None:
    compare(function, torch.randn(shape, device="cuda"), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_the_address_decides_how_elements_are_shared_out(shift: int, dtype: torch.dtype, tmp_path: Any) -> None:
    x = torch.randn(64 * 1024 + shift, device="cuda").to(dtype)[shift:]
    compare(dropped_first, x, tmp_path)


def test_a_strided_tensor_is_the_librarys(tmp_path: Any) -> None:
    compare(dropped_first, torch.randn(100, 200, device="cuda")[:, ::2], tmp_path, ours=False)


def test_a_captured_graph_draws_anew(tmp_path: Any) -> None:
    x = torch.ones(1 << 16, device="cuda")
    module, source, _ = compiled(dropped, x)
    path = tmp_path / "candidate.py"
    path.write_text(source)
    candidate = load(path).ModelNew(module)
    with torch.no_grad():
        candidate(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = candidate(x)
        graph.replay()
        first = y.clone()
        graph.replay()
    assert not torch.equal(first, y)
    assert abs(float((y == 0).float().mean()) - 0.3) < 0.02
