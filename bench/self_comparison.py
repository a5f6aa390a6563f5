"""How often a kernel is said to be faster, or slower, than itself.

    python bench/self_comparison.py [--comparisons 500] [--budget 1.0] [--device cpu] [--out FILE.json]

Each comparison times a module against an identical copy of itself, in processes of their own, by the same path and
statistics as `kw measure`. Prints the share of verdicts other than "no difference" and writes every comparison with its
intervals, its noise and what it could have told. The figure to reach is at most 1 % "faster".
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "python"))

from kernelwright import library  # noqa: E402
from kernelwright.judge import measurement  # noqa: E402

# From microseconds to tens of milliseconds, bound by memory, by products and by calls.
PROBLEMS = {
    "elementwise": ("torch.tanh(x) * 2", "1024, 1024"),
    "softmax": ("torch.softmax(x, -1)", "512, 4096"),
    "matmul": ("x @ x", "384, 384"),
    "small": ("torch.relu(x) + 1", "32, 32"),
}
# And on a GPU, up to gigabytes.
LARGE_PROBLEMS = {
    "elementwise": ("torch.nn.functional.elu(x)", "4096, 131072"),
    "reduction": ("x.sum(1, keepdim=True)", "64, 2048, 2048"),
    "vector": ("x @ x[:1].T", "2048, 524288"),
    "pointwise convolution": (
        "torch.nn.functional.conv2d(x, x[0, :, :64, 0].reshape(64, 64, 1, 1))",
        "8, 64, 1024, 1024",
    ),
    "matmul": ("x @ x", "2048, 2048"),
    "small": ("torch.relu(x) + 1", "32, 32"),
}

TEXT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return []
"""


def write_pair(folder: Path, name: str, expression: str, shape: str) -> tuple[Path, Path]:
    """The problem's file, and a candidate's that is the same but for the class's name."""
    text = TEXT.format(expression=expression, shape=shape)
    stem = name.replace(" ", "_")
    problem, candidate = folder / f"{stem}.py", folder / f"{stem}_copy.py"
    problem.write_text(text)
    candidate.write_text(text.split("def get_inputs")[0].replace("class Model", "class ModelNew"))
    return problem, candidate


def compare(problem: Path, candidate: Path, device: str, seed: int, budget: float) -> dict[str, Any]:
    params = {
        "problem": str(problem),
        "candidate": str(candidate),
        "device": device,
        "seed": seed,
        "baselines": ["eager"],
        "budget_seconds": budget,
    }
    reply = measurement.run(params, lambda *_, **__: None)
    report = library.summarise(reply)
    return report["speedup"]["eager"] | {
        "samples": report["samples"],
        "ours_ms": report["time_ms"]["ours"],
        "is_noisy": report["noise"]["noisy"],
        "noise": reply["noise"]["reasons"],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def share(of: list[dict[str, Any]], verdict: str) -> float | None:
        return round(sum(row["difference"] == verdict for row in of) / len(of), 4) if of else None

    quiet = [row for row in rows if not row["is_noisy"]]
    return {
        "comparisons": len(rows),
        "faster": share(rows, "faster"),
        "slower": share(rows, "slower"),
        "quiet": len(quiet),
        "faster_where_quiet": share(quiet, "faster"),
        "slower_where_quiet": share(quiet, "slower"),
        "largest_false": max(
            (abs(row["value"] - 1) for row in rows if row["difference"] != "no difference"), default=0.0
        ),
        "median_detectable": statistics.median(row["detectable"] for row in rows) if rows else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=500)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timing for each")
    parser.add_argument("--device", default="cpu", help="or cuda: larger problems")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        problems = PROBLEMS if given.device == "cpu" else LARGE_PROBLEMS
        pairs = {name: write_pair(Path(folder), name, *problem) for name, problem in problems.items()}
        for number in range(given.comparisons):
            name = list(problems)[number % len(problems)]
            rows.append({"problem": name} | compare(*pairs[name], given.device, seed=number, budget=given.budget))
            if given.out is not None:
                given.out.write_text(json.dumps({"summary": summary(rows), "rows": rows}, indent=1) + "\n")
            if number % 10 == 9:
                print(
                    f"{number + 1} of {given.comparisons}, {time.monotonic() - began:.0f} s:",
                    summary(rows),
                    file=sys.stderr,
                    flush=True,
                )
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
