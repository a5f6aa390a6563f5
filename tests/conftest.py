"""What all Python suites share: how much to try, and where the program is."""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent))

import selection  # noqa: E402
from command_line import CommandLine, Emitter  # noqa: E402

HOME = Path(__file__).resolve().parent.parent

# Under plain `pytest`, what the launcher would have set.
os.environ.setdefault("KW_HOME", str(HOME))
os.environ.setdefault("KW_PYTHON", sys.executable)
os.environ.setdefault("KW_PYTHONPATH", str(HOME / "python"))

# Told once for all processes of a run: what takes a part of its cases each day goes by it.
os.environ.setdefault("KW_DAY", str(int(time.time() // 86400)))

# Tests that run beside one another are not timed, and need not wait for each other, or for what else is timed on this
# machine.
os.environ["KW_LOCK_DIR"] = tempfile.mkdtemp(prefix="kw-test-locks-")
atexit.register(shutil.rmtree, os.environ["KW_LOCK_DIR"], ignore_errors=True)

# Started in the background by a script, everything inherits that Ctrl-C is ignored, and a shell cannot undo that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

QUICK = bool(os.environ.get("KW_TEST_QUICK"))
WHOLE = bool(os.environ.get("KW_TEST_ALL"))

# No deadline: the first call of a kernel compiles it. Derandomised, so that a failure comes back.
slow_is_fine = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("all", max_examples=50, **slow_is_fine)
settings.register_profile("full", max_examples=20, **slow_is_fine)
settings.register_profile("quick", max_examples=5, **slow_is_fine)
settings.load_profile("quick" if QUICK else "all" if WHOLE else "full")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--all` takes every test; otherwise selection.py says which of a test's parameter sets are taken."""
    if WHOLE:
        return
    day = int(os.environ["KW_DAY"])
    kept = set(selection.spread(items) if QUICK else selection.of_the_day(selection.in_turns(items), day))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_report_header() -> str:
    return f"day {os.environ['KW_DAY']} (KW_DAY) chooses among cases that take turns by days"


@pytest.fixture(scope="session")
def home() -> Path:
    """The root of the checkout."""
    return HOME


@pytest.fixture(scope="session")
def kw_binary() -> Path:
    """The built program, without the launcher's checks."""
    binary = HOME / "build" / "kw"
    if not binary.exists():
        pytest.fail("build/kw is missing: run ./kw test, or build it first")
    return binary


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Fails a test that hangs, so that the others still run; `time_limit(seconds)` gives one more time."""
    marker = item.get_closest_marker("time_limit")
    seconds = marker.args[0] if marker else 240

    def give_up(signal_number, frame):
        pytest.fail(f"still running after {seconds} s", pytrace=True)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def kw(kw_binary: Path, tmp_path: Path) -> CommandLine:
    """The program with an archive and a current folder of its own."""
    return CommandLine(kw_binary, tmp_path)


@pytest.fixture(scope="module")
def emitter(kw_binary: Path, tmp_path_factory: pytest.TempPathFactory):
    """Emits candidates for problem files, all in one process."""
    made = Emitter(CommandLine(kw_binary, tmp_path_factory.mktemp("emitter")))
    yield made
    made.close()
