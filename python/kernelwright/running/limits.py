"""How much memory there is, and a cap on that of this process, so that a problem that wants 16 TB fails with a message
instead of taking the machine down.
"""

from __future__ import annotations

import contextlib
import os

import torch


def limit_memory(limit: int | None, device: torch.device) -> None:
    if not limit:
        return
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        total = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), index)
        return
    import resource

    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + limit
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/meminfo") as info:
            return next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# Of a GPU's memory: what a candidate leaves to who judges it, and what it may have however little others leave free.
_LEFT_TO_JUDGE, _LEAST_SHARE = 1 / 8, 1 / 4

# A candidate may have so many times what this process has held at once, which is inputs and weights at least, and eager
# and the reference where they have run.
_TIMES_OURS = 4


def share_of_candidate(device: torch.device) -> int | None:
    """How many bytes of a GPU's memory PyTorch may allocate in a candidate's process; None on a CPU."""
    if device.type != "cuda":
        return None
    _, total = torch.cuda.mem_get_info(device)
    free, ours = free_memory(device), torch.cuda.max_memory_allocated(device)
    return min(total, int(max(free - _LEFT_TO_JUDGE * total, _LEAST_SHARE * total, _TIMES_OURS * ours)))


def size_text(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


# Of a GPU's memory: with less free, no process keeps what it does not use.
_SCARCE = 0.5


def is_scarce(device: torch.device) -> bool:
    free, total = torch.cuda.mem_get_info(device)
    return free < _SCARCE * total


def is_large(size: int, device: torch.device) -> bool:
    """Whether a dozen of it would hardly fit a GPU's memory."""
    return device.type == "cuda" and 12 * size > torch.cuda.mem_get_info(device)[1] // 2
