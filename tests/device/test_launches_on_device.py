"""The shorter way by which a module launches kernels from its second call on: what it must not hold on to."""

from __future__ import annotations

import copy
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
