#!/usr/bin/env python3
"""Make small problems out of ordinary code, take each right through the product on the CPU, and say what fails.

    bench/harvest.py OUT_DIR [--count N] [--seed N] [--jobs N] [--limit SECONDS] [--only REGEX] [--fresh]
    bench/harvest.py --show NAME            one problem: its record, and the candidates' sources

The problems come from PyTorch's own samples of its operators and modules, torch.optim, the ATen operators that the
planner knows, and what is installed of einops, torchvision, timm and transformers. For each: does torch.export take
it; capture; a candidate for each caution; every candidate against the contract, whatever the one before it did.
OUT_DIR/harvest.jsonl gets a line a problem, OUT_DIR/summary.txt the table. A second run goes on where the first
ended, Ctrl-C keeps what there is, and each problem has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import select
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "python"), str(Path(__file__).resolve().parent)]


@dataclass
class _Child:
    name: str
    process: int
    began: float
    heard: bytes = b""


class Sources:
    """Every source of problems, by the first part of its problems' names."""

    def __init__(self) -> None:
        from harvesting import operators, optimisers, packages, samples

        found, self.versions = packages.sources()
        made = [samples.Operators(), samples.Modules(), optimisers.Optimisers(), operators.Schemas(), *found]
        self.by_name = {source.source: source for source in made}

    def make(self, name: str) -> Any:
        return self.by_name[name.partition("/")[0]].make(name)

    def names(self, count: int, seed: int, only: str) -> list[str]:
        """`count` names in an order drawn by `seed`: all of the small sources, and as many of each large one."""
        pools = {title: list(source.names(seed, 2)) for title, source in self.by_name.items()}
        pools = {title: [name for name in names if re.search(only, name)] for title, names in pools.items()}
        chooser, chosen, left = random.Random(seed), [], count
        for place, title in enumerate(sorted(pools, key=lambda one: len(pools[one]))):
            chooser.shuffle(pools[title])
            taken = pools[title][: left // (len(pools) - place)]
            chosen += taken
            left -= len(taken)
        chooser.shuffle(chosen)
        return chosen


class Harvest:
    """Children forked from this process, which has imported and run everything once: `jobs` at a time."""

    def __init__(self, sources: Sources, lines: Path, jobs: int, limit: float, threads: int) -> None:
        self.sources, self.lines, self.jobs, self.limit, self.threads = sources, lines, jobs, limit, threads
        self.running: dict[int, _Child] = {}
        self.records: list[dict[str, Any]] = []
        self.said = 0

    def run(self, names: list[str]) -> None:
        waiting, began = list(reversed(names)), time.monotonic()
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.jobs:
                    self._start(waiting.pop())
                self._collect()
                done = len(names) - len(waiting) - len(self.running)
                self._show(done, len(names), time.monotonic() - began)
        finally:
            for reading, child in list(self.running.items()):
                _end(child)
                os.close(reading)
            print(file=sys.stderr)

    def _start(self, name: str) -> None:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            self._be_child(name, reading, writing)
        os.close(writing)
        self.running[reading] = _Child(name, process, time.monotonic())

    def _be_child(self, name: str, reading: int, writing: int) -> None:
        from harvesting.check import check

        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(reading)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        import torch

        torch.set_num_threads(self.threads)

        def say(message: dict[str, Any]) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        try:
            say({"record": check(lambda: self.sources.make(name), lambda stage: say({"stage": stage}))})
        finally:
            os._exit(0)

    def _collect(self) -> None:
        ready, _, _ = select.select(list(self.running), [], [], 0.5)
        for reading, child in list(self.running.items()):
            late = time.monotonic() - child.began > self.limit
            if reading in ready:
                part = os.read(reading, 1 << 20)
                child.heard += part
                if part:
                    continue
            elif not late:
                continue
            del self.running[reading]
            os.close(reading)
            self._keep(child, _end(child), late)

    def _keep(self, child: _Child, status: int, late: bool) -> None:
        said = [json.loads(line) for line in child.heard.decode().splitlines() if line.endswith("}")]
        record = next((one["record"] for one in said if "record" in one), None)
        if record is None:
            stage = next((one["stage"] for one in reversed(said) if "stage" in one), "start")
            outcome, how = "crashed", f"with status {os.waitstatus_to_exitcode(status)}"
            if late:
                outcome, how = "time limit", f"after {self.limit:.0f} s"
            if stage in ("making", "eager", "torch.export"):
                outcome = "no problem"
            record = {"outcome": outcome, "detail": f"{stage}: ended {how}", "candidates": [], "wrong": []}
            record["seconds"] = round(time.monotonic() - child.began, 2)
        record = {"name": child.name, **record}
        self.records.append(record)
        with self.lines.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def _show(self, done: int, total: int, seconds: float) -> None:
        from harvesting.check import OUTCOMES

        faults = sum(one["outcome"] in OUTCOMES[5:] or bool(one.get("wrong")) for one in self.records)
        text = f"{done} of {total} problems, {faults} with faults, {seconds:.0f} s "
        if sys.stderr.isatty():
            print("\r" + text, end="", file=sys.stderr, flush=True)
        elif done % 50 == 0 and done != self.said:
            print(text, file=sys.stderr, flush=True)
        self.said = done


def _end(child: _Child) -> int:
    """Stop what is left of a child and of the compilers that it started; its status."""
    try:
        os.killpg(child.process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    _, status = os.waitpid(child.process, 0)
    return status


def _warm_up() -> None:
    """Capture, compile and verify once, so that no child imports what this takes.

    On one thread: a pool would not survive the fork.
    """
    import torch
    from harvesting.check import check
    from harvesting.problem import of_call

    torch.set_num_threads(1)
    check(lambda: of_call("warm/up", torch.softmax, lambda seed: ((torch.randn(3, 5), 1), {})), lambda stage: None)
    warnings.simplefilter("ignore")
    gc.collect()
    gc.freeze()


def _show_one(sources: Sources, name: str) -> int:
    from harvesting.check import CAUTIONS, check

    from kernelwright import errors, library
    from kernelwright.capture import export

    record = check(lambda: sources.make(name), lambda stage: print(f"… {stage}", file=sys.stderr, flush=True))
    try:
        problem = sources.make(name)
        graph = export.export_module(problem.module, problem.arguments, problem.keywords, device="cpu")
        for caution in CAUTIONS[:: len(CAUTIONS) - 1]:
            print(f"# ---- {caution}\n{library.compile_graph(graph, 'cpu', caution)['source']}")
    except errors.Error as error:
        print(f"{error}\n{error.detail}")
    print(json.dumps(record, indent=1))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT_DIR", help="folder for harvest.jsonl and summary.txt")
    parser.add_argument("--count", type=int, default=1200, help="problems to try at most (default 1200)")
    parser.add_argument("--seed", type=int, default=0, help="which dtypes, samples and sizes are drawn")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="problems at a time (default: one a core)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of each problem (default 1)")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a problem (default 120)")
    parser.add_argument("--only", default="", metavar="REGEX", help="problems whose names match")
    parser.add_argument("--fresh", action="store_true", help="start anew instead of going on with OUT_DIR")
    parser.add_argument("--show", metavar="NAME", help="one problem in this process")
    options = parser.parse_args()
    sources = Sources()
    if options.show:
        return _show_one(sources, options.show)
    if options.out is None:
        parser.error("name the folder for the results: bench/harvest.py OUT_DIR")
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.out / "harvest.jsonl"
    if options.fresh:
        lines.unlink(missing_ok=True)
    names = sources.names(options.count, options.seed, options.only)
    kept = _kept(lines)
    _warm_up()
    harvest = Harvest(sources, lines, options.jobs, options.limit, options.threads)
    harvest.records = [kept[name] for name in names if name in kept]
    interrupted = False
    try:
        harvest.run([name for name in names if name not in kept])
    except KeyboardInterrupt:
        interrupted = True
    from harvesting.table import summary

    text = summary(harvest.records, sources.versions)
    (options.out / "summary.txt").write_text(text)
    print(text, end="")
    return 130 if interrupted else 0


def _kept(lines: Path) -> dict[str, dict[str, Any]]:
    """The records of an earlier run; a line that was cut off is made again."""
    records = {}
    if lines.exists():
        for line in lines.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            records[record["name"]] = record
    return records


if __name__ == "__main__":
    sys.exit(main())
