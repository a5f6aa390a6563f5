"""The shorter way by which a module launches kernels from its second call on: what it must not hold on to."""

from __future__ import annotations

import copy
import math
import warnings

import kernelwright
import pytest
import torch
from kernelwright import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")

ROWS, COLUMNS = 512, 1024


class Net(torch.nn.Module):
    """Several kernels with partial results between them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normed = torch.nn.functional.layer_norm(x, (COLUMNS,))
        return normed, torch.cumsum(normed, 0).var(0), x.t().contiguous().t().exp().sum(), normed.sort(1).values


@pytest.fixture
def module() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api.UnverifiedKernelsWarning)
        return kernelwright.optimize(
            Net(), [rows(0)], target="triton", graphs="off", unverified_kernels_may_be_wrong=True
        )


def rows(seed: int, start: int = 0) -> torch.Tensor:
    """Rows that begin `start` elements after an address that 16 divides."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    memory = torch.randn(ROWS * COLUMNS + start, device="cuda", generator=generator)
    return memory[start:].view(ROWS, COLUMNS)


def check(module: torch.nn.Module, x: torch.Tensor) -> None:
    for ours, theirs in zip(module(x), Net()(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_every_call_reads_its_own_tensors(module: torch.nn.Module) -> None:
    names = type(module).forward.__globals__
    for seed in range(3):
        check(module, rows(seed))
    assert len(names["COMPILED"]) == len(names["KERNEL_SIGNATURES"])


@torch.no_grad()
def test_addresses_that_16_does_not_divide(module: torch.nn.Module) -> None:
    for seed, start in enumerate((1, 0, 2, 0, 3)):
        check(module, rows(seed, start))


@torch.no_grad()
def test_kernels_run_on_the_stream_of_the_call(module: torch.nn.Module) -> None:
    check(module, rows(0))
    x, stream = rows(1), torch.cuda.Stream()
    expected = Net()(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late = module(x)
    assert not stream.query(), "the call should not have waited"
    stream.synchronize()
    for ours, theirs in zip(late, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_call_can_be_captured_into_a_graph_of_its_callers(module: torch.nn.Module) -> None:
    x = rows(0)
    for _ in range(2):
        module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = module(x)
    x.copy_(rows(7))
    graph.replay()
    for ours, theirs in zip(results, Net()(rows(7)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_copies_launch_for_themselves(module: torch.nn.Module) -> None:
    check(module, rows(0))
    check(copy.deepcopy(module), rows(1))


class Attention(torch.nn.Module):
    """Of numbers of 16 bits, which the bulk copy engine reads where the caller has them."""

    SHAPES, DTYPE, TOLERANCE = ((4, 8, 1024, 64),) * 3, torch.float16, 5e-3

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT * 0.125, -1) @ v


class Product(torch.nn.Module):
    """Of few rows, and of a weight that consumers split where they read it."""

    SHAPES, DTYPE, TOLERANCE = ((128, 8192), (8192, 8192)), torch.float32, 5e-3

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w)


def beginning_at(start: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """In memory whose other numbers would show in a result."""
    return torch.full((start + math.prod(shape),), 1e3, dtype=dtype, device="cuda")[start:].view(shape)


@pytest.mark.parametrize("graphs", ["off", "on"])
@pytest.mark.parametrize("module", [Attention(), Product()], ids=["attention", "product"])
@torch.no_grad()
def test_tensors_that_the_bulk_copy_engine_cannot_read(module: torch.nn.Module, graphs: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(0)
    count = len(module.SHAPES)

    def tensors(starts: tuple[int, ...]) -> list[torch.Tensor]:
        return [beginning_at(start, shape, module.DTYPE) for start, shape in zip(starts, module.SHAPES, strict=True)]

    example = [tensor.normal_(generator=generator) for tensor in tensors((0,) * count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api.UnverifiedKernelsWarning)
        made = kernelwright.optimize(
            module, example, target="triton", graphs=graphs, unverified_kernels_may_be_wrong=True
        )
    assert "aligned" in type(made).forward.__globals__, "no kernel has the engine read what a call passes"
    for starts in ((0,) * count, (1,) * count, (0,) * (count - 1) + (3,), (5,) + (0,) * (count - 1), (0,) * count):
        given = tensors(starts)
        for _ in range(4):  # of which a graph is captured at the third, and replayed from there on
            for tensor in given:
                tensor.normal_(generator=generator)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # that the original runs
                ours = made(*given)
            torch.testing.assert_close(ours, module(*given), rtol=0, atol=module.TOLERANCE)
