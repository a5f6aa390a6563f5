"""Attention as one kernel of ours beside PyTorch's and torch.compile's, on a GPU: times, and errors against double precision.

PYTHONPATH=python python3 bench/attention.py [NAME...]     NAME: the beginning of a row's name

Rows that the planner leaves to the library (16 bits without a mask) are scheduled by hand.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from kernelwright import library
from kernelwright.capture import export
from torch import Tensor


@dataclass(frozen=True)
class Row:
    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    return torch.softmax((q @ k.mT * 0.1).masked_fill(table > 1, float("-inf")), -1) @ v


def by_distance(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    place = torch.arange(q.shape[-2], device=q.device)
    away = (place[:, None] - place[None, :]).to(q.dtype)
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5 - slopes[:, None, None] * away.abs(), -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads(*shape: int) -> tuple[tuple[int, ...], ...]:
    return (shape,) * 3


BY_HAND = {"block_m": 64, "block_n": 64, "stages": 3, "num_warps": 4, "bulk": 1}
LONG, WIDE = heads(16, 16, 2048, 64), heads(16, 16, 2048, 128)
ROWS = [
    Row("fp32, heads of 64", F.scaled_dot_product_attention, LONG),
    Row("fp32, heads of 128", F.scaled_dot_product_attention, WIDE),
    Row("fp32 causal, heads of 64", causal, LONG),
    Row("fp32 by hand, 16384 keys, heads of 32", by_hand, heads(1, 8, 16384, 32)),
    Row("fp32 by hand with a mask, heads of 96", masked, (*heads(128, 8, 512, 96), (1, 1, 512, 512))),
    Row("fp32 by hand with distances, heads of 64", by_distance, (*heads(4, 16, 2048, 64), (16,))),
    Row("bf16, heads of 64", F.scaled_dot_product_attention, LONG, torch.bfloat16),
    Row("bf16, heads of 128", F.scaled_dot_product_attention, WIDE, torch.bfloat16),
    Row("bf16 by hand with distances, heads of 64", by_distance, (*heads(4, 16, 2048, 64), (16,)), torch.bfloat16),
]


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Tensor:
        return self.function(*arguments)


def candidate(row: Row, arguments: list[Tensor], folder: Path) -> tuple[Any, dict[str, int]]:
    """The module with everything in one group of the attention scheduler, and the scheduler's parameters."""
    graph = export.export_module(Module(row.function), tuple(arguments))
    emitted = library.compile_graph(graph, "triton")
    if [group["scheduler"] for group in emitted["schedule"]["groups"]] != ["attention"]:
        schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
        nodes = sorted({node for group in schedule["groups"] for node in group["nodes"]})
        schedule["groups"] = [{"nodes": nodes, "scheduler": "attention", "parameters": BY_HAND}]
        emitted = library.compile_graph(graph, "triton", schedule=schedule)
    path = folder / "candidate.py"
    path.write_text(emitted["source"])
    specification = importlib.util.spec_from_file_location("candidate", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.ModelNew(Module(row.function)), emitted["schedule"]["groups"][0]["parameters"]


def measure(row: Row, folder: Path) -> None:
    from triton.testing import do_bench

    torch.manual_seed(0)
    arguments = [torch.randn(shape, device="cuda").to(row.dtype) for shape in row.shapes]
    ours, parameters = candidate(row, arguments, folder)
    compiled = torch.compile(row.function)
    few = [one[:1] if one.dim() == 4 else one for one in arguments]
    exact = row.function(*(one.double() for one in few))
    times, errors = [], []
    for function in (ours, row.function, compiled):
        error = (function(*arguments)[:1].double() - exact).norm() / exact.norm()
        errors.append(float(error))
        times.append(do_bench(lambda: function(*arguments), warmup=25, rep=100))
    batch, count, queries, features = row.shapes[0]
    operations = 4.0 * batch * count * queries * row.shapes[1][-2] * features
    print(
        f"| {row.name} | {times[0]:.3f} | {times[1]:.3f} | {times[2]:.3f} | {min(times[1:]) / times[0]:.2f}× | "
        f"{operations / times[0] / 1e9:.0f} | {errors[0]:.1e}, {errors[1]:.1e} | {parameters} |",
        flush=True,
    )


def main() -> None:
    print(
        "| attention | ours, ms | eager | torch.compile | over the better | TFLOP/s | errors, ours and eager's | blocks |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for row in ROWS:
            if len(sys.argv) == 1 or any(row.name.startswith(name) for name in sys.argv[1:]):
                measure(row, Path(folder))
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
