"""Matrix products with what follows them as one C++ kernel of ours beside PyTorch's, on this machine's CPU: calls in
turns, and errors against double precision.

PYTHONPATH=python python3 bench/products_cpu.py [--cpu-time] [NAME...]     NAME: the beginning of a row's name

--cpu-time: one thread's own time, which other work on the machine changes little. Rows that the planner leaves to the
library are scheduled by hand.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
import torch.nn.functional as F
from attention import Module, Row
from attention_cpu import loaded
from kernelwright import library
from kernelwright.capture import export
from torch import Tensor

ROUNDS, WARM_UP = 25, 3

# Rows, depth and columns of linear layers.
SHAPES = (
    [(rows, 1024, 1024) for rows in (1, 4, 16, 32, 64, 128, 256, 512, 1024)]
    + [(128, depth, 512) for depth in (64, 96, 256, 704, 1000, 2048, 4096)]
    + [(128, 512, columns) for columns in (64, 100, 256, 1000, 2048, 4096)]
    + [(4096, 64, 64), (4096, 256, 64), (4096, 64, 256), (784, 96, 384), (784, 384, 96), (74, 192, 576)]
    + [(197, 768, 768), (300, 300, 300), (64, 512, 1408), (64, 1408, 512), (128, 256, 1408), (16, 1024, 2048)]
)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w)


def bias_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b))


def residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return r + F.linear(x, w, b)


def gated(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    return F.silu(F.linear(x, w)) * g


ROWS = [Row(f"linear {m} x {k} x {n}", linear, ((m, k), (n, k))) for m, k, n in SHAPES] + [
    Row("bias and GELU, 128 x 512 x 1024", bias_gelu, ((128, 512), (1024, 512), (1024,))),
    Row("bias and residual, 784 x 384 x 96", residual, ((784, 384), (96, 384), (96,), (784, 96))),
    Row("gated, 64 x 512 x 1408", gated, ((64, 512), (1408, 512), (64, 1408))),
    Row("mm 256 x 512 x 512", torch.mm, ((256, 512), (512, 512))),
    Row("bmm 16 x 128 x 64 x 128", torch.bmm, ((16, 128, 64), (16, 64, 128))),
]


def compiled(row: Row, arguments: list[Tensor], folder: Path) -> tuple[bool, Callable[..., Tensor]]:
    """Whether the planner takes it, and our kernel."""
    graph = export.export_module(Module(row.function), tuple(arguments))
    emitted = library.compile_graph(graph, "cpu")
    planned = "contraction" in {group["scheduler"] for group in emitted["schedule"]["groups"]}
    if not planned:
        unfused: dict[str, Any] = library.compile_graph(graph, "cpu", caution="unfused")["schedule"]
        nodes = sorted({node for group in unfused["groups"] for node in group["nodes"]})
        group = {"nodes": nodes, "scheduler": "contraction", "parameters": {}}
        emitted = library.compile_graph(graph, "cpu", schedule=unfused | {"groups": [group]})
    return planned, loaded(emitted["source"], row, folder)


def measure(row: Row, folder: Path, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    arguments = [torch.randn(shape) for shape in row.shapes]
    planned, ours = compiled(row, arguments, folder)
    exact = row.function(*(one.double() for one in arguments))
    in_turns(row.name, [ours, row.function], arguments, exact, planned, clock)


def in_turns(
    name: str,
    calls: list[Callable[..., Tensor]],
    arguments: list[Tensor],
    exact: Tensor,
    planned: bool,
    clock: Callable[[], float],
) -> None:
    """A line of the table: ours and PyTorch's, called in turns."""
    errors = [float((call(*arguments).double() - exact).norm() / exact.norm()) for call in calls]
    samples: list[list[float]] = [[], []]
    for _ in range(WARM_UP + ROUNDS):
        for call, taken in zip(calls, samples):
            began = clock()
            call(*arguments)
            taken.append((clock() - began) * 1e3)
    own, other = (statistics.median(taken[WARM_UP:]) for taken in samples)
    ratios = sorted(theirs / mine for mine, theirs in list(zip(*samples))[WARM_UP:])
    print(
        f"| {name} | {own:.3f} | {other:.3f} | {other / own:.2f}× | "
        f"{ratios[len(ratios) // 4]:.2f} to {ratios[-len(ratios) // 4]:.2f} | {errors[0]:.1e}, {errors[1]:.1e} | "
        f"{'yes' if planned else 'no'} |",
        flush=True,
    )


def table(rows: Sequence[Any], measured: Callable[[Any, Path, Callable[[], float]], None]) -> None:
    """A line for each row whose name the command asks for."""
    names = tuple(argument for argument in sys.argv[1:] if argument != "--cpu-time")
    clock = time.perf_counter
    if "--cpu-time" in sys.argv:
        torch.set_num_threads(1)
        clock = time.process_time
    print("| what | ours, ms | eager | over it | half of the turns | errors, ours and eager's | planned |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for row in rows:
            if not names or row.name.startswith(names):
                measured(row, Path(folder), clock)


if __name__ == "__main__":
    table(ROWS, measure)
