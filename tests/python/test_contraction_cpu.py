"""Matrix products as C++ kernels of ours: what PyTorch computes, and planned where the model has them faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from case_checks import as_one_group, load
from contraction_cases import CASES, FOLDS, STREAMS, Case, fault_of_candidate, strewn
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export

Tensor = torch.Tensor

BLOCKS: list[dict[str, int]] = [
    {},
    {"block_rows": 16, "block_columns": 16, "block_depth": 16},
    {"block_rows": 35, "block_columns": 48, "block_depth": 20},
]
# Two rows and columns of blocks, of which the last are not whole unless they divide.
LONGER = [
    Case("whole_blocks", F.linear, ((96, 128), (64, 128), (64,))),
    Case("rows_left_over", F.linear, ((97, 128), (64, 128), (64,))),
    Case("columns_left_over", F.linear, ((96, 128), (67, 128), (67,))),
    Case("depth_left_over", F.linear, ((96, 131), (64, 131), (64,))),
    Case("all_left_over", lambda x, w, b: F.gelu(F.linear(x, w, b)), ((97, 131), (67, 131), (67,))),
    Case("gated", lambda x, w, g: F.silu(F.linear(x, w)) * g, ((2, 40, 64), (48, 64), (2, 40, 48))),
    Case("right_as_it_lies", lambda x, w: (x @ w).relu(), ((40, 64), (64, 48))),
    Case("a_view_of_columns", lambda x, w: x[:, 8:72] @ w, ((40, 80), (64, 48))),
]
ALL = [case for case in [*CASES, *FOLDS, *STREAMS, *LONGER] if case.dtype == torch.float32]


def fault(case: Case, parameters: dict[str, int], tmp_path: Path) -> str:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "contraction", parameters, target="cpu")
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    return fault_of_candidate({"candidate": str(path), "case": case.name}, ALL, strewn, places=8)


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", BLOCKS, ids=["default", "small", "uneven"])
@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_products_are_pytorchs(case: Case, parameters: dict[str, int], tmp_path: Path) -> None:
    found = fault(case, parameters, tmp_path)
    assert not found, found


def compiled(function: Callable[..., Any], arguments: list[Tensor]) -> dict[str, Any]:
    return library.compile_graph(export.export_module(Wrapped(function), tuple(arguments)), "cpu")


def schedulers(emitted: dict[str, Any]) -> list[str]:
    return [group["scheduler"] for group in emitted["schedule"]["groups"]]


def int8_weights(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return (x @ weight.to(x.dtype).t()) * scale


@pytest.mark.parametrize("shape", [(16, 256, 512), (19, 75, 133), (64, 1, 32)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=["int8", "uint8"])
def test_weights_of_bytes_are_converted_where_they_are_read(dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    low = 0 if dtype == torch.uint8 else -128
    weight = torch.randint(low, low + 256, (columns, depth)).to(dtype)
    arguments = [torch.randn(rows, depth), weight, torch.rand(columns)]
    emitted = as_one_group(Wrapped(int8_weights), arguments, "contraction", {}, target="cpu")
    assert emitted["library_ops"] == []
    with torch.no_grad():
        actual = load(emitted["source"]).ModelNew(Wrapped(int8_weights))(*arguments)
    expected = int8_weights(*(one.double() if one.is_floating_point() else one for one in arguments))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_large_weights_of_bytes_are_planned() -> None:
    weight = torch.randint(-127, 128, (2048, 1024), dtype=torch.int8)
    assert schedulers(compiled(int8_weights, [torch.randn(16, 1024), weight, torch.rand(2048)])) == ["contraction"]


LEFT_TO_PYTORCH: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "one_row": (F.linear, [torch.randn(1, 1024), torch.randn(1024, 1024)]),
    "few_rows": (F.linear, [torch.randn(4, 1024), torch.randn(1024, 1024)]),
    "one_column": (F.linear, [torch.randn(1024, 1024), torch.randn(1, 1024)]),
    "tiny": (F.linear, [torch.randn(8, 8), torch.randn(8, 8)]),
    "small_batches": (torch.bmm, [torch.randn(256, 8, 8), torch.randn(256, 8, 8)]),
    "bfloat16": (F.linear, [torch.randn(256, 512).bfloat16(), torch.randn(512, 512).bfloat16()]),
    "float16": (F.linear, [torch.randn(256, 512).half(), torch.randn(512, 512).half()]),
    "double": (F.linear, [torch.randn(256, 512).double(), torch.randn(512, 512).double()]),
}


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_stays_the_librarys(name: str) -> None:
    assert "contraction" not in schedulers(compiled(*LEFT_TO_PYTORCH[name]))


def test_what_it_does_not_take_is_refused_by_name() -> None:
    arguments = [torch.randn(64, 64), torch.randn(64, 64)]
    for name in ("stages", "rows"):
        with pytest.raises(Exception, match=f"'{name}'"):
            as_one_group(Wrapped(F.linear), arguments, "contraction", {name: 64}, target="cpu")
    with pytest.raises(Exception, match="block_rows"):
        as_one_group(Wrapped(F.linear), arguments, "contraction", {"block_rows": 8}, target="cpu")


def test_rows_are_the_same_whatever_stands_beside_them() -> None:
    """Zeros, infinities and NaN of one row do not reach another."""
    x, w = torch.randn(70, 45), torch.randn(33, 45)
    x[3], x[20], x[41] = 0.0, float("inf"), float("nan")
    emitted = as_one_group(Wrapped(F.linear), [x, w], "contraction", {}, target="cpu")
    with torch.no_grad():
        actual = load(emitted["source"]).ModelNew(Wrapped(F.linear))(x, w)
    torch.testing.assert_close(actual, F.linear(x, w), rtol=1e-4, atol=1e-5, equal_nan=True)
    assert torch.equal(actual[3], torch.zeros(33))
