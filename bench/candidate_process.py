"""What a process for a candidate costs: from asking the nursery until its first answer, and its end.

    PYTHONPATH=python python bench/candidate_process.py [--runs 20]

prints median milliseconds, unconfined and in namespaces. The nursery's own start (PyTorch's import) is told apart.
"""

from __future__ import annotations

import argparse
import statistics
import time

from kernelwright.judge import nursing
from kernelwright.judge.nursing import Confinement

CONFINED = Confinement(namespaces=True, processes=512, file_bytes=1 << 30)


def cost(confinement: Confinement, runs: int) -> tuple[float, float]:
    starts, ends = [], []
    for _ in range(runs):
        began = time.perf_counter()
        host = nursing.Host(confinement)
        host.ask({"op": "missing"})
        answered = time.perf_counter()
        host.close()
        starts.append((answered - began) * 1e3)
        ends.append((time.perf_counter() - answered) * 1e3)
    return statistics.median(starts), statistics.median(ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    began = time.perf_counter()
    cost(Confinement(), 1)
    print(f"nursery      {time.perf_counter() - began:.2f} s")
    for name, confinement in (("unconfined", Confinement()), ("namespaces", CONFINED)):
        start, end = cost(confinement, runs)
        print(f"{name}   {start:.1f} ms to its first answer, {end:.1f} ms to end it")


if __name__ == "__main__":
    main()
