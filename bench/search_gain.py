#!/usr/bin/env python3
"""How much a search adds to the planner's own choice: the share of the searched kernels' speed that the defaults reach.

    bench/search_gain.py [--seconds 60] [--target auto] [--out FILE] [--kw build/kw] PROBLEM.py | FOLDER …

Each problem is searched afresh, in an archive of its own, so that nothing known beforehand helps. The last line has the
geometric mean (the goal is 0.92). Both times are of one race (docs/cli.md); the winner is the least of many timings,
which flatters the search by its noise, never the defaults.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
TIMING_SECONDS = 10  # of the budget, which optimize spends on timing the answer


def problems_of(paths: list[str]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        found += (
            sorted(one for one in path.rglob("*.py") if "class Model" in one.read_text()) if path.is_dir() else [path]
        )
    return found


def search(problem: Path, options: argparse.Namespace, folder: str) -> dict:
    report = Path(folder, "report.json")
    report.unlink(missing_ok=True)
    command = [
        options.kw,
        "optimize",
        str(problem),
        "--target",
        options.target,
        "--budget",
        str(TIMING_SECONDS + options.seconds),
        "--baseline",
        "eager",
    ]
    command += ["--seed", "1", "--quiet", "--json", str(report), "-o", str(Path(folder, "candidate.py"))]
    environment = {**os.environ, "KW_ARCHIVE": str(Path(folder, f"{problem.stem}.db"))}
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    return (
        json.loads(report.read_text())
        if report.exists()
        else {"ended": f"exit {ended}" if ended >= 0 else f"signal {-ended}"}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", metavar="PROBLEM.py|FOLDER")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--kw", default=str(HOME / "kw"), help="the program")
    parser.add_argument("--out", help="one JSON line a problem", default="")
    options = parser.parse_args()
    shares: list[float] = []
    print(f"{'problem':<44} {'default':>10} {'tried':>6} {'reached':>8}  what the search changed last", flush=True)
    with tempfile.TemporaryDirectory(prefix="kw-search-gain-") as folder:
        for problem in problems_of(options.paths):
            report = search(problem, options, folder)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(
                        json.dumps(
                            {
                                "problem": str(problem),
                                "search": report.get("search"),
                                "time_ms": report.get("time_ms"),
                                "verdict": report.get("verdict"),
                            }
                        )
                        + "\n"
                    )
            if report.get("verdict") != "pass":
                print(
                    f"{problem.stem[:44]:<44} no verified candidate ({report.get('ended') or report.get('verdict')})",
                    flush=True,
                )
                continue
            found = report.get("search")
            if not found:
                print(f"{problem.stem[:44]:<44} no kernels of ours, so nothing to search", flush=True)
                continue
            share = 1 / found["speedup"]
            shares.append(share)
            ours = report["time_ms"]["ours"]
            default = f"{ours * found['speedup']:.4g} ms" if ours else "-"
            change = found["history"][-1]["change"] if found["history"] else "nothing"
            print(f"{problem.stem[:44]:<44} {default:>10} {found['tried']:>6} {share:>8.3f}  {change}", flush=True)
    if not shares:
        print("no problem was searched")
        return 1
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    print(
        f"defaults reach {mean:.3f} of a {options.seconds:g} s search, geometric mean of {len(shares)} problems ({options.target})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
