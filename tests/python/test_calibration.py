"""What the cost model is told of a device."""

import os
import subprocess
import sys

import pytest
import torch

from kernelwright import worker
from kernelwright.timing import calibration

FIGURES = {
    "strided_bytes_per_second",
    "gather_bytes_per_second",
    "cache_bytes_per_second",
    "shared_bytes_per_second",
    "launch_seconds",
    "synchronise_seconds",
    "sustained_share",
}


@pytest.mark.slow
def test_the_cpu_is_calibrated_within_reason():
    stages = []
    found = calibration.measure(torch.device("cpu"), lambda stage, fraction: stages.append(stage))
    assert set(found) == FIGURES and len(stages) == len(FIGURES)
    assert 1e7 < found["strided_bytes_per_second"] < found["shared_bytes_per_second"]
    assert found["gather_bytes_per_second"] < found["shared_bytes_per_second"]
    assert 0 < found["launch_seconds"] < 1e-2 and 0 <= found["synchronise_seconds"] < 1e-1
    assert found["sustained_share"] is None


class PoweredDevice:
    """A device whose products take 0.2 ms, and longer once it was busy for a quarter of a second; pauses cool it."""

    def __init__(self, slowed: float) -> None:
        self.now = self.busy = 0.0
        self.slowed = slowed

    def multiply(self, count: int) -> None:
        for _ in range(count):
            seconds = 2e-4 * (self.slowed if self.busy > 0.25 else 1.0)
            self.now += seconds
            self.busy += seconds

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.busy = 0.0


@pytest.mark.parametrize("slowed, share", [(1.0, 1.0), (1.25, 0.8), (0.5, 1.0)], ids=["cool", "hot", "faster"])
def test_long_products_are_timed_when_the_device_is_warm(slowed, share):
    device = PoweredDevice(slowed)
    found = calibration._share_after(device.multiply, lambda: None, lambda: device.now, device.sleep)
    assert found == pytest.approx(share)
    assert device.busy > 0.6 and device.now < 5


def test_calibrate_is_a_method_of_the_worker():
    assert worker.handler("calibrate") is calibration.run


KERNELS = """\
import torch
from kernelwright.timing.calibration_kernels import permute, read_again
source = torch.arange(4096, dtype=torch.float32)
out = torch.empty(3)
read_again[(3,)](source, out, 4096, STEPS=4, BLOCK=1024)
assert torch.equal(out, torch.full((3,), float(source.sum()))), out
order = torch.randperm(64, dtype=torch.int32)
tiles = torch.empty(2 * 64)
permute[(2,)](order, tiles, STEPS=3, BLOCK=64)
known = torch.arange(64)[order.long()][order.long()][order.long()].float()
assert torch.equal(tiles, torch.cat([known, known])), tiles
"""

MACHINE_CODE = """\
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernelwright.timing import calibration_kernels as kernels
for function, signature in ((kernels.read_again, {"source_ptr": "*fp32", "out_ptr": "*fp32", "elements": "i32", "STEPS": "constexpr", "BLOCK": "constexpr"}),
                            (kernels.permute, {"order_ptr": "*i32", "out_ptr": "*fp32", "STEPS": "constexpr", "BLOCK": "constexpr"})):
    constants = {(function.arg_names.index(name),): value for name, value in (("BLOCK", 2048), ("STEPS", 256))}
    made = triton.compile(ASTSource(function, signature, constants, {}), target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    assert made.asm["cubin"]
    if function is kernels.permute:
        assert made.metadata.shared >= 4 * 2048, made.metadata.shared
"""


@pytest.mark.slow
@pytest.mark.parametrize("script, interpreted", [(KERNELS, "1"), (MACHINE_CODE, "0")], ids=["interpreted", "hopper"])
def test_the_gpus_kernels(script, interpreted):
    pytest.importorskip("triton")
    environment = {**os.environ, "PYTHONPATH": os.environ["KW_PYTHONPATH"], "TRITON_INTERPRET": interpreted}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
