"""Every golden kernel of the CPU target computes what PyTorch computes, whatever a schedule says of its loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from golden_references import Buffers, looked_up, pooled, scanned_columns

from printed_cpu_kernels import HOME, build, close, draw, own_cache  # noqa: F401

GOLDEN = sorted((HOME / "tests" / "golden" / "cpu").glob("*.txt"))


def statistics(b: Buffers) -> Buffers:
    x, count = b["x"].view(4, 180), b["count"].view(4, 180)
    return {
        "total": x.double().sum(1).float(),
        "product": x.double().prod(1).float(),
        "largest": x.amax(1),
        "smallest": x.amin(1),
        "any_positive": (x > 0).any(1),
        "all_positive": (x > 0).all(1),
        "counted": count.sum(1),
        "count_max": count.amax(1),
    }


def layer_norm(b: Buffers) -> Buffers:
    x = b["x"].view(60, 100)
    return {"out": F.layer_norm(x, (100,), b["weight"], b["bias"]), "mean_out": x.double().mean(1).float()}


def exact_sums(x: torch.Tensor) -> torch.Tensor:
    """Of rows of doubles, rounded once."""
    sums = [math.fsum(row) if torch.isfinite(row).all() else float(row.sum()) for row in x]
    return torch.tensor(sums, dtype=torch.float64)


def extended_moments(b: Buffers) -> Buffers:
    x = b["x"].view(6, 1000)
    mean = (exact_sums(x) / 1000)[:, None]
    squares = exact_sums((x - mean) ** 2)[:, None]
    return {"out": (x - mean) * (1 / (squares / 1000).sqrt()), "mean_out": mean}


def extended_columns(b: Buffers) -> Buffers:
    x = b["x"].view(3, 70, 20)
    totals = exact_sums(x.transpose(1, 2).reshape(60, 70)).view(3, 1, 20)
    return {"totals": totals, "out": x / totals}


def scattered(b: Buffers) -> Buffers:
    x, half, place = b["x"].view(30, 12), b["half"].view(30, 12), (b["token"].long() % 20)[:, None].expand(30, 12)
    return {
        "products": b["products"].view(20, 12).scatter_reduce(0, place, x, "prod"),
        "smallest": b["smallest"].view(20, 12).scatter_reduce(0, place, half, "amin"),
        "put": b["put"].view(20, 12).scatter(0, place, x),
    }


REFERENCES: dict[str, Callable[[Buffers], Buffers]] = {
    "softmax_persistent": lambda b: {"out": torch.softmax(b["x"].view(8, 1000), 1)},
    "softmax_looped_bf16": lambda b: {"out": torch.softmax(b["x"].view(16, 1000).float(), 1).bfloat16()},
    "layer_norm": layer_norm,
    "layer_norm_looped": lambda b: {"out": F.layer_norm(b["x"].view(6, 1000).float(), (1000,))},
    "extended_moments": extended_moments,
    "extended_columns": extended_columns,
    "gelu": lambda b: {"out": F.gelu(b["x"].view(100, 10) + b["bias"], approximate="tanh")},
    "arg_max_columns": lambda b: {
        "out": b["x"].view(3, 70, 20).argmax(1),
        "at_least": b["x"].view(3, 70, 20).argmin(1),
    },
    "pad_guard": lambda b: {"out": F.pad(b["x"].view(10, 12), (2, 3), value=7.1).clamp_min(0.1)},
    "all_reductions": statistics,
    "gather_rows": looked_up,
    "windows": pooled,
    "scan_rows_reversed": lambda b: {
        "sums": b["x"].view(7, 1000).flip(1).double().cumsum(1).flip(1).float() * 2,
        "products": b["x"].view(7, 1000).flip(1).double().cumprod(1).flip(1).float(),
    },
    "scan_extremes": lambda b: {
        "largest": b["x"].view(4, 1000).cummax(1)[0],
        "largest_at": b["x"].view(4, 1000).cummax(1)[1],
        "smallest": b["x"].view(4, 1000).cummin(1)[0],
    },
    "scan_columns": scanned_columns,
    "scan_pieces": lambda b: {
        "sums": b["x"].view(64, 1500).exp().double().cumsum(1).float(),
        "places": b["x"].view(64, 1500).cummax(1)[1],
    },
    "sort_first": lambda b: {
        "top": b["x"].view(4, 1000).topk(3).values,
        "sums": b["x"].view(4, 1000).topk(3).values.double().cumsum(1).float(),
    },
    "columns_as_told": lambda b: {"out": torch.softmax(b["x"].view(800, 60), 0)},
    "joined_rows": lambda b: {
        "out": torch.cat([b["cache"].view(4, 511, 64), b["key"].view(33, 4, 64).transpose(0, 1)], 1)
    },
    "rolled": lambda b: {
        "out": torch.cat(
            [
                b["x"].view(60, 100)[:56].roll(5, 1),
                torch.cat([b["x"].view(60, 100)[56:, 95:], b["x"].view(60, 100)[56:, 5:]], 1),
            ]
        )
    },
    "scatter_owners": lambda b: {
        "sums": b["sums"].view(20, 12).index_add(0, b["token"].long() % 20, b["x"].view(3000, 12) * 2)
    },
    "scatter_folds": scattered,
}


def buffers_of(text: str, special: bool) -> Buffers:
    buffers: Buffers = {}
    for line in text.split("----\n")[0].splitlines():
        words = line.split()
        if words[:1] == ["buffer"]:
            dtype, count = words[3].rstrip("]").split("[")
            buffers[words[1]] = draw(dtype, int(count), len(buffers), special and words[4] == "input")
    return buffers


@pytest.mark.parametrize("special", [False, True], ids=["normal", "special"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_kernel_agrees_with_pytorch(path: Path, special: bool, tmp_path: Path) -> None:
    agrees_with_pytorch(path.stem, path.read_text(), special, tmp_path)


# Whatever a schedule says of the loops.
@pytest.mark.parametrize("choices", ["along 1", "columns 16 tile 8 rows 3 piece 64 share 1"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_loops_as_told_compute_the_same(path: Path, choices: str, tmp_path: Path) -> None:
    kept = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("  loops")]
    launch = next(index for index, line in enumerate(kept) if line.startswith("  launch"))
    agrees_with_pytorch(
        path.stem, "".join([*kept[: launch + 1], f"  loops {choices}\n", *kept[launch + 1 :]]), True, tmp_path
    )


def agrees_with_pytorch(stem: str, text: str, special: bool, folder: Path) -> None:
    module = build(folder, text)
    buffers = buffers_of(text, special)
    expected = REFERENCES[stem](buffers)
    name = text.split()[1]
    getattr(module, f"launch_{name}")(*buffers.values())
    for output, wanted in expected.items():
        torch.testing.assert_close(
            buffers[output], wanted.flatten(), equal_nan=True, msg=lambda text, output=output: f"{output}: {text}"
        )
