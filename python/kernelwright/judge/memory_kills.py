"""Whether the kernel ends processes because memory has run out: what tells such a SIGKILL from anybody else's."""

from __future__ import annotations


def memory_kills() -> int | None:
    """How many processes the kernel has ended for want of memory since the machine was started, in control groups too;
    None where it does not count them.
    """
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), None)
    except (OSError, ValueError, IndexError):
        return None
