"""What a device reaches at best, measured in a few seconds: copy and read bandwidth, multiplication rates, the cost of
a launch.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import time
from typing import Any, Callable

import torch

from ..running import problem as problems
from . import device_lock

Progress = Callable[..., None]

_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


def best_seconds(call: Callable[[], Any], synchronise: Callable[[], None], limit: float) -> float:
    """Seconds of the fastest of several calls, within about `limit` seconds."""
    call()
    synchronise()
    fastest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < limit or fastest == float("inf"):
        start = time.perf_counter()
        call()
        synchronise()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError, StopIteration):
        with open("/proc/cpuinfo") as info:
            return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    return platform.processor() or platform.machine()


def _copy_and_read(elements: int, device: torch.device, synchronise: Callable[[], None]) -> tuple[float, float]:
    """Seconds to copy so many single floats, and to read them. Their memory is free again afterwards."""
    source = torch.ones(elements, device=device)
    target = torch.empty_like(source)
    copy = best_seconds(lambda: target.copy_(source), synchronise, 0.25)
    return copy, best_seconds(lambda: source.sum(), synchronise, 0.25)


@torch.no_grad()
def measure(device: torch.device, progress: Progress) -> dict[str, Any]:
    is_cuda = device.type == "cuda"

    def synchronise() -> None:
        if is_cuda:
            torch.cuda.synchronize(device)

    progress("bandwidth", 0.1)
    # Far beyond any cache; the read adds up so that nothing is stored.
    elements = (1 << 30) // 4 if is_cuda else (256 << 20) // 4
    copy, read = _copy_and_read(elements, device, synchronise)
    flops: dict[str, float | None] = {}
    size = 8192 if is_cuda else 1024
    allowed = torch.backends.cuda.matmul.allow_tf32
    for step, (name, dtype) in enumerate(_DTYPES.items()):
        progress(f"{name} products", 0.3 + 0.12 * step)
        if name == "tf32" and not is_cuda:
            flops[name] = None
            continue
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        # 16-bit products without hardware support crawl on some processors.
        edge = size if is_cuda or dtype in (torch.float32, torch.float64) else size // 2
        try:
            left, right = (torch.randn(edge, edge, device=device).to(dtype) for _ in range(2))
            flops[name] = 2.0 * edge**3 / best_seconds(functools.partial(torch.matmul, left, right), synchronise, 0.12)
        except RuntimeError:
            flops[name] = None
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
    progress("launches", 0.95)
    small = torch.zeros(8, device=device)
    launches = 200
    launch = best_seconds(lambda: [small.add_(1) for _ in range(launches)], synchronise, 0.05) / launches
    return {
        "name": _name(device),
        "copy_bytes_per_second": 2.0 * elements * 4 / copy,
        "read_bytes_per_second": elements * 4 / read,
        "flops": flops,
        "launch_seconds": launch,
        "threads": torch.get_num_threads(),
    }


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "ceilings" (docs/worker-protocol.md)."""
    device = torch.device(problems.check_device(params.get("device") or "cpu"))
    with device_lock.hold(device_lock.name_of(device), "timing", progress):
        return measure(device, progress)
