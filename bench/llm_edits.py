#!/usr/bin/env python3
"""What a language model's picks of schedules are worth: the best time after n evaluations, beside chance's and the compiler's own search's.

    bench/llm_edits.py [--model smollm2] [-k 12] [--seeds 5] [--target cpu] [--out edits.json] [--csv edits.csv] [--kw build/kw] PROBLEM.py | FOLDER …

One archive serves all proposers, so that a schedule is timed once, whoever proposes it, and the curves differ by what was proposed and not by when the
machine was busy. Proposers take turns, seed by seed, and `--seconds` ends the run after a whole turn. A figure is the time relative to the compiler's own
schedule (evaluation 1, so never above 1): the geometric mean over problems and seeds, with the 95 % interval of a bootstrap over the seeds within each problem. The second table compares each proposer with the search
after as many evaluations: the geometric mean of the ratios, with the interval of a bootstrap over the problems. `--read FILE` prints both from an earlier `--out`.
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
    command = [
        options.kw,
        "bench",
        *options.paths,
        "--proposer",
        f"edits:{model}",
        "-k",
        str(options.k),
        "--seed",
        str(seed),
        "--answers",
        str(options.answers),
    ]
    command += [
        "--target",
        options.target,
        "--temperature",
        str(options.temperature),
        "--budget",
        "0",
        "--quiet",
        "--out",
        str(out),
    ]
    for name, value in (
        ("--size", options.size),
        ("--devices", options.devices),
        ("--jobs", options.jobs),
        ("--threads", options.threads),
    ):
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


def against(
    ours: dict[str, list[list[float]]], theirs: dict[str, list[list[float]]], place: int, source: random.Random
) -> tuple[float, float, float]:
    """Geometric mean of the ratio of two proposers' times after as many evaluations, and its 95 % interval; problems
    are drawn anew.
    """
    ratios = [
        mean([one[place] for one in ours[problem]]) / mean([one[place] for one in theirs[problem]]) for problem in ours
    ]
    figures = sorted(mean(source.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return mean(ratios), figures[int(0.025 * RESAMPLES)], figures[int(0.975 * RESAMPLES) - 1]


def interval(by_problem: dict[str, list[list[float]]], place: int, source: random.Random) -> tuple[float, float, float]:
    """Geometric mean and 95 % interval at one evaluation; seeds are drawn anew within each problem."""
    figures = []
    for _ in range(RESAMPLES):
        figures.append(mean([source.choice(curves)[place] for curves in by_problem.values() for _ in curves]))
    figures.sort()
    value = mean([curve[place] for curves in by_problem.values() for curve in curves])
    return value, figures[int(0.025 * RESAMPLES)], figures[int(0.975 * RESAMPLES) - 1]


def ask(options: argparse.Namespace, proposers: list[str]) -> dict:
    """Curves by proposer and problem, one per seed, and what they rest on."""
    curves: dict[str, dict[str, list[list[float]]]] = {proposer: {} for proposer in proposers}
    answers: dict[str, list[int]] = {proposer: [0, 0, 0] for proposer in proposers}
    wrong: list[dict] = []
    began, seeds = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="kw-llm-edits-") as folder:
        while seeds < options.seeds and (
            seeds == 0 or not options.seconds or time.monotonic() - began < options.seconds * seeds / (seeds + 1)
        ):
            turn = {proposer: run(proposer, seeds, options, folder) for proposer in proposers}
            seeds += 1
            # Only where all of them have an answer can they be compared.
            for problem in sorted(set.intersection(*(set(reports) for reports in turn.values()))):
                for proposer in proposers:
                    report = turn[proposer][problem]
                    curves[proposer].setdefault(problem, []).append(padded(report["edits"]["curve"], options.k))
                    wrong += [
                        {"problem": problem, "proposer": proposer, **one}
                        for one in report["edits"]["answers"]
                        if one.get("reason")
                    ]
                    counted = (report["judged"], report["passed"], report["tokens"]["completion"])
                    answers[proposer] = [total + one for total, one in zip(answers[proposer], counted)]
            print(f"seed {seeds - 1}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return {
        "target": options.target,
        "k": options.k,
        "seeds": seeds,
        "curves": curves,
        "answers": answers,
        "wrong": wrong,
    }


def show(result: dict) -> list[dict]:
    """Prints the tables; the first one's rows."""
    curves, k = result["curves"], result["k"]
    proposers, problems = list(curves), list(next(iter(curves.values())))
    source = random.Random(0)
    table = []
    for proposer in proposers:
        for place in range(k):
            value, low, high = interval(curves[proposer], place, source)
            table.append({"proposer": proposer, "evaluations": place + 1, "time": value, "low": low, "high": high})
    print(
        f"time relative to the compiler's own schedule, {len(problems)} problems, {result['seeds']} seeds, {result['target']}"
    )
    print(f"{'evaluations':>11}" + "".join(f"  {proposer[-24:]:>24}" for proposer in proposers))
    shown = [place for place in sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, k}) if place <= k]
    for place in shown:
        rows = {row["proposer"]: row for row in table if row["evaluations"] == place}
        ends = {
            one: f" [{rows[one]['low']:.3f}, {rows[one]['high']:.3f}]" if result["seeds"] > 1 else ""
            for one in proposers
        }
        print(f"{place:>11}" + "".join("  " + f"{rows[one]['time']:.3f}{ends[one]}".rjust(24) for one in proposers))
    print("relative to the search's after as many evaluations, problems drawn anew")
    for place in shown[1:]:
        figures = [against(curves[one], curves[proposers[0]], place - 1, source) for one in proposers]
        print(
            f"{place:>11}"
            + "".join("  " + f"{value:.3f} [{low:.3f}, {high:.3f}]".rjust(24) for value, low, high in figures)
        )
    for proposer, (judged, passed, tokens) in result.get("answers", {}).items():
        if judged:
            print(
                f"{proposer}: {passed} of {judged} answers are right programs (pass@1 {100 * passed / judged:.1f}%), {tokens} tokens written"
            )
    for one in result.get("wrong", []):
        print(f"  {Path(one['problem']).stem}: {one['change'] or 'no schedule'}: {one['reason']}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PROBLEM.py|FOLDER")
    parser.add_argument(
        "--model", action="append", help="as `kw generate --model` has it; may be given several times  [smollm2]"
    )
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
    parser.add_argument("--read", metavar="FILE", help="what an earlier --out wrote, instead of asking")
    parser.add_argument("--kw", default=str(HOME / "kw"), help="the program")
    options = parser.parse_args()
    if not options.read and not options.paths:
        parser.error("which problems? Name files or folders, or --read an earlier run")
    result = (
        json.loads(Path(options.read).read_text())
        if options.read
        else ask(options, ["search", "random", *(options.model or ["smollm2"])])
    )
    if not any(result["curves"].values()):
        print("no problem was evaluated by all proposers")
        return 1
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    table = show(result)
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
