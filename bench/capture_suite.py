#!/usr/bin/env python3
"""Capture every problem of a folder: how many become a graph, how long it takes, which ops they use.

    bench/capture_suite.py --suite DIR [--device cuda] [--out DIR] [--jobs N]

Needs no GPU. Each problem is captured in a process of its own, forked from one that has captured before; with --out its
graph is written to OUT/<path below the suite>.json.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))


def capture_one(path: Path, device: str, out: Path | None) -> dict:
    """Runs in the child: {"seconds", "nodes", "ops"} or {"error"}."""
    from kernelwright import errors
    from kernelwright.capture import export

    try:
        result = export.run({"problem": str(path), "device": device}, lambda stage, fraction: None)
    except errors.Error as error:
        return {"error": f"{error.code}: {error}"}
    graph = result["graph"]
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(graph, separators=(",", ":")))
    return {
        "seconds": result["seconds"],
        "nodes": len(graph["nodes"]),
        "ops": sorted({node["op"] for node in graph["nodes"]}),
    }


def start(path: Path, device: str, out: Path | None) -> tuple[int, int]:
    """Fork a child that writes its result, as JSON, to a pipe: (process id, descriptor to read)."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    status = 1
    try:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(capture_one(path, device, out), pipe)
        status = 0
    finally:
        os._exit(status)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True, help="folder of problem files, searched recursively")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="folder for the graphs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds a problem may take")
    options = parser.parse_args()

    import torch

    from kernelwright.capture import export

    # One capture before the forks, so that what PyTorch imports on first use is imported once.
    export.export_module(torch.nn.ReLU(), (torch.zeros(1),))

    waiting = collections.deque(sorted(options.suite.rglob("*.py")))
    total, began = len(waiting), time.monotonic()
    running: dict[int, tuple[Path, int, float]] = {}
    results: dict[Path, dict] = {}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            path = waiting.popleft()
            out = options.out / path.relative_to(options.suite).with_suffix(".json") if options.out else None
            child, read = start(path, options.device, out)
            running[child] = (path, read, time.monotonic())
        for child, (path, read, started) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if not done:
                if time.monotonic() - started > options.timeout:
                    os.kill(child, signal.SIGKILL)
                continue
            with os.fdopen(read) as pipe:
                text = pipe.read()
            del running[child]
            result = results[path] = json.loads(text) if text else {"error": f"crashed or timed out (status {status})"}
            result["wall"] = time.monotonic() - started
            if "error" in result:
                print(f"FAILED {path.relative_to(options.suite)} {result['error']}", flush=True)
        time.sleep(0.02)

    good = [result for result in results.values() if "error" not in result]
    ops = collections.Counter(op for result in good for op in result["ops"])
    walls = sorted(result["wall"] for result in results.values())
    print(
        f"{len(good)} of {total} captured for {options.device} in {time.monotonic() - began:.1f} s with {options.jobs} jobs"
    )
    if walls:
        print(
            f"seconds a problem: median {walls[len(walls) // 2]:.2f}, largest {walls[-1]:.2f}; nodes: {sum(result['nodes'] for result in good)}"
        )
        for path in sorted(results, key=lambda path: -results[path]["wall"])[:3]:
            print(
                f"  {path.relative_to(options.suite)} {results[path]['wall']:.2f} s {results[path].get('nodes')} nodes {results[path].get('seconds')}"
            )
    print(f"{len(ops)} ops: " + ", ".join(f"{op.removeprefix('aten.')} {count}" for op, count in ops.most_common()))
    return 0 if len(good) == total else 1


if __name__ == "__main__":
    sys.exit(main())
