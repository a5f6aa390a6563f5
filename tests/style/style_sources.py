"""Lays out all sources: python tests/style/style_sources.py [--check]. clang-format for C++, ruff and mypy for Python,
of the versions in setup/requirements/test.txt; with --check nothing is changed.

With --tidy, it has clang-tidy look at all C++ files, or at those named behind it: some ten seconds each, on every core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent.parent

PYTHON = ["python", "tests", "bench"]
# Expected output, and what is judged: each file is as somebody wrote it.
FREE = ("tests/golden/", "tests/exploits/cheats/", "tests/exploits/honest/", "tests/exploits/problems/")
# The longest lines: of everything, and of kernels' text that stands in C++ as it is printed.
COLUMNS, PRINTED_COLUMNS = 120, 140


def sources(*endings: str) -> list[str]:
    """Files under version control with these endings, relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src", "tests", *PYTHON], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout
    return sorted({name for name in listed.split("\0") if name.endswith(endings) and not name.startswith(FREE)})


def _tool(name: str) -> str:
    """The tool beside this Python, so that its version is the one that is pinned."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def commands(check: bool) -> dict[str, list[str]]:
    """What lays out, or looks, by the tool's name."""
    cpp = sources(".cpp", ".hpp", ".h")
    clang = ["--dry-run", "-Werror"] if check else ["-i"]
    return {
        "clang-format": [_tool("clang-format"), *clang, *cpp],
        "ruff format": [_tool("ruff"), "format", *(["--check", "-q"] if check else ["-q"]), *PYTHON],
        "ruff check": [
            _tool("ruff"),
            "check",
            "-q",
            "--output-format",
            "concise",
            *([] if check else ["--fix"]),
            *PYTHON,
        ],
        "mypy": [_tool("mypy"), "--no-error-summary", "python/kernelwright"],
    }


def newest_cpp(count: int) -> list[str]:
    """Files with code that the last commits changed, the newest first."""
    names = subprocess.run(
        ["git", "log", "-n", "60", "--format=", "--name-only", "--", "src"],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [name for name in dict.fromkeys(names) if name.endswith(".cpp") and (HOME / name).exists()][:count]


def tidy(names: list[str]) -> list[str]:
    """What clang-tidy finds in these files (.clang-tidy says what it looks for), a line each."""

    def found(name: str) -> list[str]:
        command = [_tool("clang-tidy"), "--quiet", name, "--", "-std=c++20", "-Isrc", "-fopenmp", '-DKW_VERSION="0"']
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if ": error:" in line or ": warning:" in line]
        return lines or ([f"{name}: {done.stderr[-300:]}"] if done.returncode else [])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [line for lines in pool.map(found, names) for line in lines]


def main() -> int:
    if "--tidy" in sys.argv[1:]:
        found = tidy(sys.argv[sys.argv.index("--tidy") + 1 :] or [n for n in sources(".cpp") if n.startswith("src/")])
        print("\n".join(found))
        return min(len(found), 1)
    status = 0
    for command in commands(check="--check" in sys.argv[1:]).values():
        status |= subprocess.run(command, cwd=HOME, check=False).returncode
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main())
