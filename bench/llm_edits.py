#!/usr/bin/env python3
"""What a language model's picks of schedules are worth: the best time after n evaluations, beside chance's and the compiler's own search's.

    bench/llm_edits.py [--model smollm2] [-k 12] [--seeds 5] [--target cpu] [--out edits.json] [--csv edits.csv] [--kw build/kw] PROBLEM.py | FOLDER …

Each problem has one archive for all proposers, so that a schedule is timed once, whoever proposes it, and the curves differ by what was proposed and not
by when the machine was busy. A figure is the time relative to the compiler's own schedule (evaluation 1, so never above 1): the geometric mean over
problems and seeds, with the 95 % interval of a bootstrap over the seeds within each problem. The table goes to standard output.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
RESAMPLES = 2000


def problems_of(paths: list[str]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(one for one in path.rglob("*.py") if "class Model" in one.read_text()) if path.is_dir() else [path]
    return found


def run(problem: Path, model: str, seed: int, options: argparse.Namespace, folder: str) -> dict | None:
    """The report of one run, or None where it failed; the reason is on standard error."""
    report = Path(folder, "report.json")
    report.unlink(missing_ok=True)
    command = [options.kw, "generate", str(problem), "--edits", "--model", model, "-k", str(options.k), "--seed", str(seed), "--target", options.target]
    command += ["--temperature", str(options.temperature), "--budget", "0", "--quiet", "--json", str(report), "-o", str(Path(folder, "candidate.py"))]
    environment = {**os.environ, "KW_ARCHIVE": str(Path(folder, f"{problem.stem}.db"))}
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    result = json.loads(report.read_text()) if report.exists() else {}
    return result if "edits" in result else None


def padded(curve: list[float], length: int) -> list[float]:
    """A proposer that has nothing new to say keeps what it has."""
    return (curve + [curve[-1]] * length)[:length]


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def interval(by_problem: dict[str, list[list[float]]], place: int, source: random.Random) -> tuple[float, float, float]:
    """Geometric mean and 95 % interval at one evaluation; seeds are drawn anew within each problem."""
    figures = []
    for _ in range(RESAMPLES):
        figures.append(mean([source.choice(curves)[place] for curves in by_problem.values() for _ in curves]))
    figures.sort()
    value = mean([curve[place] for curves in by_problem.values() for curve in curves])
    return value, figures[int(0.025 * RESAMPLES)], figures[int(0.975 * RESAMPLES) - 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", metavar="PROBLEM.py|FOLDER")
    parser.add_argument("--model", action="append", help="as `kw generate --model` has it; may be given several times  [smollm2]")
    parser.add_argument("-k", type=int, default=12, help="evaluations, the compiler's own the first")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--out", help="curves and what they rest on, as JSON", default="")
    parser.add_argument("--csv", help="the table as CSV", default="")
    parser.add_argument("--kw", default=str(HOME / "kw"), help="the program")
    options = parser.parse_args()
    proposers = ["search", "random", *(options.model or ["smollm2"])]
    curves: dict[str, dict[str, list[list[float]]]] = {proposer: {} for proposer in proposers}
    answers: dict[str, list[int]] = {proposer: [0, 0, 0] for proposer in proposers}
    with tempfile.TemporaryDirectory(prefix="kw-llm-edits-") as folder:
        for problem in problems_of(options.paths):
            for proposer in proposers:
                for seed in range(options.seeds):
                    report = run(problem, proposer, seed, options, folder)
                    if report is None:
                        print(f"{problem.stem}: {proposer} with seed {seed} failed", file=sys.stderr)
                        continue
                    curves[proposer].setdefault(str(problem), []).append(padded(report["edits"]["curve"], options.k))
                    counted = (report["judged"], report["passed"], report["tokens"]["completion"])
                    answers[proposer] = [total + one for total, one in zip(answers[proposer], counted)]
                print(f"{problem.stem}: {proposer} done", file=sys.stderr, flush=True)
    # Only where all of them have an answer can they be compared.
    common = set.intersection(*(set(by_problem) for by_problem in curves.values()))
    if not common:
        print("no problem was evaluated by all proposers")
        return 1
    source = random.Random(0)
    table = []
    for proposer in proposers:
        kept = {problem: of_seeds for problem, of_seeds in curves[proposer].items() if problem in common}
        for place in range(options.k):
            value, low, high = interval(kept, place, source)
            table.append({"proposer": proposer, "evaluations": place + 1, "time": value, "low": low, "high": high})
    if options.out:
        Path(options.out).write_text(json.dumps({"target": options.target, "k": options.k, "seeds": options.seeds, "problems": sorted(common), "table": table, "curves": curves}, indent=1) + "\n")
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    print(f"time relative to the compiler's own schedule, {len(common)} problems, {options.seeds} seeds, {options.target}")
    print(f"{'evaluations':>11}" + "".join(f"  {proposer[-24:]:>24}" for proposer in proposers))
    shown = sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, options.k})
    for place in (place for place in shown if place <= options.k):
        rows = {row["proposer"]: row for row in table if row["evaluations"] == place}
        print(f"{place:>11}" + "".join("  " + f"{rows[one]['time']:.3f} [{rows[one]['low']:.3f}, {rows[one]['high']:.3f}]".rjust(24) for one in proposers))
    for proposer, (judged, passed, tokens) in answers.items():
        if judged:
            print(f"{proposer}: {passed} of {judged} answers are right programs (pass@1 {100 * passed / judged:.1f}%), {tokens} tokens written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
