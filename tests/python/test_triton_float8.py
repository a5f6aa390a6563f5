"""8-bit floats in Triton kernels: the hardware's conversions where they round once, bit arithmetic elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter_process import InterpreterProcess

from kernelwright import compile_only, library
from kernelwright.capture import export
from kernelwright.running import problem

pytest.importorskip("triton")


class Conversions(torch.nn.Module):
    """Down from each wider type, and up again."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, code: torch.Tensor, wide: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        small, large = torch.float8_e4m3fn, torch.float8_e5m2
        return (
            x.clamp(-448, 448).to(small),
            y.clamp(-448, 448).to(small),
            z.clamp(-448, 448).to(small),
            x.to(large),
            y.to(large),
            z.to(large),
            code.float() * 2,
            wide.float() * 2,
        )


def every_half(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def around_every_float8() -> torch.Tensor:
    """Each number of both formats, the middles between neighbours, what lies next to them, beyond the largest, and
    single precision's own ends.
    """
    codes = torch.arange(256, dtype=torch.uint8)
    numbers = torch.cat([codes.view(torch.float8_e4m3fn).float(), codes.view(torch.float8_e5m2).float()])
    numbers = numbers[numbers.isfinite()].unique()
    middles = (numbers[1:] + numbers[:-1]) / 2
    ends = torch.tensor(
        [448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 3.4e38, 1e-45, 1.2e-38, 2**-10, 2**-17, float("inf")]
    )
    values = torch.cat([numbers, middles, ends, -ends])
    beside = [values.nextafter(torch.full_like(values, bound)) for bound in (float("inf"), -float("inf"))]
    return torch.cat([values, *beside, torch.tensor([0.0, -0.0, float("nan")])])


def inputs() -> list[torch.Tensor]:
    codes = torch.arange(256, dtype=torch.uint8)
    return [
        around_every_float8(),
        every_half(torch.bfloat16),
        every_half(torch.float16),
        codes.view(torch.float8_e4m3fn),
        codes.view(torch.float8_e5m2),
    ]


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """To the bit, but for a NaN's sign, which the hardware does not keep."""
    wide, reference = ours.float(), theirs.float()
    return (
        ours.dtype == theirs.dtype
        and torch.equal(wide.isnan(), reference.isnan())
        and torch.equal(wide.nan_to_num(0.5).view(torch.int32), reference.nan_to_num(0.5).view(torch.int32))
    )


def made(folder: Path, device: str = "cpu") -> Path:
    tensors = tuple(tensor.to(device) for tensor in inputs())
    answer = library.compile_graph(export.export_module(Conversions(), tensors, device=device), "triton")
    assert answer["library_ops"] == []
    path = folder / "candidate.py"
    path.write_text(answer["source"])
    return path


class Unclamped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e4m3fn)


class Rows(torch.nn.Module):
    """Folds of rows that fill no block."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.float().softmax(-1), y.float().softmax(-1), y.float().amin(-1)


def rows() -> list[torch.Tensor]:
    numbers = torch.randn(3, 100, generator=torch.Generator().manual_seed(5)) * 4 - 9
    return [numbers.to(torch.float8_e4m3fn), numbers.to(torch.float8_e5m2)]


def check(request: dict[str, Any]) -> str:
    module, _ = problem.load_module(Path(request["path"]), kind="candidate")
    if request.get("rows"):
        results = zip(module.kernel_forward(*rows()), Rows()(*rows()), strict=True)
        return "" if all(torch.allclose(ours, theirs) for ours, theirs in results) else "rows differ"
    if request.get("unclamped"):
        return check_beyond_the_largest(module)
    for index, (ours, theirs) in enumerate(
        zip(module.kernel_forward(*inputs()), Conversions()(*inputs()), strict=True)
    ):
        if not same(ours, theirs):
            return f"result {index} differs"
    return ""


def check_beyond_the_largest(module: Any) -> str:
    """As the installed PyTorch has it, and as the other versions have it: what rounds to no number is NaN."""
    import triton.language as tl

    values = inputs()[0]
    if not same(module.kernel_forward(values), values.to(torch.float8_e4m3fn)):
        return "differs from PyTorch"
    results = {}
    for saturates in (True, False):
        module.FLOAT8_SATURATES = tl.constexpr(saturates)
        results[saturates] = module.kernel_forward(values).float()
    expected = torch.where(values.abs() > 464.0, float("nan"), results[True])
    return (
        "" if torch.equal(expected.nan_to_num(0.5), results[False].nan_to_num(0.5)) else "differs from NaN beyond 464"
    )


def test_beyond_the_largest(tmp_path: Path) -> None:
    answer = library.compile_graph(export.export_module(Unclamped(), (inputs()[0],), device="cpu"), "triton")
    path = tmp_path / "candidate.py"
    path.write_text(answer["source"])
    process = InterpreterProcess(tmp_path, "test_triton_float8:check")
    assert process.fault(path=str(path), unclamped=True) == ""
    process.close()
    module, _ = problem.load_module(path, kind="candidate")
    for entry in module.KERNEL_SIGNATURES:
        for sm in (80, 90):
            assert compile_only.compile_entry(module, entry, sm).asm["cubin"]


def test_lanes_beyond_a_row_change_no_fold(tmp_path: Path) -> None:
    answer = library.compile_graph(export.export_module(Rows(), tuple(rows()), device="cpu"), "triton")
    path = tmp_path / "candidate.py"
    path.write_text(answer["source"])
    process = InterpreterProcess(tmp_path, "test_triton_float8:check")
    assert process.fault(path=str(path), rows=True) == ""
    process.close()


def test_bit_arithmetic_rounds_as_pytorch(tmp_path: Path) -> None:
    process = InterpreterProcess(tmp_path, "test_triton_float8:check")
    assert process.fault(path=str(made(tmp_path))) == ""
    process.close()


def test_the_hardware_converts_where_it_rounds_once(tmp_path: Path) -> None:
    module, _ = problem.load_module(made(tmp_path), kind="candidate")
    code = {
        sm: "\n".join(compile_only.compile_entry(module, entry, sm).asm["ptx"] for entry in module.KERNEL_SIGNATURES)
        for sm in (80, 89, 90)
    }
    for conversion in (
        "cvt.rn.satfinite.e4m3x2.f32",
        "cvt.rn.satfinite.e5m2x2.f32",
        "cvt.rn.f16x2.e4m3x2",
        "cvt.rn.f16x2.e5m2x2",
    ):
        assert conversion in code[90], conversion
        assert conversion not in code[80] and conversion not in code[89]
    # By way of half precision it would round twice.
    assert "e4m3x2.f16x2" not in code[89] and "e4m3x2.f16x2" not in code[90]


def nearest(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What PTX says of cvt.rn.satfinite: the nearest number, ties to even, the largest beyond it; in double precision."""
    codes = torch.arange(127 if dtype == torch.float8_e4m3fn else 124, dtype=torch.uint8)
    numbers = codes.view(dtype).double()
    size = values.double().abs().clamp(max=numbers[-1].item()).nan_to_num(0.0)
    above = torch.searchsorted(numbers, size).clamp(max=len(numbers) - 1)
    below = (above - 1).clamp(min=0)
    to_above, to_below = numbers[above] - size, size - numbers[below]
    code = torch.where(
        (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0)) | (to_above == 0), above, below
    )
    signed = (code + values.signbit() * 128).to(torch.uint8)
    return torch.where(values.isnan(), torch.tensor(127, dtype=torch.uint8), signed).view(dtype)


def test_what_the_hardware_documents_is_what_pytorch_computes() -> None:
    for values in inputs()[:3]:
        single = values.float()
        inside = single.clamp(-448, 448)
        assert same(nearest(inside, torch.float8_e4m3fn), inside.to(torch.float8_e4m3fn))
        # As the helper has it: beyond half a step past the largest number, infinity.
        patched = torch.where(
            single.abs() >= 61440.0,
            torch.where(single < 0, 0xFC, 0x7C).to(torch.uint8),
            nearest(single, torch.float8_e5m2).view(torch.uint8),
        ).view(torch.float8_e5m2)
        assert same(patched, single.to(torch.float8_e5m2))
