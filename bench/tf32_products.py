"""Products that PyTorch makes in TF32, on a GPU: its own time, and those of kernels by one half and by three products
of halves (docs/precision.md), whether or not the cost model takes them.

python3 bench/tf32_products.py [--shapes 4096x4096x4096 …] [--calls N]

Rows x depth x columns, milliseconds by events around calls with the caches emptied before each; the last column is the
norm of the error by one half over that of PyTorch's. `planned` names what the compiler takes by itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
from pathlib import Path
from typing import Any, Callable

import torch

from kernelwright import hello, library
from kernelwright.capture import export
from kernelwright.running.tf32 import Tf32

SHAPES = (
    "4096x4096x4096 2048x8192x4096 8205x2949x5921 1024x8192x8192 2048x2048x2048 8192x8192x8192 32768x64x32768 "
    "65536x256x1024 1048576x256x768 256x524288x256 128x16384x16384 128x32768x32768 16x8192x8192"
).split()


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w)


def kernels(source: str, folder: Path) -> Callable[..., torch.Tensor]:
    """A candidate's module, from its text, in a file: Triton reads its kernels' source there."""
    path = folder / f"candidate_{len(list(folder.iterdir()))}.py"
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification and specification.loader
    candidate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(candidate)
    return candidate.ModelNew(Product())


def milliseconds(function: Callable[[], Any], calls: int) -> float:
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    for _ in range(3):
        function()
    taken = []
    for _ in range(calls):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def error(result: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> float:
    """Of some rows, norm-relative."""
    rows = slice(0, 256)
    exact = x[rows].double() @ w.double().T
    return float((result[rows].double() - exact).norm() / exact.norm())


def one_half(exact: dict[str, int]) -> dict[str, int]:
    """Blocks for what the compiler leaves to the library, from those for three products."""
    if exact.get("scheme") == 2:
        return exact | {"scheme": 5}
    blocks = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "num_warps": 8}
    if exact.get("bulk_stores"):  # short sums: small blocks, of which one stores while another multiplies
        blocks = {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 2, "num_warps": 4}
    return blocks | {"scheme": 4, "split_k": exact.get("split_k", 1)}


@torch.no_grad()
def row(shape: str, calls: int, card: dict[str, Any] | None, folder: Path) -> str:
    rows, depth, columns = map(int, shape.split("x"))
    x, w = torch.randn(rows, depth, device="cuda"), torch.randn(columns, depth, device="cuda")
    graph = export.export_module(Product(), (x, w), device="cuda")
    schedule = library.compile_graph(graph, "triton", card=card)["schedule"]
    exact = library.compile_graph(graph, "triton", "exact-products", card=card)["schedule"]
    planned = schedule["groups"][0]["scheduler"]
    if planned == "extern":
        schedule["groups"][0] |= {"scheduler": "contraction", "parameters": one_half(exact["groups"][0]["parameters"])}
    times, errors = {"eager": milliseconds(lambda: x @ w.T, calls)}, {"eager": error(x @ w.T, x, w)}
    for name, made in (("one", schedule), ("three", exact)):
        function = kernels(library.compile_graph(graph, "triton", card=card, schedule=made)["source"], folder)
        times[name] = milliseconds(lambda: function(x, w), calls)
        errors[name] = error(function(x, w), x, w)
    figures = "".join(f"{times[name]:10.3f}" for name in ("eager", "one", "three"))
    return f"{shape:>20}{figures}{errors['one'] / errors['eager']:10.2f}  {planned}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--calls", type=int, default=15)
    options = parser.parse_args()
    Tf32(True, True).set()
    card = hello.card("cuda")
    print(f"{'':>20}{'eager':>10}{'one half':>10}{'three':>10}{'error':>10}  planned")
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes:
            print(row(shape, options.calls, card, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
