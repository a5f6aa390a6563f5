"""Every check that is declared is documented, and some cheat of tests/exploits is caught by it: none only says ok."""

import re
from pathlib import Path

import pytest

from kernelwright.judge.verification import CHECKS

HOME = Path(__file__).parents[2]


def test_the_page_of_the_contract_lists_the_checks():
    table = (HOME / "docs" / "contract.md").read_text().partition("\n## Checks\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert re.findall(r"`([a-z-]+)`", "".join(rows)) == list(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_cheat_is_caught_by_every_check(name):
    cheats = (HOME / "tests" / "exploits" / "cheats").rglob("*.py")
    assert any(re.search(rf"^Caught by: .*`{name}`", path.read_text(), re.MULTILINE) for path in cheats)
