"""Convolutions of three by three taps and depthwise ones, and what follows them, as C++ kernels of ours beside
PyTorch's, on this machine's CPU: calls in turns, and errors against double precision.

PYTHONPATH=python python3 bench/convolutions_cpu.py [--cpu-time] [NAME...]     NAME: the beginning of a row's name

--cpu-time: one thread's own time, which other work on the machine changes little. Rows that the planner leaves to the
library are scheduled by hand. What is made of weights is kept, as in a module in evaluation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
from products_cpu import in_turns, table
from recurrences_cpu import compiled
from torch import Tensor, nn


@dataclass(frozen=True)
class Row:
    samples: int
    channels: int
    filters: int
    side: int
    unit: bool = False  # with the norm and ReLU that follow it in networks

    @property
    def name(self) -> str:
        after = ", norm and ReLU" if self.unit else ""
        return f"{self.samples} x {self.channels} x {self.side} x {self.side} to {self.filters}{after}"

    def layer(self) -> nn.Module:
        convolution = nn.Conv2d(self.channels, self.filters, 3, padding=1)
        return nn.Sequential(convolution, nn.BatchNorm2d(self.filters), nn.ReLU()) if self.unit else convolution


@dataclass(frozen=True)
class Depthwise:
    samples: int
    channels: int
    side: int
    taps: int
    stride: int = 1
    after: type[nn.Module] | None = None  # behind a norm

    @property
    def name(self) -> str:
        strided = f" by {self.stride}" if self.stride > 1 else ""
        after = f", norm and {self.after.__name__}" if self.after else ""
        shape = f"{self.samples} x {self.channels} x {self.side} x {self.side}"
        return f"depthwise {shape}, {self.taps} x {self.taps}{strided}{after}"

    def layer(self) -> nn.Module:
        channels, taps = self.channels, self.taps
        convolution = nn.Conv2d(channels, channels, taps, self.stride, taps // 2, groups=channels)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels), self.after()) if self.after else convolution


SHAPES = (
    [(samples, channels, channels, side) for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7))
     for samples in (1, 4, 16)]
    + [(1, 16, 16, 112), (1, 32, 32, 112), (1, 32, 64, 56), (1, 64, 128, 56), (1, 128, 64, 56), (1, 96, 96, 35)]
    + [(1, 64, 64, 224), (1, 512, 512, 28), (1, 64, 64, 28), (1, 64, 64, 14), (2, 256, 512, 13), (1, 24, 40, 20)]
)  # fmt: skip
# Channels, side, taps and stride of mobile networks' units.
UNITS = [
    (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 5, 2), (96, 56, 5, 1), (192, 28, 3, 1),
    (240, 28, 5, 1), (240, 28, 3, 2), (240, 28, 5, 2), (384, 14, 3, 1), (480, 14, 5, 1), (576, 14, 3, 2),
    (672, 14, 5, 2), (960, 7, 3, 1), (960, 7, 5, 1),
]  # fmt: skip
ROWS: list[Row | Depthwise] = [
    *(Row(*shape) for shape in SHAPES),
    Row(1, 64, 64, 56, True),
    Row(1, 128, 128, 28, True),
    *(Depthwise(samples, *unit) for samples in (1, 4, 16) for unit in UNITS),
    *(Depthwise(1, *unit, after) for after in (nn.Hardswish, nn.ReLU6) for unit in UNITS),
    Depthwise(1, 96, 28, 7),
    Depthwise(4, 192, 56, 7),
]


def measure(row: Row | Depthwise, folder: Path, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    module: nn.Module = row.layer().eval()
    x: Tensor = torch.randn(row.samples, row.channels, row.side, row.side)
    planned, ours = compiled(module, x, folder, "convolution")
    exact = copy.deepcopy(module).double()(x.double())
    in_turns(row.name, [ours, module], [x], exact, planned, clock)


if __name__ == "__main__":
    table(ROWS, measure)
