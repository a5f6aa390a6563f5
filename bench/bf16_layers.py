"""Products in bf16 of the sizes of public language models, on a GPU: ours beside cuBLAS's, fused layers beside
torch.compile's.

PYTHONPATH=python python3 bench/bf16_layers.py [NAME...] [--rows 4096] [--sweep] [--only products|chains]

NAME is the beginning of a row's name: a model's. A product is x @ w.mT of a layer's matrices: those of queries, keys
and values as one, the gate's (which is as large as the one beside it), and the one back. The planner leaves a product
in bf16 without an epilogue to the library; here it is scheduled by hand, with BY_HAND or, with --sweep, with the
fastest of SWEPT. A chain is a module, as the planner has it and with its library's products scheduled by hand, of
which the faster counts. Errors are norms against double precision, over the first rows.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from attention import Module, load, milliseconds
from kernelwright import errors, library
from kernelwright.capture import export
from torch import Tensor

Parameters = dict[str, int]
Emits = Callable[[], dict[str, Any]]

BY_HAND = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "num_warps": 8, "order": 8, "bulk": 1}
SWEPT = [
    BY_HAND | {"block_m": block_m, "block_n": block_n, "stages": stages, "order": order, "bulk_stores": bulk_stores}
    for (block_m, block_n), stages, order, bulk_stores in itertools.product(
        ((128, 256), (256, 128)), (3, 4), (4, 8, 16), (0, 1)
    )
]
SWEPT += [BY_HAND | {"block_k": 128, "stages": 2}, BY_HAND | {"block_n": 128}, BY_HAND | {"block_k": 32, "stages": 6}]


@dataclass(frozen=True)
class Model:
    """Sizes as the model's configuration has them."""

    name: str
    hidden: int
    keys: int  # of all heads of keys together, and of values
    inner: int

    def products(self) -> dict[str, tuple[int, int]]:
        """Columns and depth."""
        return {
            "qkv": (self.hidden + 2 * self.keys, self.hidden),
            "gate": (self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }


MODELS = [
    Model("Llama 3.1 8B", 4096, 1024, 14336),
    Model("Llama 3.1 70B", 8192, 1024, 28672),
    Model("Qwen2.5 7B", 3584, 512, 18944),
    Model("Phi-3 mini", 3072, 3072, 8192),
]


def swiglu(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def two_layers(x: Tensor, wide: Tensor, first: Tensor, narrow: Tensor, second: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, wide, first)), narrow, second)


def qkv(x: Tensor, q: Tensor, k: Tensor, v: Tensor, q_bias: Tensor, k_bias: Tensor, v_bias: Tensor) -> Any:
    return F.linear(x, q, q_bias), F.linear(x, k, k_bias), F.linear(x, v, v_bias)


def chains(model: Model, rows: int) -> dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]]:
    hidden, keys, inner = model.hidden, model.keys, model.inner
    x = (rows, hidden)
    return {
        "SwiGLU": (swiglu, [x, (inner, hidden), (inner, hidden)]),
        "linear, GELU, linear": (two_layers, [x, (inner, hidden), (inner,), (hidden, inner), (hidden,)]),
        "QKV": (qkv, [x, (hidden, hidden), (keys, hidden), (keys, hidden), (hidden,), (keys,), (keys,)]),
    }


def by_hand(graph: dict[str, Any], parameters: Parameters) -> dict[str, Any]:
    """The planner's schedule, with the library's products as contractions of these parameters."""
    schedule = library.compile_graph(graph, "triton")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "extern":
            group |= {"scheduler": "contraction", "parameters": parameters}
    return library.compile_graph(graph, "triton", schedule=schedule)


def drawn(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Normal numbers, weights and biases such that what is made of them is as large."""
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    return [made[0], *(one / one.shape[-1] ** 0.5 for one in made[1:])]


def error(function: Callable[..., Any], reference: Callable[..., Any], arguments: list[Tensor]) -> float:
    found = function(*arguments)
    exact = reference(*(one.double() for one in (arguments[0][:64], *arguments[1:])))
    pairs = [(found, exact)] if isinstance(found, Tensor) else list(zip(found, exact, strict=True))
    return max(float((ours[:64].double() - right).norm() / right.norm()) for ours, right in pairs)


def fastest(
    made: list[tuple[str, Emits]],
    function: Callable[..., Any],
    arguments: list[Tensor],
    folder: Path,
) -> tuple[float, Any, str]:
    """Time, module and name of the fastest that the device has room for."""
    from triton.errors import TritonError

    best: tuple[float, Any, str] = (math.inf, None, "none")
    for name, emit in made:
        try:
            module = load(emit(), function, folder)
            time = milliseconds(module, arguments)
        except (errors.Error, RuntimeError, TritonError) as fault:
            print(f"  {name}: {str(fault).splitlines()[0][:110]}", flush=True)
            continue
        if len(made) > 2:
            print(f"  {time:.3f} ms: {name}", flush=True)
        best = min(best, (time, module, name), key=lambda one: one[0])
    return best


def shown(parameters: Parameters) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def product(name: str, rows: int, columns: int, depth: int, sweep: bool, folder: Path) -> float:
    arguments = drawn([(rows, depth), (columns, depth)])
    graph = export.export_module(Module(F.linear), tuple(arguments))
    tried = [BY_HAND, *SWEPT] if sweep else [BY_HAND]
    made: list[tuple[str, Emits]] = [(shown(one), functools.partial(by_hand, graph, one)) for one in tried]
    ours, module, parameters = fastest(made, F.linear, arguments, folder)
    cublas = milliseconds(lambda x, w: torch.matmul(x, w.mT), arguments)
    rate = 2.0 * rows * columns * depth / 1e9
    faults = error(module, F.linear, arguments), error(F.linear, F.linear, arguments)
    print(
        f"| {name} | {rows} × {columns} × {depth} | {ours:.3f} | {cublas:.3f} | {rate / ours:.0f} | {rate / cublas:.0f} "
        f"| {cublas / ours:.2f}× | {faults[0]:.1e}, {faults[1]:.1e} | {parameters} |",
        flush=True,
    )
    return cublas / ours


def chain(name: str, function: Callable[..., Any], shapes: list[tuple[int, ...]], folder: Path) -> float:
    arguments = drawn(shapes)
    graph = export.export_module(Module(function), tuple(arguments))
    made: list[tuple[str, Emits]] = [
        ("as planned", lambda: library.compile_graph(graph, "triton")),
        ("by hand", lambda: by_hand(graph, BY_HAND)),
    ]
    ours, module, which = fastest(made, function, arguments, folder)
    compiled = torch.compile(function)
    faults = error(module, function, arguments), error(compiled, function, arguments)
    eager, theirs = milliseconds(function, arguments), milliseconds(compiled, arguments)
    print(
        f"| {name} | {ours:.3f} | {eager:.3f} | {theirs:.3f} | {theirs / ours:.2f}× | {faults[0]:.1e}, {faults[1]:.1e} "
        f"| {which} |",
        flush=True,
    )
    return theirs / ours


def mean(ratios: list[float]) -> str:
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}× ({len(ratios)} rows)" if ratios else "no rows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(model.name for model in MODELS)}")
    parser.add_argument("--rows", type=int, default=4096, help="rows of x: tokens (default: 4096)")
    parser.add_argument("--sweep", action="store_true", help=f"try {len(SWEPT)} other schedules for each product")
    parser.add_argument("--only", choices=["products", "chains"], help="one of the two tables")
    options = parser.parse_args()
    models = [one for one in MODELS if not options.names or one.name.startswith(tuple(options.names))]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = Path(name)
        if options.only != "chains":
            print(
                "| product | rows × columns × depth | ours, ms | cuBLAS | ours, TFLOP/s | cuBLAS | over cuBLAS | "
                "errors, ours and cuBLAS's | blocks |\n" + "|---" * 9 + "|"
            )
            ratios = [
                product(f"{model.name}, {kind}", options.rows, *sizes, options.sweep, folder)
                for model in models
                for kind, sizes in model.products().items()
            ]
            print(f"\nGeometric mean over cuBLAS: {mean(ratios)}.\n", flush=True)
        if options.only != "products":
            print(
                "| chain | ours, ms | eager | torch.compile | over torch.compile | errors, ours and torch.compile's | "
                "schedule |\n" + "|---" * 7 + "|"
            )
            ratios = [
                chain(f"{model.name}, {kind}", function, shapes, folder)
                for model in models
                for kind, (function, shapes) in chains(model, options.rows).items()
            ]
            print(f"\nGeometric mean over torch.compile: {mean(ratios)}.", flush=True)


if __name__ == "__main__":
    main()
