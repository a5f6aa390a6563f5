"""The tests whose outcome may depend on the processor, under each of its instruction sets and several numbers of
threads: `kw test --matrix`.

PyTorch's kernels and ours choose by the processor that they run on. Here both are told to do without what newer
processors have.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

# Kernels against PyTorch. What is left out compares text, plans and errors, or asks for nothing beyond allclose of two
# roads through PyTorch.
NUMERIC = [
    "tests/e2e/test_edges.py",
    "tests/python/test_cpu_goldens.py",
    "tests/python/test_cpu_kernels.py",
    "tests/python/test_cpu_modules.py",
    "tests/python/test_keep_mask.py",
    "tests/python/test_movement.py",
    "tests/python/test_algebra_passes.py",
    "tests/python/test_passes.py",
    "tests/python/test_plan_semantics.py",
    "tests/python/test_scatters.py",
    "tests/python/test_sorts.py",
    "tests/property/test_schedulers.py",
]

# Flags of /proc/cpuinfo that PyTorch asks for.
ATEN_NEEDS = {"default": (), "avx2": ("avx2", "fma"), "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")}
THREADS = (1, 2, 8)
_NARROW = "-mno-avx512f"


@dataclass(frozen=True)
class Combination:
    """`aten`: PyTorch's kernels. `wide`: our C++ kernels with AVX-512."""

    aten: str
    wide: bool
    threads: int

    @property
    def title(self) -> str:
        return (
            f"PyTorch {self.aten:<8} ours {'with' if self.wide else 'without'} AVX-512".ljust(42)
            + f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        )

    def lacks(self, features: set[str]) -> list[str]:
        """What the processor would need for it."""
        wanted = [*ATEN_NEEDS[self.aten], *(["avx512f"] if self.wide else [])]
        return sorted({feature for feature in wanted if feature not in features})

    def environment(self) -> dict[str, str]:
        compiler = os.environ.get("CXX") or "g++"
        return {
            "ATEN_CPU_CAPABILITY": self.aten,
            "CXX": compiler if self.wide else shlex.join([*shlex.split(compiler), _NARROW]),
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
        }


def combinations() -> list[Combination]:
    """Each of PyTorch's kernels with each of ours, and each number of threads with the newest and the oldest of both."""
    pairs = [Combination(aten, wide, 2) for aten in ATEN_NEEDS for wide in (True, False)]
    ends = [
        Combination(aten, wide, threads)
        for threads in THREADS
        if threads != 2
        for aten, wide in (("avx512", True), ("avx2", False), ("default", False))
    ]
    return pairs + ends


def features() -> set[str]:
    """Of this processor, as Linux names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
