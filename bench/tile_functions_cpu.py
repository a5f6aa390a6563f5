"""Tile programs as C++ functions beside PyTorch's operators, on this machine's CPU: times in turns, and errors against
double precision.

python3 bench/tile_functions_cpu.py [NAME...]     NAME: the beginning of a row's name
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "tests" / "python"))

from tile_functions import Functions  # noqa: E402

TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"
ROUNDS, WARM_UP = 40, 5


@dataclass(frozen=True)
class Row:
    name: str
    kernel: str  # of bench/tile_kernels
    schedule: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]  # of the kernel's inputs
    library: Callable[..., Tensor]


def _attention(query: int, key: dict[str, Any]) -> dict[str, Any]:
    tiles = {"feature": {"tile": 64}, "value": {"tile": 64}}
    return {"head": {"grid": 1}, "query": {"grid": query}, "key": {"online": True, **key}, **tiles}


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def _full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def _softmax(x: Tensor) -> Tensor:
    return F.softmax(x, 1)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (1024,), weight, 1e-5)


HEADS = dict.fromkeys("qkv", (16, 512, 64))
ROWS_OF_A_TABLE = {"x": (4096, 1000)}
NORM = {"x": (4096, 1024), "weight": (1024,)}
LINEAR = {"a": (512, 1024), "w": (1024, 1024), "bias": (1024,)}
WHOLE = {"row": {"grid": 1}, "column": {"tile": 1024}}


def _blocks(m: int, n: int, k: int) -> dict[str, Any]:
    return {"m": {"grid": m}, "n": {"grid": n}, "k": {"loop": k}}


ROWS = [
    Row("attention", "attention_f32", _attention(256, {"loop": 128}), HEADS, _full),
    Row(
        "attention_causal",
        "attention_f32_causal",
        _attention(128, {"loop": 128, "bounded": True}),
        HEADS,
        _causal,
    ),
    Row("softmax", "softmax", WHOLE, ROWS_OF_A_TABLE, _softmax),
    Row(
        "softmax_in_blocks",
        "softmax",
        {"row": {"grid": 1}, "column": {"loop": 256, "online": True}},
        ROWS_OF_A_TABLE,
        _softmax,
    ),
    Row("rms_norm", "rms_norm", WHOLE, NORM, _rms_norm),
    Row("linear", "linear_f32", _blocks(512, 64, 256), LINEAR, F.linear),
    Row("linear_of_small_blocks", "linear_f32", _blocks(128, 64, 128), LINEAR, F.linear),
]


def _printed(row: Row) -> str:
    kernel = HOME / "bench" / "tile_kernels" / f"{row.kernel}.kernel"
    done = subprocess.run([TOOL, "cpu", kernel, json.dumps(row.schedule)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row.name}: {done.stderr.strip()}")
    return done.stdout


def _milliseconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _figures(row: Row, functions: Functions, number: int) -> str:
    torch.manual_seed(0)
    given = {name: torch.randn(shape) for name, shape in row.shapes.items()}
    right = row.library(*(tensor.double() for tensor in given.values()))

    def ours() -> Tensor:
        result = torch.empty(right.shape)
        functions.call(number, given | {"y": result}, torch.get_num_threads())
        return result

    def theirs() -> Tensor:
        return row.library(*given.values())

    own_error, error = (float((call().double() - right).norm() / right.norm()) for call in (ours, theirs))
    samples = [(_milliseconds(ours), _milliseconds(theirs)) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
    own, other = (statistics.median(sample[side] for sample in samples) for side in (0, 1))
    return f"| {row.name} | {own:.2f} | {other:.2f} | {other / own:.2f}× | {own_error:.1e} | {error:.1e} |"


def main() -> None:
    names = tuple(sys.argv[1:])
    if any(name.startswith("-") for name in names):
        sys.exit(__doc__)
    rows = [row for row in ROWS if not names or row.name.startswith(names)]
    if not rows:
        sys.exit(f"error: no row begins so; they are {', '.join(row.name for row in ROWS)}")
    if not TOOL.exists():
        sys.exit("error: build/tests/unit/tile_tool is missing.\n  hint: configure with -DKW_TESTS=ON and build.")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        functions = Functions(Path(folder), [_printed(row) for row in rows])
        print("| kernel | ours, ms | PyTorch, ms | PyTorch / ours | our error | PyTorch's |")
        print("|---|---|---|---|---|---|")
        for number, row in enumerate(rows):
            print(_figures(row, functions, number), flush=True)


if __name__ == "__main__":
    main()
