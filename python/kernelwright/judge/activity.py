"""What a candidate's process leaves running, seen from outside: the process has no say in it."""

from __future__ import annotations

import time
from typing import Callable, Protocol

from ..running import threads
from .nursing import Host

# A pool grows at a call in which a thread of it first has work: that starts threads of its own, such as a team of
# OpenMP's. After as many calls in a row without growth it counts as complete, and larger than that is none.
_QUIET_CALLS = 3
_MOST_GROWING_CALLS = 64
# Where calls take long, each finds work for the whole pool.
_GROWING_SECONDS = 10.0
_LEAST_GROWING_CALLS = 4


class Growing(Protocol):
    def more_threads(self) -> int: ...

    def leftovers(self) -> list[str]: ...


def growth(activity: Growing, call: Callable[[], None]) -> list[str]:
    """Whether calls go on adding threads after the one since `activity` began; `call` makes another. Threads that were
    added by then must do nothing but wait for work.
    """
    began = time.monotonic()
    most = activity.more_threads()
    if most == 0:
        return []
    if found := activity.leftovers():
        return found
    calls, growing, quiet = 1, 1, 0
    while quiet < _QUIET_CALLS:
        call()
        calls += 1
        more = activity.more_threads()
        quiet = 0 if more > most else quiet + 1
        growing += more > most
        most = max(most, more)
        is_late = time.monotonic() - began > _GROWING_SECONDS and calls == growing >= _LEAST_GROWING_CALLS
        if is_late or growing == _MOST_GROWING_CALLS:
            return [f"{growing} of {calls} calls leave more threads behind: {most} in all."]
    return activity.leftovers()


class RemoteActivity:
    """Of a process whose Python threads `live_threads` names, from now on. `knows_pools`: every thread that Python does
    not know is of a pool, or the candidate's; a GPU's driver has others.
    """

    BUSY = 0.35  # of a core
    PATIENCE = 0.35  # seconds
    # For threads that would run and are not let, since others use the processor: a pool's that only looks once more
    # whether there is work needs a moment of it.
    PATIENCE_WITH_WAITING = 1.0
    QUIET_SAMPLES = 3

    def __init__(self, host: Host, live_threads: Callable[[], list[str]], knows_pools: bool) -> None:
        self.host, self.live_threads, self.knows_pools = host, live_threads, knows_pools
        self.threads = set(live_threads())
        self.children = host.descendants()
        self.tasks, self.files = threads.numbers(host.process()), host.open_files()
        self.locked, self.written = host.locked_bytes(), host.written()

    def leftovers(self) -> list[str]:
        began = time.monotonic()
        quiet = 0
        while True:
            found, waiting = self._new() + self._busy(), self._runnable()
            # Where others use the processor, a busy thread may not run for a moment.
            quiet = 0 if found or waiting else quiet + 1
            passed = time.monotonic() - began
            if quiet == self.QUIET_SAMPLES or found and passed > self.PATIENCE:
                return found
            if waiting and passed > self.PATIENCE_WITH_WAITING:
                return waiting

    def _new(self) -> list[str]:
        waiting = threads.waiting_for_more_than_work(self.host.process(), self.tasks)
        if waiting != 0 and (names := [name for name in self.live_threads() if name not in self.threads]):
            return [f"{len(names)} Python thread(s) still run after forward returned: {', '.join(names)}."]
        if children := self.host.descendants() - self.children:
            return [f"{len(children)} child process(es) still run after forward returned."]
        if self.knows_pools and waiting:
            return [f"{waiting} thread(s) that forward has started wait for more than its next call."]
        locked = self.host.locked_bytes() - self.locked
        return [f"{locked >> 10} kB of memory are locked after forward returned."] if locked > 0 else []

    def _busy(self, sample: float = 0.012) -> list[str]:
        before, start = self.host.processor_seconds(), time.monotonic()
        time.sleep(sample)
        share = (self.host.processor_seconds() - before) / (time.monotonic() - start)
        return [f"Threads keep using {share:.0%} of a core after forward returned."] if share > self.BUSY else []

    def _runnable(self) -> list[str]:
        count = threads.runnable(self.host.process(), self.tasks)
        return [f"{count} thread(s) that forward has started want the processor after it returned."] if count else []

    def more_threads(self) -> int:
        """How many threads of any kind were added, when those that are about to end have ended."""
        deadline = time.monotonic() + self.PATIENCE_WITH_WAITING
        while True:
            process = self.host.process()
            more = len(threads.numbers(process)) - len(self.tasks)
            if more <= 0 or threads.idle(process, self.tasks) or time.monotonic() > deadline:
                return max(more, 0)
            time.sleep(0.005)

    def more(self) -> list[str]:
        found = []
        if (more := self.host.open_files() - self.files) > 0:
            found.append(f"Each call leaves {more} more open file(s) behind.")
        written = self.host.written()
        if paths := sorted(path for path, seen in written.items() if self.written.get(path) != seen):
            found.append(f"Each call writes files: {', '.join(paths[:3])}{', …' if len(paths) > 3 else ''}.")
        return found
