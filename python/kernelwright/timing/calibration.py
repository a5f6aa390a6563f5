"""What the cost model wants to know of a device beyond its ceilings: strided and scattered reads, caches, the cost of
waiting. Once per device.
"""

from __future__ import annotations

import time
from typing import Any, Callable

import torch

from ..running import problem as problems
from . import device_lock
from .ceilings import best_seconds
from .timer import cache_bytes

Progress = Callable[..., None]

# Bytes that the memory moves at least: a sector of a GPU, a cache line of a CPU.
_LINE = {"cuda": 32, "cpu": 64}


class Calibration:
    """One device under measurement; every figure is of the fastest of several calls."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self.elements = (1 << 30) // 4 if self.is_cuda else (256 << 20) // 4
        self.source = torch.ones(self.elements, device=device)

    def synchronise(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], Any], limit: float = 0.25) -> float:
        return best_seconds(call, self.synchronise, limit)

    def strided(self) -> float:
        """Useful bytes a second where one element of every line is read."""
        stride = _LINE[self.device.type] // 4
        column = self.source.view(-1, stride)[:, 0]
        return column.numel() * 4 / self.seconds(lambda: column.sum())

    def gathered(self) -> float:
        """Useful bytes a second where elements are read in random order; the order itself, and what is written, move
        too and are counted out.
        """
        count = self.elements // 16
        order = torch.randint(self.elements, (count,), device=self.device)
        straight = torch.arange(count, device=self.device)
        out = torch.empty(count, device=self.device)
        scattered = self.seconds(lambda: torch.index_select(self.source, 0, order, out=out))
        in_order = self.seconds(lambda: torch.index_select(self.source, 0, straight, out=out))
        copied = self.seconds(lambda: out.copy_(self.source[:count]))
        # Index arithmetic and writing cost the same both ways: what is left is the reading.
        return count * 4 / max(scattered - in_order + copied / 2, 1e-9)

    def repeated(self, size: int, total: int) -> float:
        """Bytes a second where every unit reads the same `size` bytes again and again, `total` bytes in all."""
        if self.is_cuda:
            return _repeated_on_gpu(self, size, total)
        rows = max(torch.get_num_threads(), total // size)
        block = torch.ones(size // 4)
        again = block.expand(rows, size // 4)
        return rows * size / self.seconds(lambda: again.sum(dim=1))

    def shared(self) -> float:
        """Bytes a second through a multiprocessor's shared memory, or a core's first cache; all units together."""
        if not self.is_cuda:
            return self.repeated(16 << 10, 256 << 20)
        return _shared_on_gpu(self)

    def launch(self) -> float:
        """Seconds between two launches of small kernels that nobody waits for."""
        small = torch.zeros(8, device=self.device)
        return self.seconds(lambda: [small.add_(1) for _ in range(200)], 0.1) / 200

    def synchronisation(self) -> float:
        """Seconds that waiting costs: for the device after one small kernel, or for the other threads of a parallel
        loop.
        """
        if self.is_cuda:
            small = torch.zeros(8, device=self.device)
            began = time.perf_counter()
            for _ in range(200):
                small.add_(1)
                torch.cuda.synchronize(self.device)
            return max(0.0, (time.perf_counter() - began) / 200 - self.launch())
        threads = torch.get_num_threads()
        # One chunk of work for each thread; the same chunk alone needs no waiting.
        chunk = 1 << 15
        together, alone = torch.zeros(threads * chunk), torch.zeros(chunk)
        shared = self.seconds(lambda: [together.add_(1) for _ in range(50)], 0.2) / 50
        own = self.seconds(lambda: [alone.add_(1) for _ in range(50)], 0.2) / 50
        return max(0.0, shared - own) if threads > 1 else 0.0

    def sustained_share(self) -> float | None:
        """Of the rate of a few products of halves, that of products which have run on and on for half a second: power
        limits the clock of many a GPU.
        """
        if not self.is_cuda:
            return None
        edge = 4096
        left, right = (torch.randn(edge, edge, device=self.device, dtype=torch.float16) for _ in range(2))
        out = torch.empty_like(left)
        return _share_after(
            lambda count: [torch.mm(left, right, out=out) for _ in range(count)], self.synchronise, time.perf_counter
        )


_COOL_SECONDS, _WARM_SECONDS, _TIMED_SECONDS = 0.3, 0.5, 0.2


def _share_after(
    multiply: Callable[[int], Any],
    synchronise: Callable[[], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """The rate of products behind half a second of them, of that behind a pause; at most 1."""

    def seconds(count: int) -> float:
        start = clock()
        multiply(count)
        synchronise()
        return clock() - start

    seconds(1)
    fastest = float("inf")
    for _ in range(3):
        sleep(_COOL_SECONDS)
        seconds(1)  # the clock rises when there is work
        fastest = min(fastest, seconds(2) / 2)
    # What is timed is long beside the wait for it.
    many = max(1, round(_TIMED_SECONDS / 4 / fastest))
    began = clock()
    while clock() - began < _WARM_SECONDS:
        seconds(many)
    return min(1.0, fastest / (sum(seconds(many) for _ in range(4)) / (4 * many)))


def _repeated_on_gpu(calibration: Calibration, size: int, total: int) -> float:
    from .calibration_kernels import read_again

    units = torch.cuda.get_device_properties(calibration.device).multi_processor_count
    source = torch.ones(size // 4, device=calibration.device)
    block, programs = 2048, 8 * units
    steps = max(1, total // (4 * block * programs))
    out = torch.empty(programs, device=calibration.device)
    seconds = calibration.seconds(
        lambda: read_again[(programs,)](source, out, size // 4, STEPS=steps, BLOCK=block, num_warps=8)
    )
    return steps * programs * block * 4 / seconds


def _shared_on_gpu(calibration: Calibration) -> float:
    from .calibration_kernels import permute

    units = torch.cuda.get_device_properties(calibration.device).multi_processor_count
    block, steps, programs = 2048, 256, 8 * units
    order = torch.randperm(block, device=calibration.device, dtype=torch.int32)
    out = torch.empty(programs * block, device=calibration.device)
    seconds = calibration.seconds(lambda: permute[(programs,)](order, out, STEPS=steps, BLOCK=block, num_warps=8))
    # Each step writes every element and reads it back.
    return 2.0 * steps * programs * block * 4 / seconds


@torch.no_grad()
def measure(device: torch.device, progress: Progress) -> dict[str, Any]:
    calibration = Calibration(device)
    figures: dict[str, Any] = {}
    steps: list[tuple[str, str, Callable[[], float | None]]] = [
        ("strided_bytes_per_second", "strided reads", calibration.strided),
        ("gather_bytes_per_second", "scattered reads", calibration.gathered),
        # A quarter of the last cache, so that it holds whatever its policy; one core's share on a CPU.
        (
            "cache_bytes_per_second",
            "the last cache",
            lambda: calibration.repeated(
                max(1 << 18, min(cache_bytes(device) // 4, 16 << 20)) // 8192 * 8192,
                8 << 30 if calibration.is_cuda else 1 << 30,
            ),
        ),
        ("shared_bytes_per_second", "the first cache", calibration.shared),
        ("launch_seconds", "launches", calibration.launch),
        ("synchronise_seconds", "synchronisation", calibration.synchronisation),
        ("sustained_share", "long products", calibration.sustained_share),
    ]
    for number, (name, stage, call) in enumerate(steps):
        progress(stage, number / len(steps))
        figures[name] = call()
    return figures


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "calibrate" (docs/worker-protocol.md)."""
    device = torch.device(problems.check_device(params.get("device") or "cpu"))
    with device_lock.hold(device_lock.name_of(device), "timing", progress):
        return measure(device, progress)
