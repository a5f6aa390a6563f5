"""A cap on the memory of this process, so that a problem that wants 16 TB fails with a message instead of taking the machine down."""

from __future__ import annotations

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
