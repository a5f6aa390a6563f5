"""A results.jsonl of `kw bench` as Markdown: one row a problem, and lines that sum it up."""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any

HELP = """\
python3 bench/suite_table.py OUT/results.jsonl [--own]

Columns: medians in ms; the better of eager's and torch.compile's over ours; the share of the roofline; the most memory
that a call of ours allocates over eager's; the seconds that capture, compilation and the kernels' build took (PyTorch's
import among them, in the first problem of each process).

Below, where problems are of more than one kind, a row for each. A problem's kind is told by its operators, as its
kernels and its library calls are named: recurrent layers before attention (a softmax beside products of batches)
before convolutions before products.
"""

# Allocations are rounded up to 512 bytes each, and small scratch is nobody's concern.
UNNOTICED_BYTES = 1 << 20
COMPILES_UP_TO_SECONDS = 60

# Operators' names begin and end at a space or an underscore.
BEGIN, END = r"(?<![^ _])", r"(?![^ _])"
KINDS: dict[str, list[str]] = {
    "recurrent": [rf"{BEGIN}(lstm|gru|rnn){END}"],
    "attention": [rf"{BEGIN}(attention|softmax){END}", rf"attention|{BEGIN}(matmul|bmm){END}"],
    "convolution": [rf"{BEGIN}conv(olution|\d|_transpose)"],
    "product": [rf"{BEGIN}(linear|matmul|addmm|baddbmm|bmm|mm|mv){END}"],
}

HEADER = """\
| problem | ours, ms | eager, ms | torch.compile, ms | best of both / ours | of the roofline | memory over eager's | \
compiled, s |
|---|---|---|---|---|---|---|---|"""

Result = dict[str, Any]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def times_of(result: Result) -> dict[str, float]:
    """Medians in ms; of a problem that was not timed none."""
    return {name: time for name, time in (result.get("time_ms") or {}).items() if time}


def speedup(result: Result) -> float | None:
    """Over the better of eager and torch.compile; None where neither was timed."""
    times = times_of(result)
    others = [time for name, time in times.items() if name != "ours"]
    return min(others) / times["ours"] if others and "ours" in times else None


def memory_ratio(result: Result) -> float | None:
    peak = result.get("peak_memory_bytes") or {}
    return peak["ours"] / peak["eager"] if peak.get("ours") and peak.get("eager") else None


def needs_more_memory(result: Result) -> bool:
    peak = result.get("peak_memory_bytes") or {}
    return memory_ratio(result) is not None and peak["ours"] > peak["eager"] + UNNOTICED_BYTES


def compile_seconds(result: Result) -> float:
    seconds = result.get("seconds") or {}
    return sum(seconds.get(stage) or 0.0 for stage in ("capture", "compile", "build"))


def kind(result: Result) -> str:
    names = [*(result.get("kernels") or []), *(result.get("library_ops") or [])]
    words = " ".join(name.removeprefix("aten.").replace("_kernel", "") for name in names)
    return next((one for one, patterns in KINDS.items() if all(re.search(word, words) for word in patterns)), "other")


def row(result: Result) -> str:
    if result["verdict"] != "pass":
        reason = result.get("reason") or ""
        return f"| {result['name']} | {result['verdict']} | | | | {reason.split(':')[0][:90]} | | |"
    times = times_of(result)
    share = (result.get("roofline") or {}).get("fraction")
    gain, memory = speedup(result), memory_ratio(result)
    cells = [
        result["name"],
        *(f"{times[name]:.4g}" if times.get(name) else "" for name in ("ours", "eager", "compile")),
        "" if gain is None else f"{gain:.3f}",
        "" if share is None else f"{share:.0%}",
        "" if memory is None else f"{memory:.2f}",
        f"{compile_seconds(result):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def sums(results: list[Result]) -> list[str]:
    """How many of these, all verified, are faster, and by how much."""
    lines = []
    for name in ("eager", "compile"):
        timed = [times for one in results if name in (times := times_of(one))]
        ratios = [times[name] / times["ours"] for times in timed]
        if ratios:
            lines.append(f"Geometric mean over {name}: {geometric_mean(ratios):.2f} ({len(ratios)} problems).")
    gains = {one["name"]: gain for one in results if (gain := speedup(one)) is not None}
    if missing := [one["name"] for one in results if not times_of(one)]:
        lines.append(f"Verified and not timed: {', '.join(missing)}.")
    if gains:
        won, mean = sum(gain > 1 for gain in gains.values()), geometric_mean(list(gains.values()))
        share = f"{won} of {len(gains)} ({won / len(gains):.0%})"
        lines.append(f"Faster than the better of both: {share}; geometric mean over it {mean:.2f}.")
        lowest = min(gains, key=lambda name: gains[name])
        lines.append(f"The lowest: {lowest} {gains[lowest]:.2f}.")
    return lines


def costs(results: list[Result]) -> list[str]:
    """Memory and compile time of these, all verified."""
    measured = [one for one in results if memory_ratio(one) is not None]
    lines = []
    if measured:
        more = sorted(filter(needs_more_memory, measured), key=lambda one: -(memory_ratio(one) or 0.0))
        worst = ", ".join(f"{one['name']} {memory_ratio(one):.2f}" for one in more[:3])
        ends = f": the most {worst}." if more else "."
        lines.append(f"More memory than eager (by over 1 MiB): {len(more)} of {len(measured)}{ends}")
    longest = max(results, key=compile_seconds)
    above = sum(compile_seconds(one) > COMPILES_UP_TO_SECONDS for one in results)
    lines.append(
        f"The longest compile time: {longest['name']} {compile_seconds(longest):.1f} s; "
        f"above {COMPILES_UP_TO_SECONDS} s: {above}."
    )
    return lines


def by_kind(results: list[Result]) -> list[str]:
    """A table with a row for each kind, where there are several."""
    kinds: dict[str, list[Result]] = {}
    for one in results:
        if speedup(one) is not None:
            kinds.setdefault(kind(one), []).append(one)
    if len(kinds) < 2:
        return []
    lines = ["", "| kind | problems | over the better of both | won | the lowest |", "|---|---|---|---|---|"]
    for name in (*KINDS, "other"):
        if members := kinds.get(name):
            gains = [speedup(one) or math.nan for one in members]
            low = min(range(len(gains)), key=gains.__getitem__)
            won = sum(gain > 1 for gain in gains)
            lines.append(
                f"| {name} | {len(members)} | {geometric_mean(gains):.2f} | {won} | "
                f"{members[low]['name']} {gains[low]:.2f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the results.jsonl of a run of kw bench")
    parser.add_argument("--own", action="store_true", help="only problems without a library call")
    options = parser.parse_args()
    results = [json.loads(line) for line in options.results.read_text().splitlines() if line.strip()]
    if options.own:
        results = [result for result in results if not result.get("library_ops")]
    passed = [result for result in results if result["verdict"] == "pass"]
    print("\n".join([HEADER, *map(row, results), "", f"{len(passed)} of {len(results)} verified."]))
    if passed:
        print("\n".join([*sums(passed), *costs(passed), *by_kind(passed)]))


if __name__ == "__main__":
    main()
