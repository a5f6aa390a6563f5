"""What a candidate's process leaves running, seen from outside: the process has no say in it."""

from __future__ import annotations

import time
from typing import Callable

from .nursing import Host


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
        self.tasks, self.files = host.task_numbers(), host.open_files()
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
        if threads := [name for name in self.live_threads() if name not in self.threads]:
            return [f"{len(threads)} Python thread(s) still run after forward returned: {', '.join(threads)}."]
        if children := self.host.descendants() - self.children:
            return [f"{len(children)} child process(es) still run after forward returned."]
        if self.knows_pools and (waiting := self.host.waiting_for_more_than_work(self.tasks)):
            return [f"{waiting} thread(s) that forward has started wait for more than its next call."]
        locked = self.host.locked_bytes() - self.locked
        return [f"{locked >> 10} kB of memory are locked after forward returned."] if locked > 0 else []

    def _busy(self, sample: float = 0.012) -> list[str]:
        before, start = self.host.processor_seconds(), time.monotonic()
        time.sleep(sample)
        share = (self.host.processor_seconds() - before) / (time.monotonic() - start)
        return [f"Threads keep using {share:.0%} of a core after forward returned."] if share > self.BUSY else []

    def _runnable(self) -> list[str]:
        count = self.host.runnable(self.tasks)
        return [f"{count} thread(s) that forward has started want the processor after it returned."] if count else []

    def more(self) -> list[str]:
        found = []
        if (more := len(self.host.task_numbers()) - len(self.tasks)) > 0:
            found.append(f"Each call leaves {more} more thread(s) behind.")
        if (more := self.host.open_files() - self.files) > 0:
            found.append(f"Each call leaves {more} more open file(s) behind.")
        written = self.host.written()
        if paths := sorted(path for path, seen in written.items() if self.written.get(path) != seen):
            found.append(f"Each call writes files: {', '.join(paths[:3])}{', …' if len(paths) > 3 else ''}.")
        return found
