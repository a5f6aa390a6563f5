"""Nothing lasts by the wall clock, which somebody may set at any moment: it only labels."""

import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
WALL = re.compile(
    r"\btime\.(time|time_ns|localtime|gmtime|strftime|ctime)\(|\bdatetime\b|system_clock|std::time\(|gettimeofday"
    r"|CLOCK_REALTIME\b|\bstrftime\('|high_resolution_clock"
)
LABELS = {
    "python/kernelwright/timing/device_lock.py": 2,  # a holder's name, and since when it holds a lock, for people who wait
    "src/archive/archive.cpp": 1,  # the name of an archive that is moved aside
    "src/archive/schema.cpp": 10,  # when a row was stored
}


def test_the_wall_clock_only_labels():
    found = {}
    for path in [*HOME.glob("python/**/*.py"), *HOME.glob("src/**/*.?pp"), *HOME.glob("src/**/*.py")]:
        lines = [line for line in path.read_text().splitlines() if WALL.search(line)]
        if lines:
            found[str(path.relative_to(HOME))] = len(lines)
    assert found == LABELS
