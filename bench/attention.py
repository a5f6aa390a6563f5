"""Attention as one kernel of ours beside PyTorch's and torch.compile's, on a GPU: times, and errors against double
precision.

PYTHONPATH=python python3 bench/attention.py [NAME...] [--sweep]

NAME is the beginning of a row's name. Rows that the planner leaves to the library (16 bits without a mask) are
scheduled by hand. `eager` is the kernel that PyTorch chooses by itself; rows of its operator in 16 bits are timed with
its flash attention and with cuDNN's kernel too. --sweep tries other blocks for rows in 16 bits and for those of few
queries (decoding), and prints the fastest.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from kernelwright import errors, library
from kernelwright.capture import export
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


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


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def up_to_a_length(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Keys are padded: of each batch a part of them counts."""
    mask = torch.arange(k.shape[-2], device=k.device) < lengths.abs() % 1.0 * k.shape[-2]
    return F.scaled_dot_product_attention(q, k, v, mask)


def heads(*shape: int) -> tuple[tuple[int, ...], ...]:
    return (shape,) * 3


def decoding(batch: int, of_queries: int, of_keys: int, keys: int, queries: int = 1) -> tuple[tuple[int, ...], ...]:
    return (batch, of_queries, queries, 128), (batch, of_keys, keys, 128), (batch, of_keys, keys, 128)


FEW_QUERIES = 16
DECODING_BY_HAND = {"block_m": 16, "block_n": 64, "stages": 3, "num_warps": 4, "bulk": 1, "split_keys": 16}
BY_HAND = {"block_m": 64, "block_n": 64, "stages": 3, "num_warps": 4, "bulk": 1}
SWEPT = [
    BY_HAND | {"block_m": block_m, "block_n": block_n, "stages": stages, "num_warps": num_warps}
    for block_m, block_n, stages, num_warps in itertools.product((64, 128), (64, 128), (2, 3, 4), (4, 8))
]
SWEPT_DECODING = [
    {"block_n": block_n, "stages": stages, "num_warps": num_warps, "split_keys": parts}
    for block_n, stages, num_warps, parts in itertools.product((16, 32, 64, 128), (2, 3, 4), (2, 4, 8), (4, 16, 32))
    if (num_warps == 4) + (stages == 3) + (parts == 16) >= 2
]
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
    Row("bf16 causal, heads of 64", causal, LONG, torch.bfloat16),
    Row("fp32 padded keys, heads of 64", up_to_a_length, (*heads(16, 16, 1024, 64), (16, 1, 1, 1))),
    Row("decoding, fp32, 32768 keys", F.scaled_dot_product_attention, decoding(1, 32, 32, 32768)),
    Row("decoding, fp32, 16 × 4096 keys", F.scaled_dot_product_attention, decoding(16, 16, 16, 4096)),
    Row("decoding, fp32, shared keys", grouped, decoding(4, 32, 8, 8192)),
    Row("decoding, fp32, 8 queries", F.scaled_dot_product_attention, decoding(2, 8, 8, 16384, queries=8)),
    Row("decoding, bf16, 32768 keys", F.scaled_dot_product_attention, decoding(1, 32, 32, 32768), torch.bfloat16),
    Row("decoding, bf16, shared keys", grouped, decoding(4, 32, 8, 8192), torch.bfloat16),
    Row("bf16 by hand with distances, heads of 64", by_distance, (*heads(4, 16, 2048, 64), (16,)), torch.bfloat16),
]


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(*arguments)


Schedule = dict[str, int]


def in_one_group(graph: dict[str, Any], parameters: Schedule) -> dict[str, Any]:
    """Everything in one group of the attention scheduler."""
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    nodes = sorted({node for group in schedule["groups"] for node in group["nodes"]})
    schedule["groups"] = [{"nodes": nodes, "scheduler": "attention", "parameters": parameters}]
    return library.compile_graph(graph, "triton", schedule=schedule)


def planned(graph: dict[str, Any]) -> dict[str, Any]:
    """As the planner has it where the attention scheduler takes the products, otherwise by hand."""
    emitted = library.compile_graph(graph, "triton")
    if "attention" in [group["scheduler"] for group in emitted["schedule"]["groups"]]:
        return emitted
    return in_one_group(graph, DECODING_BY_HAND if is_decoding(graph) else BY_HAND)


def blocks_of(emitted: dict[str, Any]) -> Schedule:
    return next(one["parameters"] for one in emitted["schedule"]["groups"] if one["scheduler"] == "attention")


def is_decoding(graph: dict[str, Any]) -> bool:
    return graph["values"][0]["shape"][-2] <= FEW_QUERIES


def load(emitted: dict[str, Any], function: Callable[..., Any], folder: Path) -> Any:
    path = folder / f"candidate_{len(list(folder.iterdir()))}.py"
    path.write_text(emitted["source"])
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.ModelNew(Module(function))


def milliseconds(function: Callable[..., Any], arguments: list[Tensor]) -> float:
    from triton.testing import do_bench

    return float(do_bench(lambda: function(*arguments), warmup=25, rep=100))


def with_backend(row: Row, arguments: list[Tensor], backend: SDPBackend) -> float:
    """The time of PyTorch's operator with this kernel; NaN where the row is written out, or the kernel cannot take it."""
    if row.dtype == torch.float32 or row.function not in (F.scaled_dot_product_attention, causal):
        return math.nan
    with sdpa_kernel(backend):
        try:
            return milliseconds(row.function, arguments)
        except RuntimeError as error:
            print(f"{row.name}: {backend.name} cannot take it ({str(error).splitlines()[0][:100]})", flush=True)
            return math.nan


def fastest(row: Row, graph: dict[str, Any], arguments: list[Tensor], folder: Path) -> tuple[Any, Schedule]:
    """Of the planner's blocks and those swept, those that the device has room for."""
    from triton.errors import TritonError

    best: tuple[float, Any, Schedule] = (math.inf, None, {})
    refused = 0
    own = blocks_of(planned(graph))
    swept = [own | one for one in SWEPT_DECODING] if is_decoding(graph) else SWEPT
    for parameters in [None, *swept]:
        try:
            emitted = planned(graph) if parameters is None else in_one_group(graph, parameters)
            module = load(emitted, row.function, folder)
            time = milliseconds(module, arguments)
        except (errors.Error, RuntimeError, TritonError) as error:
            refused += 1
            print(f"  {parameters}: {str(error).splitlines()[0][:100]}", flush=True)
            continue
        found = blocks_of(emitted)
        print(f"  {time:.3f} ms: {found}", flush=True)
        best = min(best, (time, module, found), key=lambda one: one[0])
    print(f"  {row.name}: {len(swept) + 1 - refused} schedules timed, {refused} refused", flush=True)
    return best[1:]


def shown(value: float, form: str = ".3f") -> str:
    return "" if math.isnan(value) else format(value, form)


def measure(row: Row, folder: Path, sweep: bool) -> str:
    torch.manual_seed(0)
    arguments = [torch.randn(shape, device="cuda").to(row.dtype) for shape in row.shapes]
    graph = export.export_module(Module(row.function), tuple(arguments))
    if sweep and (row.dtype != torch.float32 or is_decoding(graph)):
        ours, parameters = fastest(row, graph, arguments, folder)
    else:
        emitted = planned(graph)
        ours, parameters = load(emitted, row.function, folder), blocks_of(emitted)
    few = [one[:1] if one.dim() == 4 else one for one in arguments]
    exact = row.function(*(one.double() for one in few))
    times, errors_of = [], []
    for function in (ours, row.function, torch.compile(row.function)):
        errors_of.append(float((function(*arguments)[:1].double() - exact).norm() / exact.norm()))
        times.append(milliseconds(function, arguments))
    flash = with_backend(row, arguments, SDPBackend.FLASH_ATTENTION)
    cudnn = with_backend(row, arguments, SDPBackend.CUDNN_ATTENTION)
    batch, count, queries, features = row.shapes[0]
    operations = 4.0 * batch * count * queries * row.shapes[1][-2] * features
    cells = [
        row.name,
        *(shown(time) for time in (*times, flash, cudnn)),
        f"{min(times[1:]) / times[0]:.2f}×",
        shown(flash / times[0], ".2f") + ("" if math.isnan(flash) else "×"),
        f"{operations / times[0] / 1e9:.0f}",
        f"{errors_of[0]:.1e}, {errors_of[1]:.1e}",
        " ".join(f"{name}={value}" for name, value in parameters.items()),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only rows whose names begin so")
    parser.add_argument(
        "--sweep", action="store_true", help="try other schedules for rows in 16 bits and of few queries"
    )
    options = parser.parse_args()
    chosen = [row for row in ROWS if not options.names or row.name.startswith(tuple(options.names))]
    rows = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for row in chosen:
            rows.append(measure(row, Path(folder), options.sweep))
            print(rows[-1], flush=True)
            torch.cuda.empty_cache()
    print(
        "\n| attention | ours, ms | eager | torch.compile | flash attention | cuDNN | over the better | over flash | "
        "TFLOP/s | errors, ours and eager's | blocks |\n|" + "---|" * 11
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
