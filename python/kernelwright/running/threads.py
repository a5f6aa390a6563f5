"""The threads of a process, as the kernel tells of them. A process is named by its number, or "self"."""

from __future__ import annotations

import contextlib
import os

# The call by which a thread waits for another, by machine.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine, 0)


def numbers(process: int | str) -> set[str]:
    """Of all its threads; none where it has ended."""
    try:
        return set(os.listdir(f"/proc/{process}/task"))
    except OSError:
        return set()


def waiting_for_more_than_work(process: int | str, known: set[str]) -> int | None:
    """How many of its threads that are not in `known` sleep otherwise than a pool's do, which wait on a futex without
    a deadline: they will wake by themselves, or for somebody else. None where the kernel does not say.
    """
    count = 0
    for task in numbers(process) - known:
        folder = f"/proc/{process}/task/{task}"
        try:
            with open(f"{folder}/syscall") as file:
                words = file.read().split()
        except OSError:
            if os.path.exists(folder):
                return None
            continue  # it has ended meanwhile
        # "running", and -1 for what is blocked outside of a call, are no sleep.
        if len(words) > 4 and int(words[0]) >= 0:
            if not _FUTEX:
                return None
            count += int(words[0]) != _FUTEX or int(words[4], 16) != 0
    return count


def runnable(process: int | str, known: set[str]) -> int:
    """How many of its threads that are not in `known` run, or would if they were let."""
    count = 0
    for task in numbers(process) - known:
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{process}/task/{task}/stat") as file:
                count += file.read().rpartition(")")[2].split()[0] == "R"
    return count


def idle(process: int | str, known: set[str]) -> bool:
    """Whether those that are not in `known` do nothing but wait for work."""
    return waiting_for_more_than_work(process, known) == 0 and runnable(process, known) == 0
