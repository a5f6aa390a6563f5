"""Recurrent layers as C++ kernels of ours beside PyTorch's, on this machine's CPU: calls in turns, and errors against
double precision.

PYTHONPATH=python python3 bench/recurrences_cpu.py [--cpu-time] [NAME...]     NAME: the beginning of a row's name

--cpu-time: one thread's own time, which other work on the machine changes little. Rows that the planner leaves to the
library are scheduled by hand.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
from kernelwright import library
from kernelwright.capture import export
from products_cpu import in_turns, table
from torch import Tensor


@dataclass(frozen=True)
class Row:
    kind: str  # of torch.nn
    batch: int
    steps: int
    units: int  # and features
    layers: int = 1
    both_ways: bool = False

    @property
    def name(self) -> str:
        more = f", {self.layers} layers" if self.layers > 1 else ""
        return f"{self.kind} {self.batch} x {self.steps} x {self.units}{more}{', both ways' if self.both_ways else ''}"


ROWS = [
    Row(kind, batch, 32, units)
    for kind, batch, units in itertools.product(("GRU", "LSTM", "RNN"), (1, 2, 4, 8, 32, 128), (32, 128, 512))
] + [
    Row("GRU", 8, 1, 128),
    Row("LSTM", 8, 256, 128, 2),
    Row("LSTM", 8, 32, 256, 2, True),
    Row("GRU", 1, 32, 1024),
    Row("LSTM", 16, 32, 1024),
]


class Sequence(torch.nn.Module):
    """A layer, of which the outputs are returned."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        layer = getattr(torch.nn, row.kind)
        self.layer = layer(row.units, row.units, row.layers, bidirectional=row.both_ways, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def compiled(
    module: torch.nn.Module, x: Tensor, folder: Path, scheduler: str = "recurrence"
) -> tuple[bool, Callable[..., Tensor]]:
    """Whether the planner takes it, and our kernels."""
    graph = export.export_module(module, (x,))
    emitted = library.compile_graph(graph, "cpu")
    planned = scheduler in {group["scheduler"] for group in emitted["schedule"]["groups"]}
    if not planned:
        schedule = library.compile_graph(graph, "cpu", caution="unfused")["schedule"]
        for group in schedule["groups"]:
            if group["scheduler"] == "extern":
                group |= {"scheduler": scheduler, "parameters": {}}
        emitted = library.compile_graph(graph, "cpu", schedule=schedule)
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(emitted["source"], str(folder / "candidate.py"), "exec"), namespace)
    return planned, namespace["ModelNew"](module)


def measure(row: Row, folder: Path, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    module, x = Sequence(row), torch.randn(row.batch, row.steps, row.units)
    planned, ours = compiled(module, x, folder)
    exact = copy.deepcopy(module).double()(x.double())
    in_turns(row.name, [ours, module], [x], exact, planned, clock)


if __name__ == "__main__":
    table(ROWS, measure)
