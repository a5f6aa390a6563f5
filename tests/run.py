"""Runs every suite and closes with one line, "N passed, N failed"; `kw test` calls it after building.

run.py [--quick | --all] [-k PATTERN] [--device | --matrix | --sanitize | --trust]
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import matrix

TESTS = Path(__file__).resolve().parent
HOME = TESTS.parent

# Tests share cores: threads that spin while they wait take a sixth of all processor time from the others.
SHARING = {"OMP_WAIT_POLICY": "passive"}


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list, compare=False)  # their names

    def __add__(self, other: "Tally") -> "Tally":
        counts = self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        return Tally(*counts, self.failures + other.failures)


def read_junit(path: Path) -> Tally | None:
    """The counts of a JUnit file, or None where the suite died before it wrote one."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    tally = Tally()
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed += 1
            tally.failures.append("::".join(filter(None, (case.get("classname"), case.get("name")))))
        elif case.find("skipped") is not None:
            tally.skipped += 1
        else:
            tally.passed += 1
    return tally


def run_suite(
    title: str,
    command: list[str],
    junit: Path,
    nothing_selected: int | None = None,
    environment: dict[str, str] | None = None,
) -> Tally:
    """Runs one suite; a suite that dies, or fails beyond what its report tells, counts as one more failure."""
    print(f"== {title}", flush=True)
    began = time.monotonic()
    status = subprocess.run(
        command, cwd=HOME, stdin=subprocess.DEVNULL, check=False, env={**os.environ, **(environment or {})}
    ).returncode
    tally = read_junit(junit)
    if status == nothing_selected:
        tally = tally or Tally()
    elif tally is None or (status != 0 and tally.failed == 0):
        print(f"{title}: ended with status {status} and no report of a failure", flush=True)
        tally = (tally or Tally()) + Tally(failed=1)
    for name in tally.failures:
        print(f"failed: {name}", flush=True)
    print(f"== {title}: {time.monotonic() - began:.0f} s", flush=True)
    return tally


def python_folders(device: bool) -> list[str]:
    """The folders of tests/ that hold Python tests; the one that needs a GPU only when asked for."""
    if device:
        return ["tests/device"]
    folders = {path.parent.relative_to(HOME).parts[:2] for path in TESTS.glob("*/**/test_*.py")}
    return sorted("/".join(parts) for parts in folders if parts[1] != "device")


def run_matrix(pattern: str | None, quick: bool) -> Tally:
    """The numeric tests under each combination that this processor can have; those that it cannot are named, and count
    as nothing.
    """
    features = matrix.features()
    total, rows = Tally(), []
    with tempfile.TemporaryDirectory(prefix="kw-test-") as folder:
        for combination in matrix.combinations():
            if missing := combination.lacks(features):
                rows.append(f"{combination.title:<54} not run: this processor has no {', '.join(missing)}")
                continue
            junit = Path(folder, f"{len(rows)}.xml")
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                f"--junitxml={junit}",
                *matrix.NUMERIC,
                "-n",
                str(min(os.cpu_count() or 1, 8)),
            ]
            command += ["-m", "not alone" + (" and not slow" if quick else "")]
            command += ["-k", pattern] if pattern else []
            environment = SHARING | combination.environment()
            tally = run_suite(combination.title, command, junit, nothing_selected=5, environment=environment)
            rows.append(f"{combination.title:<54} {tally.passed} passed, {tally.failed} failed")
            total += tally
    print("\n".join(["", *rows]))
    return total


# By the clock, which sanitizers slow down.
TIMED = "InSeconds"


def run_sanitizers(pattern: str | None) -> Tally:
    """The C++ unit tests, built with the sanitizers of CMakePresets.json, in build/asan and build/tsan."""
    total = Tally()
    with tempfile.TemporaryDirectory(prefix="kw-test-") as folder:
        for preset, title in (("asan", "address and undefined-behaviour sanitizers"), ("tsan", "thread sanitizer")):
            print(f"== building with the {title}", flush=True)
            for command in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset]):
                if status := subprocess.run(command, cwd=HOME, check=False, stdout=subprocess.DEVNULL).returncode:
                    print(f"{shlex.join(command)}: ended with status {status}", flush=True)
                    return total + Tally(failed=1)
            junit = Path(folder, preset + ".xml")
            command = [
                "ctest",
                "--test-dir",
                f"build/{preset}",
                "--output-on-failure",
                "--quiet",
                "--output-junit",
                str(junit),
            ]
            command += ["--timeout", "600", "-j", str(os.cpu_count() or 1), "-LE", "timed", "-E", TIMED]
            command += ["-R", pattern] if pattern else []
            total += run_suite(title, command, junit)
    return total


def run_corpus(pattern: str | None) -> Tally:
    """All cheats and all honest kernels of tests/exploits, of which a run of everything takes a fifth of the latter."""
    with tempfile.TemporaryDirectory(prefix="kw-test-") as folder:
        junit = Path(folder, "trust.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", "tests/exploits"]
        command += ["-k", pattern] if pattern else []
        return run_suite("Exploits", command, junit, nothing_selected=5, environment={"KW_EXPLOITS": "all"})


def close(total: Tally, pattern: str | None) -> int:
    """Prints the last line; the exit code."""
    print(f"{total.passed} passed, {total.failed} failed" + (f", {total.skipped} skipped" if total.skipped else ""))
    if total == Tally():
        print(f"kw: no test has {pattern!r} in its name" if pattern else "kw: there are no tests", file=sys.stderr)
        return 2
    return 1 if total.failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="kw test")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true")
    how_much.add_argument("--all", action="store_true")
    parser.add_argument("-k", dest="pattern", metavar="PATTERN")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--device", action="store_true")
    kind.add_argument("--matrix", action="store_true")
    kind.add_argument("--sanitize", action="store_true")
    kind.add_argument("--trust", action="store_true")
    options = parser.parse_args()
    if options.quick:
        os.environ["KW_TEST_QUICK"] = "1"
    elif options.all or options.pattern:
        os.environ["KW_TEST_ALL"] = "1"
    if options.matrix:
        return close(run_matrix(options.pattern, options.quick), options.pattern)
    if options.sanitize:
        return close(run_sanitizers(options.pattern), options.pattern)
    if options.trust:
        return close(run_corpus(options.pattern), options.pattern)

    total = Tally()
    with tempfile.TemporaryDirectory(prefix="kw-test-") as folder:
        if not options.device:
            junit = Path(folder, "unit.xml")
            command = ["ctest", "--test-dir", "build", "--output-on-failure", "--quiet", "--output-junit", str(junit)]
            command += ["--timeout", "120", "-j", str(os.cpu_count() or 1)]
            command += ["-R", options.pattern] if options.pattern else []
            total += run_suite("C++ units", command, junit)

        folders = python_folders(options.device)
        # A GPU is one thing that tests cannot share. Each worker takes neighbouring tests, so that what a module sets
        # up is set up once, and helps out where others are behind.
        workers = [] if options.device else ["-n", str(min(os.cpu_count() or 1, 8)), "--dist", "worksteal"]
        for title, marked, parallel in (("Python", "not alone", workers), ("Python, one at a time", "alone", [])):
            junit = Path(folder, title + ".xml")
            marked += " and not slow" if options.quick else ""
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *folders, "-m", marked, *parallel]
            command += ["--durations", "40", "--durations-min", "2"]
            command += ["-k", options.pattern] if options.pattern else []
            if folders:
                total += run_suite(title, command, junit, nothing_selected=5, environment=SHARING if parallel else None)

    return close(total, options.pattern)


if __name__ == "__main__":
    sys.exit(main())
