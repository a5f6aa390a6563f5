"""Environment variables: what the sources read, what `kw doctor` prints, and the tables of the documentation are the
same.
"""

import re
from pathlib import Path

import pytest

# Outside of CMake, where such names are options and definitions.
VARIABLE = re.compile(r"(?<![A-Za-z_@-])(?<!-D)KW_[A-Z_]*[A-Z]")
DIRECTIVE = re.compile(r"^ *#.*$", re.MULTILINE)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def names_in(paths, strings_alone=False):
    """The variables named in files; of C++ in its strings alone, since macros have such names too."""
    found = {}
    for path in paths:
        text = path.read_text()
        for part in STRING.findall(DIRECTIVE.sub("", text)) if strings_alone else [text]:
            for name in VARIABLE.findall(part):
                found.setdefault(name, path)
    return found


def table(path, home):
    """The rows of a table of docs whose first column holds names of variables."""
    rows = re.findall(r"^\| ((?:`KW_[A-Z_]+`(?:, )?)+) \| (.+) \|$", (home / path).read_text(), re.MULTILINE)
    return {name: meaning for names, meaning in rows for name in re.findall(r"KW_[A-Z_]+", names)}


@pytest.fixture(scope="module")
def options(home: Path) -> set[str]:
    """What CMake is told, which is no variable of the environment."""
    files = [home / "CMakeLists.txt", *(home / "cmake").glob("*.cmake")]
    return {name for path in files for name in re.findall(r"(?:option|set)\((KW_[A-Z_]+)", path.read_text())}


@pytest.fixture(scope="module")
def read(home: Path, options: set[str]) -> dict[str, Path]:
    """What the product reads or sets, and where; without the table itself."""
    scripts = [
        *(home / "python").rglob("*.py"),
        *(home / "src").rglob("*.py"),
        *(home / "setup").glob("*.sh"),
        home / "kw",
    ]
    sources = [path for path in (home / "src").rglob("*.[ch]pp") if path.name != "variables.cpp"]
    found = names_in(scripts) | names_in(sources, strings_alone=True)
    return {name: path for name, path in found.items() if name not in options}


@pytest.fixture
def listed(kw) -> dict[str, dict]:
    return {row["name"]: row for row in kw("doctor", "--json", "-", env={"KW_SKIP_PACKAGES": "1"}).json()["variables"]}


def test_the_table_holds_what_the_sources_read(read, listed):
    assert {name: str(path) for name, path in read.items() if name not in listed} == {}
    assert set(listed) - set(read) == set(), "the table names what nothing reads"


def test_the_documentation_has_the_same_table(listed, home):
    documented = table("docs/cli.md", home)
    marked = {name: row["meaning"] + (" (set by kw itself)" if row["internal"] else "") for name, row in listed.items()}
    assert documented == marked


def test_doctor_prints_what_people_may_set(kw, listed):
    text = " ".join(kw("doctor", env={"KW_SKIP_PACKAGES": "1"}).out.split())
    for name, row in listed.items():
        assert (name in text) == (not row["internal"])
    assert f"{listed['KW_SKIP_PACKAGES']['meaning']} (now: 1)" in text
    assert listed["KW_ARCHIVE"]["value"] == kw.environment["KW_ARCHIVE"]


def test_variables_of_the_tests_are_in_their_own_table(read, options, home):
    """Those that a person sets; one that a test only hands to its own child begins with KW_TEST_."""
    folders = (home / "tests", home / "bench")
    used = names_in(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".sh"))
    for path in (home / "tests" / "unit").glob("*.cpp"):
        used |= dict.fromkeys(re.findall(r'getenv\("(KW_[A-Z_]+)"\)', path.read_text()), path)
    elsewhere = set(read) | options | {name for name in used if name.startswith("KW_TEST_")}
    own = {name for name, path in used.items() if path != Path(__file__)} - elsewhere
    assert own == set(table("tests/README.md", home))
