"""Convolutions of three by three taps, and what follows them, as C++ kernels of ours beside PyTorch's, on this
machine's CPU: calls in turns, and errors against double precision.

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


SHAPES = (
    [(samples, channels, channels, side) for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7))
     for samples in (1, 4, 16)]
    + [(1, 16, 16, 112), (1, 32, 32, 112), (1, 32, 64, 56), (1, 64, 128, 56), (1, 128, 64, 56), (1, 96, 96, 35)]
    + [(1, 64, 64, 224), (1, 512, 512, 28), (1, 64, 64, 28), (1, 64, 64, 14), (2, 256, 512, 13), (1, 24, 40, 20)]
)  # fmt: skip
ROWS = [Row(*shape) for shape in SHAPES] + [Row(1, 64, 64, 56, True), Row(1, 128, 128, 28, True)]


def layer(row: Row) -> nn.Module:
    convolution = nn.Conv2d(row.channels, row.filters, 3, padding=1)
    return nn.Sequential(convolution, nn.BatchNorm2d(row.filters), nn.ReLU()) if row.unit else convolution


def measure(row: Row, folder: Path, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    module: nn.Module = layer(row).eval()
    x: Tensor = torch.randn(row.samples, row.channels, row.side, row.side)
    planned, ours = compiled(module, x, folder, "convolution")
    exact = copy.deepcopy(module).double()(x.double())
    in_turns(row.name, [ours, module], [x], exact, planned, clock)


if __name__ == "__main__":
    table(ROWS, measure)
