"""Lays out all sources: python tests/style/style_sources.py [--check]. clang-format for C++, ruff for Python, of the versions in setup/requirements/test.txt."""

from __future__ import annotations

import subprocess
import sys
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
    }


def main() -> int:
    status = 0
    for command in commands(check="--check" in sys.argv[1:]).values():
        status |= subprocess.run(command, cwd=HOME, check=False).returncode
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main())
