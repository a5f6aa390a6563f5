"""Convolutions whose blocks two groups of warps take in turn: what they compute, without a GPU, and when they do not."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch
from case_checks import as_one_group, compile_for_gpu, machine_code

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import gluon_simulator

IN_TURN = {"block_m": 64, "block_n": 16, "block_k": 32, "stages": 3, "num_warps": 4, "consumers": 2, "scheme": 0}


class Module(torch.nn.Module):
    def __init__(self, part: torch.nn.Module, after: Callable[[torch.Tensor], torch.Tensor] = torch.relu) -> None:
        super().__init__()
        self.part, self.after = part, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.part(x))


CASES = {
    "2d": (torch.nn.Conv2d(32, 64, 3), (2, 32, 19, 18)),
    "padded": (torch.nn.Conv2d(32, 64, 3, padding=1), (3, 32, 17, 16)),
    "dilated": (torch.nn.Conv2d(64, 64, 3, padding=(2, 4), dilation=(2, 3)), (1, 64, 18, 20)),
    "more filters": (torch.nn.Conv2d(32, 100, (3, 2)), (2, 32, 18, 18)),
    "pointwise": (torch.nn.Conv2d(96, 64, 1), (2, 96, 17, 16)),
    "groups": (torch.nn.Conv2d(64, 128, 3, groups=2), (1, 64, 18, 18)),
    "1d": (torch.nn.Conv1d(32, 64, 5, padding=2), (2, 32, 300)),
    "3d": (torch.nn.Conv3d(32, 64, (2, 3, 3), padding=1), (1, 32, 6, 9, 8)),
    "transposed": (torch.nn.ConvTranspose2d(32, 64, 3), (2, 32, 16, 17)),
}


def in_turn(part: torch.nn.Module, shape: tuple[int, ...], **parameters: int) -> dict[str, Any]:
    return as_one_group(Module(part), [torch.randn(shape)], "convolution", IN_TURN | parameters)


def arguments_of(source: str, kernel: str) -> list[str]:
    found = re.search(rf"@gluon\.jit\ndef {kernel}\(([^)]*)\):", source)
    assert found
    return [one.strip() for one in found.group(1).split(",") if one.strip()]


def laid_out(part: Any, x: torch.Tensor, positions: int) -> np.ndarray:
    """The image in 16 bits, channels side by side, zeros around it; behind it NaN, as memory that nobody fills may
    have.
    """
    ends = [
        part.dilation[dim] * (part.kernel_size[dim] - 1) - part.padding[dim] if part.transposed else part.padding[dim]
        for dim in range(x.dim() - 2)
    ]
    padded = torch.nn.functional.pad(x, [end for end in reversed(ends) for _ in range(2)])
    image = padded.movedim(1, -1).reshape(-1).numpy().astype(np.float16)
    behind = (positions + 64) * 2 * x.shape[1] * 16
    return np.concatenate([image, np.full(behind, np.nan, np.float16)])


@pytest.mark.parametrize("name", CASES)
def test_simulated_warps_compute_the_convolution(name: str) -> None:
    torch.manual_seed(0)
    part, shape = CASES[name]
    source = in_turn(part, shape)["source"]
    kernel = next(
        one for one in re.findall(r"@gluon\.jit\ndef (\w+)\(", source) if not one.endswith(("_consumer", "_producer"))
    )
    simulator = gluon_simulator.Simulator()
    names: dict[str, Any] = simulator.names()
    for function in re.findall(r"@gluon\.jit\ndef .*?(?=\n\n\n)", source, re.DOTALL):
        exec(function, names)
    x = torch.randn(shape).half().float()
    weight = part.weight.detach().half().float()
    with torch.no_grad():
        convolved = (
            torch.nn.functional.conv_transpose2d(x, weight, part.bias)
            if part.transposed
            else part._conv_forward(x, weight, part.bias)
        )
        wanted = torch.relu(convolved).numpy()
    filters = weight
    if part.transposed:
        filters = weight.transpose(0, 1).flip(list(range(2, weight.dim())))
    groups = part.groups
    rows = filters.movedim(1, -1).reshape(groups, filters.shape[0] // groups, -1).numpy().astype(np.float16)
    out = np.full(wanted.shape, np.nan, np.float32)
    given = {
        "halves": laid_out(part, x, wanted[0, 0].size),
        "weight_halves": rows,
        "image_scale": np.ones(shape[0], np.float32),
        "filter_scale": np.ones(rows.shape[:2], np.float32),
        "bias": part.bias.detach().numpy(),
    }

    def tensor(argument: str) -> np.ndarray:
        for ending in ("weight_halves", "halves", "image_scale", "filter_scale", "bias"):
            if argument.endswith(ending):
                return given[ending]
        return out

    launch = re.search(rf"launch\(\s*{kernel}, \((\d+),\)", source)
    assert launch
    for programs in (int(launch.group(1)), 1, 3):
        out.fill(np.nan)
        simulator.run(names[kernel], programs, [tensor(one) for one in arguments_of(source, kernel)])
        assert np.abs(out - wanted).max() <= 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("part", "after", "why"),
    [
        (torch.nn.Conv2d(32, 64, 3, stride=2), torch.relu, "windows of neighbours are no neighbours"),
        (torch.nn.Conv2d(16, 64, 3), torch.relu, "few channels"),
        (torch.nn.Conv2d(32, 48, 3), torch.relu, "blocks of 64 filters are wanted"),
        (torch.nn.Conv2d(32, 64, 3), lambda y: torch.softmax(y, dim=1), "filters are folded"),
        (torch.nn.ConvTranspose2d(32, 64, 4, stride=2), torch.relu, "phases"),
    ],
)
def test_other_convolutions_start_block_by_block(part: torch.nn.Module, after: Any, why: str) -> None:
    emitted = as_one_group(
        Module(part, after),
        [torch.randn(2, 32 if part.in_channels == 32 else 16, 66, 66)],
        "convolution",
        IN_TURN | ({"block_m": 32} if part.out_channels == 48 else {}),
    )
    assert "warp_specialize" not in emitted["source"], why


def test_64_filters_go_in_turn_by_default(tmp_path: Path) -> None:
    emitted = compile_for_gpu(Module(torch.nn.Conv2d(64, 64, 3)), torch.empty(16, 64, 130, 130))
    assert [one["parameters"].get("consumers") for one in emitted["schedule"]["groups"]] == [2]
    assert "gl.convert_layout(" in emitted["source"]
    pytest.importorskip("triton")
    assert any("wgmma" in kernel.asm["ptx"] for kernel in machine_code(emitted, tmp_path).values())
