#!/usr/bin/env python3
"""Whether judging keeps up with a model that writes, and what kw itself costs a candidate.

    bench/proposer_overlap.py [--samples 100] [--writes SECONDS …] [--kw ./kw]

A scripted server writes right answers, each another text, at the given pace (default: 4 s an answer, slower than the
judge, and 0.4 s, faster than it); every one is extracted, checked, compiled and verified in a process of its own.
Prints the share of the time that the slower of the two sides was busy (goal 0.9) and what an answer cost beside model
and judge (goal 50 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "tests"))

from command_line import GOOD  # noqa: E402
from model_server import RIGHT, ModelServer, fenced  # noqa: E402


def measure(kw: str, samples: int, seconds: float, folder: Path) -> dict:
    problem = folder / "problem.py"
    problem.write_text(GOOD)
    answers = [
        fenced(RIGHT.replace("#include <cmath>", f"// attempt {number}\n#include <cmath>")) for number in range(samples)
    ]
    pieces = len(answers[0]) // 40 + 1
    environment = {**os.environ, "KW_ARCHIVE": str(folder / "archive.db")}
    with ModelServer(list(answers), pause=seconds / pieces) as server:
        command = [
            kw,
            "generate",
            str(problem),
            "--model",
            server.url,
            "-k",
            str(samples),
            "--concurrency",
            "1",
            "--target",
            "cpu",
            "--budget",
            "0",
            "--quiet",
            "--json",
            "-",
        ]
        done = subprocess.run(
            [*command, "-o", str(folder / "candidate.py")],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"kw generate ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--writes", type=float, nargs="+", default=[4.0, 0.4], metavar="SECONDS")
    parser.add_argument("--kw", default=str(HOME / "kw"))
    options = parser.parse_args()
    print(
        "an answer takes   samples   passed   wall   writing   judging   slower side busy   overhead, median (largest)"
    )
    for seconds in options.writes:
        with tempfile.TemporaryDirectory() as folder:
            report = measure(options.kw, options.samples, seconds, Path(folder))
        overlap, overhead = report["overlap"], report["overhead_ms"]
        print(
            f"{seconds:13.1f} s {report['judged']:9} {report['passed']:8} {overlap['wall_seconds']:5.0f} s {overlap['writing_seconds']:7.0f} s {overlap['judging_seconds']:7.0f} s"
            f" {100 * overlap['slower_side']:16.1f} % {overhead['median']:12.0f} ms ({overhead['largest']:.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
