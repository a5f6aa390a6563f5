"""Attention, and two layers of a perceptron, as one C++ kernel of ours beside PyTorch's, on this machine's CPU: medians
of calls in turns, and errors against double precision.

PYTHONPATH=python python3 bench/attention_cpu.py [--cpu-time] [NAME...]     NAME: the beginning of a row's name

--cpu-time: one thread's own time, which other work on the machine changes little. Rows that the planner leaves to the
library are scheduled by hand.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from attention import Module, Row, by_distance, by_hand, causal, heads, masked
from kernelwright import library
from kernelwright.capture import export
from torch import Tensor

ROUNDS, WARM_UP = 15, 3


def some_keys(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=table > -1)


def shared_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def with_relu(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.relu(q @ k.mT * q.shape[-1] ** -0.5) @ v


def two_layers(x: Tensor, wide: Tensor, narrow: Tensor) -> Tensor:
    return F.gelu(x @ wide) @ narrow


OPERATOR = F.scaled_dot_product_attention
ROWS = [
    Row("operator", OPERATOR, heads(1, 16, 512, 64)),
    Row("operator, heads of 128", OPERATOR, heads(1, 8, 512, 128)),
    Row("operator, 300 × 300, heads of 72", OPERATOR, heads(2, 8, 300, 72)),
    Row("operator, 128 × 128, heads of 32", OPERATOR, heads(4, 8, 128, 32)),
    Row("operator, a mask of truths", some_keys, (*heads(2, 8, 300, 72), (2, 1, 300, 300))),
    Row("operator, shared keys", shared_keys, ((1, 16, 512, 64), (1, 4, 512, 64), (1, 4, 512, 64))),
    Row("causal", causal, heads(1, 16, 512, 64)),
    Row("by hand", by_hand, heads(1, 16, 512, 64)),
    Row("by hand, 1024 × 1024", by_hand, heads(1, 12, 1024, 64)),
    Row("by hand with a mask, heads of 96", masked, (*heads(1, 8, 512, 96), (1, 1, 512, 512))),
    Row("by hand with distances", by_distance, (*heads(1, 16, 512, 64), (16,))),
    Row("a ReLU for the softmax", with_relu, heads(1, 16, 512, 64)),
    Row("two layers of 4096 × 128 × 512 × 128", two_layers, ((4096, 128), (128, 512), (512, 128))),
    Row("bf16, operator", OPERATOR, heads(1, 16, 512, 64), torch.bfloat16),
    Row("bf16, causal", causal, heads(1, 16, 512, 64), torch.bfloat16),
    Row("bf16, by hand", by_hand, heads(1, 16, 512, 64), torch.bfloat16),
    Row("fp16, by hand", by_hand, heads(1, 4, 512, 64), torch.float16),
    Row("one query, 2048 keys", OPERATOR, ((1, 16, 1, 64), (1, 16, 2048, 64), (1, 16, 2048, 64))),
    Row("4 queries, 512 keys", OPERATOR, ((2, 8, 4, 64), (2, 8, 512, 64), (2, 8, 512, 64))),
    Row("50 × 50", OPERATOR, heads(2, 8, 50, 64)),
    Row("16 × 16", OPERATOR, heads(2, 4, 16, 64)),
]

Schedule = dict[str, Any]


def loaded(source: str, row: Row, folder: Path) -> Callable[..., Tensor]:
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, str(folder / "candidate.py"), "exec"), namespace)
    return namespace["ModelNew"](Module(row.function))


def as_one_group(unfused: Schedule) -> Schedule:
    nodes = sorted({node for group in unfused["groups"] for node in group["nodes"]})
    return unfused | {"groups": [{"nodes": nodes, "scheduler": "attention", "parameters": {}}]}


def of_products(unfused: Schedule) -> Schedule | None:
    """The library's products, and one kernel of ours between them; None where there are not two."""
    groups = unfused["groups"]
    products = [place for place, group in enumerate(groups) if group["scheduler"] == "extern"]
    if len(products) != 2:
        return None
    first, second = products
    between = groups[:first] + groups[first + 1 : second]
    kinds = {group["scheduler"] for group in between}
    middle = {
        "nodes": sorted({node for group in between for node in group["nodes"]}),
        "scheduler": "normalisation" if "normalisation" in kinds else "pointwise",
        "parameters": {},
    }
    return unfused | {"groups": [groups[first], middle, *groups[second:]]}


def candidates(row: Row, arguments: list[Tensor], folder: Path) -> tuple[bool, list[Callable[..., Tensor]]]:
    """Whether the planner joins it; our kernel, and where there are two products, those with our softmax."""
    graph = export.export_module(Module(row.function), tuple(arguments))
    emitted = library.compile_graph(graph, "cpu")
    unfused = library.compile_graph(graph, "cpu", caution="unfused")["schedule"]
    joined = "attention" in {group["scheduler"] for group in emitted["schedule"]["groups"]}
    if not joined:
        emitted = library.compile_graph(graph, "cpu", schedule=as_one_group(unfused))
    made = [loaded(emitted["source"], row, folder)]
    if apart := of_products(unfused):
        made.append(loaded(library.compile_graph(graph, "cpu", schedule=apart)["source"], row, folder))
    return joined, made


def measure(row: Row, folder: Path, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    arguments = [torch.randn(shape).to(row.dtype) for shape in row.shapes]
    joined, made = candidates(row, arguments, folder)
    exact = row.function(*(one.double() for one in arguments))
    calls = [*made[:1], row.function, *made[1:]]
    errors = [float((call(*arguments).double() - exact).norm() / exact.norm()) for call in calls[:2]]
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(WARM_UP + ROUNDS):
        for call, taken in zip(calls, samples):
            began = clock()
            call(*arguments)
            taken.append((clock() - began) * 1e3)
    times = [statistics.median(taken[WARM_UP:]) for taken in samples]
    apart = f"{times[2] / times[0]:.2f}×" if len(times) > 2 else "-"
    print(
        f"| {row.name} | {times[0]:.2f} | {times[1]:.2f} | {times[1] / times[0]:.2f}× | {apart} | "
        f"{errors[0]:.1e}, {errors[1]:.1e} | {'yes' if joined else 'no'} |",
        flush=True,
    )


def main() -> None:
    names = [argument for argument in sys.argv[1:] if argument != "--cpu-time"]
    clock = time.perf_counter
    if "--cpu-time" in sys.argv:
        torch.set_num_threads(1)
        clock = time.process_time
    print(
        "| attention | ours, ms | eager | over it | over products and our kernel between | errors, ours and eager's | joined |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for row in ROWS:
            if not names or any(row.name.startswith(name) for name in names):
                measure(row, Path(folder), clock)


if __name__ == "__main__":
    main()
