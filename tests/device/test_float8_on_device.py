"""8-bit floats on the GPU: every half, and single precision around every 8-bit float, to the bit as PyTorch's CUDA
kernels convert them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import test_triton_float8 as cases
import torch

from kernelwright.running import problem


def test_conversions_are_pytorchs(device: str, tmp_path: Path) -> None:
    if device != "cuda":
        pytest.skip("the kernels are Triton's")
    module, _ = problem.load_module(cases.made(tmp_path, device), kind="candidate")
    tensors = [tensor.to(device) for tensor in cases.inputs()]
    assert module.hardware_float8() == (torch.cuda.get_device_capability() >= (9, 0))
    expected = cases.Conversions()(*tensors)
    ways = [module.hardware_float8, lambda: False] if module.hardware_float8() else [lambda: False]
    for way in ways:
        module.hardware_float8 = way
        for index, (ours, theirs) in enumerate(zip(module.kernel_forward(*tensors), expected, strict=True)):
            assert cases.same(ours.cpu(), theirs.cpu()), (index, way)
