"""The planner's programs compute what PyTorch computes: captured, planned for both targets, evaluated by
program_evaluator.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from program_evaluator import PLAN_TOOL, evaluate, plan
from torch import nn

from kernelwright.capture import export

Tensor = torch.Tensor


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> object:
        return self.function(*arguments)


def strides(tensor: Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def check(
    module: nn.Module | Callable[..., object],
    *arguments: Tensor,
    tmp_path: Path,
    library_calls: int = 0,
    launches: int | None = None,
    multiprocessors: int | None = None,
) -> str:
    """Plans `module` for both targets and compares every output and mutated buffer with eager's; the GPU's plan."""
    assert PLAN_TOOL.exists(), "configure with -DKW_TESTS=ON and build"
    if not isinstance(module, nn.Module):
        module = Wrapped(module)
    graph = export.export_module(module, arguments)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    inputs = {}
    users = iter(arguments)
    for one in graph["inputs"]:
        name = graph["values"][one["value"]]["name"]
        inputs[name] = (
            (next(users) if one["kind"] == "user" else state[one["target"]])
            .detach()
            .clone(memory_format=torch.preserve_format)
        )
    for one, argument in zip([i for i in graph["inputs"] if i["kind"] == "user"], arguments):
        inputs[graph["values"][one["value"]]["name"]] = argument  # strides and offset as given
    with torch.no_grad():
        expected = module(*arguments)
    flat = list(torch.utils._pytree.tree_leaves(expected))
    plans = {
        "triton": plan(graph, "triton", tmp_path, *([str(multiprocessors)] if multiprocessors else [])),
        "cpu": plan(graph, "cpu", tmp_path),
    }
    for target, text in plans.items():
        outputs, steps = evaluate(text, inputs)
        kinds = [one["kind"] for one in graph["outputs"]]
        results = [value for value, kind in zip(outputs, kinds) if kind == "user"]
        assert len(results) == len(flat)
        for actual, wanted in zip(results, flat):
            assert (
                actual.shape == wanted.shape and actual.dtype == wanted.dtype and strides(actual) == strides(wanted)
            ), text
            half = wanted.dtype in (torch.float16, torch.bfloat16)
            torch.testing.assert_close(
                actual,
                wanted,
                rtol=2e-2 if half else 2e-5,
                atol=2e-2 if half else 2e-5,
                equal_nan=True,
                msg=lambda m: m + "\n" + text,
            )
        mutated = [
            (one["target"], value) for value, one in zip(outputs, graph["outputs"]) if one["kind"] == "buffer_mutation"
        ]
        fresh = dict(module.named_buffers())
        for name, value in mutated:
            torch.testing.assert_close(value, fresh[name], rtol=2e-5, atol=2e-5)
        assert sum(step.startswith("call ") for step in steps) == library_calls, "\n".join(steps)
        if launches is not None and target == "triton":
            assert sum(not step.startswith(("call ", "view ", "allocate ")) for step in steps) == launches, text
    return plans["triton"]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)), dtype=torch.float64
    ).to(dtype)


UNARY = [
    "relu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "elu",
    "celu",
    "selu",
    "leaky_relu",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "relu6",
    "logsigmoid",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
    "sigmoid",
    "tanh",
    "exp",
    "expm1",
    "log1p",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "sign",
    "square",
    "reciprocal",
    "sin",
    "cos",
    "atan",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "isnan",
    "isinf",
    "isfinite",
    "nan_to_num",
    "exp2",
    "log2",
    "sinh",
    "cosh",
    "asinh",
    "logical_not",
    "erfc",
    "log10",
    "tan",
    "deg2rad",
]


@pytest.mark.parametrize("start", range(0, len(UNARY), 9))
def test_unary(start: int, tmp_path: Path) -> None:
    functions = [getattr(F, name, None) or getattr(torch, name) for name in UNARY[start : start + 9]]
    x = randn(7, 33) * 3
    x[0, :4] = torch.tensor([float("nan"), -float("inf"), 0.0, -0.0])
    x[1, 1] = (
        float("nan") if "gelu" in UNARY[start : start + 9] else float("inf")
    )  # eager's vectorised gelu(inf) is NaN on some CPUs
    check(lambda x: [function(x) for function in functions], x, tmp_path=tmp_path, launches=1)


BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.maximum,
    torch.minimum,
    torch.fmax,
    torch.fmin,
    torch.atan2,
    torch.fmod,
    torch.remainder,
    torch.xlogy,
    torch.hypot,
    torch.eq,
    torch.ne,
    torch.lt,
    torch.ge,
    lambda a, b: torch.div(a, b, rounding_mode="floor"),
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    lambda a, b: torch.add(a, b, alpha=3),
    lambda a, b: torch.sub(a, b, alpha=2),
    lambda a, b: torch.lerp(a, b, 0.3),
    lambda a, b: torch.lerp(a, b, 0.7),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: torch.addcmul(a, a, b, value=0.5),
    lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    lambda a, b: torch.logical_and(a, b),
    lambda a, b: torch.clamp(a, min=b),
    lambda a, b: a.masked_fill(b > 0, 2.0),
    lambda a, b: torch.abs(a) ** b,
]


@pytest.mark.parametrize("start", range(0, len(BINARY), 8))
def test_binary_with_broadcast(start: int, tmp_path: Path) -> None:
    functions = BINARY[start : start + 8]
    check(
        lambda a, b: [function(a, b) for function in functions],
        randn(5, 1, 12),
        randn(3, 12),
        tmp_path=tmp_path,
        launches=1,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_hypot_of_numbers_whose_squares_are_beyond_the_range(dtype: torch.dtype, tmp_path: Path) -> None:
    limits = torch.finfo(dtype)
    sizes = [limits.max / 4, limits.max**0.5 * 8, 3.0, limits.tiny**0.5 / 8, limits.tiny * 4, 0.0, float("inf")]
    numbers = torch.tensor(sizes, dtype=torch.float64).to(dtype)
    check(torch.hypot, numbers[:, None], -numbers, tmp_path=tmp_path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    a, b = (torch.arange(24).view(4, 6) % 7).to(dtype), (torch.arange(6) % 3 + 1).to(dtype)
    check(lambda a, b: (a + b, a * b, a / b, a == b, a * 2, a.float() * 0.5), a, b, tmp_path=tmp_path)
    if dtype is not torch.bool:
        check(
            lambda a, b: (a - b, a // b, a % b, a**2, a & b, a | b, a ^ b, torch.clamp(a, 1, 3)),
            a,
            b,
            tmp_path=tmp_path,
        )
    check(lambda a: (a.sum(1), a.sum(), a.any(1), a.all(), (a > 1).sum(0)), a, tmp_path=tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(dtype: torch.dtype, tmp_path: Path) -> None:
    check(
        lambda x, w: F.gelu(x * w + 1), randn(6, 32, dtype=dtype), randn(32, dtype=dtype), tmp_path=tmp_path, launches=1
    )
    check(lambda x: (torch.softmax(x, -1), x.mean(0), x.float().sum(1)), randn(6, 32, dtype=dtype), tmp_path=tmp_path)
    check(lambda x: F.layer_norm(x, (32,)), randn(6, 32, dtype=dtype), tmp_path=tmp_path, launches=1)


VIEWS: list[Callable[[Tensor], object]] = [
    lambda x: x.relu().permute(2, 0, 1),
    lambda x: x.permute(2, 0, 1).relu(),
    lambda x: x.view(24, 10).exp().view(4, 60) + 1,
    lambda x: x[:, 1:5, ::2] * 2,
    lambda x: x.transpose(1, 2).reshape(4, 60) + 1,
    lambda x: x.relu()[:, 2] + x[:, 3].exp(),
    lambda x: torch.cat([x, x.relu()], 1) * 2,
    lambda x: torch.stack([x, x + 1], 1),
    lambda x: F.pad(x.exp(), (1, 2, 3, 0), value=4.0),
    lambda x: F.pad(x, (2, 2)) + 1,
    lambda x: x.flip(1, 2) + 1,
    lambda x: x.repeat(2, 1, 3) + 1,
    lambda x: [one + 1 for one in x.split([1, 2, 3], 1)],
    lambda x: x.tril() + x.triu(1).exp(),
    lambda x: x.unflatten(1, (2, 3)).sigmoid().flatten(0, 1),
    lambda x: x.unsqueeze(1).expand(4, 3, 6, 10) + x.sum(0),
    lambda x: x.chunk(2, 2)[0] * x.chunk(2, 2)[1].sigmoid(),
    lambda x: (x + 1).t() if x.dim() == 2 else (x + 1).mT,
    lambda x: (x.relu(), x.relu().view(-1)),
    lambda x: torch.cat([x.permute(0, 2, 1), x.permute(0, 2, 1)], 2),
    lambda x: x + torch.arange(10),
    lambda x: torch.full_like(x, 3.0) * x,
    lambda x: torch.cat([x[:, :2], x[:, 4:], x.exp()[:, 1:2]], 1).relu(),
    lambda x: x.movedim(0, 2) * 2,
    lambda x: x[1].exp(),
    lambda x: x.narrow(2, 3, 4).neg(),
    lambda x: x.reshape(2, 2, 6, 10).permute(0, 2, 1, 3).reshape(2, 6, 20) * 3,
    lambda x: x.diagonal(0, 1, 2) + 1,
    lambda x: x.unfold(2, 3, 2) + 1,
    lambda x: x.roll(2, 1) + 1,
]


@pytest.mark.parametrize("index", range(len(VIEWS)))
def test_views(index: int, tmp_path: Path) -> None:
    check(VIEWS[index], randn(4, 6, 10), tmp_path=tmp_path)


@pytest.mark.parametrize("index", [1, 3, 4, 6, 9, 10, 13, 14, 16, 22, 25, 26])
def test_views_of_strided_inputs(index: int, tmp_path: Path) -> None:
    check(VIEWS[index], randn(10, 4, 8)[:, :, 1:7].permute(1, 2, 0), tmp_path=tmp_path)


REDUCTIONS: list[Callable[[Tensor], object]] = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.mean((0, 2)),
    lambda x: x.amax(2, keepdim=True),
    lambda x: x.max(1),
    lambda x: x.min(1)[0],
    lambda x: x.argmax(2),
    lambda x: x.argmin(),
    lambda x: x.prod(1),
    lambda x: x.var(2),
    lambda x: x.std((0, 1), keepdim=True),
    lambda x: torch.var_mean(x, 1, correction=0),
    lambda x: x.logsumexp(1),
    lambda x: x.norm(),
    lambda x: x.norm(p=1, dim=1),
    lambda x: torch.linalg.vector_norm(x, 3, (1, 2)),
    lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    lambda x: (x > 0).any(1),
    lambda x: (x > 0).all(),
    lambda x: (x.relu() * 2).sum(1).sqrt(),
    lambda x: x.sum(1) + x.amax(1),
    lambda x: x / x.sum(1, keepdim=True),
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    lambda x: (x - x.mean(1, keepdim=True)).abs().sum(1),
    lambda x: x.sum(2).sum(1),
    lambda x: x.view(4, 60).sum(1).exp(),
    lambda x: x.permute(1, 0, 2).sum(1),
    lambda x: torch.softmax(x, 1),
    lambda x: torch.log_softmax(x.permute(0, 2, 1), 1),
    lambda x: torch.softmax(x * 0.3 + 1, -1).sum(0),
    lambda x: x.softmax(1).max(1)[0],
    lambda x: x.mean().expand(3, 3) + 1,
    lambda x: (x.sum(1), x.relu().sum(1), x + 1),
    lambda x: x.expand(2, 4, 6, 10).sum(0),
    lambda x: x.cumsum(1),
    lambda x: F.normalize(x, dim=1),
    lambda x: x.flatten(1).mean(1, keepdim=True) * x.flatten(1),
    lambda x: x.count_nonzero(1),
    lambda x: x.aminmax(dim=1),
    lambda x: (x > 0).sum(),
    lambda x: torch.nn.functional.cosine_similarity(x, x + 1, dim=1),
]


@pytest.mark.parametrize("index", range(len(REDUCTIONS)))
def test_reductions(index: int, tmp_path: Path) -> None:
    check(REDUCTIONS[index], randn(4, 6, 10), tmp_path=tmp_path)
    if index in (2, 6, 9, 17, 27, 28, 32):
        check(REDUCTIONS[index], randn(10, 4, 6).permute(1, 2, 0), tmp_path=tmp_path)


SHARED_ROWS: list[tuple[Callable[[Tensor, Tensor], object], int]] = [
    (lambda x, m: (x * m).sum(1) / m.sum(1), 1),
    (lambda x, m: (x * m).sum(1) / m.sum(1).clamp(min=2.0) + m.amax(1), 1),
    (lambda x, m: x * m - (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True), 1),
    (lambda x, m: ((x * m).sum(1) / m.sum(1), m.sum(1)), 2),  # what is returned is stored once
    (lambda x, m: (x * torch.softmax(m, 1)).sum(1), 2),  # the second sum would wait for the first
    (lambda x, m: (x * (m - m.mean(1, keepdim=True))).amax(1), 2),
]


@pytest.mark.parametrize("index", range(len(SHARED_ROWS)))
def test_rows_that_neighbours_share_are_folded_beside_theirs(index: int, tmp_path: Path) -> None:
    function, launches = SHARED_ROWS[index]
    check(function, randn(3, 20, 40), randn(3, 20, 1).abs() + 0.5, tmp_path=tmp_path, launches=launches)


@pytest.mark.slow
def test_long_rows_that_neighbours_share_are_split_and_right(tmp_path: Path) -> None:
    x, m = randn(2, 1 << 12, 8), randn(2, 1 << 12, 1).abs() + 0.5
    for function, whole in SHARED_ROWS:
        text = check(function, x, m, tmp_path=tmp_path)
        assert len(re.findall(r"^program \w+ \{", text, re.M)) > whole, text


def test_means_of_var_mean_are_nan_where_an_element_is_infinite(tmp_path: Path) -> None:
    x = randn(4, 10)
    x[0, 3], x[2, 5] = float("inf"), float("nan")
    check(lambda x: torch.var_mean(x, 1), x, tmp_path=tmp_path)


@pytest.mark.slow
def test_long_reductions_are_split_and_right(tmp_path: Path) -> None:
    check(lambda x: x.sum(), randn(64, 1024), tmp_path=tmp_path, launches=2)
    check(lambda x: (x.var(), x.mean(), x.amax()), randn(64, 1024), tmp_path=tmp_path)
    check(lambda x: F.layer_norm(x, (32, 1024)) * 2, randn(1, 32, 1024), tmp_path=tmp_path)
    check(lambda x: torch.softmax(x, 1), randn(2, 1 << 15), tmp_path=tmp_path)
    check(lambda x: x.logsumexp(0), randn(1 << 13, 3), tmp_path=tmp_path)
    check(lambda x: x / x.norm(), randn(60, 1000), tmp_path=tmp_path)
    check(
        nn.Sequential(nn.BatchNorm1d(24), nn.ReLU()), randn(2048, 24), tmp_path=tmp_path, launches=4
    )  # columns: partial, statistics, finish, counter
    check(nn.BatchNorm2d(8), randn(128, 8, 5, 5), tmp_path=tmp_path)
    check(nn.BatchNorm2d(2), randn(16, 2, 32, 64), tmp_path=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_norm_layers(training: bool, tmp_path: Path) -> None:
    x = randn(6, 8, 5, 7)
    layers = [
        nn.BatchNorm2d(8),
        nn.GroupNorm(4, 8),
        nn.InstanceNorm2d(8),
        nn.InstanceNorm2d(8, affine=True),
        nn.LayerNorm((5, 7)),
        nn.LayerNorm(7, bias=False),
        nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU()),
        nn.Sequential(nn.ReLU(), nn.BatchNorm2d(8), nn.Hardtanh()),
        nn.RMSNorm(7),
        nn.Softmax(1),
        nn.Softmin(2),
        nn.BatchNorm2d(8, affine=False),
        nn.BatchNorm2d(8, track_running_stats=False),
    ]
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        check(layer.train(training), x, tmp_path=tmp_path)
    check(nn.BatchNorm1d(8).train(training), randn(12, 8), tmp_path=tmp_path)


@pytest.mark.slow
def test_losses(tmp_path: Path) -> None:
    a, b = randn(9, 11), randn(9, 11).sigmoid()
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits):
        for reduction in ("none", "mean", "sum"):
            check(lambda a, b: loss(a, b, reduction=reduction), a, b, tmp_path=tmp_path)
    check(lambda a, b: F.kl_div(torch.log_softmax(a, 1), b, reduction="batchmean"), a, b, tmp_path=tmp_path)
    check(lambda a, b: F.binary_cross_entropy(a.sigmoid(), b), a, b, tmp_path=tmp_path)
    check(lambda a, t: F.cross_entropy(a, t), a, torch.arange(9), tmp_path=tmp_path)
    check(lambda a, b, c: F.triplet_margin_loss(a, b, c), a, b, randn(9, 11) + 1, tmp_path=tmp_path)


def test_sums_that_pick_one_element(tmp_path: Path) -> None:
    """Σ over an axis of what is zero but at one place of each row: labels inside and outside of the axis, and what is
    picked computed, moved, or from somewhere else.
    """
    x, weight = randn(9, 40), randn(40)
    labels = torch.tensor([0, 39, 5, -1, 40, -100, 7, 300, 21])

    def picked(value: Tensor, label: Tensor) -> Tensor:
        return torch.where(label[:, None] == torch.arange(value.shape[1]), value, 0).sum(1)

    for label in (labels, labels.int(), labels.clamp(0, 127).to(torch.int8), labels.clamp(0, 255).byte()):
        check(picked, x, label, tmp_path=tmp_path, launches=1)
    check(lambda x, t: picked(x.log_softmax(1), t), x, labels, tmp_path=tmp_path, launches=1)
    check(lambda x, t: picked(x.t().log_softmax(1), t), randn(40, 9), labels, tmp_path=tmp_path, launches=1)
    check(lambda x, w, t: picked((x.exp() * w).flip(1), t) + x.sum(1), x, weight, labels, tmp_path=tmp_path)
    check(lambda x, t: picked(x.view(9, 8, 5).transpose(1, 2).reshape(9, 40), t), x, labels, tmp_path=tmp_path)
    check(lambda x, t: picked(F.pad(x, (3, 4)), t), x, labels, tmp_path=tmp_path)
    check(lambda x, i, t: picked(x[:, i], t), x, torch.randperm(40), labels, tmp_path=tmp_path)
    check(lambda x, t: picked((x * 100).long(), t), x, labels, tmp_path=tmp_path)


def test_cross_entropy_over_rows_and_columns(tmp_path: Path) -> None:
    x, labels = randn(40, 40), torch.arange(40)
    labels[3] = -100
    check(lambda x, t: F.cross_entropy(x, t) + F.cross_entropy(x.t(), t), x, labels, tmp_path=tmp_path, launches=3)
    check(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"), x, labels, tmp_path=tmp_path)
    check(lambda x, t, w: F.cross_entropy(x, t, weight=w), x, labels, randn(40).abs(), tmp_path=tmp_path)
    check(
        lambda x, t: F.cross_entropy(x, t, reduction="sum"),
        randn(2, 40, 3, 5),
        torch.randint(0, 40, (2, 3, 5)),
        tmp_path=tmp_path,
    )


def test_fused_blocks(tmp_path: Path) -> None:
    check(
        nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16), nn.LayerNorm(16)),
        randn(5, 16),
        tmp_path=tmp_path,
        library_calls=2,
        launches=2,
    )
    check(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        randn(2, 3, 9, 9),
        tmp_path=tmp_path,
        library_calls=1,
    )
    check(lambda x: (x.relu().sum(1), x.relu().amax(0)), randn(40, 50), tmp_path=tmp_path)
    check(lambda x, y: (x.exp() + y, (x.exp() * y).sum(1)), randn(40, 50), randn(40, 50), tmp_path=tmp_path, launches=1)


def test_attention_with_the_logarithms_of_its_sums(tmp_path: Path) -> None:
    q, k, v = randn(1, 2, 3, 8), randn(1, 2, 5, 8), randn(1, 2, 5, 8)
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    check(lambda q, k, v: attention(q, k, v)[:2], q, k, v, tmp_path=tmp_path, library_calls=1)
