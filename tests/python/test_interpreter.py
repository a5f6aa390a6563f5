"""What kernelwright/interpreter.py puts into the place of Triton's own answers as that does, or as a GPU where that
does not.
"""

import subprocess
import sys

import pytest

pytest.importorskip("triton")

# In a process of its own, since TRITON_INTERPRET holds for a whole process.
COMPARE = """
import numpy as np, torch, triton, triton.language as tl
from triton.runtime.interpreter import ReduceOps, ScanOps
from kernelwright import interpreter

@triton.jit
def later(value, at, other, other_at):  # the first largest one; the order of its arguments matters
    keep = (value > other) | ((value == other) & (at < other_at))
    return tl.where(keep, value, other), tl.where(keep, at, other_at)

@triton.jit
def affine(scale, shift, other_scale, other_shift):  # associative, and does not commute
    return scale * other_scale, shift * other_scale + other_shift

@triton.jit
def reduce_kernel(x, y, out, out_2, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr,
                  FUNCTION: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, b = tl.reduce((tl.load(x + at), tl.load(y + at)), AXIS, FUNCTION, keep_dims=KEEP)
    if KEEP:
        a, b = tl.broadcast_to(a, [ROWS, COLUMNS]), tl.broadcast_to(b, [ROWS, COLUMNS])
        tl.store(out + at, a)
        tl.store(out_2 + at, b)
    else:
        to = tl.arange(0, COLUMNS if AXIS == 0 else ROWS)
        tl.store(out + to, a)
        tl.store(out_2 + to, b)

@triton.jit
def row_kernel(x, y, out, out_2, COLUMNS: tl.constexpr, FUNCTION: tl.constexpr):
    at = tl.arange(0, COLUMNS)
    a, b = tl.reduce((tl.load(x + at), tl.load(y + at)), 0, FUNCTION)
    tl.store(out, a)
    tl.store(out_2, b)

@triton.jit
def scan_kernel(x, y, out, out_2, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr,
                FUNCTION: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, b = tl.associative_scan((tl.load(x + at), tl.load(y + at)), AXIS, FUNCTION, reverse=REVERSE)
    tl.store(out + at, a)
    tl.store(out_2 + at, b)

def results(dtype, function):
    x = torch.randint(-3, 4, (8, 16), generator=torch.Generator().manual_seed(1)).to(dtype)
    y = torch.randint(-2, 3, (8, 16), generator=torch.Generator().manual_seed(2)).to(torch.int32)
    found = []
    def run(kernel, *options):
        out, out_2 = torch.zeros_like(x), torch.zeros_like(y)
        kernel[(1,)](x, y, out, out_2, *options, function)
        found.extend([out, out_2])
    for axis in (0, 1):
        for keep in (False, True):
            run(reduce_kernel, 8, 16, axis, keep)
        for reverse in (False, True):
            run(scan_kernel, 8, 16, axis, reverse)
    run(row_kernel, 16)
    run(row_kernel, 1)
    return found

cases = [(torch.float32, later), (torch.bfloat16, later), (torch.int32, affine), (torch.int64, affine)]
slow = [results(*case) for case in cases]
theirs = ReduceOps.generic_reduce, ScanOps.generic_scan
interpreter.install()
assert (ReduceOps.generic_reduce, ScanOps.generic_scan) != theirs
for case, expected in zip(cases, slow):
    for mine, own in zip(results(*case), expected, strict=True):
        torch.testing.assert_close(mine, own, rtol=0, atol=0)
print("compared", sum(map(len, slow)))
"""

ARITHMETIC = """
import torch, triton, triton.language as tl
from kernelwright import interpreter

@triton.jit
def kernel(x, y, wholes, floats, flags, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(x + at), tl.load(y + at)
    program = tl.program_id(0)
    first = (a + 3) * -2 - (program + 5) // 2
    tl.store(wholes + at, first)
    tl.store(wholes + SIZE + at, (a % 7) ^ (b & 12) | (a << 2))
    tl.store(wholes + 2 * SIZE + at, a // 3 + b * 4 + 2147483647)
    tl.store(wholes + 3 * SIZE + at, tl.where(a > 2, 1 - a, b) + SIZE)
    tl.store(floats + at, a / 4 + b / a)
    tl.store(floats + SIZE + at, (a.to(tl.float32) * 0.5 + 1).to(tl.float16).to(tl.float32))
    table = a[:, None] * 2 - b[None, :]
    tl.store(floats + 2 * SIZE + at, tl.sum((table == at[None, :]).to(tl.int32), 1).to(tl.float32))
    tl.store(flags + at, (a >= 0) & (b != 3))

def results(x_dtype, y_dtype):
    x = torch.tensor([1, -2, 3, 100, -128 if x_dtype in (torch.int8, torch.int16) else -70000, 7, 5, 2], dtype=x_dtype)
    y = torch.tensor([3, 2, 1, 0, 9, 8, 11, 127], dtype=y_dtype)
    wholes, floats, flags = torch.zeros(4, 8, dtype=torch.int64), torch.zeros(3, 8), torch.zeros(8, dtype=torch.bool)
    kernel[(1,)](x, y, wholes, floats, flags, 8)
    return [wholes, floats, flags]

pairs = [(torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int32, torch.int64), (torch.int16, torch.int64),
         (torch.int8, torch.int32)]
theirs = [results(*pair) for pair in pairs]
interpreter.install()
interpreter.install()
for pair, expected in zip(pairs, theirs):
    for mine, own in zip(results(*pair), expected):
        torch.testing.assert_close(mine, own, rtol=0, atol=0, msg=str(pair))
print("compared", len(pairs))
"""

NARROW = """
import torch, triton, triton.language as tl
from kernelwright import interpreter

@triton.jit
def kernel(x, narrow, wide, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    rounded = tl.load(x + at).to(tl.bfloat16)
    tl.store(narrow + at, rounded)
    tl.store(wide + at, rounded.to(tl.float32))

interpreter.install()
nan, inf = float("nan"), float("inf")
x = torch.cat([torch.tensor([0.0, -0.0, nan, inf, -inf, 1.00390625, 1.01171875, 3.4e38, 1e-40, -1e-45, 65504.0, 0.1]),
               torch.randn(4, generator=torch.Generator().manual_seed(0))])
narrow, wide = torch.empty(16, dtype=torch.bfloat16), torch.empty(16)
kernel[(1,)](x, narrow, wide, 16)
torch.testing.assert_close(narrow, x.bfloat16(), rtol=0, atol=0, equal_nan=True)
torch.testing.assert_close(wide, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)
assert torch.equal(torch.signbit(narrow[:2]), torch.tensor([False, True]))
print("rounded")
"""


@pytest.mark.parametrize(
    ("script", "answer"),
    [(COMPARE, "compared 80"), (ARITHMETIC, "compared 5"), (NARROW, "rounded")],
    ids=["reductions_and_scans", "arithmetic", "bfloat16"],
)
def test_it_answers_as_tritons_own_and_rounds_as_a_gpu(home, tmp_path, monkeypatch, script, answer):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", str(home / "python"))
    path = tmp_path / "compare.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == answer + "\n", done.stdout + done.stderr
