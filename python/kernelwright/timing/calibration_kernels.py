"""Triton kernels with which a GPU's caches are measured (calibration.py)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def read_again(source_ptr, out_ptr, elements, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Every program walks through the same elements, from a place of its own, `STEPS` blocks far."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    start = program * BLOCK
    for step in range(STEPS):
        total += tl.load(source_ptr + (start + step * BLOCK) % elements + lanes)
    tl.store(out_ptr + program, tl.sum(total, axis=0))


@triton.jit
def permute(order_ptr, out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """A tile is permuted across the warps of its program, which goes through shared memory, `STEPS` times."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    order = tl.load(order_ptr + lanes)
    tile = lanes.to(tl.float32)
    for _ in range(STEPS):
        tile = tl.gather(tile, order, 0)
    tl.store(out_ptr + program * BLOCK + lanes, tile)
