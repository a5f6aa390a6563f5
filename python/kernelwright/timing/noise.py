"""How quiet the machine was while something was timed: what else ran on the cores that this process may use, and what
it was denied. And waiting for the quiet that our own processes owe each other.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Callable

# Cores that others may use beyond those that nobody here needs: some service always runs for a moment.
_ALLOWED_CORES = 0.2
# Shares of the time that the hypervisor or the control group's limit may take.
_ALLOWED_SHARE = 0.02
# The kernel counts processor time in ticks: of less than these seconds in all nothing can be said.
_LEAST_SECONDS = 0.05

_TICK = os.sysconf("SC_CLK_TCK")

# OpenMP's threads look for more work for some milliseconds before they sleep, for longer where they share their core.
_LONGEST_WAIT_SECONDS, _POLL_SECONDS = 0.05, 0.0003


def wait_until_idle(process: int, device: str = "cpu") -> None:
    """Until no thread of it but the calling one runs, though not for long: what is timed next needs the cores, where it
    is timed on them.

    After a parallel loop the threads of libgomp spin; while those of one process do, the same call of another takes
    0.4 ms or 12 ms, as the scheduler has it.
    """
    own, until = str(threading.get_native_id()), time.monotonic() + _LONGEST_WAIT_SECONDS
    while device == "cpu" and _runs(process, own) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _runs(process: int, but_for: str) -> bool:
    """Whether a thread of the process, which may have ended, has a core or waits for one."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
                if thread != but_for and file.read().rpartition(b")")[2].split(maxsplit=1)[0] == b"R":
                    return True
    return False


class Noise:
    """From construction to `figures()`, with `threads` computing. `own_seconds`: what those have used of the processor
    whose time is taken.
    """

    def __init__(self, threads: int, own_seconds: Callable[[], float] = time.process_time) -> None:
        self.threads = threads
        self.own_seconds = own_seconds
        self.cores = sorted(os.sched_getaffinity(0))
        self.processes = _processor_seconds_by_process()
        self.began = time.monotonic()
        self.before = self._counters()

    def figures(self) -> dict[str, Any]:
        """`reasons`: one sentence for each way in which it was too noisy to time; none where it was quiet."""
        after = self._counters()
        elapsed = max(time.monotonic() - self.began, 1e-6)
        busy, stolen, own, throttled = (new - old for new, old in zip(after, self.before))
        foreign = max(0.0, busy - own)
        count = len(self.cores)
        reasons = []
        spare = max(0, count - self.threads)
        if foreign > max(_LEAST_SECONDS, (spare + _ALLOWED_CORES) * elapsed):
            reasons.append(
                f"{self._largest(foreign)} used {foreign / elapsed:.1f} of {count} cores while this was timed"
            )
        if stolen > max(_LEAST_SECONDS, _ALLOWED_SHARE * count * elapsed):
            reasons.append(
                f"the hypervisor gave {stolen / elapsed:.1f} of {count} cores to others while this was timed"
            )
        if throttled > max(_LEAST_SECONDS, _ALLOWED_SHARE * elapsed):
            reasons.append(
                f"the control group's limit on processor time held this process up for {throttled:.1f} of {elapsed:.1f} s while this was timed"
            )
        return {
            "reasons": reasons,
            "cores": count,
            "others_cores": round(foreign / elapsed, 3),
            "stolen_cores": round(stolen / elapsed, 3),
            "throttled_seconds": round(throttled, 3),
            "seconds": round(elapsed, 3),
        }

    def _counters(self) -> tuple[float, float, float, float]:
        return *_busy_and_stolen(self.cores), self.own_seconds(), _throttled_seconds()

    def _largest(self, foreign: float) -> str:
        """Who it was, where one process can be seen to have used most of `foreign` seconds."""
        used = {key: seconds - self.processes.get(key, 0.0) for key, seconds in _processor_seconds_by_process().items()}
        key, seconds = max(used.items(), key=lambda item: item[1], default=(None, 0.0))
        if key is None or seconds < foreign / 2:
            return "other processes"
        others = "" if seconds > 0.8 * foreign else " and others"
        return f"another process ({key[1]}, process {key[0]}){others}"


def _busy_and_stolen(cores: list[int]) -> tuple[float, float]:
    """Seconds since the system started in which these cores ran something, and in which a hypervisor ran something else
    on them.
    """
    busy = stolen = 0.0
    wanted = {f"cpu{core}" for core in cores}
    with contextlib.suppress(OSError, ValueError), open("/proc/stat") as file:
        for line in file:
            name, *fields = line.split()
            if name in wanted:
                user, nice, system, _idle, _waiting, interrupts, soft, steal = (int(field) for field in fields[:8])
                busy += user + nice + system + interrupts + soft
                stolen += steal
    return busy / _TICK, stolen / _TICK


def _throttled_seconds() -> float:
    """For how long the control group of this process has been kept from running, so far."""
    path = ""
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        path = next((line.strip()[3:] for line in file if line.startswith("0::")), "")
    # In a container the path may be the host's, while the root that is seen is the container's own.
    for folder in dict.fromkeys((f"/sys/fs/cgroup{path.rstrip('/')}", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu")):
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/cpu.stat") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name in ("throttled_usec", "throttled_time"):
                    return int(value) * (1e-6 if name == "throttled_usec" else 1e-9)
    return 0.0


def _processor_seconds_by_process() -> dict[tuple[int, str], float]:
    """Of every other process that can be seen, by its id and name."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file,
        ):
            head, _, rest = file.read().rpartition(")")
            fields = rest.split()
            found[int(entry), head.partition("(")[2]] = (int(fields[11]) + int(fields[12])) / _TICK
    return found
