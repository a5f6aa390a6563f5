"""Modules compiled, verified against the whole contract and run on the GPU, at sizes that take every kind of kernel."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from movement_cases import Wrapped
from torch import nn

import kernelwright
from kernelwright import library
from kernelwright.capture import export

Tensor = torch.Tensor


class Then(nn.Module):
    """A layer, and a function of its result."""

    def __init__(self, layer: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(self.layer(*arguments))


@dataclass
class Case:
    """`path` is what the schedule says of how rows are kept, where the size is meant to decide it."""

    module: Callable[[], nn.Module]
    inputs: Callable[[], list[Tensor]]
    path: str = ""


def function(
    call: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, path: str = ""
) -> Case:
    return Case(lambda: Wrapped(call), lambda: [torch.randn(shape).to(dtype) for shape in shapes], path)


def layer(make: Callable[[], nn.Module], *shape: int, path: str = "") -> Case:
    return Case(make, lambda: [torch.randn(shape)], path)


def dropped(x: Tensor) -> Tensor:
    return F.dropout(torch.relu(x), 0.3) * 2.0


CASES: dict[str, Case] = {
    "gelu": function(lambda x: F.gelu(x) * 1.5, (1000, 4099)),
    "broadcast": function(lambda x, y, z: torch.tanh(x + y) * z, (64, 128, 257), (128, 1), (64, 1, 257)),
    "transposed": Case(
        lambda: Wrapped(lambda x, y: torch.sigmoid(x) + y), lambda: [torch.randn(300, 1000).t(), torch.randn(1000, 300)]
    ),
    "strided": Case(lambda: Wrapped(lambda x: x.exp() - 1.0), lambda: [torch.randn(700, 514)[:, ::2]]),
    "half": function(lambda x, y: F.silu(x) * y, (512, 1023), (512, 1023), dtype=torch.float16),
    "bfloat16": function(lambda x: F.mish(x) + x.abs().sqrt(), (511, 1024), dtype=torch.bfloat16),
    "double": function(lambda x: torch.log1p(x.abs()) * torch.sin(x), (333, 77), dtype=torch.float64),
    "several_outputs": function(lambda x, y: (x + y, {"product": x * y, "larger": x > y}), (100, 333), (100, 333)),
    "cat_and_pad": function(lambda x, y: F.pad(torch.cat([x, y.relu()], 1), (1, 2), value=0.5), (64, 100), (64, 33)),
    "mean_of_all": function(lambda x: (x - 1.0).square().mean(), (4096, 1031), path="split"),
    "sum_of_rows": function(lambda x: x.sum(1), (8192, 1000)),
    "sum_of_columns": function(lambda x: x.sum(1), (16, 512, 1023)),
    "statistics": function(lambda x: (x.mean(1), x.var(1), x.amax(1), x.amin(1)), (1000, 777)),
    "arguments_of_extremes": function(lambda x: (x.argmax(1), x.argmin(0)), (501, 700)),
    "softmax_persistent": function(lambda x: torch.softmax(x, -1), (4096, 1000), path="persistent"),
    "softmax_looped": function(lambda x: torch.softmax(x, -1), (32, 2_300_003), path="looped"),
    "softmax_cooperative": function(lambda x: torch.softmax(x, -1), (512, 200_003), path="cooperative_block"),
    "log_softmax_cooperative": function(
        lambda x: torch.log_softmax(x * 2.0, -1), (700, 65_535), path="cooperative_block"
    ),
    "few_rows_cooperative": function(lambda x: torch.softmax(x, -1), (3, 100_000), path="cooperative_block"),
    "two_cooperative_reductions": function(
        lambda x: torch.softmax(F.layer_norm(x, (50_000,)), -1) + x.prod(-1, keepdim=True),
        (300, 50_000),
        path="cooperative_block",
    ),
    "extremes_cooperative": function(
        lambda x: (x - x.amin(1, keepdim=True)) / (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)),
        (300, 70_001),
        path="cooperative_block",
    ),
    "whole_blocks_cooperative": function(lambda x: torch.softmax(x, -1), (64, 393_216), path="cooperative_block"),
    "double_cooperative": function(
        lambda x: torch.softmax(F.layer_norm(x, (60_001,)), -1),
        (96, 60_001),
        dtype=torch.float64,
        path="cooperative_block",
    ),
    "half_cooperative": function(
        lambda x: torch.softmax(x * 3.0, -1), (96, 90_007), dtype=torch.float16, path="cooperative_block"
    ),
    "result_and_rows_cooperative": function(
        lambda x: (x / x.norm(dim=1, keepdim=True), x.norm(dim=1), x.amax(1)), (96, 90_007), path="cooperative_block"
    ),
    "softmax_columns": function(lambda x: torch.softmax(x, 1), (16, 64, 4096)),
    "loss_of_rows": function(
        lambda x, y: F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction="batchmean"),
        (20_000, 1000),
        (20_000, 1000),
        path="persistent",
    ),
    "log_softmax_half": function(lambda x: torch.log_softmax(x, -1), (777, 1025), dtype=torch.float16),
    "layer_norm_persistent": layer(lambda: nn.LayerNorm(768), 2048, 768, path="persistent"),
    "layer_norm_split": layer(lambda: nn.LayerNorm((64, 256, 256)), 4, 64, 256, 256, path="split"),
    "layer_norm_cooperative": layer(lambda: nn.LayerNorm((64, 128, 128)), 4, 64, 128, 128, path="cooperative_block"),
    "instance_norm_cooperative": layer(
        lambda: nn.InstanceNorm2d(32, affine=True), 8, 32, 301, 299, path="cooperative_block"
    ),
    "group_norm_cooperative": layer(lambda: nn.GroupNorm(4, 32), 8, 32, 128, 256, path="cooperative_block"),
    "group_norm_uneven": layer(
        lambda: nn.GroupNorm(4, 32), 8, 32, 128, 200, path="split"
    ),  # blocks would cross channels
    "rms_norm_of_channels": function(lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6), (8, 64, 4096)),
    "group_norm": layer(lambda: nn.GroupNorm(8, 64), 16, 64, 33, 31),
    "instance_norm": layer(lambda: nn.InstanceNorm2d(32), 16, 32, 64, 64),
    "batch_norm_training": layer(lambda: Then(nn.BatchNorm2d(32), torch.relu), 16, 32, 33, 40),
    "batch_norm_evaluation": layer(lambda: Then(nn.BatchNorm2d(32), torch.relu).eval(), 16, 32, 33, 40),
    "linear": layer(lambda: Then(nn.Linear(256, 512), lambda x: F.gelu(x) * 0.5), 128, 256),
    "matmul": function(lambda x, y: torch.softmax(x @ y, -1), (256, 300), (300, 500)),
    "convolution": layer(
        lambda: Then(nn.Conv2d(16, 32, 3, padding=1), lambda x: torch.tanh(x.relu() + 0.5)), 8, 16, 40, 40
    ),
    "dropout": Case(lambda: Wrapped(dropped), lambda: [torch.randn(256, 1000)]),
}


def moved(values: list[Tensor], device: str) -> list[Tensor]:
    """The same numbers with the same strides, which Tensor.to gives up."""
    return [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=device).copy_(one) for one in values]


@pytest.fixture
def compiled(
    request: pytest.FixtureRequest, device: str, target: str
) -> tuple[Case, nn.Module, nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    case = CASES[request.param]
    module, inputs = case.module().to(device), moved(case.inputs(), device)
    return (
        case,
        module,
        kernelwright.optimize(module, inputs, target=target, unverified_kernels_may_be_wrong=True),
        inputs,
    )


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("compiled", CASES, indirect=True)
def test_fused_kernels_pass_the_contract(
    compiled: tuple[Case, nn.Module, nn.Module, list[Tensor]], device: str
) -> None:
    _, module, made, inputs = compiled
    assert made.report["caution"] == "fused" and made.report["kernels"]
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to the original would pass everything
        made(*inputs)
    module.load_state_dict(state)
    report = kernelwright.verify(module, made, inputs, seed=5, draws=2 if device == "cpu" else 5)
    assert report["verdict"] == "pass", (report["reason"], [row for row in report["errors"] if not row["ok"]])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.path])
def test_sizes_take_the_paths_they_are_meant_for(name: str) -> None:
    case = CASES[name]
    schedule = library.compile_graph(
        export.export_module(case.module(), tuple(case.inputs()), device="cuda"), "triton"
    )["schedule"]
    found = [group["parameters"] for group in schedule["groups"]]
    kinds = {
        next(
            (kind for kind in ("cooperative_block", "split", "persistent") if one.get(kind, 0) > (kind == "split")),
            "looped",
        )
        for one in found
    }
    assert case.path in kinds, found


@torch.no_grad()
def test_dropout_draws_what_eager_draws(device: str, target: str) -> None:
    module, x = Wrapped(dropped), torch.randn(64, 1000, device=device)
    made = kernelwright.optimize(module, [x], target=target, unverified_kernels_may_be_wrong=True)
    torch.manual_seed(3)
    expected, state = module(x), torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(made(x) == 0, expected == 0)
    assert torch.equal(state, torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state())


@torch.no_grad()
def test_rows_that_programs_share_are_the_same_call_after_call(device: str, target: str) -> None:
    """Also on two streams at once, whose programs keep each other from running: each call counts its own."""
    module = Wrapped(lambda x: torch.softmax(F.layer_norm(x, (200_003,)), -1))
    x = torch.randn(128, 200_003, device=device)
    made = kernelwright.optimize(module, [x], target=target, unverified_kernels_may_be_wrong=True)
    first = made(x).clone()
    torch.testing.assert_close(first, module(x), rtol=1e-4, atol=1e-7)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if device == "cuda" else []
    results = []
    for call in range(50):
        with torch.cuda.stream(streams[call % 2] if streams else None):
            results.append(torch.equal(made(x), first))
    if device == "cuda":
        torch.cuda.synchronize()
    assert all(results)


@torch.no_grad()
def test_rows_that_programs_share_hold_what_is_not_finite(device: str, target: str) -> None:
    x = torch.randn(8, 100_000, device=device)
    x[0, :40_000] = x[1] = float("-inf")  # whole blocks, and a whole row
    x[2, 7] = float("inf")
    x[3, 99_999] = float("nan")
    x[4] = 3e38
    for function in (
        lambda x: torch.softmax(x, -1),
        lambda x: torch.log_softmax(x, -1),
        lambda x: x - x.amax(1, keepdim=True),
    ):
        module = Wrapped(function)
        made = kernelwright.optimize(module, [x], target=target, unverified_kernels_may_be_wrong=True)
        torch.testing.assert_close(made(x), module(x), equal_nan=True, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_last_program_adds_the_same_parts_in_the_same_order(device: str, target: str) -> None:
    """Call after call and on two streams at once: the counter of programs that have ended is a stream's own."""
    module = Wrapped(lambda x, y: (((x - y) ** 2).mean() + 1, (x * 2).sum(0)))
    inputs = [torch.randn(20_000, 96, device=device) for _ in range(2)]
    made = kernelwright.optimize(module, inputs, target=target, unverified_kernels_may_be_wrong=True)
    first = [result.clone() for result in made(*inputs)]
    torch.testing.assert_close(first, list(module(*inputs)), rtol=1e-5, atol=1e-2)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if device == "cuda" else []
    results = []
    for call in range(100):
        with torch.cuda.stream(streams[call % 2] if streams else None):
            results.append(made(*inputs))
    if device == "cuda":
        torch.cuda.synchronize()
    for result in results:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(result, first, strict=True))


@torch.no_grad()
@pytest.mark.time_limit(300)
def test_tensors_of_more_elements_than_32_bits_count(device: str, target: str) -> None:
    if device == "cpu":
        pytest.skip("minutes on a CPU, where offsets beyond 32 bits have a test of their own")
    rows, columns = 1031, 2_100_000
    x = torch.randint(-9, 10, (rows, columns), dtype=torch.int8, device=device)
    assert x.numel() > 1 << 31
    module = Wrapped(lambda x: (x * 3 - 1, x.sum(1), x.sum(0), x.amax(), x.argmin(1)))
    made = kernelwright.optimize(module, [x], target=target, unverified_kernels_may_be_wrong=True)
    assert made.report["kernels"] and not made.report["library_ops"]
    for ours, theirs in zip(made(x), module(x), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "shape", [(4096, 4096), (3000, 4096), (300, 32767), (20000, 48), (64, 64, 1000), (1024, 65536)], ids=str
)
def test_running_products_overflow_as_pytorchs(shape: tuple[int, ...], device: str, target: str) -> None:
    """Which products of a row leave the range of floats, and to 0, infinity or NaN, depends on the order of
    multiplication: bit for bit.
    """
    if device == "cpu":
        pytest.skip("PyTorch multiplies one after the other on a CPU, as we do")
    x = torch.exp2(torch.rand(shape, device=device) * 40 - 20)
    module = Wrapped(lambda x: x.cumprod(-1))
    made = kernelwright.optimize(module, [x], target=target, unverified_kernels_may_be_wrong=True)
    assert made.report["kernels"] and not made.report["library_ops"]
    torch.testing.assert_close(made(x), module(x), rtol=0, atol=0, equal_nan=True)
