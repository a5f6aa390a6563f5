"""Captured modules, planned and printed for the CPU, compiled and run: random shapes, strides and dtypes against eager
PyTorch.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.capture import export

EMIT_TOOL = Path(__file__).resolve().parent.parent.parent / "build" / "tests" / "unit" / "emit_tool"
Tensor = torch.Tensor


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(*arguments)


def check(function: Callable[..., Any], *arguments: Tensor) -> None:
    """Every output of the emitted module is as near to fp64 as eager's, within a few units in the last place."""
    module = Wrapped(function)
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder, "graph.json")
        graph.write_text(json.dumps(export.export_module(module, arguments)))
        emitted = subprocess.run([EMIT_TOOL, graph, "-", "cpu"], capture_output=True, text=True, check=False)
        assert emitted.returncode == 0, emitted.stderr
        path = Path(folder, "candidate.py")
        path.write_text(emitted.stdout)
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec and spec.loader
        candidate = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(candidate)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")  # a fallback to the original would warn
            expected = module(*arguments)
            exact = module(*(a.double() if a.is_floating_point() else a for a in arguments))
            actual = candidate.ModelNew(module)(*arguments)
    for ours, eager, reference in zip(
        *(one if isinstance(one, tuple) else (one,) for one in (actual, expected, exact))
    ):
        assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
        if not eager.is_floating_point():
            assert torch.equal(ours, eager)
            continue
        assert torch.equal(ours.isnan(), eager.isnan())
        finite = reference[reference.isfinite()]
        scale = finite.abs().max().item() if finite.numel() else 0.0
        bound = 2 * (eager.double() - reference).abs() + 8 * torch.finfo(eager.dtype).eps * max(scale, 1e-30)
        difference = (ours.double() - reference).abs()
        assert bool(((difference <= bound) | (ours == eager) | eager.isnan()).all()), (
            f"{difference.max()} beyond {bound.max()}"
        )


FLOATS = st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64])
SIZES = st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 33, 64, 130]), min_size=1, max_size=4)
SEEDS = st.integers(0, 1000)


SHORT_AXES: list[Callable[[Tensor], Any]] = [
    lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest").relu(),
    lambda x: F.pixel_shuffle(x, 2) * 2,
    lambda x: F.pixel_shuffle(x[:, :, :, :5], 3)[:, :, :, 1:] + 1,
    lambda x: torch.stack([x.sin(), x.cos(), x * 2], dim=-1),
    lambda x: torch.stack([x, -x], dim=-1).flatten(-2).flip(-1),
    lambda x: F.interpolate(torch.cat([x, x + 1], 1)[:, :, :, :3], scale_factor=(3.0, 2.0), mode="nearest"),
    lambda x: (x.flatten(0, 1).transpose(1, 2)[:, :, :3] * x[0, 0, 0, :3]).sum(1),
    lambda x: x.permute(0, 2, 3, 1)[..., :5].softmax(-1),
]


@pytest.mark.parametrize("index", range(len(SHORT_AXES)))
def test_short_axes(index: int) -> None:
    x = torch.randn(2, 36, 6, 20, generator=torch.Generator().manual_seed(index))
    check(SHORT_AXES[index], x)
    check(SHORT_AXES[index], x.to(memory_format=torch.channels_last))


def row_functions(x: Tensor) -> Any:
    y = x.clamp(-4, 4)
    return (
        torch.softmax(x, -1),
        F.layer_norm(x, x.shape[-1:]),
        x.amax(-1),
        x.amin((-2, -1)),
        (y * 0.1 + 1).prod(-1),
        (x > 1).any(-1),
        (x < 3).all(-1),
        torch.logsumexp(x, -1),
        x / x.norm(dim=-1, keepdim=True),
        *torch.var_mean(x, -1, correction=0),
        x.sum(1),
    )


@pytest.mark.parametrize("length", [1, 2, 7, 13, 17, 18, 100])
def test_rows_that_do_not_fill_vectors(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    check(row_functions, torch.randn(3, 5, length, generator=generator))
    special = torch.randn(3, 5, length, generator=generator)
    special[0, 0, -1], special[1, 0, 0], special[2, 0, -1], special[2, 3, 0] = (
        -float("inf"),
        float("inf"),
        float("nan"),
        -float("inf"),
    )
    check(lambda x: (x.amax(-1), x.amin(-1), x.sum(-1), x.logsumexp(-1), (x == x).all(-1)), special)
    check(lambda x: x - 100 - (x - 100).amax(-1, keepdim=True), special.double())
    check(lambda x: (x.sum(-1), x.amax(-1), x.amin(-1) * 2), torch.randint(-50, -3, (6, length), dtype=torch.int32))
    check(lambda x: x.flip(-1).sum(-1) * x.mean(-1), torch.randn(6, 2 * length)[:, ::2])


def twice_scanned(x: Tensor) -> Tensor:
    return (x * 0.5).cumsum(-1).sigmoid().cumprod(-1) + x


@pytest.mark.parametrize("rows", [1, 3, 13, 64])
@pytest.mark.parametrize("length", [1, 100, 1500])
def test_scans_of_rows_in_pieces(rows: int, length: int) -> None:
    x = torch.randn(rows, length, generator=torch.Generator().manual_seed(rows + length))
    check(lambda x: (x.exp() * 0.01).cumsum(1) / (x.abs() + 1), x)
    check(lambda x: torch.flip(torch.cumsum(torch.flip(x * 2, (1,)), dim=1), (1,)) + x, x)
    check(lambda x: torch.cummax(x * 2, 1), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats_are_moved_as_they_are(dtype: torch.dtype) -> None:
    x, y = torch.randn(4, 30).to(dtype), torch.randn(4, 7).to(dtype)
    check(lambda x, y: F.pad(torch.cat([x, y.flip(1), x[:, 1:]], 1), (2, 1)), x, y)
    check(lambda x, y: (torch.where(x > 0, x, y[:, :1]), torch.cat([x * 2, y], 1)), x, y)


def test_scans_of_what_was_scanned() -> None:
    check(twice_scanned, torch.randn(10, 3000))
    check(twice_scanned, torch.randn(3000))
    check(lambda x: x.cumsum(-1), torch.randn(2, 5, 40, dtype=torch.float64))
    check(lambda x: x.cumsum(-1) * 2, torch.randint(-9, 9, (12, 2000)))
    check(lambda x: x.relu().cumsum(-1), torch.randn(12, 2000).bfloat16())


def draw_tensor(shape: list[int], dtype: torch.dtype, seed: int, layout: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if layout == "permuted":
        order = list(reversed(range(len(shape))))
        return torch.randn([shape[axis] for axis in order], generator=generator).to(dtype).permute(order)
    if layout == "sliced":
        return torch.randn([*shape[:-1], shape[-1] + 3], generator=generator).to(dtype)[..., 2:-1]
    return torch.randn(shape, generator=generator).to(dtype)


LAYOUTS = st.sampled_from(["contiguous", "permuted", "sliced"])
POINTWISE: list[Callable[..., Any]] = [
    lambda x, y: F.gelu(x + y) * torch.sigmoid(y),
    lambda x, y: (torch.tanh(x) - y.exp(), (x > y), torch.where(x > 0, x, y * 0.5)),
    lambda x, y: torch.clamp(x * y, -1, 1).abs().sqrt() + torch.log1p(y.abs()),
    lambda x, y: F.silu(x) / (1 + y.square()) + torch.maximum(x, y).floor(),
]
REDUCTIONS: list[Callable[..., Any]] = [
    lambda x, dim: x.sum(dim),
    lambda x, dim: x.mean(dim, keepdim=True),
    lambda x, dim: (x.amax(dim), x.amin(dim)),
    lambda x, dim: x.argmax(dim),
    lambda x, dim: x.var(dim, correction=0),
    lambda x, dim: torch.logsumexp(x, dim),
    lambda x, dim: (x > 0).any(dim),
    lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
]
ROWS: list[Callable[..., Any]] = [
    lambda x, dim: torch.softmax(x, dim),
    lambda x, dim: torch.log_softmax(x, dim),
    lambda x, dim: F.layer_norm(x, x.shape[-1:]),
    lambda x, dim: x * torch.rsqrt(x.square().mean(dim, keepdim=True) + 1e-6),
    lambda x, dim: torch.softmax(F.gelu(x), dim) * 2,
]


@pytest.mark.slow
@settings(max_examples=20)
@given(
    shape=SIZES,
    dtype=FLOATS,
    seed=SEEDS,
    layout=LAYOUTS,
    which=st.integers(0, len(POINTWISE) - 1),
    broadcast=st.integers(0, 15),
)
def test_pointwise(shape: list[int], dtype: torch.dtype, seed: int, layout: str, which: int, broadcast: int) -> None:
    x = draw_tensor(shape, dtype, seed, layout)
    y = draw_tensor(
        [1 if broadcast >> axis & 1 else size for axis, size in enumerate(shape)], dtype, seed + 1, "contiguous"
    )
    check(POINTWISE[which], x, y)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    shape=SIZES,
    dtype=FLOATS,
    seed=SEEDS,
    layout=LAYOUTS,
    which=st.integers(0, len(REDUCTIONS) - 1),
    axis=st.integers(0, 3),
)
def test_reductions(shape: list[int], dtype: torch.dtype, seed: int, layout: str, which: int, axis: int) -> None:
    check(lambda x: REDUCTIONS[which](x, axis % len(shape)), draw_tensor(shape, dtype, seed, layout))


@pytest.mark.slow
@settings(max_examples=20)
@given(
    shape=SIZES, dtype=FLOATS, seed=SEEDS, layout=LAYOUTS, which=st.integers(0, len(ROWS) - 1), axis=st.integers(0, 3)
)
def test_rows(shape: list[int], dtype: torch.dtype, seed: int, layout: str, which: int, axis: int) -> None:
    check(lambda x: ROWS[which](x, axis % len(shape)), draw_tensor(shape, dtype, seed, layout))


def test_other_shape_of_an_input_that_no_kernel_reads_runs_the_original() -> None:
    from kernelwright import library

    module, x = Wrapped(lambda x: x.argmax(0)), torch.randn(1)
    source = library.compile_graph(export.export_module(module, (x,)), "cpu")["source"]
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(source, namespace)
    candidate = namespace["ModelNew"](module)
    with torch.no_grad():
        assert candidate(x) == 0
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert candidate(torch.tensor([1.0, 3.0, 2.0])) == 1
    assert "original forward" in str(seen[0].message)
