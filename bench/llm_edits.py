#!/usr/bin/env python3
"""What a language model's picks of schedules are worth: the best time after n evaluations, beside chance's and the compiler's own search's.

    bench/llm_edits.py [--model smollm2] [-k 12] [--seeds 5] [--target cpu] [--out edits.json] [--csv edits.csv] [--kw build/kw] PROBLEM.py | FOLDER …

One archive serves all proposers, so that a schedule is timed once, whoever proposes it, and the curves differ by what was proposed and not by when the
machine was busy. Proposers take turns, seed by seed, and `--seconds` ends the run after a whole turn. A figure is the time relative to the compiler's own schedule (evaluation 1, so never above 1): the geometric mean over
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
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
RESAMPLES = 2000


def run(model: str, seed: int, options: argparse.Namespace, folder: str) -> dict[str, dict]:
    """One proposer with one seed on all problems: each one's report, by its path. What failed is on standard error."""
    out = Path(folder, f"{len(os.listdir(folder))}")
    command = [options.kw, "bench", *options.paths, "--proposer", f"edits:{model}", "-k", str(options.k), "--seed", str(seed), "--answers", str(options.answers)]
    command += ["--target", options.target, "--temperature", str(options.temperature), "--budget", "0", "--quiet", "--out", str(out)]
    for name, value in (("--size", options.size), ("--devices", options.devices), ("--jobs", options.jobs), ("--threads", options.threads)):
        command += [name, str(value)] if value else []
    environment = {**os.environ, "KW_ARCHIVE": str(Path(folder, "archive.db"))}
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    results = out / "results.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for line in lines:
        if "edits" not in line:
            print(f"{line['name']}: {model} with seed {seed} failed: {line.get('reason', '')}", file=sys.stderr)
    return {line["problem"]: line for line in lines if "edits" in line}


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
    parser.add_argument("--seconds", type=float, default=0, help="no further seed where there is no time for it")
    parser.add_argument("--answers", type=int, default=4, help="for each evaluation, of which the cost model picks one")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--size", default="", help="of the problems' SIZES  [the target's own]")
    for name in ("--devices", "--jobs", "--threads"):
        parser.add_argument(name, default="", help="as `kw bench` has it")
    parser.add_argument("--out", help="curves and what they rest on, as JSON", default="")
    parser.add_argument("--csv", help="the table as CSV", default="")
    parser.add_argument("--kw", default=str(HOME / "kw"), help="the program")
    options = parser.parse_args()
    proposers = ["search", "random", *(options.model or ["smollm2"])]
    curves: dict[str, dict[str, list[list[float]]]] = {proposer: {} for proposer in proposers}
    answers: dict[str, list[int]] = {proposer: [0, 0, 0] for proposer in proposers}
    wrong: list[dict] = []
    began, seeds = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="kw-llm-edits-") as folder:
        while seeds < options.seeds and (seeds == 0 or not options.seconds or time.monotonic() - began < options.seconds * seeds / (seeds + 1)):
            turn = {proposer: run(proposer, seeds, options, folder) for proposer in proposers}
            seeds += 1
            # Only where all of them have an answer can they be compared.
            for problem in sorted(set.intersection(*(set(reports) for reports in turn.values()))):
                for proposer in proposers:
                    report = turn[proposer][problem]
                    curves[proposer].setdefault(problem, []).append(padded(report["edits"]["curve"], options.k))
                    wrong += [{"problem": problem, "proposer": proposer, **one} for one in report["edits"]["answers"] if one.get("reason")]
                    counted = (report["judged"], report["passed"], report["tokens"]["completion"])
                    answers[proposer] = [total + one for total, one in zip(answers[proposer], counted)]
            print(f"seed {seeds - 1}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    problems = sorted(curves[proposers[0]])
    if not problems:
        print("no problem was evaluated by all proposers")
        return 1
    source = random.Random(0)
    table = []
    for proposer in proposers:
        for place in range(options.k):
            value, low, high = interval(curves[proposer], place, source)
            table.append({"proposer": proposer, "evaluations": place + 1, "time": value, "low": low, "high": high})
    if options.out:
        Path(options.out).write_text(json.dumps({"target": options.target, "k": options.k, "seeds": seeds, "problems": problems, "table": table, "curves": curves, "wrong": wrong}, indent=1) + "\n")
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    print(f"time relative to the compiler's own schedule, {len(problems)} problems, {seeds} seeds, {options.target}")
    print(f"{'evaluations':>11}" + "".join(f"  {proposer[-24:]:>24}" for proposer in proposers))
    shown = sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, options.k})
    for place in (place for place in shown if place <= options.k):
        rows = {row["proposer"]: row for row in table if row["evaluations"] == place}
        print(f"{place:>11}" + "".join("  " + f"{rows[one]['time']:.3f} [{rows[one]['low']:.3f}, {rows[one]['high']:.3f}]".rjust(24) for one in proposers))
    for proposer, (judged, passed, tokens) in answers.items():
        if judged:
            print(f"{proposer}: {passed} of {judged} answers are right programs (pass@1 {100 * passed / judged:.1f}%), {tokens} tokens written")
    for one in wrong:
        print(f"  {Path(one['problem']).stem}: {one['change'] or 'no schedule'}: {one['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
