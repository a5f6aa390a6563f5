"""Convolutions on the GPU, alone, with norms, in chains, beside their references; weights that change between calls."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, Callable

import chain_cases
import concatenation_cases
import norm_cases
import pytest
import torch
from chain_cases import CHAINS, Chain
from contraction_cases import Case
from convolution_cases import CASES, FOLDS, Fold, conv, fault_of_results, strewn, transposed
from device_checks import Candidate, as_tuple, emit, in_double, moved, put_in, schedulers_of
from movement_cases import Wrapped
from norm_cases import Norm
from torch import nn

Tensor = torch.Tensor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")

# Of what halves round to 11 digits, and of single precision.
ONE_HALF, EXACT = 2.0**-10, 2.0**-21
SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4}


def known(name: str, *shapes: tuple[int, ...], **changes: Any) -> Case:
    """A case of convolution_cases at other sizes."""
    case = next(one for one in CASES + FOLDS if one.name == name)
    return dataclasses.replace(case, shapes=shapes, **changes)


def channels_last(drawn: list[Tensor]) -> list[Tensor]:
    layout = torch.channels_last if drawn[0].ndim == 4 else torch.channels_last_3d
    return [drawn[0].contiguous(memory_format=layout), *drawn[1:]]


IMAGE, WIDE = (16, 64, 56, 56), (32, 64, 56, 56)
FILTERS, BIAS = (128, 64, 3, 3), (128,)
TURNED = (64, 128, 3, 3)  # of transposed convolutions

PLANNED = [
    known("plain", IMAGE, FILTERS),
    known("bias", IMAGE, FILTERS, BIAS),
    known("dilated", IMAGE, FILTERS),
    known("groups", (32, 128, 28, 28), (256, 64, 3, 3), (256,)),
    known("one_channel", (32, 1, 128, 128), (64, 1, 3, 3), (64,)),
    known("pointwise", (16, 128, 56, 56), (256, 128, 1, 1), (256,)),
    known("one_dimension", (32, 64, 4096), (128, 64, 4), BIAS),
    known("three_dimensions", (8, 16, 24, 32, 32), (64, 16, 3, 2, 3), (64,)),
    known("residual", IMAGE, FILTERS, BIAS, (16, 128, 56, 56)),
    known("channels_last", IMAGE, FILTERS, BIAS),
    known("transposed", IMAGE, TURNED, BIAS),
    known("transposed_in_all", (16, 64, 28, 30), (64, 128, 5, 4), BIAS),
    known("transposed_groups", (16, 64, 28, 28), (64, 64, 3, 3)),
    known("transposed_one_dimension", (16, 64, 2048), (64, 128, 6), BIAS),
    known("transposed_three_dimensions", (8, 32, 12, 16, 16), (32, 64, 2, 3, 3), (64,)),
    known("transposed_strided_dilated", (16, 64, 28, 28), TURNED, BIAS),
    known("halves", WIDE, FILTERS, BIAS),
    known("bfloat16", WIDE, TURNED, BIAS),
    Case("channels_last_in_three", conv(padding=1), ((8, 16, 16, 32, 32), (64, 16, 3, 3, 3)), arrange=channels_last),
    Case(
        "transposed_channels_last",
        transposed(stride=2, padding=1, output_padding=1),
        (IMAGE, TURNED, BIAS),
        arrange=channels_last,
    ),
    Case("bf16_channels_last", conv(padding=1), (WIDE, FILTERS, BIAS), torch.bfloat16, channels_last),
    Case("depthwise", conv(groups=64, padding=1), (IMAGE, (64, 1, 3, 3), (64,))),
    Case("depthwise_strided", conv(groups=64, padding=3, stride=2), (IMAGE, (64, 1, 7, 7), (64,))),
    Case("fp16_depthwise", conv(groups=64, padding=1), (WIDE, (64, 1, 3, 3), (64,)), torch.float16),
    known("amin", IMAGE, FILTERS, BIAS),
    known("logsumexp_of_transposed", (16, 64, 28, 28), (64, 128, 4, 4), BIAS),
    known("max_pool", IMAGE, FILTERS, BIAS),
    known("average_pool", IMAGE, FILTERS, BIAS),
    known("pool_in_three_dimensions", (8, 16, 16, 32, 32), (32, 16, 3, 3, 3), (32,)),
    known("softmax_of_bfloat16", WIDE, FILTERS, BIAS),
    known("amax_of_channels_last", IMAGE, FILTERS, BIAS),
]


@pytest.mark.parametrize("case", PLANNED, ids=[case.name for case in PLANNED])
@torch.no_grad()
def test_planned_convolutions(case: Case, tmp_path: Path) -> None:
    given = moved(case.arguments())
    emitted = emit(Wrapped(case.function), given)
    assert schedulers_of(emitted) == ["convolution"] and emitted["library_ops"] == []
    one_half = emitted["schedule"]["groups"][0]["parameters"].get("scheme") == 0
    digits = ONE_HALF if one_half or case.dtype != torch.float32 else EXACT
    candidate = Candidate(emitted, tmp_path)
    fault = fault_of_results(case, candidate, given, digits)
    assert not fault, fault
    if not isinstance(case, Fold):  # the sum of a product's magnitudes is far more than its error
        assert_near(candidate(*given), case.function(*in_double(given)), max(digits, 2.0**-19))


def assert_near(actual: Any, exact: Any, digits: float) -> None:
    """By norm."""
    for ours, right in zip(as_tuple(actual), as_tuple(exact), strict=True):
        allowed = digits + torch.finfo(ours.dtype).eps if ours.is_floating_point() else 0.0
        assert (ours.double() - right.double()).norm() <= allowed * right.double().norm()


# What is not planned above, and some of each kind with numbers that halves do not hold.
AGAIN = ("bias", "pointwise", "groups", "transposed", "transposed_in_all", "halves", "max_pool")
NAMES = {case.name for case in PLANNED}
SMALL_CASES = [case for case in CASES + FOLDS if case.name in AGAIN or case.name not in NAMES]


@pytest.mark.parametrize("scheme", [0, 1], ids=["half", "exact"])
@pytest.mark.parametrize("case", SMALL_CASES, ids=[case.name for case in SMALL_CASES])
@pytest.mark.in_turns("scheme")
@torch.no_grad()
def test_convolutions_in_small_blocks(case: Case, scheme: int, tmp_path: Path) -> None:
    drawn = case.arguments()
    emitted = emit(Wrapped(case.function), moved(drawn), "convolution", SMALL | {"scheme": scheme})
    assert emitted["library_ops"] == []
    candidate = Candidate(emitted, tmp_path)
    digits = EXACT if scheme == 1 and case.dtype == torch.float32 else ONE_HALF
    for arguments in (drawn, strewn(drawn)):
        fault = fault_of_results(case, candidate, moved(put_in(drawn, arguments)), digits, home="cpu")
        assert not fault, fault


def inference(block: norm_cases.Block) -> None:
    block.eval()


NORMS = [
    Norm("batch", lambda: nn.Conv2d(64, 128, 3, padding=1), lambda: nn.BatchNorm2d(128), IMAGE),
    Norm("in_inference", lambda: nn.Conv2d(64, 128, 3), lambda: nn.BatchNorm2d(128), IMAGE, arrange=inference),
    Norm(
        "residual",
        lambda: nn.Conv2d(64, 64, 3, padding=1),
        lambda: nn.BatchNorm2d(64),
        IMAGE,
        after=lambda y, x: torch.relu(y + x),
    ),
    Norm("transposed", lambda: nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), lambda: nn.BatchNorm2d(64), IMAGE),
    Norm("depthwise", lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), lambda: nn.BatchNorm2d(64), IMAGE),
    Norm("three_dimensions", lambda: nn.Conv3d(16, 32, 3), lambda: nn.BatchNorm3d(32), (8, 16, 24, 32, 32)),
    Norm("groups_of_channels", lambda: nn.Conv2d(64, 128, 3), lambda: nn.GroupNorm(8, 128), IMAGE),
    Norm(
        "single_channels_of_phases",
        lambda: nn.ConvTranspose3d(16, 32, 4, stride=2, padding=1),
        lambda: nn.InstanceNorm3d(32, affine=True),
        (8, 16, 12, 16, 16),
    ),
    Norm(
        "averages",
        lambda: nn.Conv2d(64, 128, 3, padding=1),
        lambda: nn.GroupNorm(8, 128),
        IMAGE,
        after=lambda y, x: y.mean((2, 3)),
    ),
    Norm("bf16", lambda: nn.Conv2d(64, 128, 3), lambda: nn.BatchNorm2d(128), WIDE, dtype=torch.bfloat16),
    Norm("fp16_groups", lambda: nn.Conv2d(64, 128, 3), lambda: nn.GroupNorm(8, 128), WIDE, dtype=torch.float16),
]


@pytest.mark.parametrize("case", NORMS, ids=[case.name for case in NORMS])
@torch.no_grad()
def test_norms_behind_convolutions_and_their_buffers(case: Norm, tmp_path: Path) -> None:
    block, x = case.block().cuda(), case.input().cuda()
    emitted = emit(block, [x])
    assert "convolution" in schedulers_of(emitted) and emitted["library_ops"] == []
    eager, exact = copy.deepcopy(block), copy.deepcopy(block).double()
    candidate = Candidate(emitted, tmp_path, block)
    digits = ONE_HALF if case.dtype == torch.float32 else torch.finfo(case.dtype).eps
    for _ in range(2):  # running statistics follow the calls
        found = norm_cases.results_of(candidate, x, block)
        right = norm_cases.results_of(exact, x.double())
        fault = norm_cases.fault_of(case, found, norm_cases.results_of(eager, x), right, digits)
        assert not fault, fault
        for name, value in found.items():
            error = (value - right[name]).norm() / right[name].norm().clamp(min=2.0**-10)
            assert float(error) <= 4 * digits, name


@pytest.mark.parametrize("case", CHAINS, ids=[case.name for case in CHAINS])
@torch.no_grad()
def test_chains_of_convolutions(case: Chain, tmp_path: Path) -> None:
    block = case.module(64).cuda()
    x = torch.randn((32, 64, 112, 112), generator=torch.Generator().manual_seed(7)).cuda()
    emitted = emit(block, [x])
    assert schedulers_of(emitted).count("convolution") >= 2
    exact = copy.deepcopy(block).double()
    candidate = Candidate(emitted, tmp_path, block)
    for scale in (1.0, 2.0**-40):  # what halves hold, and what their kernels leave to others
        x[-1] *= scale
        found, right = candidate(x), exact(x.double())
        fault = chain_cases.fault_of(block, exact, found, right)
        assert not fault, fault
        assert found.stride() == right.stride()


FIRE = (WIDE, (128, 64, 1, 1), (128, 64, 3, 3))
CONCATENATED = {"two convolutions": FIRE, "channels last": FIRE, "an input beside one": (WIDE, (64, 64, 3, 3))}


@pytest.mark.parametrize("name", CONCATENATED)
@torch.no_grad()
def test_concatenations_in_place(name: str, tmp_path: Path) -> None:
    function = next(one.function for one in concatenation_cases.CASES if one.name == name)
    shapes = CONCATENATED[name]
    given = [torch.randn(shape, device="cuda") for shape in shapes]
    emitted = emit(Wrapped(function), given)
    assert "in_place" in schedulers_of(emitted) and emitted["library_ops"] == []
    found = Candidate(emitted, tmp_path)(*given)
    assert found.stride() == function(*given).stride()
    assert_near(found, function(*in_double(given)), ONE_HALF)


@torch.no_grad()
def test_images_of_more_elements_than_32_bits_count(tmp_path: Path) -> None:
    module = nn.Conv2d(16, 16, 3, padding=1).half().cuda().eval()
    x = torch.randn(33, 16, 2048, 2048, dtype=torch.float16, device="cuda")
    assert x.numel() > 1 << 31
    emitted = emit(module, [x])
    assert schedulers_of(emitted) == ["convolution"]
    found = Candidate(emitted, tmp_path, module)(x)
    exact = copy.deepcopy(module).double()
    assert found.shape == x.shape and found.is_contiguous()
    for sample in (0, 31, 32):
        assert_near(found[sample], exact(x[sample].double()), ONE_HALF)
    del x, found
    torch.cuda.empty_cache()


class Normed(nn.Module):
    def __init__(self, part: nn.Module, channels: int) -> None:
        super().__init__()
        self.part, self.norm = part, nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.part(x)))


class Layer(nn.Module):
    """All that a recurrent layer returns, side by side."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs, states = self.layer(x)
        return (outputs, *as_tuple(states))


CHANGED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(64, 128, 3, padding=1), IMAGE),
    "transposed": (lambda: nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), IMAGE),
    "depthwise": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), IMAGE),
    "norm": (lambda: Normed(nn.Conv2d(64, 128, 3), 128), IMAGE),
    "bf16": (lambda: nn.Conv2d(64, 128, 3).bfloat16(), WIDE),
    "lstm": (lambda: Layer(nn.LSTM(64, 256, 2)), (64, 16, 64)),
    "gru": (lambda: Layer(nn.GRU(64, 256, 2, bidirectional=True)), (64, 16, 64)),
    "rnn": (lambda: Layer(nn.RNN(64, 256)), (64, 16, 64)),
}


@pytest.mark.parametrize("name", CHANGED)
@torch.no_grad()
def test_weights_changed_in_place_are_read(name: str, tmp_path: Path) -> None:
    make, shape = CHANGED[name]
    torch.manual_seed(0)
    model = make().cuda().eval()
    dtype = next(model.parameters()).dtype
    x = torch.randn(shape, device="cuda").to(dtype)
    emitted = emit(model, [x])
    assert {"convolution", "recurrence"} & set(schedulers_of(emitted)) and emitted["library_ops"] == []
    candidate = Candidate(emitted, tmp_path, model)

    def check() -> list[Tensor]:
        exact = copy.deepcopy(model).double()(x.double())
        found = as_tuple(candidate(x))
        for ours, right in zip(found, as_tuple(exact), strict=True):
            close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 2e-3, "atol": 5e-3}
            torch.testing.assert_close(ours.double(), right, **close)
        return list(found)

    before = check()
    other = {
        key: value * 1.5 if value.is_floating_point() else value
        for key, value in copy.deepcopy(model).state_dict().items()
    }
    for change in (
        lambda: [weight.mul_(0.5) for weight in model.parameters()],
        lambda: next(model.parameters()).view(-1)[::2].neg_(),
        lambda: model.load_state_dict(other),
    ):
        change()
        for _ in range(2):
            after = check()
        assert any(not torch.equal(one, old) for one, old in zip(after, before, strict=True))
        before = after
