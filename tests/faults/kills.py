"""Kills one process of a run of `kw` at a random moment, again and again, and looks at what is left:

    PYTHONPATH=python:tests python tests/faults/kills.py [--runs 200] [--seed 1] [--only verify,cheat,optimize,...] [--kill nursery]

Each run is one command on a small problem on the CPU. Where `kw` itself was killed, the same command is given once
more. Then the answer must be the one that an undisturbed run gives: never a pass for what is wrong, never a failure
for what is right. No process, folder, mount, control group or lock may be left, and everything that the archive held
before must be in it still. The exit code is 1 where one run did not keep to that; what it printed is in --keep FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import processes
from command_line import GOOD
from model_server import RIGHT, WRONG, ModelServer, fenced

HOME = Path(__file__).resolve().parents[2]
RIGHT_CANDIDATE = GOOD.split("def get_inputs")[0].replace("class Model", "class ModelNew")
WRONG_CANDIDATE = RIGHT_CANDIDATE.replace("dim=-1)", "dim=-1) * 1.01")

SAMPLE_SECONDS = 0.03
END_SECONDS = 6.0  # a compiler that was started ends by itself, nothing else takes longer than a moment
LONGEST_SECONDS = 600.0  # of an undisturbed run
TRIES = 3  # until a process of the wanted kind was there at the wanted moment; then another kind is drawn
DRAWS = 4


@dataclass
class Scenario:
    """One command, what an undisturbed run of it answers, and when each kind of its processes runs."""

    name: str
    arguments: list[str]
    judge: Callable[[Any], str]  # of the JSON report: "" where it is as it should be
    exit_code: int = 0
    weight: int = 1
    seconds: float = 0.0
    lives: dict[str, tuple[float, float]] = field(default_factory=dict)  # of each kind: first seen, and last


@dataclass
class Run:
    code: int | None  # None: it hung
    out: str
    err: str
    killed: str = ""  # the kind of the process that was killed; "" where none was
    at: float = 0.0


def passes(report: Any) -> str:
    return (
        "" if report["verdict"] == "pass" else f"verdict {report['verdict']} ({report.get('code')}): {report['reason']}"
    )


def fails_as_inaccurate(report: Any) -> str:
    good = (report["verdict"], report["code"]) == ("fail", "inaccurate")
    return "" if good else f"verdict {report['verdict']} ({report.get('code')}): {report['reason']}"


def passes_and_is_timed(report: Any) -> str:
    timed = (report.get("time_ms") or {}).get("ours")
    return passes(report) or ("" if timed else f"not timed: {report.get('notes')}")


def one_of_two_passes(report: Any) -> str:
    codes = [sample["turns"][-1]["code"] for sample in report["samples"]]
    return "" if sorted(codes) == ["inaccurate", "pass"] else f"codes {codes}: {report.get('reason')}"


def both_pass(report: Any) -> str:
    return "" if report["of"] == report["all"]["correct"] == 2 else f"not both passed: {report['failures']}"


def is_timed(report: Any) -> str:
    return "" if report["time_ms"]["ours"] and report["time_ms"]["eager"] else "not timed"


class Kills:
    def __init__(self, folder: Path, seed: int, keep: Path | None, kill: str = "") -> None:
        self.folder, self.random, self.keep, self.kill = folder, random.Random(seed), keep, kill
        self.temporary, self.locks = folder / "tmp", folder / "locks"
        self.archive = folder / "archive.db"
        for one in (self.temporary, self.locks, folder / "suite"):
            one.mkdir()
        self.server = ModelServer([])
        self.server.next_answer = self._answer  # type: ignore[method-assign]
        self.environment = os.environ | {
            "KW_ARCHIVE": str(self.archive),
            "KW_LOCK_DIR": str(self.locks),
            "KW_PYTHON": os.environ.get("KW_PYTHON", sys.executable),
            "KW_PYTHONPATH": os.environ.get("KW_PYTHONPATH", str(HOME / "python")),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        self.binary = os.environ.get("KW_BINARY", str(HOME / "build" / "kw"))
        self.number = 0
        self.known: dict[str, set[Any]] = {}
        self.hits: Counter[str] = Counter()
        self.faults: list[str] = []
        self.commands: set[str] = set()  # numbers of processes that made control groups
        self.mounts = Path("/proc/self/mounts").read_text()
        self.shared = set(os.listdir("/dev/shm"))
        self.groups = self._groups()

    def _answer(self, body: dict, headers: Any) -> str:
        """One of the two samples is right; which one, their seeds tell."""
        number = self.server.numbers.setdefault(body["seed"], len(self.server.numbers))  # type: ignore[attr-defined]
        return fenced(RIGHT if number % 2 == 0 else WRONG)

    def scenarios(self) -> list[Scenario]:
        def file(name: str, text: str) -> str:
            (self.folder / name).write_text(text)
            return str(self.folder / name)

        problem = file("problem.py", GOOD)
        right, wrong = file("right.py", RIGHT_CANDIDATE), file("wrong.py", WRONG_CANDIDATE)
        for width in (32, 48):
            file(f"suite/width{width}.py", GOOD.replace("64", str(width)))
        quickly = ["--target", "cpu", "--draws", "2", "--json", "-"]
        timed = ["--baseline", "eager", "--budget", "0.3"]
        bench = ["bench", str(self.folder / "suite"), *timed, "--jobs", "1", *quickly]
        asked = ["generate", problem, "--model", self.server.url, "-k", "2", "--concurrency", "1", *quickly]
        return [
            Scenario("verify", ["verify", problem, right, *quickly], passes, weight=2),
            Scenario("cheat", ["verify", problem, wrong, *quickly], fails_as_inaccurate, 1, weight=2),
            Scenario(
                "optimize",
                ["optimize", problem, *timed, "--min-speedup", "0", "--force", "--fresh", *quickly],
                passes_and_is_timed,
                weight=2,
            ),
            Scenario(
                "compile",
                ["measure", problem, right, "--budget", "0.3", "--target", "cpu", "--json", "-"],
                is_timed,
            ),
            Scenario("generate", [*asked, *timed, "--min-speedup", "0", "--force"], one_of_two_passes),
            Scenario("bench", bench, both_pass),
        ]

    # One run

    def run(
        self, scenario: Scenario, arguments: list[str], kind: str = "", at: float = 0.0, watch: bool = False
    ) -> Run:
        """The command; a process of the kind that `kind` names is killed `at` seconds after the first was seen."""
        limit = LONGEST_SECONDS if watch else 120 + 6 * scenario.seconds
        out, err = self.folder / "out", self.folder / "err"
        with open(out, "wb") as standard, open(err, "wb") as log:
            command = subprocess.Popen(
                [self.binary, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=standard,
                stderr=log,
            )
        self.commands.add(str(command.pid))
        began = time.monotonic()
        seen: float | None = None
        killed = ""
        try:
            while command.poll() is None:
                now = time.monotonic() - began
                if now > limit:
                    return Run(None, out.read_text(), err.read_text(), killed, at)
                looks = watch or (kind and not killed and (seen is None or now - seen >= at))
                there = processes.kinds(command.pid) if looks else {}
                self.commands |= {str(process) for process, what in there.items() if what == "bench worker"}
                if watch:
                    for one in set(there.values()):
                        first, _ = scenario.lives.get(one, (now, now))
                        scenario.lives[one] = first, now
                chosen = [process for process, what in there.items() if what == kind]
                if kind and not killed and chosen:
                    seen = now if seen is None else seen
                    if now - seen >= at:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(self.random.choice(chosen), signal.SIGKILL)
                            killed = kind
                processes.reap(command.pid)
                time.sleep(SAMPLE_SECONDS if kind and not killed else 0.1)
        finally:
            if command.poll() is None:
                command.kill()
                command.wait()
        if watch:
            scenario.seconds = time.monotonic() - began
        return Run(command.returncode, out.read_text(), err.read_text(), killed, at)

    def wrong(self, scenario: Scenario, run: Run) -> str:
        """What is not as an undisturbed run has it."""
        if run.code is None:
            return "it hung"
        if run.code != scenario.exit_code:
            return f"exit code {run.code} instead of {scenario.exit_code}: {run.out[-600:]} {run.err[-600:]}"
        try:
            return scenario.judge(json.loads(run.out))
        except (ValueError, KeyError, TypeError) as error:
            return f"no report ({type(error).__name__}: {error}): {run.out[-600:]}"

    def anew(self, scenario: Scenario) -> list[str]:
        """The arguments of a run that finds nothing of an earlier one to go on from, but what it has left itself."""
        self.number += 1
        self.server.numbers = {}  # type: ignore[attr-defined]  # kept where the same command is given once more
        if scenario.name == "bench":
            return [*scenario.arguments, "--out", str(self.folder / f"bench{self.number}")]
        return [*scenario.arguments, *(["--seed", str(self.number)] if scenario.name == "generate" else [])]

    def undisturbed(self, scenario: Scenario) -> None:
        run = self.run(scenario, self.anew(scenario), watch=True)
        self.note(scenario, run, [what for what in [self.wrong(scenario, run)] if what] + self.remains())
        lives = ", ".join(f"{kind} {first:.1f} to {last:.1f}" for kind, (first, last) in scenario.lives.items())
        print(f"{scenario.name}: {scenario.seconds:.1f} s undisturbed ({lives})", flush=True)

    def disturbed(self, scenario: Scenario) -> Run:
        if self.random.random() < 0.2:
            shutil.rmtree(self.folder / "cache", ignore_errors=True)  # so that compilers run
        for attempt in range(DRAWS * TRIES):
            if attempt % TRIES == 0:
                # A compiler's end is the file's that asked for it.
                kind = self.kill or self.random.choice(sorted(set(scenario.lives) - {"compiler"}))
                first, last = scenario.lives[kind]
                share = self.random.random()
            arguments = self.anew(scenario)
            run = self.run(scenario, arguments, kind, share / (1 + attempt % TRIES) * (last - first))
            if run.killed or run.code is None:
                break
        found = self.remains(is_over=run.killed != "kw")
        if run.code == -signal.SIGKILL:
            # It goes on where it was. Nobody but the next command can clear away what it left.
            run_again = self.run(scenario, arguments)
            found += [what for what in [self.wrong(scenario, run_again)] if what] + self.remains()
        elif what := self.wrong(scenario, run):
            found.append(what)
        self.note(scenario, run, found)
        return run

    def note(self, scenario: Scenario, run: Run, found: list[str]) -> None:
        if run.killed:
            self.hits[run.killed] += 1
        if not found:
            return
        where = f"{scenario.name}, {run.killed or 'nothing'} killed after {run.at:.2f} s"
        self.faults.append(where)
        print("\n".join([f"FAULT: {where}", *(f"    {what}" for what in found)]), flush=True)
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            text = "\n".join([where, *found, "--- out", run.out, "--- err", run.err])
            (self.keep / f"{len(self.faults)}.txt").write_text(text)

    # What is left

    def _temporary(self) -> list[str]:
        """PyTorch keeps what torch.compile has made for later runs."""
        return [name for name in os.listdir(self.temporary) if not name.startswith("torchinductor_")]

    def remains(self, is_over: bool = True) -> list[str]:
        """`is_over`: the command has ended by itself, or a later one has, so that nothing may be left at all."""
        found = [f"left running: {one}" for one in processes.left_over(0, END_SECONDS)]
        if is_over:
            found += [f"left in the temporary folder: {name}" for name in self._temporary()]
            found += [f"left control group: {group}" for group in self._groups() - self.groups]
            for name in self._temporary():
                shutil.rmtree(self.temporary / name, ignore_errors=True)
        if Path("/proc/self/mounts").read_text() != self.mounts:
            found.append("mounts have changed")
        found += [f"left in /dev/shm: {name}" for name in set(os.listdir("/dev/shm")) - self.shared]
        found += [f"lock still held: {name}" for name in os.listdir(self.locks) if self._is_locked(self.locks / name)]
        return found + self._lost()

    def _groups(self) -> set[str]:
        """Those of this script's runs."""
        found = {str(path) for path in Path("/sys/fs/cgroup").glob("**/kernelwright-*")}
        return {path for path in found if path.rsplit("-", 2)[1] in self.commands}

    def _is_locked(self, path: Path) -> bool:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lost(self) -> list[str]:
        """What the archive does not tell any more, or not soundly."""
        if not self.archive.exists():
            return []
        found = []
        with contextlib.closing(sqlite3.connect(self.archive)) as archive:
            if (sound := archive.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                found.append(f"the archive is damaged: {sound}")
            for table, key in (
                ("candidates", "hash"),
                ("verdicts", "hash"),
                ("measurements", "hash"),
                ("results", "id"),
                ("completions", "hash"),
            ):
                held = {row[0] for row in archive.execute(f"SELECT {key} FROM {table}")}
                if lost := self.known.get(table, set()) - held:
                    found.append(f"{len(lost)} of the archive's {table} are lost")
                self.known[table] = held
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills.py", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--kill", default="", help="one kind of process; otherwise each run's is drawn")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    processes.adopt_orphans()
    processes.have_own_shared_memory()
    with tempfile.TemporaryDirectory(prefix="kw-kills-") as folder:
        kills = Kills(Path(folder), options.seed, options.keep, options.kill)
        with kills.server:
            wanted = [one for one in kills.scenarios() if not options.only or one.name in options.only.split(",")]
            for scenario in wanted:
                kills.undisturbed(scenario)
            began = time.monotonic()
            order = [one for one in wanted for _ in range(one.weight)]
            for number in range(options.runs):
                run = kills.disturbed(scenario := order[number % len(order)])
                left = (time.monotonic() - began) / (number + 1) * (options.runs - number - 1)
                what = f"{run.killed} killed after {run.at:.2f} s" if run.killed else "nothing killed"
                print(f"{number + 1} of {options.runs}: {scenario.name}, {what}; {left / 60:.0f} min left", flush=True)
    told = ", ".join(f"{kind} {count}" for kind, count in kills.hits.most_common())
    rows = sum(len(held) for held in kills.known.values())
    print(f"{kills.hits.total()} kills ({told}), {rows} rows in the archive, {len(kills.faults)} faults")
    return 1 if kills.faults or kills.hits.total() < options.runs * 0.9 else 0


if __name__ == "__main__":
    sys.exit(main())
