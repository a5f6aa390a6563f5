#!/usr/bin/env python3
"""Modules of one operation each, of kinds and sizes that the suite lacks, verified and timed beside eager and
torch.compile.

    bench/kernel_kinds.py OUT [--target triton|cpu] [--only sort,topk] [--scale 1] [-- OPTIONS of kw bench …]

Writes the modules to OUT/problems and the results where `kw bench` has them: OUT/results. --scale divides the number of
rows, for a CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent

FLOATS = 1 << 24

MODULE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x{more}):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def modules(scale: int) -> dict[str, str]:
    """Source by name; names begin with their kind."""
    made: dict[str, str] = {}

    def add(name: str, expression: str, inputs: str, more: str = "") -> None:
        made[name] = MODULE.format(expression=expression, inputs=inputs, more=more)

    for columns in (32, 64, 256, 512, 1024, 2048):
        add(f"sort_{columns}", "torch.sort(x, dim=-1)", f"torch.randn({FLOATS // columns // scale}, {columns})")
    add("sort_half_256", "torch.sort(x, dim=-1)", f"torch.randn({FLOATS // 256 // scale}, 256).half()")
    add("sort_values_512", "torch.sort(x, dim=-1).values * 2.0", f"torch.randn({FLOATS // 512 // scale}, 512)")
    for count, columns in ((2, 64), (8, 256), (8, 1024), (8, 4096), (16, 16384), (50, 2048)):
        add(
            f"topk_{count}_of_{columns}",
            f"torch.topk(x, {count}, dim=-1)",
            f"torch.randn({2 * FLOATS // columns // scale}, {columns})",
        )
    add("dropout_residual", "F.layer_norm(F.dropout(x, 0.1) + x, (1024,))", f"torch.randn({32768 // scale}, 1024)")
    add("dropout_bf16", "torch.relu(F.dropout(x * 2.0, 0.3))", f"torch.randn({32768 // scale}, 4096).bfloat16()")
    add(
        "pool_fractional",
        "F.fractional_max_pool2d(x, 3, output_ratio=0.6)",
        f"torch.randn({max(1, 32 // scale)}, 64, 128, 128)",
    )
    add("pool_uneven", "F.adaptive_avg_pool2d(x, 7)", f"torch.randn({max(1, 256 // scale)}, 256, 60, 60)")
    rows = 400000 // scale
    largest = 'torch.zeros(20000, 128, device=x.device).scatter_reduce(0, i[:, None].expand(-1, 128), x * 2, "amax")'
    add("scatter_largest", largest, f"torch.randn({rows}, 128), torch.randint(0, 20000, ({rows},))", ", i")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="triton", choices=["triton", "cpu"])
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas")
    parser.add_argument("--scale", type=int, default=1)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    folder = options.out.resolve() / "problems"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {name: source for name, source in modules(options.scale).items() if name.startswith(wanted)}
    if not chosen:
        parser.error(f"no module's name begins with {' or '.join(wanted)}: there are {', '.join(modules(1))}")
    for name, source in chosen.items():
        (folder / f"{name}.py").write_text(source)
    paths = [str(folder / f"{name}.py") for name in chosen]
    command = [
        str(HOME / "kw"),
        "bench",
        *paths,
        "--target",
        options.target,
        "--out",
        str(folder.parent / "results"),
        *sys.argv[end + 1 :],
    ]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
