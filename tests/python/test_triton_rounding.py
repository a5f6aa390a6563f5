"""What the machine code of emitted Triton kernels rounds, and how often: as PyTorch's CUDA kernels do, one operator
after the other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

from kernelwright import compile_only, library
from kernelwright.capture import export
from kernelwright.running import problem

pytest.importorskip("triton")


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def machine_code(function: Callable[..., Any], inputs: list[torch.Tensor], folder: Path) -> str:
    """PTX of all kernels of the function's candidate."""
    made = library.compile_graph(export.export_module(Function(function), tuple(inputs), device="cpu"), "triton")
    assert made["kernels"] and made["library_ops"] == []
    path = folder / "candidate.py"
    path.write_text(made["source"])
    module, _ = problem.load_module(path, kind="candidate")
    return "\n".join(compile_only.compile_entry(module, entry, 90).asm["ptx"] for entry in module.KERNEL_SIGNATURES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_quotients_and_roots_are_rounded_correctly(dtype: torch.dtype, tmp_path: Path) -> None:
    inputs = [torch.randn(64, 256).to(dtype), torch.rand(64, 256).to(dtype)]
    code = machine_code(
        lambda x, y: [
            x / y,
            1.0 / x,
            torch.sqrt(y),
            x / x.amax(1, keepdim=True),
            torch.div(x, y, rounding_mode="trunc"),
        ],
        inputs,
        tmp_path,
    )
    assert "div.rn.f32" in code and "sqrt.rn.f32" in code
    assert not re.search(r"div\.(full|approx)|sqrt\.approx", code)


def test_quotients_by_sums_are_rounded_correctly_only_for_a_step_behind_them(tmp_path: Path) -> None:
    """The last places of a sum, or of an exponential, depend on its order and its author already."""
    inputs = [torch.randn(64, 256)]
    assert "div.rn" not in machine_code(lambda x: [torch.softmax(x, 1), x.sigmoid()], inputs, tmp_path)
    assert "div.rn" not in machine_code(
        lambda x: [torch.xlogy(torch.softmax(x, 1), torch.softmax(x, 1))], inputs, tmp_path
    )  # asks whether it is 0
    for stepped in (
        lambda x: torch.exp(torch.softmax(x, 1)) - 1 == 0,
        lambda x: (torch.softmax(x, 1) * 100).round(),
        lambda x: x.sigmoid() > 0.3,
    ):
        code = machine_code(stepped, inputs, tmp_path)
        assert "div.rn.f32" in code and "div.full" not in code


def test_products_are_rounded_before_they_are_added(tmp_path: Path) -> None:
    inputs = [torch.randn(64, 256) for _ in range(3)]
    code = machine_code(
        lambda x, y, z: [x * y + z, x * y - y * z, (x * y).sum(1), (x * 3 + y).round().to(torch.int8)], inputs, tmp_path
    )
    assert "mul.rn.f32" in code and not re.search(r"fma|mad\.f32", code)


def test_a_literal_minus_zero_keeps_its_sign(tmp_path: Path) -> None:
    code = machine_code(lambda x: torch.where(x > 0, x, -0.0), [torch.randn(64, 256)], tmp_path)
    assert "0f80000000" in code
