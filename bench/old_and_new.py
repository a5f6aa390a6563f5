"""Modules that two versions of kw wrote for the same problems, timed in turns in one process each, and a line for each.

    kw-old bench PROBLEMS --emit-only --target triton --out old
    kw     bench PROBLEMS --emit-only --target triton --out new
    python bench/old_and_new.py old new PROBLEMS... --out times.jsonl

Old over new above 1: the new module is faster. Ratios are medians of turns, each of as many calls as take 3 ms; inputs
and weights are the same for both. With --device cpu modules are compiled first, on all cores, and then timed one after
the other with --threads threads.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

TURNS, TURN_SECONDS, MOST_SECONDS = 12, 3e-3, 2.5


def load(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def made(function: Any, size: str | None, device: str) -> Any:
    """What get_inputs or get_init_inputs answers, the same in every call."""
    import torch

    torch.manual_seed(7)
    with torch.device(device):
        takes_size = size is not None and "size" in function.__code__.co_varnames[: function.__code__.co_argcount]
        found = function(size) if takes_size else function()
    return torch.utils._pytree.tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, found)


def modules(pair: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(pair["threads"] or torch.get_num_threads())
    problem = load(pair["problem"], "problem")
    init = made(problem.get_init_inputs, pair["size"], "cpu")
    inputs = made(problem.get_inputs, pair["size"], pair["device"])
    found = {}
    for which in ("old", "new"):
        module = load(pair[which], f"{which}_candidate")
        torch.manual_seed(11)
        named = len(init) == 2 and isinstance(init[1], dict) and isinstance(init[0], (list, tuple))
        model = module.ModelNew(*init[0], **init[1]) if named else module.ModelNew(*init)
        found[which] = model.to(pair["device"])
    return found, inputs


def seconds(call: Any, count: int, device: str) -> float:
    import torch

    if device == "cpu":
        began = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - began) / count
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count / 1e3


def prepare(pair: dict[str, Any]) -> None:
    """Compiles both modules of a CPU; whatever fails will fail again, and is told then."""
    try:
        found, inputs = modules(pair)
        for model in found.values():
            model(*inputs)
    except Exception:
        pass


def compare(pair: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"name": pair["name"]}
    try:
        found, inputs = modules(pair)
        calls = {which: lambda model=model: model(*inputs) for which, model in found.items()}
        for call in calls.values():
            for _ in range(4):
                call()
        with open(Path(tempfile.gettempdir()) / "old_and_new.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            slowest = max(seconds(call, 3, pair["device"]) for call in calls.values())
            count = max(1, min(100, round(TURN_SECONDS / max(slowest, 1e-6))))
            times: dict[str, list[float]] = {"old": [], "new": []}
            began = time.monotonic()
            while len(times["old"]) < TURNS or time.monotonic() - began < MOST_SECONDS / 5:
                for which in ("old", "new") if len(times["old"]) % 2 else ("new", "old"):
                    calls[which]()
                    times[which].append(seconds(calls[which], count, pair["device"]))
                if time.monotonic() - began > MOST_SECONDS and len(times["old"]) >= 3:
                    break
        ratios = sorted(old / new for old, new in zip(times["old"], times["new"]))
        result |= {f"{which}_ms": statistics.median(all_of) * 1e3 for which, all_of in times.items()}
        result |= {
            "ratio": statistics.median(ratios),
            "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
        }
    except Exception as error:
        result["error"] = "".join(traceback.format_exception_only(error)).strip()[-300:]
    return result


def candidates(folder: Path) -> dict[str, str]:
    return {path.stem.removesuffix("_kw"): str(path.resolve()) for path in (folder / "candidates").rglob("*_kw.py")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="what `kw bench --out` of the old version named")
    parser.add_argument("new", type=Path)
    parser.add_argument("problems", type=Path, nargs="+", help="problem files, and folders of them")
    parser.add_argument("--out", type=Path, help="a line of JSON for each problem is appended here")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU (default: PyTorch's)")
    parser.add_argument("--workers", type=int, default=4, help="processes that compile at once (default: 4)")
    options = parser.parse_args()

    files = [
        path for given in options.problems for path in ([given] if given.is_file() else sorted(given.rglob("*.py")))
    ]
    old, new = candidates(options.old), candidates(options.new)
    pairs = [
        {
            "name": path.stem,
            "problem": str(path.resolve()),
            "old": old[path.stem],
            "new": new[path.stem],
            "size": "cpu" if options.device == "cpu" else "full",
            "device": options.device,
            "threads": options.threads,
        }
        for path in files
        if path.stem in old and path.stem in new
    ]
    if not pairs:
        print("no problem has a module in both folders", file=sys.stderr)
        return 2
    ratios = []
    context = multiprocessing.get_context("spawn")
    if options.device == "cpu":
        with context.Pool(options.workers, maxtasksperchild=1) as pool:
            for done, _ in enumerate(pool.imap_unordered(prepare, pairs), 1):
                print(f"\rcompiled {done} of {len(pairs)}", end="", file=sys.stderr, flush=True)
    with context.Pool(1 if options.device == "cpu" else options.workers, maxtasksperchild=1) as pool:
        for result in pool.imap_unordered(compare, pairs):
            if options.out:
                with open(options.out, "a", encoding="utf-8") as out:
                    out.write(json.dumps(result) + "\n")
            if "error" in result:
                print(f"{result['name']:60} {result['error']}", flush=True)
                continue
            ratios.append((result["ratio"], result["name"]))
            print(
                f"{result['name']:60} {result['old_ms']:9.4f} {result['new_ms']:9.4f} ms {result['ratio']:7.3f}",
                flush=True,
            )
    if not ratios:
        return 1
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
    print(
        f"{len(ratios)} of {len(pairs)}: geometric mean of old over new {mean:.3f}, lowest {min(ratios)[0]:.3f} ({min(ratios)[1]})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
