"""Convolutions as kernels of ours: what PyTorch computes, and in machine code for an H100."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code, with_ours
from convolution_cases import CASES, FOLDS, LACK_TAPS, PADDED, conv
from convolution_images import PRODUCED
from contraction_cases import Case
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only

SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4}
ONE_HALF, EXACT = SMALL | {"scheme": 0}, SMALL | {"scheme": 1}

ALL_CASES = CASES + FOLDS + PRODUCED

interpreter = interpreter_of("convolution_cases:interpreted")


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [ONE_HALF, EXACT], ids=["half", "exact"])
@pytest.mark.parametrize("case", ALL_CASES, ids=[case.name for case in ALL_CASES])
def test_convolutions_are_pytorchs(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", parameters)
    assert emitted["library_ops"] == []
    assert max(map(len, emitted["source"].splitlines())) <= 140
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=parameters["scheme"] == 1)
    assert not fault, fault


TOGETHER = {
    "columns": {"columns_together": 2},
    "rows": {"rows_together": 2},
    "both": {"columns_together": 2, "rows_together": 2},
    "four": {"columns_together": 4},
}
SHARE_WINDOWS = [
    case for case in CASES + FOLDS if not re.search("transposed|phases|depthwise|halves|bfloat", case.name)
]


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [ONE_HALF, EXACT], ids=["half", "exact"])
@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("case", SHARE_WINDOWS, ids=[case.name for case in SHARE_WINDOWS])
def test_neighbours_that_read_one_window_are_pytorchs(
    case: Case, together: str, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    parameters = parameters | TOGETHER[together]
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", parameters)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=parameters["scheme"] == 1)
    assert not fault, fault


@pytest.mark.parametrize(
    "part, after, together",
    [
        (torch.nn.Conv3d(3, 16, 3), torch.relu, {"columns_together": 2}),
        (torch.nn.Conv3d(8, 16, 3), lambda y: F.max_pool3d(y, 2), {"columns_together": 2, "rows_together": 2}),
        (torch.nn.Conv2d(8, 32, 3), torch.tanh, {"columns_together": 2}),
        (torch.nn.Conv3d(3, 16, 4), torch.relu, {"rows_together": 2}),  # four taps fill a step
        (torch.nn.Conv2d(8, 64, 3), torch.tanh, {}),
        (torch.nn.Conv2d(8, 32, 3, dilation=2), torch.tanh, {}),
        (torch.nn.Conv2d(8, 32, 3, stride=2), torch.tanh, {}),
        (torch.nn.Conv2d(64, 32, 3), torch.tanh, {}),
        (torch.nn.Conv2d(8, 32, 3).half(), torch.tanh, {}),
    ],
    ids=["three", "pooled", "eight", "full_rows", "many_filters", "dilated", "strided", "many_channels", "16_bits"],
)
def test_few_channels_to_few_filters_read_a_window_for_several_results(
    part: torch.nn.Module, after: Any, together: dict[str, int], tmp_path: Path
) -> None:
    shape = [32, part.in_channels, *[{4: 128, 5: 32}[part.weight.ndim]] * (part.weight.ndim - 2)]
    emitted = compile_for_gpu(Module(part, after), torch.empty(shape, dtype=part.weight.dtype))
    (group,) = emitted["schedule"]["groups"]
    assert {name: value for name, value in group["parameters"].items() if name.endswith("_together")} == together
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [ONE_HALF, EXACT], ids=["half", "exact"])
@pytest.mark.parametrize("case", LACK_TAPS, ids=[case.name for case in LACK_TAPS])
def test_phases_that_lack_taps_have_kernels_of_their_own(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    apart = parameters | {"phases_apart": 1}
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", apart)
    assert len(re.findall(r"^def \w+_phase_\d+\(", emitted["source"], re.M)) == LACK_TAPS[case]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=parameters["scheme"] == 1)
    assert not fault, fault


@pytest.mark.parametrize("case", PADDED, ids=[case.name for case in PADDED])
def test_padding_of_every_mode(case: Case, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = with_ours(Wrapped(case.function), case.arguments(), "convolution", EXACT)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=True)
    assert not fault, fault


@pytest.mark.parametrize("parameters", [ONE_HALF, EXACT], ids=["half", "exact"])
@pytest.mark.parametrize("case", PADDED, ids=[case.name for case in PADDED])
def test_padding_of_every_mode_is_stored_nowhere(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", parameters)
    assert emitted["library_ops"] == [] and not any(re.search(r"pad\w*\dd_kernel", one) for one in emitted["kernels"])
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=parameters["scheme"] == 1)
    assert not fault, fault


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padded_images_are_laid_out_where_they_lie(mode: str, dims: int, tmp_path: Path) -> None:
    kind = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}[dims]
    part = kind(64, 64, 3, padding=1, padding_mode=mode)
    image = torch.empty(16, 64, *[{1: 4096, 2: 56, 3: 16}[dims]] * dims)
    emitted = compile_for_gpu(part, image)
    assert emitted["library_ops"] == [] and len(emitted["kernels"]) == 5
    assert any("pad" in name and name.endswith("channels_last_kernel") for name in emitted["kernels"])
    machine_code(emitted, tmp_path)


def test_an_image_that_data_move_is_stored_before() -> None:
    part = torch.nn.Conv2d(64, 64, 3)

    class Picked(torch.nn.Module):
        def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return part(x[:, :, rows])

    emitted = compile_for_gpu(Picked(), torch.empty(16, 64, 56, 56), torch.zeros(56, dtype=torch.int64))
    assert emitted["kernels"][0] == "index_kernel"


def test_one_small_number_is_no_reason_to_compute_a_filter_again(tmp_path: Path) -> None:
    function, shapes = conv(), ((2, 48, 6, 6), (32, 48, 3, 3))
    emitted = as_one_group(Wrapped(function), [torch.randn(shape) for shape in shapes], "convolution", EXACT)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    process = InterpreterProcess(tmp_path, "convolution_cases:flagged_filters")
    assert process.fault(candidate=str(path)) == "[1]"
    process.close()


class Module(torch.nn.Module):
    def __init__(self, part: torch.nn.Module, after: Callable[[torch.Tensor], torch.Tensor] = torch.relu) -> None:
        super().__init__()
        self.part = part
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.part(x))


LARGE = {
    "square": (torch.nn.Conv2d(64, 128, 3, padding=1), (32, 64, 64, 64)),
    "few_channels": (torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), (64, 3, 128, 128)),
    "transposed": (torch.nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), (32, 64, 64, 64)),
    "three_dimensions": (torch.nn.Conv3d(16, 32, 3), (8, 16, 32, 32, 32)),
    "bfloat16": (torch.nn.Conv2d(64, 128, 3).bfloat16(), (64, 64, 64, 64)),
}


@pytest.mark.parametrize("name", LARGE)
def test_triton_makes_tensor_core_code_of_it(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself, without spilled registers where time is spent."""
    pytest.importorskip("triton")
    part, shape = LARGE[name]
    x = torch.randn(shape, dtype=part.weight.dtype)
    emitted = compile_for_gpu(Module(part), x)
    assert emitted["library_ops"] == []
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["convolution"]
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel
    (product,) = (one for kernel, one in code.items() if kernel.endswith("relu_kernel"))
    assert product.asm["ptx"].count("wgmma.mma_async") > 0
    # Few channels are loaded without copies on the way.
    assert ("cp.async" in product.asm["ptx"]) == (LARGE[name][0].in_channels >= 32)


class Behind(torch.nn.Module):
    """A convolution of what a norm in inference, a sum and an activation make; and that, where it is returned, too."""

    def __init__(self, part: torch.nn.Module, channels: int, activation: Any, returns: bool) -> None:
        super().__init__()
        self.part, self.activation, self.returns = part, activation, returns
        self.norm = torch.nn.BatchNorm2d(channels, dtype=part.weight.dtype).eval()

    def forward(self, x: torch.Tensor, r: torch.Tensor) -> Any:
        image = self.activation(self.norm(x) + r)
        result = torch.relu(self.part(image))
        return (result, image) if self.returns else result


MADE = {
    "residual": (torch.nn.Conv2d(64, 128, 3, padding=1), (32, 64, 56, 56), torch.relu, True),
    "strided": (torch.nn.Conv2d(128, 256, 3, stride=2), (32, 128, 56, 56), torch.relu, True),
    "sigmoid_linear": (torch.nn.Conv2d(96, 96, 3, padding=1), (32, 96, 56, 56), torch.nn.functional.silu, False),
    "transposed": (torch.nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), (32, 64, 64, 64), torch.relu, False),
    "groups": (torch.nn.Conv2d(128, 128, 3, padding=1, groups=4), (32, 128, 56, 56), torch.relu, True),
    "bfloat16": (torch.nn.Conv2d(64, 128, 3).bfloat16(), (64, 64, 64, 64), torch.relu, True),
}


@pytest.mark.parametrize("name", MADE)
def test_images_are_made_where_they_are_laid_out(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    part, shape, activation, returns = MADE[name]
    x = torch.empty(shape, dtype=part.weight.dtype)
    emitted = compile_for_gpu(Behind(part, shape[1], activation, returns), x, x)
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["convolution"]
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel
    assert len([kernel for kernel in code if kernel.endswith("_channels_last_kernel")]) == 1


def _softmax(y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.softmax(y, 1) * 2.0)


FOLDED = {
    "minimum": (torch.nn.Conv2d(16, 64, 3), (32, 16, 128, 128), lambda y: torch.tanh(y.amin(1, keepdim=True))),
    "softmax": (torch.nn.ConvTranspose2d(64, 128, 4, padding=1), (32, 64, 64, 64), _softmax),
    "phases": (torch.nn.ConvTranspose2d(64, 128, 4, stride=2, padding=1), (32, 64, 32, 32), lambda y: y.amin(1)),
    "max_pool": (torch.nn.Conv2d(32, 64, 3), (32, 32, 66, 66), lambda y: F.max_pool2d(F.hardswish(y), 2)),
    "pool_with_a_border": (torch.nn.Conv2d(8, 64, 3), (32, 8, 128, 128), lambda y: F.max_pool2d(torch.tanh(y), 4)),
    "average_pool": (torch.nn.Conv3d(32, 64, 3), (16, 32, 18, 34, 34), lambda y: F.avg_pool3d(torch.tanh(y), 2)),
    "phases_pooled": (
        torch.nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1),
        (8, 32, 8, 32, 32),
        lambda y: F.avg_pool3d(torch.tanh(y), 2),
    ),
    # A window has the last phase of one place and the first of the next.
    "phases_of_two_places_pooled": (
        torch.nn.ConvTranspose2d(32, 64, 4, stride=2, padding=1),
        (32, 32, 64, 64),
        lambda y: F.max_pool2d(y, 2),
    ),
    "norm_of_rows_of_phases": (
        torch.nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1),
        (8, 32, 8, 32, 32),
        lambda y: F.gelu(F.layer_norm(y, (64,))),
    ),
    "phases_pooled_not_rounded": (
        torch.nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1),
        (32, 3, 16, 32, 32),
        lambda y: F.max_pool3d(y, 2),
    ),
    "many_filters": (torch.nn.Conv2d(32, 256, 3), (32, 32, 64, 64), lambda y: torch.logsumexp(y, 1)),
    "not_rounded": (torch.nn.Conv3d(3, 16, 3), (32, 3, 16, 32, 32), _softmax),
    "bfloat16": (torch.nn.Conv2d(64, 96, 3).bfloat16(), (64, 64, 64, 64), lambda y: y.mean(1)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folds_over_channels_and_windows_are_done_where_the_result_is_made(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    part, shape, after = FOLDED[name]
    emitted = compile_for_gpu(Module(part, after), torch.randn(shape, dtype=part.weight.dtype))
    assert emitted["library_ops"] == []
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["convolution"]
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel
    products = [one for kernel, one in code.items() if re.fullmatch(r"conv.*_kernel(_phase_\d+)?", kernel)]
    assert products
    assert all(one.asm["ptx"].count("wgmma.mma_async") > 0 for one in products)


@pytest.mark.parametrize(
    "part, after",
    [
        (torch.nn.Conv2d(32, 64, 3, groups=2), lambda y: y.amax(1)),
        # 320 rows with the phases among them; phases apart would store every other element.
        (torch.nn.ConvTranspose2d(32, 160, 4, stride=2, padding=1), _softmax),
        (torch.nn.Conv2d(32, 320, 3), lambda y: y.amax(1)),
        (torch.nn.Conv2d(32, 64, 3), lambda y: y.amax(3)),
        (torch.nn.Conv2d(32, 64, 3), lambda y: y.amax((1, 3))),
        (torch.nn.Conv2d(32, 64, 3), lambda y: y.argmax(1)),
        (torch.nn.ConvTranspose2d(32, 64, 3, stride=2), lambda y: F.max_pool2d(y, 3)),
    ],
    ids=[
        "of_each_group",
        "stored_by_phases",
        "of_more_filters_than_a_block_has",
        "over_positions",
        "over_both",
        "place",
        "over_some_phases",
    ],
)
def test_other_folds_have_a_kernel_of_their_own(part: torch.nn.Module, after: Any) -> None:
    emitted = compile_for_gpu(Module(part, after), torch.randn(32, 32, 64, 64))
    schedulers = [one["scheduler"] for one in emitted["schedule"]["groups"]]
    assert len(schedulers) == 2 and schedulers[1] in ("reduction", "normalisation", "sliding")


# Computed again, a phase has zero times infinity where another has what is finite.
@pytest.mark.parametrize(
    "padding, width, after, joined",
    [
        (1, 32, lambda y: F.gelu(F.layer_norm(y, (64,))), True),
        (1, 32, lambda y: torch.softmax(y, 3), False),
        (1, 32, lambda y: y + F.layer_norm(y, (64,)), True),
        (1, 32, lambda y: torch.where(y > 0, F.layer_norm(y, (64,)), 1.0), False),
        (1, 32, lambda y: F.layer_norm(torch.tanh(y), (64,)), False),
        (1, 32, lambda y: y - torch.var_mean(y, 3, keepdim=True)[1], False),
        (1, 32, lambda y: y + F.layer_norm(torch.arange(64.0).expand_as(y), (64,)), False),
        # What half of the image's columns meet is cut off.
        (33, 64, lambda y: F.layer_norm(y, (64,)), False),
    ],
    ids=[
        "norm",
        "softmax",
        "norm_and_residual",
        "chosen_by_what_is_normed",
        "norm_of_what_is_bounded",
        "mean",
        "norm_of_another",
        "cut_off",
    ],
)
def test_rows_of_phases_are_folded_where_nothing_finite_is_lost(
    padding: int, width: int, after: Any, joined: bool
) -> None:
    part = torch.nn.ConvTranspose2d(32, 64, 3, stride=2, padding=padding, output_padding=1)
    emitted = compile_for_gpu(Module(part, after), torch.randn(64, 32, 64, width))
    schedulers = [one["scheduler"] for one in emitted["schedule"]["groups"]]
    assert (schedulers == ["convolution"]) == joined, schedulers


def test_phases_stand_among_the_filters_that_are_folded() -> None:
    part = torch.nn.ConvTranspose2d(32, 64, 4, stride=2, padding=1)
    emitted = compile_for_gpu(Module(part, _softmax), torch.randn(32, 32, 64, 64))
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "convolution"
    # 64 filters with two phases each are a product's 128 columns, and apart where they are folded.
    assert re.search(r"tl\.reshape\(\w+, \(128, 64, 2\)\)", emitted["source"])


def test_taps_of_few_channels_fill_a_step() -> None:
    """A row of one tap with four channels would leave three quarters of a step empty."""
    emitted = compile_for_gpu(Module(torch.nn.Conv3d(3, 64, (3, 3, 1))), torch.empty(16, 3, 64, 64, 8))
    (group,) = emitted["schedule"]["groups"]
    assert group["parameters"]["block_k"] == 64


def test_a_row_of_taps_with_few_channels_is_one_step() -> None:
    """And lanes beyond it, which are not loaded, do not count as loads, or the library would keep it."""
    emitted = compile_for_gpu(Module(torch.nn.Conv3d(8, 64, 3)), torch.empty(128, 8, 16, 64, 64))
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "convolution"
    assert group["parameters"]["block_k"] == 32 and group["parameters"]["stages"] == 1
    assert re.search(r"for \w+ in tl.range\(0, 9, num_stages=1\):", emitted["source"])


def _scheme(**options: Any) -> int:
    emitted = compile_for_gpu(Module(LARGE["square"][0]), torch.randn(LARGE["square"][1]), **options)
    (group,) = emitted["schedule"]["groups"]
    return group["parameters"]["scheme"]


def test_what_pytorch_may_not_round_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scheme() == 0
    assert _scheme(caution="exact-products") == 1
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert _scheme() == 1


def test_groups_of_few_filters_are_the_librarys() -> None:
    function, shapes = conv(groups=16), ((64, 128, 32, 32), (128, 8, 3, 3))
    emitted = compile_for_gpu(Wrapped(function), *(torch.randn(shape) for shape in shapes))
    assert len(emitted["library_ops"]) == 1
