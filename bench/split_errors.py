"""Errors of products whose operands are sums of two halves (docs/precision.md), on a CPU, beside PyTorch's in single
precision.

python3 bench/split_errors.py [--side N] [--depth K]

Emulated as the kernels work: rows scaled by powers of two, three products of halves with the small ones first, sums of
64 added to the total in single precision. Of each: the largest and the mean error over |A| |B|, the sum of the
products' sizes, in units of 2^-24; and the share of rows and columns that go to the kernel in single precision.
"""

from __future__ import annotations

import argparse
from typing import Callable

import torch

Tensor = torch.Tensor
CHUNK = 64
LARGE = 4.0  # of a scaled row: near its largest


def split(rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """High and low halves in single precision; of each row its scale, how many numbers are near its largest, and how
    many another row needs more than (-1: none).
    """
    largest = rows.abs().amax(1, keepdim=True).clamp(min=2.0**-112)
    exponent = largest.log2().floor()
    scaled = rows * torch.exp2(14 - exponent)
    high = scaled.half().float()
    small = ((scaled.abs() < 2.0**-4) & (scaled != 0)).sum(1, keepdim=True)
    large = (scaled.abs() >= LARGE).sum(1, keepdim=True)
    few = rows.shape[1] / 64
    loses = (small > few) & (large < max(few, 32))
    needs = torch.where(loses, rows.shape[1] - large, -1)
    return high, (scaled - high).half().float(), torch.exp2(exponent - 14), large, needs


def product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a bᵀ by three products of halves, and what is computed so."""
    (a_high, a_low, a_scale, a_large, a_needs), (b_high, b_low, b_scale, b_large, b_needs) = split(a), split(b)
    total = torch.zeros(a.shape[0], b.shape[0])
    for at in range(0, a.shape[1], CHUNK):
        part = slice(at, at + CHUNK)
        small = a_high[:, part] @ b_low[:, part].T + a_low[:, part] @ b_high[:, part].T
        total += small + a_high[:, part] @ b_high[:, part].T
    kept = torch.isfinite(a_scale) & torch.isfinite(b_scale.T) & (a_needs < b_large.T) & (b_needs.T < a_large)
    return total * torch.minimum(a_scale, b_scale.T) * torch.maximum(a_scale, b_scale.T), kept


def softmax_rows(*shape: int) -> Tensor:
    return torch.softmax(4 * torch.randn(shape), 1)


def outlier(*shape: int, size: float) -> Tensor:
    x = torch.randn(shape)
    x[torch.arange(shape[0]), torch.randint(0, shape[1], (shape[0],))] *= size
    return x


DISTRIBUTIONS: dict[str, Callable[..., Tensor]] = {
    "normal": lambda *shape: torch.randn(shape),
    "uniform in [0, 1)": lambda *shape: torch.rand(shape),
    "normal, half of them 0": lambda *shape: torch.randn(shape).relu(),
    "exp(2 · normal)": lambda *shape: torch.exp(2 * torch.randn(shape)),
    "exp(4 · normal)": lambda *shape: torch.exp(4 * torch.randn(shape)),
    "softmax(4 · normal)": softmax_rows,
    "normal, one in a row × 2^10": lambda *shape: outlier(*shape, size=2.0**10),
    "normal, one in a row × 2^16": lambda *shape: outlier(*shape, size=2.0**16),
    "normal, one in a row × 2^30": lambda *shape: outlier(*shape, size=2.0**30),
    "normal × 2^-100": lambda *shape: torch.randn(shape) * 2.0**-100,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=256, help="rows of both operands (default: 256)")
    parser.add_argument("--depth", type=int, default=4096, help="what is summed over (default: 4096)")
    options = parser.parse_args()
    torch.manual_seed(0)
    print("| numbers | halves, largest | mean | single precision, largest | mean | in single precision |")
    print("|---|---|---|---|---|---|")
    for name, draw in DISTRIBUTIONS.items():
        a, b = draw(options.side, options.depth), torch.randn(options.side, options.depth)
        exact, sizes = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
        ours, kept = product(a, b)
        unit = sizes * 2.0**-24
        mine = ((ours.double() - exact).abs() / unit)[kept]
        theirs = ((a @ b.T).double() - exact).abs() / unit
        halves = f"{float(mine.max()):.2f} | {float(mine.mean()):.3f}" if mine.numel() else "- | -"
        print(
            f"| {name} | {halves} | {float(theirs.max()):.2f} | {float(theirs.mean()):.3f} | {1 - float(kept.float().mean()):.0%} |"
        )


if __name__ == "__main__":
    main()
