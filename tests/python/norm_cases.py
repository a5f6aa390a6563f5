"""Convolutions with a norm by the batch's statistics, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import nn

Tensor = torch.Tensor


class Block(nn.Module):
    """What comes before a norm and after it is a function of the tensor and of the input."""

    def __init__(self, convolution: nn.Module, norm: nn.Module, before: Any, after: Any) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Any:
        return self.after(self.norm(self.before(self.convolution(x))), x)


@dataclass(frozen=True)
class Norm:
    name: str
    convolution: Callable[[], nn.Module]
    norm: Callable[[], nn.Module]
    shape: tuple[int, ...]
    before: Callable[[Tensor], Tensor] = field(default=lambda y: y)
    after: Callable[[Tensor, Tensor], Any] = field(default=lambda y, x: torch.relu(y))
    dtype: torch.dtype = torch.float32
    arrange: Callable[[Block], Any] = field(default=lambda block: None)
    positions: int = 16  # of a block
    rows: int = 1  # of a thread, depthwise

    def block(self) -> Block:
        torch.manual_seed(11)
        block = Block(self.convolution(), self.norm(), self.before, self.after)
        with torch.no_grad():
            for parameter in block.norm.parameters():
                nn.init.normal_(parameter)
            for buffer in block.norm.buffers():
                buffer.add_(3)
            self.arrange(block)
        return block.to(self.dtype)

    def input(self) -> Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(7)).to(self.dtype)


def _residual(y: Tensor, x: Tensor) -> Tensor:
    return torch.relu(y + x)


def _residual_of_itself(y: Tensor, x: Tensor) -> Tensor:
    return y + torch.relu(y)


def _far_from_zero(block: Block) -> None:
    """Means of 1e4 beside deviations of hundredths."""
    block.convolution.weight.mul_(0.02)
    block.convolution.bias.fill_(1e4)


CASES = [
    Norm("plain", lambda: nn.Conv2d(5, 18, 3, padding=1), lambda: nn.BatchNorm2d(18), (2, 5, 9, 11)),
    Norm(
        "alone",
        lambda: nn.Conv2d(5, 18, 3, bias=False),
        lambda: nn.BatchNorm2d(18),
        (2, 5, 9, 11),
        after=lambda y, x: y,
    ),
    Norm(
        "residual", lambda: nn.Conv2d(18, 18, 3, padding=1), lambda: nn.BatchNorm2d(18), (2, 18, 9, 11), after=_residual
    ),
    Norm("one_dimension", lambda: nn.Conv1d(5, 18, 4, dilation=2), lambda: nn.BatchNorm1d(18), (3, 5, 40)),
    Norm("three_dimensions", lambda: nn.Conv3d(3, 18, 3), lambda: nn.BatchNorm3d(18), (2, 3, 5, 6, 7)),
    Norm("large_image", lambda: nn.Conv2d(4, 18, 3, padding=1), lambda: nn.BatchNorm2d(18), (2, 4, 20, 20)),
    Norm("one_sample", lambda: nn.Conv2d(5, 18, 3), lambda: nn.BatchNorm2d(18), (1, 5, 9, 11)),
    Norm("long", lambda: nn.Conv1d(5, 18, 3), lambda: nn.BatchNorm1d(18), (2, 5, 4096), positions=128),
    Norm("groups", lambda: nn.Conv2d(6, 36, 3, groups=2), lambda: nn.BatchNorm2d(36), (2, 6, 7, 8)),
    Norm("depthwise", lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6), lambda: nn.BatchNorm2d(6), (2, 6, 9, 11)),
    Norm(
        "depthwise_rows",
        lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6),
        lambda: nn.BatchNorm2d(6),
        (2, 6, 9, 11),
        rows=3,
    ),
    Norm(
        "depthwise_rows_of_several_blocks",
        lambda: nn.Conv2d(6, 6, 5, padding=2, stride=2, groups=6),
        lambda: nn.BatchNorm2d(6),
        (2, 6, 24, 46),
        rows=4,
    ),
    Norm(
        "depthwise_rows_of_which_fewer_divide",
        lambda: nn.Conv2d(6, 12, 3, padding=1, groups=6),
        lambda: nn.BatchNorm2d(12),
        (2, 6, 10, 7),
        rows=4,
    ),
    Norm(
        "depthwise_rows_of_slices",
        lambda: nn.Conv3d(3, 3, 3, padding=1, groups=3),
        lambda: nn.BatchNorm3d(3),
        (2, 3, 3, 6, 5),
        rows=2,
    ),
    Norm("transposed", lambda: nn.ConvTranspose2d(5, 18, 3, padding=1), lambda: nn.BatchNorm2d(18), (2, 5, 7, 6)),
    Norm(
        "transposed_in_three_dimensions",
        lambda: nn.ConvTranspose3d(4, 18, 3, stride=2, padding=1, output_padding=1),
        lambda: nn.BatchNorm3d(18),
        (2, 4, 3, 2, 4),
    ),
    Norm("without_parameters", lambda: nn.Conv2d(5, 18, 3), lambda: nn.BatchNorm2d(18, affine=False), (2, 5, 9, 11)),
    Norm(
        "without_running_statistics",
        lambda: nn.Conv2d(5, 18, 3),
        lambda: nn.BatchNorm2d(18, track_running_stats=False),
        (2, 5, 9, 11),
    ),
    Norm("fast_momentum", lambda: nn.Conv2d(5, 18, 3), lambda: nn.BatchNorm2d(18, momentum=0.75), (2, 5, 9, 11)),
    Norm(
        "behind_an_activation",
        lambda: nn.Conv2d(5, 18, 3),
        lambda: nn.BatchNorm2d(18),
        (2, 5, 9, 11),
        before=lambda y: torch.nn.functional.leaky_relu(y, 0.1),
    ),
    Norm(
        "far_from_zero",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        lambda: nn.BatchNorm2d(18),
        (2, 5, 12, 14),
        after=lambda y, x: y,
        arrange=_far_from_zero,
    ),
    Norm(
        "phases",
        lambda: nn.ConvTranspose2d(5, 18, 3, stride=2, padding=1),
        lambda: nn.BatchNorm2d(18),
        (2, 5, 7, 6),
    ),
    Norm(
        "three_phases",
        lambda: nn.ConvTranspose1d(5, 18, 4, stride=3, output_padding=1),
        lambda: nn.BatchNorm1d(18),
        (3, 5, 11),
    ),
    Norm(
        "phases_of_large_images",
        lambda: nn.ConvTranspose2d(3, 18, 4, stride=2, padding=1),
        lambda: nn.BatchNorm2d(18),
        (2, 3, 17, 18),
    ),
    Norm(
        "phases_far_from_zero",
        lambda: nn.ConvTranspose3d(4, 6, 3, stride=2),
        lambda: nn.BatchNorm3d(6),
        (2, 4, 3, 4, 3),
        after=lambda y, x: y,
        arrange=_far_from_zero,
    ),
    Norm("halves", lambda: nn.Conv2d(5, 18, 3), lambda: nn.BatchNorm2d(18), (2, 5, 9, 11), dtype=torch.float16),
    Norm("bfloat16", lambda: nn.Conv2d(5, 18, 3), lambda: nn.BatchNorm2d(18), (2, 5, 9, 11), dtype=torch.bfloat16),
]

# By each sample's own statistics.
OF_SAMPLES = [
    Norm("groups_of_channels", lambda: nn.Conv2d(5, 18, 3, padding=1), lambda: nn.GroupNorm(6, 18), (3, 5, 9, 11)),
    Norm("one_group", lambda: nn.Conv2d(5, 18, 3), lambda: nn.GroupNorm(1, 18), (3, 5, 9, 11)),
    Norm("single_channels", lambda: nn.Conv2d(5, 18, 3), lambda: nn.InstanceNorm2d(18, affine=True), (3, 5, 9, 11)),
    Norm("without_parameters_of_samples", lambda: nn.Conv1d(5, 18, 4), lambda: nn.InstanceNorm1d(18), (3, 5, 40)),
    Norm(
        "of_groups_of_filters",
        lambda: nn.Conv2d(6, 36, 3, groups=2),
        lambda: nn.GroupNorm(9, 36),
        (2, 6, 7, 8),
        after=_residual_of_itself,
    ),
    Norm(
        "of_samples_behind_an_activation",
        lambda: nn.Conv3d(3, 18, 3),
        lambda: nn.GroupNorm(3, 18),
        (2, 3, 5, 6, 7),
        before=torch.nn.functional.silu,
    ),
    Norm(
        "of_samples_far_from_zero",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        lambda: nn.GroupNorm(6, 18),
        (2, 5, 12, 14),
        after=lambda y, x: y,
        arrange=_far_from_zero,
    ),
    Norm("of_one_sample", lambda: nn.Conv2d(5, 18, 3), lambda: nn.GroupNorm(6, 18), (1, 5, 9, 11)),
    Norm("of_depthwise", lambda: nn.Conv2d(6, 6, 3, groups=6), lambda: nn.GroupNorm(2, 6), (2, 6, 9, 11)),
    Norm(
        "of_phases",
        lambda: nn.ConvTranspose2d(5, 18, 3, stride=2, padding=1),
        lambda: nn.GroupNorm(6, 18),
        (3, 5, 7, 6),
    ),
    Norm(
        "of_phases_in_three_dimensions",
        lambda: nn.ConvTranspose3d(3, 8, 3, stride=2, padding=1, output_padding=1),
        lambda: nn.InstanceNorm3d(8, affine=True),
        (2, 3, 3, 4, 5),
    ),
    Norm(
        "halves_of_samples",
        lambda: nn.Conv2d(5, 18, 3),
        lambda: nn.GroupNorm(6, 18),
        (2, 5, 9, 11),
        dtype=torch.float16,
    ),
]

# Norms, or none, of which means over all positions are wanted.
AVERAGED = [
    Norm(
        "averages_of_channels",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        lambda: nn.GroupNorm(6, 18),
        (2, 5, 17, 19),
        after=lambda y, x: y.mean((2, 3)),
    ),
    Norm(
        "averages_of_samples",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        lambda: nn.InstanceNorm2d(18, affine=True),
        (2, 5, 17, 19),
        before=torch.nn.functional.hardswish,
        after=lambda y, x: y.mean((1, -2, -1), keepdim=True),
    ),
    Norm(
        "pooled",
        lambda: nn.ConvTranspose2d(5, 18, 3, stride=2),
        lambda: nn.BatchNorm2d(18),
        (3, 5, 9, 10),
        after=lambda y, x: torch.nn.functional.adaptive_avg_pool2d(y, 1),
    ),
    Norm(
        "less_their_averages",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        lambda: nn.BatchNorm2d(18),
        (2, 5, 17, 19),
        after=lambda y, x: y - y.mean((2, 3), keepdim=True),
    ),
    Norm(
        "without_a_norm",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        nn.Identity,
        (2, 5, 17, 19),
        before=torch.nn.functional.gelu,
        after=lambda y, x: torch.nn.functional.adaptive_avg_pool2d(y, 1),
    ),
    Norm(
        "of_a_batch_without_a_norm",
        lambda: nn.ConvTranspose2d(5, 18, 3, stride=2),
        nn.Identity,
        (3, 5, 9, 10),
        before=torch.sigmoid,
        after=lambda y, x: y.mean((0, 2, 3)) * 2.0,
    ),
    Norm(
        "read_beside_their_average",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        nn.Identity,
        (2, 5, 17, 19),
        before=torch.nn.functional.silu,
        after=lambda y, x: y * torch.sigmoid(y.mean((2, 3), keepdim=True)),
    ),
    Norm(
        "halves_without_a_norm",
        lambda: nn.Conv2d(5, 18, 3, padding=1),
        nn.Identity,
        (2, 5, 17, 19),
        before=torch.tanh,
        after=lambda y, x: y.mean((-1, -2)),
        dtype=torch.float16,
    ),
    Norm(
        "short_channels",
        lambda: nn.Conv2d(5, 18, 3),
        lambda: nn.GroupNorm(6, 18),
        (3, 5, 9, 11),
        after=lambda y, x: y.mean((2, 3)),
    ),
]


def _small_sample(block: Block, x: Tensor) -> None:
    x[0].flatten()[1:].mul_(2.0**-40)


def _infinity(block: Block, x: Tensor) -> None:
    x[0].flatten()[3] = float("inf")


def _out_of_sight(block: Block, x: Tensor) -> None:
    """Where a sample has more elements than its scale is found from, beyond those: too large for a half."""
    x[-1].flatten()[-100] = 2.0**24


def _small_weights(block: Block, x: Tensor) -> None:
    block.convolution.weight.flatten()[:2].mul_(2.0**-36)


DRAWS: dict[str, Callable[[Block, Tensor], None]] = {
    "drawn": lambda block, x: None,
    "a small sample": _small_sample,
    "an infinity": _infinity,
    "a number out of sight": _out_of_sight,
    "small weights": _small_weights,
}


def results_of(block: nn.Module, x: Tensor, state: nn.Module | None = None) -> dict[str, Tensor]:
    """What a call returns and what it leaves in the buffers, in double precision."""
    with torch.no_grad():
        named = {"result": block(x), **dict((state or block).named_buffers())}
    return {name.replace("norm.", ""): value.double().clone() for name, value in named.items()}


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: results and buffers are as near to what double precision gives as eager's are, but
    for the digits that a convolution rounds its operands to."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CASES + OF_SAMPLES + AVERAGED if one.name == request["case"])
    digits = 2.0**-10 if not request["exact"] and case.dtype == torch.float32 else 2.0**-22
    # Only halves are scaled, and spoilt by what does not fit beside the rest.
    draws = {name: DRAWS[name] for name in ("drawn", "an infinity")} if request["exact"] else DRAWS
    if case.dtype != torch.float32:
        draws = {"drawn": DRAWS["drawn"]}
    ours = case.block()
    candidate = module.ModelNew(ours)
    for draw, change in draws.items():
        x = case.input()
        if change is _out_of_sight and x[0].numel() <= 16384:
            continue
        with torch.no_grad():
            change(ours, x)
        eager, exact = copy.deepcopy(ours), copy.deepcopy(ours).double()
        found = results_of(candidate, x, ours)
        if fault := fault_of(case, found, results_of(eager, x), results_of(exact, x.double()), digits):
            return f"{draw}: {fault}"
        if isinstance(ours.norm, nn.modules.batchnorm._NormBase):
            ours.norm.reset_running_stats()
    return ""


def fault_of(
    case: Norm, found: dict[str, Tensor], eager: dict[str, Tensor], exact: dict[str, Tensor], digits: float
) -> str:
    for name, right in exact.items():
        ours, theirs = found[name], eager[name]
        # The mean of what has an infinity is that or NaN, as kernels add it up.
        finite = torch.isfinite(theirs)
        if not torch.equal(torch.isfinite(ours), finite):
            return f"{name}: finite in other places than eager's"
        finite &= torch.isfinite(right)
        if not bool(finite.any()):
            continue
        ours, theirs, right = ours[finite], theirs[finite], right[finite]
        allowed = 4 * (theirs - right).abs().max() + 16 * digits * right.abs().max().clamp(min=1.0)
        allowed = allowed + 2 * torch.finfo(case.dtype).eps * right.abs()
        error = (ours - right).abs()
        if bool((error > allowed).any()):
            return f"{name}: error {float((error / allowed).max()):.3g} of what is allowed"
    return ""
