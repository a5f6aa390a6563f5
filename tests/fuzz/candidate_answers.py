"""Random answers of a candidate's process, as the judge reads them:

    PYTHONPATH=python:tests/python python tests/fuzz/candidate_answers.py [--executions 200000] [--seed 1]

Real answers are recorded, then changed at random, in their values or in their bytes, and read by the judge's own code.
Whatever comes, it is an answer or a fault of the candidate: no exception of ours, nothing that takes long, and no more
memory than the judge has set aside. The exit code is 1 where that does not hold; the answer is printed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import torch

from kernelwright import protocol
from kernelwright.errors import Error
from kernelwright.judge import metrics, nursing
from kernelwright.judge import remote as remotes
from kernelwright.judge import shared_arenas
from kernelwright.judge.nursing import Confinement, Ended
from kernelwright.judge.runs import Inputs
from kernelwright.running import problem as problems

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x * self.weight, [(x > 0).expand(2, 4, 6), 3, "text"]


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""

FREE_BYTES = 64 << 20  # what the judge believes to be free
MOST_SECONDS = 5  # of the processor
MOST_PLACES = 10_000  # that are looked at for one to change
MOST_GROWTH = 1 << 30
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 7, 1 << 20, 1 << 31, 1 << 40, 1 << 63, -(1 << 63), 10**400),
    *(0.5, -1.5, 1e308, float("nan"), float("inf"), "", "x", "0", "\ud800", "é" * 1000, "x" * 100_000),
    *([], {}, [[]], [None], [0] * 1000, {"": 0}, {"odd": "x"}, {"constant": ["int", "3"]}, ["a", "b"], [1, 2], [2, 1]),
    *(
        "float32",
        "bool",
        "complex32",
        "quint8",
        "bits8",
        "uint16",
        "float8_e5m2",
        "Tensor",
        "nan",
        "cpu",
        "cuda",
        "meta",
    ),
]


class Recorder(nursing.Host):
    """Keeps each operation's last answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.answers: dict[str, Any] = {}
        super().__init__(*arguments, **options)

    def ask(self, message: dict[str, Any], descriptor: int | None = None) -> Any:
        self.answers[message["op"]] = answer = super().ask(message, descriptor)
        return answer

    def go(self) -> Any:
        self.answers["go"] = answer = super().go()
        return answer


class Stub(nursing.Host):
    """A process that answers with what it is given."""

    def __init__(self, answers: dict[str, Any], change: Callable[[Any], bytes]) -> None:
        self.answers, self.change = answers, change
        self.deadline, self.limit_seconds = None, 1.0
        self.is_closed = True  # there is nothing to be ended
        self.sent = b""
        self._bytes = b""

    def process(self) -> int:
        return 0  # which is none

    def ask(self, message: dict[str, Any], descriptor: int | None = None) -> Any:
        return self._answered(message["op"])

    def go(self) -> Any:
        return self._answered("go")

    def _answered(self, what: str) -> Any:
        self._bytes = self.sent = self.change({"ok": self.answers[what]})
        return self._answer()

    def _read(self, count: int) -> bytes:
        if len(self._bytes) < count:
            raise Ended("exited", "ended the process with exit code 0")
        part, self._bytes = self._bytes[:count], self._bytes[count:]
        return part


class Changes:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, answer: Any) -> bytes:
        kind = self.random.random()
        if kind < 0.3:
            return protocol.encode(answer)
        if kind < 0.85:
            answer = copy.deepcopy(answer)
            for _ in range(self.random.choice([1, 1, 1, 2, 5])):
                self._change_value(answer)
            body = json.dumps(answer).encode()
        else:
            body = protocol.encode(answer)[4:]
            body = self._changed_bytes(body)
        length = len(body) if self.random.random() < 0.98 else self.random.choice([0, 1, len(body) + 1, 1 << 31])
        return (length & 0xFFFFFFFF).to_bytes(4, "little") + body

    def _change_value(self, answer: Any) -> None:
        places: list[tuple[Any, Any]] = []

        def visit(value: Any) -> None:
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                places.append((value, key))
                if isinstance(value[key], (dict, list)) and len(places) < MOST_PLACES:
                    visit(value[key])

        visit(answer)
        if not places:
            return
        holder, key = self.random.choice(places)
        other, other_key = self.random.choice(places)
        what = self.random.random()
        if what < 0.15:
            del holder[key]
        elif what < 0.3:
            holder[key] = copy.deepcopy(other[other_key])
        elif what < 0.4 and isinstance(holder[key], list):
            holder[key] = holder[key] * self.random.choice([2, 3, 50])
        elif what < 0.43:
            for _ in range(self.random.choice([3, 100])):
                holder[key] = [holder[key]]
        else:
            holder[key] = copy.deepcopy(self.random.choice(_ODD))

    def _changed_bytes(self, body: bytes) -> bytes:
        changed = bytearray(body)
        for _ in range(self.random.choice([1, 1, 2, 8])):
            at = self.random.randrange(len(changed) + 1)
            what = self.random.random()
            if what < 0.4 and at < len(changed):
                changed[at] = self.random.randrange(256)
            elif what < 0.45:
                changed[at:at] = b"[" * 20_000 + b"]" * 20_000
            elif what < 0.7:
                changed[at:at] = bytes(
                    self.random.choices(b'0123456789{}[]",:-eE\\u \xff', k=self.random.randrange(1, 9))
                )
            else:
                del changed[at : at + self.random.randrange(1, 40)]
        return bytes(changed)


class Fuzzer:
    def __init__(self, folder: Path, seed: int) -> None:
        (folder / "problem.py").write_text(PROBLEM)
        (folder / "candidate.py").write_text(PROBLEM.replace("class Model", "class ModelNew"))
        self.path, self.device = str(folder / "candidate.py"), torch.device("cpu")
        self.problem = problems.load(folder / "problem.py")
        self.model = self.problem.construct(self.device, seed=1)
        self.inputs = Inputs(self.problem, self.device)
        self.inputs.fill("generator", 3, False)
        self.changes = Changes(seed)
        self.random = random.Random(seed + 1)
        self.ends: Counter[str] = Counter()
        remotes.Host = Recorder  # type: ignore[misc]
        recorded = self._made()
        self.earlier = recorded.run(self.inputs, 1, "running forward")
        recorded.altered(self.earlier)
        recorded.live_threads()
        recorded.timer(self.inputs)
        recorded.sample(self.inputs)
        recorded.wall(self.inputs, 1)
        recorded.profile(self.inputs, [])
        recorded.rewind()
        self.stub = Stub(recorded.host.answers, protocol.encode)  # type: ignore[attr-defined]
        recorded.close()
        remotes.Host = lambda *_, **__: self.stub  # type: ignore[misc, assignment]
        remotes.free_memory = shared_arenas.free_memory = lambda _: FREE_BYTES
        self.steps: list[Callable[[remotes.Remote], Any]] = [
            lambda remote: self._run(remote),
            lambda remote: self._run(remote),
            lambda remote: self._run(remote, with_state=False),
            lambda remote: self._altered(remote),
            lambda remote: remote.live_threads(),
            lambda remote: remote.sample(self.inputs),
            lambda remote: remote.timer(self.inputs),
            lambda remote: remote.wall(self.inputs, 1),
            lambda remote: remote.profile(self.inputs, []),
            lambda remote: remote.adopt(self.model),
            lambda remote: remote.rewind(),
            lambda _: self._made().close(),
        ]

    def _made(self) -> remotes.Remote:
        return remotes.Remote(self.path, self.problem, None, self.model, self.device, 1, confinement=Confinement())

    def _run(self, remote: remotes.Remote, **options: Any) -> None:
        left = remote.run(self.inputs, 1, "running forward", **options)
        for tensor in left.tensors.values():
            metrics.fingerprint(tensor)

    def _altered(self, remote: remotes.Remote) -> None:
        remote._numbers[id(self.earlier)], remote._marks[id(self.earlier)] = 1, {}
        remote.altered(self.earlier)

    def run(self, executions: int) -> list[str]:
        found: list[str] = []
        before = _resident_bytes()
        remote = None
        for number in range(executions):
            if remote is None or number % 50 == 0:  # with arenas as large as they were at first
                if remote is not None:
                    remote.close()
                self.stub.change = protocol.encode
                remote = self._made()
                remote.timer(self.inputs)
            self.stub.change = self.changes
            step = self.random.choice(self.steps)
            signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
            try:
                step(remote)
                self.ends["an answer"] += 1
            except Error as error:
                if error.kind not in ("candidate", "missing"):
                    found.append(f"{error.kind} {error.code}: {error.message}: {self.stub.sent[:2000]!r}")
                self.ends[
                    error.code[:30] if error.code in ("broken-protocol", "exited", "output-type") else "told"
                ] += 1
            except BaseException as error:
                found.append(f"{type(error).__name__}: {error}: {self.stub.sent[:2000]!r}")
                if len(found) == 1:
                    import traceback

                    traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if len(found) >= 5:
                return found
            if (number + 1) % 20_000 == 0:
                print(f"{number + 1} executions, {dict(self.ends)}", flush=True)
        if (growth := _resident_bytes() - before) > MOST_GROWTH:
            found.append(f"memory grew by {growth >> 20} MiB")
        return found


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _late(*_: Any) -> None:
    raise TimeoutError(f"took longer than {MOST_SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="candidate_answers.py", description=__doc__)
    parser.add_argument("--executions", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _late)
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kw-fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder), options.seed)
        found = fuzzer.run(options.executions)
    for one in found:
        print(f"FAULT: {one}")
    print(
        f"{sum(fuzzer.ends.values())} executions, {len(found)} faults, {time.monotonic() - began:.0f} s:"
        f" {dict(fuzzer.ends)}",
        flush=True,
    )
    os._exit(1 if found else 0)


if __name__ == "__main__":
    sys.exit(main())
