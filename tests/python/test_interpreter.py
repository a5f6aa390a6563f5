"""What kernelwright/interpreter.py puts into the place of Triton's own reductions and scans answers as those do."""

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


def test_reductions_and_scans_answer_as_tritons_own(home, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", str(home / "python"))
    path = tmp_path / "compare.py"
    path.write_text(COMPARE)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "compared 80\n", done.stdout + done.stderr
