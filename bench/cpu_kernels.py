"""Printed CPU kernels beside eager PyTorch: milliseconds (best of interleaved runs), and the bandwidth that ours reached.

    python bench/cpu_kernels.py [--cpu-time] [NAME…]

--cpu-time runs on one thread and counts its processor time, for machines that are busy. Needs build/tests/unit/print_cpu_module (cmake -DKW_TESTS=ON).
"""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

HOME = Path(__file__).resolve().parent.parent
PRINTER = HOME / "build" / "tests" / "unit" / "print_cpu_module"


@dataclass
class Case:
    name: str
    axes: list[str]  # "row = 2048 parallel"
    index: str  # of x, and of an output of the same size
    body: str
    shape: tuple[int, ...]
    eager: Callable[[torch.Tensor], torch.Tensor]
    full: bool = True  # the output is as large as the input
    out_index: str = ""


SOFTMAX = """%m = reduce max_sum_exp.0(%x) : f32
%s = reduce max_sum_exp.1(%x) : f32
%d = sub(%x, %m) : f32
%e = exp(%d) : f32
%r = div(%e, %s) : f32"""
NORM = """%mean = reduce moments.0(%x) : f32
%m2 = reduce moments.1(%x) : f32
%n = constant {count} : f32
%var = div(%m2, %n) : f32
%eps = constant 1e-05 : f32
%ve = add(%var, %eps) : f32
%scale = rsqrt(%ve) : f32
%c = sub(%x, %mean) : f32
%r = mul(%c, %scale) : f32"""
GELU = """%h = constant 0.5 : f32
%k = constant 0.70710678 : f32
%one = constant 1.0 : f32
%a = mul(%x, %k) : f32
%b = erf(%a) : f32
%c = add(%b, %one) : f32
%d = mul(%x, %c) : f32
%r = mul(%d, %h) : f32"""


def unary(op: str) -> str:
    return f"%r = {op}(%x) : f32"


ROWS = ["row = 2048 parallel block 1", "column = 2048 reduce block 2048"]
COLUMNS = ["column = 2048 parallel block 1", "row = 2048 reduce block 2048"]
FLAT = ["element = 4194304 parallel block 1"]
SHORT = ["row = 16384 parallel block 1", "column = 256 reduce block 256"]
BATCH = ["channel = 64 parallel block 1", "batch = 16 reduce block 16", "position = 4096 reduce block 4096"]
CASES = [
    Case(
        "add one", FLAT, "element", "%one = constant 1.0 : f32\n%r = add(%x, %one) : f32", (4194304,), lambda x: x + 1
    ),
    Case("gelu", FLAT, "element", GELU, (4194304,), F.gelu),
    Case("exp", FLAT, "element", unary("exp"), (4194304,), torch.exp),
    Case("log", FLAT, "element", unary("log"), (4194304,), torch.log),
    Case("tanh", FLAT, "element", unary("tanh"), (4194304,), torch.tanh),
    Case("sigmoid", FLAT, "element", unary("sigmoid"), (4194304,), torch.sigmoid),
    Case("sin", FLAT, "element", unary("sin"), (4194304,), torch.sin),
    Case("softmax rows", ROWS, "2048*row + column", SOFTMAX, (2048, 2048), lambda x: torch.softmax(x, 1)),
    Case("softmax short rows", SHORT, "256*row + column", SOFTMAX, (16384, 256), lambda x: torch.softmax(x, 1)),
    Case("softmax columns", COLUMNS, "2048*row + column", SOFTMAX, (2048, 2048), lambda x: torch.softmax(x, 0)),
    Case(
        "layer norm",
        ROWS,
        "2048*row + column",
        NORM.format(count=2048.0),
        (2048, 2048),
        lambda x: F.layer_norm(x, (2048,)),
    ),
    Case(
        "batch norm",
        BATCH,
        "262144*batch + 4096*channel + position",
        NORM.format(count=65536.0),
        (16, 64, 4096),
        lambda x: F.batch_norm(x, None, None, training=True),
    ),
    Case(
        "sum rows",
        ROWS,
        "2048*row + column",
        "%r = reduce sum(%x) : f32",
        (2048, 2048),
        lambda x: x.sum(1),
        False,
        "row",
    ),
    Case(
        "sum short rows",
        SHORT,
        "256*row + column",
        "%r = reduce sum(%x) : f32",
        (16384, 256),
        lambda x: x.sum(1),
        False,
        "row",
    ),
    Case(
        "sum columns",
        COLUMNS,
        "2048*row + column",
        "%r = reduce sum(%x) : f32",
        (2048, 2048),
        lambda x: x.sum(0),
        False,
        "column",
    ),
    Case(
        "sum all",
        ["element = 4194304 reduce block 4194304"],
        "element",
        "%r = reduce sum(%x) : f32",
        (4194304,),
        lambda x: x.sum(),
        False,
        "0",
    ),
    Case(
        "max rows",
        ROWS,
        "2048*row + column",
        "%r = reduce max(%x) : f32",
        (2048, 2048),
        lambda x: x.amax(1),
        False,
        "row",
    ),
    Case(
        "argmax rows",
        ROWS,
        "2048*row + column",
        "%r = reduce arg_max(%x) : i64",
        (2048, 2048),
        lambda x: x.argmax(1),
        False,
        "row",
    ),
    Case(
        "argmax columns",
        COLUMNS,
        "2048*row + column",
        "%r = reduce arg_max(%x) : i64",
        (2048, 2048),
        lambda x: x.argmax(0),
        False,
        "column",
    ),
    Case(
        "transpose",
        ["row = 2048 parallel block 1", "column = 2048 parallel block 1"],
        "row + 2048*column",
        "%r = neg(%x) : f32",
        (2048, 2048),
        lambda x: torch.neg(x.t()).contiguous(),
        True,
        "2048*row + column",
    ),
    Case(
        "small add",
        ["element = 4096 parallel block 1"],
        "element",
        "%one = constant 1.0 : f32\n%r = add(%x, %one) : f32",
        (4096,),
        lambda x: x + 1,
    ),
]


def kernel_text(case: Case, position: int) -> str:
    elements = math.prod(case.shape)
    out_index = case.out_index or case.index
    outputs = (
        elements if case.full else max(math.prod(int(axis.split()[2]) for axis in case.axes if "parallel" in axis), 1)
    )
    dtype = "i64" if "arg_max" in case.body else "f32"
    axes = "\n".join("axis " + axis for axis in case.axes)
    return (
        f"kernel k{position} {{\nbuffer x : f32[{elements}] input\nbuffer out : {dtype}[{outputs}] output\n{axes}\n"
        f"%x = load x[{case.index}] : f32\n{case.body}\nstore %r to out[{out_index}]\n}}\n"
    )


def main() -> None:
    names = [argument for argument in sys.argv[1:] if argument != "--cpu-time"]
    wanted = [case for case in CASES if not names or case.name in names]
    clock = time.perf_counter
    if "--cpu-time" in sys.argv:
        torch.set_num_threads(1)
        clock = time.thread_time
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for position, case in enumerate(wanted):
            files.append(Path(folder, f"{position}.txt"))
            files[-1].write_text(kernel_text(case, position))
        source = Path(folder, "kernels.py")
        source.write_text(subprocess.run([PRINTER, *files], check=True, capture_output=True, text=True).stdout)
        spec = importlib.util.spec_from_file_location("kernels", source)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        start = time.perf_counter()
        module.load_kernels()
        print(f"compiled in {time.perf_counter() - start:.1f} s; {torch.get_num_threads()} threads")
    print(f"{'kernel':20} {'ours ms':>9} {'eager ms':>9} {'speedup':>8} {'GB/s':>7}")
    for position, case in enumerate(wanted):
        x = torch.rand(case.shape) + 0.1
        expected = case.eager(x)
        out = torch.empty_like(expected)
        launch = getattr(module, f"launch_k{position}")
        launch(x, out)
        torch.testing.assert_close(out.flatten(), expected.flatten(), rtol=1e-4, atol=1e-5)
        times: dict[str, list[float]] = {"ours": [], "eager": []}
        for _ in range(15):
            # Both allocate their output, as they would in a module.
            for name, function in {
                "ours": lambda: launch(x, torch.empty_like(out)),
                "eager": lambda: case.eager(x),
            }.items():
                start = clock()
                function()
                times[name].append(clock() - start)
        ours, eager = min(times["ours"]), min(times["eager"])
        moved = x.nbytes + out.nbytes
        print(
            f"{case.name:20} {ours * 1e3:9.3f} {eager * 1e3:9.3f} {eager / ours:8.2f} {moved / ours / 1e9:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
