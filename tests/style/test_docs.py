"""What the pages of docs/ promise about themselves: links lead somewhere, the architecture is two pages, and each type
and scheduler has a page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((HOME / "docs").rglob("*.md")) + [HOME / "README.md"]

# About what a newcomer reads in ten minutes, tables and examples included.
WORDS_OF_ARCHITECTURE = 1000


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found: list[str] = []
    for head in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M):
        name = re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", one) is not None for one in found)
        found.append(f"{name}-{again}" if again else name)
    return set(found)


def links(page: Path) -> list[str]:
    text = re.sub(r"^    .*$", "", page.read_text(encoding="utf-8"), flags=re.M)
    found = re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text)
    return [link for link in found if "#" in link or re.search(r"\.\w+$", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


def test_the_architecture_is_two_pages() -> None:
    text = (HOME / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS_OF_ARCHITECTURE


def test_files_that_docs_name_are_there() -> None:
    """Sources by their path below src/, in backticks."""
    wrong = []
    for page in PAGES:
        if page.parent.name == "measurements":  # sections of a day name the files of that day
            continue
        for name in re.findall(r"`((?:src|tests|bench|python)/[\w/.-]+\.\w+)`", page.read_text(encoding="utf-8")):
            if not (HOME / name).exists():
                wrong.append(f"{page.relative_to(HOME)}: {name}")
        for name in re.findall(
            r"`((?:plan|emit|lower|tile|kernel|passes|targets|search|ir)/[\w/]+\.[ch]pp)`",
            page.read_text(encoding="utf-8"),
        ):
            if not (HOME / "src" / name).exists():
                wrong.append(f"{page.relative_to(HOME)}: {name}")
    assert not wrong


def test_every_word_of_a_kernels_schedule_is_explained() -> None:
    source = (HOME / "src" / "lower" / "schedule.cpp").read_text(encoding="utf-8")
    page = (HOME / "docs" / "kernel-schedule.md").read_text(encoding="utf-8")
    words = set(re.findall(r'\{"(\w+)", &(?:KernelSchedule|AxisSchedule)::', source))
    words |= set(re.findall(r'\bkey == "(\w+)"', source))
    assert len(words) > 20
    assert not sorted(word for word in words if f"`{word}`" not in page and f'"{word}"' not in page)
