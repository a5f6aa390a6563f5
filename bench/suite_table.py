"""A results.jsonl of `kw bench` as Markdown: one row a problem with its ratio to the better of eager and torch.compile.

python3 bench/suite_table.py OUT/results.jsonl [--own]      --own: only those without a library call
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def row(result: dict[str, Any]) -> str:
    if result["verdict"] != "pass":
        return f"| {result['name']} | {result['verdict']} | | | | {result['reason'].split(':')[0][:90]} |"
    times = {name: time for name, time in result["time_ms"].items() if time}
    best = min(time for name, time in times.items() if name != "ours")
    share = (result.get("roofline") or {}).get("fraction")
    shown = [f"{times[name]:.4g}" if name in times else "" for name in ("ours", "eager", "compile")]
    return f"| {result['name']} | {' | '.join(shown)} | {best / times['ours']:.3f} | {'' if share is None else f'{share:.0%}'} |"


def main() -> None:
    results = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    if "--own" in sys.argv[2:]:
        results = [result for result in results if not result.get("library_ops")]
    print(
        "| problem | ours, ms | eager, ms | torch.compile, ms | best of both / ours | of the roofline |\n|---|---|---|---|---|---|"
    )
    for result in results:
        print(row(result))
    passed = [result for result in results if result["verdict"] == "pass"]
    print(f"\n{len(passed)} of {len(results)} verified.")
    for name in ("eager", "compile"):
        ratios = [
            result["time_ms"][name] / result["time_ms"]["ours"] for result in passed if result["time_ms"].get(name)
        ]
        print(f"Geometric mean over {name}: {geometric_mean(ratios):.2f} ({len(ratios)} problems).")


if __name__ == "__main__":
    main()
