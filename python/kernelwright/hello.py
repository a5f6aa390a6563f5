"""Answers `hello`: what PyTorch, Triton, GPUs and CPU this worker sees."""

from __future__ import annotations

import importlib.util
import os
import platform
from typing import Any, Callable


def run(params: dict[str, Any], progress: Callable[[str, float], None]) -> dict[str, Any]:
    import torch

    return {
        "torch": torch.__version__,
        "triton": _triton_version(),
        "python": platform.python_version(),
        "cuda": cuda_devices(),
        "cpu": cpu(),
    }


def _triton_version() -> str | None:
    # The version is in the metadata: importing Triton takes half a second.
    from importlib import metadata

    if importlib.util.find_spec("triton") is None:
        return None
    for name in ("triton", "pytorch-triton", "triton-windows"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    import triton

    return triton.__version__


def cuda_devices() -> list[dict[str, Any]] | None:
    """One entry a GPU, or None without CUDA."""
    import torch

    if not torch.cuda.is_available():
        return None
    return [_card(index) for index in range(torch.cuda.device_count())]


def card(device: str) -> dict[str, Any] | None:
    """The GPU that a device type stands for; None where it is none, or none is here."""
    import torch

    if device != "cuda" or not torch.cuda.is_available():
        return None
    return _card(torch.cuda.current_device())


def _card(index: int) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": properties.name,
        "sm": properties.major * 10 + properties.minor,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", 0),
        "shared_bytes": getattr(properties, "shared_memory_per_block_optin", 0),
    }


def cpu() -> dict[str, Any]:
    """Name, cores, usable threads and the widest SIMD instruction set of this machine's CPU."""
    import torch

    name = platform.processor() or platform.machine()
    flags: set[str] = set()
    cores: set[tuple[str, str]] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            physical = "0"
            for line in file:
                key, _, value = (part.strip() for part in line.partition(":"))
                if key == "model name":
                    name = value
                elif key == "flags" and not flags:
                    flags = set(value.split())
                elif key == "physical id":
                    physical = value
                elif key == "core id":
                    cores.add((physical, value))
    except OSError:
        pass
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    isa = (
        "avx512"
        if "avx512f" in flags
        else "avx2"
        if "avx2" in flags
        else torch.backends.cpu.get_cpu_capability().lower()
    )
    return {"name": name, "cores": len(cores) or threads, "threads": threads, "isa": isa}
