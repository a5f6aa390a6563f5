"""Convolutions as kernels of ours: what PyTorch computes, and in machine code for an H100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code
from convolution_cases import CASES, conv
from contraction_cases import Case
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only

SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4}
ONE_HALF, EXACT = SMALL | {"scheme": 0}, SMALL | {"scheme": 1}

interpreter = interpreter_of("convolution_cases:interpreted")


@pytest.mark.parametrize("parameters", [ONE_HALF, EXACT], ids=["half", "exact"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_convolutions_are_pytorchs(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "convolution", parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=parameters["scheme"] == 1)
    assert not fault, fault


class Module(torch.nn.Module):
    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.part(x))


LARGE = {
    "square": (torch.nn.Conv2d(64, 128, 3, padding=1), (32, 64, 64, 64)),
    "few_channels": (torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), (64, 3, 128, 128)),
    "transposed": (torch.nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), (32, 64, 64, 64)),
    "three_dimensions": (torch.nn.Conv3d(16, 32, 3), (8, 16, 32, 32, 32)),
    "bfloat16": (torch.nn.Conv2d(64, 128, 3).bfloat16(), (64, 64, 64, 64)),
}


@pytest.mark.parametrize("name", LARGE)
def test_triton_makes_tensor_core_code_of_it(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself, without spilled registers where time is spent."""
    pytest.importorskip("triton")
    part, shape = LARGE[name]
    x = torch.randn(shape, dtype=part.weight.dtype)
    emitted = compile_for_gpu(Module(part), x)
    assert emitted["library_ops"] == []
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["convolution"]
    code = machine_code(emitted, tmp_path)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel
    (product,) = (one for kernel, one in code.items() if kernel.endswith("relu_kernel"))
    assert product.asm["ptx"].count("wgmma.mma_async") > 0
    assert "cp.async" in product.asm["ptx"]


def _scheme(**options: Any) -> int:
    emitted = compile_for_gpu(Module(LARGE["square"][0]), torch.randn(LARGE["square"][1]), **options)
    (group,) = emitted["schedule"]["groups"]
    return group["parameters"]["scheme"]


def test_what_pytorch_may_not_round_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scheme() == 0
    assert _scheme(caution="exact-convolutions") == 1
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert _scheme() == 1


def test_groups_of_few_filters_are_the_librarys() -> None:
    function, shapes = conv(groups=16), ((64, 128, 32, 32), (128, 8, 3, 3))
    emitted = compile_for_gpu(Wrapped(function), *(torch.randn(shape) for shape in shapes))
    assert len(emitted["library_ops"]) == 1
