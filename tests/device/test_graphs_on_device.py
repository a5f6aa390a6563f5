"""Modules whose kernels run as a CUDA graph, beside the modules that they stand for."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import kernelwright
import pytest
import torch
from kernelwright import api

# Batch normalisation divides by deviations that may be small.
CLOSE = {"rtol": 1e-3, "atol": 1e-3}

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")


class Deep(torch.nn.Module):
    """Many short kernels, and buffers that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(6))
        self.norm = torch.nn.BatchNorm1d(64)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        for layer in self.layers:
            x = torch.relu(layer(x)) + shift
        return self.norm(x), x.sum(0)


class Lookup(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 64)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index).tanh() * 2.0


def inputs(device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(32, 64, device=device), torch.randn(64, device=device)


def made_of(model: torch.nn.Module, *example: torch.Tensor) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", api.UnverifiedKernelsWarning)
        made = kernelwright.optimize(
            model, list(example), target="triton", graphs="on", unverified_kernels_may_be_wrong=True
        )
    assert made.report["cuda_graph"]
    return made


def graphs_of(made: torch.nn.Module) -> dict[Any, Any]:
    kept = type(made).forward.__globals__["FORWARD_GRAPHS"]
    return kept[made].graphs if made in kept else {}


def pair(device: str = "cuda") -> tuple[torch.nn.Module, torch.nn.Module]:
    model = Deep().to(device).train()
    return made_of(model, *inputs(device)), copy.deepcopy(model)


@torch.no_grad()
def check_calls(made: torch.nn.Module, reference: torch.nn.Module, count: int, device: str = "cuda") -> None:
    kept = []
    for _ in range(count):
        given = inputs(device)
        results, expected = made(*given), reference(*given)
        kept.append((results, expected))
        torch.testing.assert_close(dict(made.module.state_dict()), dict(reference.state_dict()), **CLOSE)
    for results, expected in kept:  # none was written to by a later call
        torch.testing.assert_close(results, expected, **CLOSE)


def test_replays_compute_what_eager_does() -> None:
    made, reference = pair()
    check_calls(made, reference, 2)
    assert not graphs_of(made)
    check_calls(made, reference, 6)
    assert len(graphs_of(made)) == 1


def test_what_stays_in_place_is_read_there_and_what_moves_from_copies() -> None:
    made, reference = pair()
    given, moved = inputs(), [inputs() for _ in range(4)]

    @torch.no_grad()
    def check(passed: tuple[torch.Tensor, torch.Tensor]) -> None:
        for tensor in passed:
            tensor.normal_()
        torch.testing.assert_close(made(*passed), reference(*passed), **CLOSE)

    def where_read() -> Any:
        ((where, *_),) = graphs_of(made).values()
        return where

    for _ in range(4):
        check(given)
    assert where_read() == tuple(tensor.data_ptr() for tensor in given)
    check(moved[0])
    check(given)
    assert where_read() == tuple(tensor.data_ptr() for tensor in given)
    for passed in moved[1:]:  # with the one before, three that lie elsewhere before the last
        check(passed)
    check(given)
    assert where_read() is None


def test_new_weights_in_place_and_in_other_memory_are_read() -> None:
    made, reference = pair()
    check_calls(made, reference, 4)
    with torch.no_grad():
        for model in (made.module, reference):
            model.layers[0].weight.mul_(0.5)
    check_calls(made, reference, 2)
    fresh = torch.randn(64, 64, device="cuda") / 8
    for model in (made.module, reference):
        model.layers[1].weight = torch.nn.Parameter(fresh.clone())
    check_calls(made, reference, 5)
    assert len(graphs_of(made)) == 1  # the old one is gone


def test_another_stream_has_a_graph_of_its_own() -> None:
    made, reference = pair()
    check_calls(made, reference, 4)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        check_calls(made, reference, 5)
    torch.cuda.synchronize()
    assert len(graphs_of(made)) == 2


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_gpu_than_the_current_one() -> None:
    made, reference = pair("cuda:1")
    check_calls(made, reference, 6, "cuda:1")
    assert len(graphs_of(made)) == 1


def test_a_callers_own_graph_takes_the_kernels() -> None:
    made, reference = pair()
    check_calls(made, reference, 4)
    given, graph = inputs(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.graph(graph):
        results = made(*given)
    for tensor, fresh in zip(given, inputs(), strict=True):
        tensor.copy_(fresh)
    graph.replay()
    with torch.no_grad():
        torch.testing.assert_close(results, reference(*given), **CLOSE)
    check_calls(made, reference, 2)


def test_a_copy_begins_anew() -> None:
    made, reference = pair()
    check_calls(made, reference, 4)
    copied, other = copy.deepcopy(made), copy.deepcopy(reference)
    check_calls(copied, other, 4)
    check_calls(made, reference, 2)
    assert len(graphs_of(copied)) == 1


def test_an_index_out_of_range_met_by_a_replay_is_told_at_the_next_call() -> None:
    model = Lookup().to("cuda")
    index = torch.arange(32, device="cuda")
    made = made_of(model, index)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(made(index), model(index))
        assert graphs_of(made)
        made(index + 90)
        torch.cuda.synchronize()
        with pytest.raises(IndexError, match="out of range"):
            made(index)
        torch.testing.assert_close(made(index), model(index))


def test_what_cannot_be_captured_is_launched_as_before() -> None:
    made, reference = pair()
    names = type(made).forward.__globals__
    launch = names["kernel_forward"]

    def waits(*tensors: torch.Tensor) -> Any:
        results = launch(*tensors)
        torch.cuda.current_stream().synchronize()
        return results

    names["kernel_forward"] = waits
    try:
        with pytest.warns(UserWarning, match="launches its kernels one by one") as caught:
            check_calls(made, reference, 6)
        assert len(caught) == 1 and not graphs_of(made)
        torch.cuda.manual_seed(3)
        drawn = torch.randn(8, device="cuda")
        torch.cuda.manual_seed(3)
        assert torch.equal(torch.randn(8, device="cuda"), drawn)
    finally:
        names["kernel_forward"] = launch
    check_calls(made, reference, 2)


def test_verification_holds_with_guards_around_what_is_captured() -> None:
    model = Deep().to("cuda").train()
    made = kernelwright.optimize(model, list(inputs()), target="triton", graphs="on", draws=5)
    assert made.report["verdict"] == "pass" and made.report["caution"] == "fused" and made.report["cuda_graph"]
    assert all(check["ok"] for check in made.report["checks"])
    timed = kernelwright.measure(model, made, list(inputs()), baselines=("eager",), budget_seconds=0.5)
    assert timed.get("verdict", "pass") == "pass" and timed["speedup"]["eager"]["value"] > 1
