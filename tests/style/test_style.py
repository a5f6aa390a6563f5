"""How sources are laid out, and what linters find in them. `python tests/style/style_sources.py` mends the layout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import style_sources
from style_sources import COLUMNS, HOME, PRINTED_COLUMNS

# A checkout without history (an unpacked archive) does not say which files are its own.
pytestmark = pytest.mark.skipif(
    not (HOME / ".git").exists(), reason="NOT TESTED: no git here that says which files are sources"
)


@pytest.mark.parametrize("tool", ["clang-format", "ruff format", "ruff check", "mypy"])
def test_sources_are_as_the_tools_want_them(tool: str) -> None:
    command = style_sources.commands(check=True)[tool]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    found = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, "\n".join(found[:40] + ["python tests/style/style_sources.py lays them out"])


@pytest.mark.slow
@pytest.mark.time_limit(400)
def test_clang_tidy_finds_nothing_in_what_changed_last() -> None:
    """All files take most of an hour on two cores: `python tests/style/style_sources.py --tidy`."""
    names = style_sources.newest_cpp(4)
    assert len(names) == 4
    assert not style_sources.tidy(names)


def test_cpp_lines_are_short() -> None:
    """Lines of code and comments; those of raw strings are kernels' text, which has a limit of its own."""
    wrong = []
    for name in style_sources.sources(".cpp", ".hpp", ".h"):
        if not name.startswith("src/"):
            continue  # tests hold the texts that they expect
        inside = False
        for number, line in enumerate((HOME / name).read_text(encoding="utf-8").splitlines(), 1):
            raw = inside or 'R"' in line
            if 'R"' in line:
                inside = ')"' not in line.split('R"', 1)[1]
            elif inside and ')"' in line:
                inside = False
            if len(line) > (PRINTED_COLUMNS if raw else COLUMNS):
                wrong.append(f"{name}:{number}: {len(line)} columns")
    assert not wrong, "\n".join(wrong)


def test_lines_of_pages_are_short() -> None:
    """Prose; a table's rows, and what stands as it was typed or printed, are as long as they are."""
    wrong = []
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=HOME, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        fenced = False
        for number, line in enumerate((HOME / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                fenced = not fenced
            if len(line) > COLUMNS and not fenced and not line.startswith(("|", "    ")):
                wrong.append(f"{name}:{number}: {len(line)} columns")
    assert not wrong, "\n".join(wrong)
