"""Matrix products as kernels of ours: what PyTorch computes, at every magnitude, and in machine code for an H100."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code, with_ours
from contraction_cases import (
    CASES,
    FOLDS,
    OF_ONE_INPUT,
    PARTIAL_FOLDS,
    PARTS,
    PARTS_OF_HALVES,
    POOLED,
    SHAPED,
    STREAMS,
    Case,
)
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only, errors
from kernelwright.running.tf32 import Tf32

SMALL = {"block_m": 16, "block_n": 32, "block_k": 16, "stages": 2, "num_warps": 4}
IN_F32 = SMALL | {"scheme": 0}
STREAMED = SMALL | {"scheme": 2}
OF_SIX_PRODUCTS = SMALL | {"scheme": 7}
IN_PARTS = {
    "f32": IN_F32 | {"split_k": 3},
    "split": SMALL | {"split_k": 2},
    "streamed": STREAMED | {"split_k": 3},
    "both_streamed": SMALL | {"scheme": 3, "split_k": 3},
}


# Where PyTorch makes products in TF32.
ONE_HALF = {
    "split": SMALL | {"scheme": 4},
    "streamed": SMALL | {"scheme": 5},
    "both_streamed": SMALL | {"scheme": 6},
    "split_in_parts": SMALL | {"scheme": 4, "split_k": 2},
    "streamed_in_parts": SMALL | {"scheme": 5, "split_k": 3},
}
SINGLE = [case for case in [*CASES, *FOLDS] if case.dtype == torch.float32]
RUNS_OF_ONE_HALF = [(case, "split") for case in SINGLE] + [(case, "streamed") for case in STREAMS]
RUNS_OF_ONE_HALF += [(PARTS[0], "both_streamed"), (PARTS[2], "split_in_parts"), (PARTS[7], "streamed_in_parts")]
RUNS_OF_ONE_HALF += [(PARTIAL_FOLDS[0], "split"), (PARTIAL_FOLDS[7], "split")]


@pytest.fixture
def tf32() -> Iterator[None]:
    """PyTorch may use it."""
    before = Tf32.here()
    Tf32(True, True).set()
    yield
    before.set()


def with_contraction(module: torch.nn.Module, arguments: list[torch.Tensor], parameters: dict[str, int]) -> Any:
    return as_one_group(module, arguments, "contraction", parameters)


interpreter = interpreter_of("contraction_cases:interpreted")


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [SMALL, IN_F32], ids=["split", "f32"])
@pytest.mark.parametrize("case", CASES + FOLDS, ids=[case.name for case in CASES + FOLDS])
def test_products_are_pytorchs(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_contraction(Wrapped(case.function), case.arguments(), parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [SMALL, IN_F32], ids=["split", "f32"])
@pytest.mark.parametrize("case", SHAPED, ids=[case.name for case in SHAPED])
def test_products_of_operands_of_every_shape(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    test_products_are_pytorchs(case, parameters, interpreter, tmp_path)


@pytest.mark.parametrize("case", [*STREAMS, PARTS[0]], ids=lambda case: case.name)
def test_products_of_numbers_of_8_bits(case: Case, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """Nothing is split before, nor done again."""
    source = with_contraction(Wrapped(case.function), case.arguments(), OF_SIX_PRODUCTS)["source"]
    assert "input_precision=SIX_PRODUCTS" in source and source.count("@triton.jit") == 1
    test_products_are_pytorchs(case, OF_SIX_PRODUCTS, interpreter, tmp_path)


IN_FOLD_PARTS = SMALL | {"fold_parts": 1}


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [IN_FOLD_PARTS, IN_FOLD_PARTS | {"scheme": 0}], ids=["split", "f32"])
@pytest.mark.parametrize("case", PARTIAL_FOLDS, ids=[case.name for case in PARTIAL_FOLDS])
def test_folds_of_which_blocks_have_parts(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    source = with_contraction(Wrapped(case.function), case.arguments(), parameters)["source"]
    assert "folded" in source
    test_products_are_pytorchs(case, parameters, interpreter, tmp_path)


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", [SMALL, IN_F32], ids=["split", "f32"])
@pytest.mark.parametrize("case", POOLED, ids=[case.name for case in POOLED])
def test_folds_over_windows_of_columns(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    test_products_are_pytorchs(case, parameters, interpreter, tmp_path)


BY_POINTERS = [case for case in [*CASES, *STREAMS] if case.name in ("mm_both_transposed", "bmm", "few_rows")]


@pytest.mark.parametrize("case", BY_POINTERS, ids=[case.name for case in BY_POINTERS])
def test_operands_that_the_bulk_copy_engine_is_not_asked_for(
    case: Case, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    parameters = (STREAMED if case in STREAMS else SMALL) | {"bulk": 0}
    for bulk in (0, 1):
        source = with_contraction(Wrapped(case.function), case.arguments(), parameters | {"bulk": bulk})["source"]
        assert ("make_tensor_descriptor(" in source) == (bulk == 1)
    test_products_are_pytorchs(case, parameters, interpreter, tmp_path)


def test_a_batch_of_many_tiny_products_is_one_row_of_programs(tmp_path: Path) -> None:
    """Of the second and third dimension of a grid CUDA takes 65,535."""
    batch = 1 << 16
    emitted = compile_for_gpu(Wrapped(torch.bmm), torch.empty(batch, 8, 8), torch.empty(batch, 8, 8))
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["contraction"]
    grids = dict(re.findall(r"launch\(\s*(\w+), \(([\d, ]*)\)", emitted["source"]))
    assert set(grids.values()) == {f"{batch},"} and len(grids) == 4
    pytest.importorskip("triton")
    assert len(machine_code(emitted, tmp_path)) == 4


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_products_of_whole_numbers_are_the_librarys(dtype: torch.dtype) -> None:
    arguments = [torch.zeros(shape, dtype=dtype) for shape in ((256, 256), (256, 256))]
    assert compile_for_gpu(Wrapped(torch.mm), *arguments)["library_ops"] == ["aten.mm"]
    with pytest.raises(errors.Error, match="cannot take"):
        with_contraction(Wrapped(torch.mm), arguments, SMALL)


@pytest.mark.parametrize("case", STREAMS, ids=[case.name for case in STREAMS])
def test_an_operand_that_is_split_where_it_is_read(case: Case, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = with_contraction(Wrapped(case.function), case.arguments(), STREAMED)
    assert emitted["source"].count("def split_") == 1
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


RUNS_IN_PARTS = [(case, how) for case in PARTS for how in IN_PARTS] + [(case, "f32") for case in PARTS_OF_HALVES]


@pytest.mark.parametrize(("case", "how"), RUNS_IN_PARTS, ids=[f"{case.name}-{how}" for case, how in RUNS_IN_PARTS])
def test_depths_that_several_blocks_share_out(
    case: Case, how: str, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_contraction(Wrapped(case.function), case.arguments(), IN_PARTS[how])
    assert emitted["source"].count("_of_parts(") >= 1
    if how == "both_streamed":
        assert "def split_" not in emitted["source"]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.parametrize("case", [PARTS[0], PARTS[2]], ids=lambda case: case.name)
def test_both_operands_that_are_split_where_they_are_read(
    case: Case, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_contraction(Wrapped(case.function), case.arguments(), SMALL | {"scheme": 3})
    assert "def split_" not in emitted["source"] and "_of_parts(" not in emitted["source"]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.parametrize(
    ("case", "how"), RUNS_OF_ONE_HALF, ids=[f"{case.name}-{how}" for case, how in RUNS_OF_ONE_HALF]
)
def test_products_that_pytorch_makes_in_tf32(
    case: Case, how: str, tf32: None, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    """By one half each, at every magnitude: within TF32's error, and PyTorch's infinities and NaN."""
    emitted = with_contraction(Wrapped(case.function), case.arguments(), ONE_HALF[how])
    # A matrix times a vector PyTorch does not round.
    assert ("_low" in emitted["source"]) == (case.name in ("one_row", "one_column_of_depth_one", "sum_of_one_row"))
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, tf32=True)
    assert not fault, fault


@pytest.mark.parametrize("scheme", [1, 4])
@pytest.mark.parametrize(
    ("case", "splits"), list(zip(OF_ONE_INPUT, (4, 3, 4), strict=True)), ids=[case.name for case in OF_ONE_INPUT]
)
def test_what_several_products_read_is_split_once(
    case: Case, splits: int, scheme: int, tf32: None, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_ours(Wrapped(case.function), case.arguments(), "contraction", SMALL | {"scheme": scheme})
    assert emitted["library_ops"] == []
    assert len(re.findall(r"    launch\(\s*split_", emitted["source"])) == splits
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, tf32=scheme == 4)
    assert not fault, fault


LARGE = {
    "few_rows": ((128, 4096), (8192, 4096), (8192,)),
    "linear_gelu": ((8, 512, 1024), (2048, 1024), (2048,)),
    "mm": ((2049, 2949), (2949, 1921)),
    "mm_right_transposed": ((2048, 2048), (2048, 2048)),
    "mm_both_transposed": ((2048, 2048), (2048, 2048)),
    "deep": ((256, 65536), (65536, 256)),
    "bmm": ((16, 512, 512), (16, 512, 512)),
    "bfloat16": ((4096, 1024), (2048, 1024), (2048,)),
}


@pytest.mark.parametrize("name", LARGE)
def test_triton_makes_tensor_core_code_of_them(name: str, tmp_path: Path) -> None:
    """Of what the planner proposes by itself, without spilled registers where time is spent."""
    pytest.importorskip("triton")
    case = next(one for one in [*CASES, *STREAMS, *PARTS] if one.name == name)
    large = Case(name, case.function, LARGE[name], case.dtype, case.arrange)
    emitted = compile_for_gpu(Wrapped(large.function), *large.arguments())
    assert emitted["library_ops"] == [] and [one["scheduler"] for one in emitted["schedule"]["groups"]] == [
        "contraction"
    ]
    code = machine_code(emitted, tmp_path)
    (product,) = (one for kernel, one in code.items() if not re.search("^split_|_in_t?f32|_of_parts", kernel))
    assert product.asm["ptx"].count("wgmma.mma_async") > 0
    assert compile_only._resources(product)["spills"] in (0, None)
    if large.dtype == torch.float32:
        assert len(code) == {"deep": 5}.get(name, 4) and "cp.async.bulk.tensor" in product.asm["ptx"]


# Those that memory keeps busy are the library's then.
LARGE_IN_TF32 = {
    "linear_gelu": ((8, 512, 4096), (4096, 4096), (4096,)),
    "mm": ((8205, 2949), (2949, 5921)),
    "mm_right_transposed": ((4096, 4096), (4096, 4096)),
    "mm_both_transposed": ((4096, 4096), (4096, 4096)),
    "bmm": ((16, 2048, 2048), (16, 2048, 2048)),
}


@pytest.mark.parametrize("name", LARGE_IN_TF32)
def test_tensor_core_code_of_one_half(name: str, tf32: None, tmp_path: Path) -> None:
    """Of what the planner proposes where PyTorch may use TF32."""
    pytest.importorskip("triton")
    case = next(one for one in CASES if one.name == name)
    large = Case(name, case.function, LARGE_IN_TF32[name], case.dtype, case.arrange)
    emitted = compile_for_gpu(Wrapped(large.function), *large.arguments())
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "contraction" and group["parameters"]["scheme"] == 4
    assert "_low" not in emitted["source"] and "by one of halves, for TF32" in emitted["source"]
    code = machine_code(emitted, tmp_path)
    assert len(code) == 4
    (product,) = (one for kernel, one in code.items() if not re.search("^split_|_in_t?f32", kernel))
    assert product.asm["ptx"].count("wgmma.mma_async") > 0 and "cp.async.bulk.tensor" in product.asm["ptx"]
    assert (compile_only._resources(product)["spills"] or 0) <= 128  # bytes, behind the loop
    exact = compile_for_gpu(Wrapped(large.function), *large.arguments(), caution="exact-products")
    assert exact["schedule"]["groups"][0]["parameters"]["scheme"] == 1


def test_tensor_core_code_of_six_products(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    blocks = {"block_m": 128, "block_n": 64, "block_k": 32, "stages": 2, "num_warps": 8, "scheme": 7}
    emitted = with_contraction(Wrapped(torch.mm), [torch.empty(4096, 4096), torch.empty(4096, 4096)], blocks)
    (product,) = machine_code(emitted, tmp_path).values()
    found = set(re.findall(r"wgmma\.mma_async\S*", product.asm["ptx"]))
    assert found and all(one.endswith("f32.bf16.bf16") for one in found)
    assert compile_only._resources(product)["spills"] in (0, None)


def test_caution_leaves_products_to_the_library_and_fuses_the_rest() -> None:
    """A router: what follows its product stays as fused as in the boldest candidate."""

    def router(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, dim=-1).topk(2).values.sum(dim=-1)

    x, w = torch.empty(32768, 4096), torch.empty(4096, 64)
    bold = compile_for_gpu(Wrapped(router), x, w)["schedule"]["groups"]
    careful = compile_for_gpu(Wrapped(router), x, w, caution="library-products")
    schedulers = [group["scheduler"] for group in careful["schedule"]["groups"]]
    assert [group["scheduler"] for group in bold][0] == "contraction"
    assert schedulers == ["extern"] + [group["scheduler"] for group in bold][1:]
    assert careful["library_ops"] == ["aten.mm"] and "extern" not in schedulers[1:]


def test_consumers_split_a_weight_into_one_half(tf32: None, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    case = next(one for one in STREAMS if one.name == "few_rows")
    large = Case("few_rows", case.function, LARGE["few_rows"])
    blocks = {"block_m": 128, "block_n": 64, "block_k": 64, "stages": 3, "num_warps": 4, "consumers": 2, "scheme": 5}
    emitted = with_contraction(Wrapped(large.function), large.arguments(), blocks)
    assert "warp_specialize" in emitted["source"] and "_low" not in emitted["source"]
    code = machine_code(emitted, tmp_path)
    (product,) = (one for kernel, one in code.items() if not re.search("^split_|_in_t?f32", kernel))
    assert "wgmma.mma_async" in product.asm["ptx"] and compile_only._resources(product)["spills"] in (0, None)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_are_rounded_as_the_process_has_it(precision: str) -> None:
    x, w = torch.empty(4096, 4096), torch.empty(4096, 4096)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        emitted = compile_for_gpu(Wrapped(torch.mm), x, w)
    finally:
        torch.set_float32_matmul_precision(before)
    assert emitted["schedule"]["groups"][0]["parameters"]["scheme"] == (1 if precision == "highest" else 4)


def _row_softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1)


@pytest.mark.parametrize("columns, schedulers", [(256, ["contraction"]), (1024, ["contraction", "normalisation"])])
def test_folds_over_few_columns_are_done_where_the_product_is_made(columns: int, schedulers: list[str]) -> None:
    x, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((16384, 512), (512, columns)))
    emitted = compile_for_gpu(Wrapped(_row_softmax), x, w)
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == schedulers


@pytest.mark.parametrize("columns, rows", [(256, 64), (100, 128)])
def test_folds_over_columns_do_not_spill(columns: int, rows: int, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    blocks = {"block_m": rows, "block_n": 128, "block_k": 64, "stages": 2, "num_warps": 8}
    emitted = with_contraction(Wrapped(_row_softmax), [torch.empty(16384, 512), torch.empty(512, columns)], blocks)
    for kernel, one in machine_code(emitted, tmp_path).items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel


LARGE_FOLDS = {
    "largest_of_columns": ((4099, 1024), (1024, 16380)),
    "sums_of_rows": ((4096, 1024), (4096, 1024), (4096,)),
    "logsumexp_of_rows": ((4096, 1024), (16384, 1024), (16384,)),
    "folded_bfloat16": ((4096, 1024), (1024, 16384)),
}


@pytest.mark.parametrize("name", LARGE_FOLDS)
def test_pairs_of_blocks_fold_their_parts_of_large_products(name: str, tmp_path: Path) -> None:
    """By default; the product is never stored."""
    case = next(one for one in PARTIAL_FOLDS if one.name == name)
    arguments = Case(name, case.function, LARGE_FOLDS[name], case.dtype).arguments()
    emitted = compile_for_gpu(Wrapped(case.function), *arguments)
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "contraction" and group["parameters"]["consumers"] == 2
    rows, columns = arguments[0].shape[0], (arguments[1].mT if len(arguments) > 2 else arguments[1]).shape[1]
    kept = re.findall(rf"torch.empty\(\({rows}, {columns}\)", emitted["source"])
    assert not kept and "warp_specialize" in emitted["source"]
    pytest.importorskip("triton")
    # SiLU of 128 results a thread, which are folded across its rows, is more than registers hold: once, behind the loop.
    most = 256 if name == "folded_bfloat16" else 0
    for kernel, code in machine_code(emitted, tmp_path).items():
        assert (compile_only._resources(code)["spills"] or 0) <= most, kernel


@pytest.mark.parametrize("columns, schedulers", [(512, ["contraction"]), (16384, ["contraction", "sliding"])])
def test_pools_are_folded_where_no_pairs_of_blocks_are_lost(columns: int, schedulers: list[str]) -> None:
    x, w = of_16_bits((1024, 1024), (1024, columns))
    emitted = compile_for_gpu(Wrapped(lambda x, w: torch.nn.functional.max_pool1d(x @ w, 2)), x, w)
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == schedulers


def _gated_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x @ w).sum(-1)


def test_folds_of_few_rows_by_a_long_weight_are_kernels_of_their_own() -> None:
    """The weight is split where it is read, beside which the product is little; so is what several blocks sum up."""
    emitted = compile_for_gpu(Wrapped(_gated_sum), torch.empty(128, 16384), torch.empty(16384, 16384))
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["contraction", "reduction"]


def _below_largest(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = x @ w
    return product - product.amax(0)


def _two_rounds(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = x @ w
    return (product - product.amax(0)).exp().sum(0)


@pytest.mark.parametrize("function", [_below_largest, _two_rounds])
def test_what_needs_the_product_behind_its_fold_is_a_kernel_of_its_own(function: Any) -> None:
    with pytest.raises(errors.Error):
        with_contraction(Wrapped(function), [torch.empty(70, 45), torch.empty(45, 33)], IN_FOLD_PARTS)
    emitted = compile_for_gpu(Wrapped(function), torch.empty(4096, 1024), torch.empty(1024, 4096))
    assert "folded" not in emitted["source"]


def test_blocks_that_are_computed_again_do_not_spill(tmp_path: Path) -> None:
    """Of a result so large that they are wide."""
    pytest.importorskip("triton")
    case = next(one for one in CASES if one.name == "linear_gelu")
    emitted = compile_for_gpu(Wrapped(case.function), torch.empty(8192, 256), torch.empty(8192, 256), torch.empty(8192))
    (again,) = (code for kernel, code in machine_code(emitted, tmp_path).items() if "_in_f32" in kernel)
    assert compile_only._resources(again)["spills"] in (0, None)


def test_what_the_contraction_scheduler_does_not_take_is_named() -> None:
    with pytest.raises(errors.Error, match="block_m"):
        with_contraction(Wrapped(torch.mm), CASES[0].arguments(), {"block_m": 24})


PAIRS = {"block_m": 64, "block_n": 256, "block_k": 64, "stages": 3, "num_warps": 4, "consumers": 2, "bulk_stores": 1}


def of_16_bits(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]


@pytest.mark.parametrize(
    ("function", "arguments", "by_consumers"),
    [
        (torch.mm, of_16_bits((512, 256), (256, 512)), True),
        (lambda a, b: torch.mm(a, b.mT), of_16_bits((512, 256), (512, 256)), True),
        (lambda a, b: torch.mm(a.mT, b), of_16_bits((256, 512), (256, 512)), True),
        (torch.bmm, of_16_bits((3, 512, 256), (3, 256, 512)), True),
        (lambda a, b: torch.matmul(a, b.expand(3, 256, 512)), of_16_bits((3, 512, 256), (256, 512)), True),
        (torch.mm, of_16_bits((500, 264), (264, 504)), True),
        (torch.mm, of_16_bits((500, 258), (258, 504)), False),  # rows that do not begin at multiples of 16 bytes
        (lambda a, b: torch.mm(a[:, 1:], b[1:]), of_16_bits((512, 264), (264, 512)), False),
        (lambda a, b: torch.mm(a.mT, b.mT), of_16_bits((256, 512), (512, 256)), False),  # no order of axes makes boxes
        (lambda a, b: torch.relu(torch.mm(a, b)).float(), of_16_bits((512, 256), (256, 512)), True),
    ],
    ids=[
        "mm",
        "linear",
        "left_transposed",
        "bmm",
        "shared",
        "ragged",
        "odd_rows",
        "offset",
        "both_transposed",
        "wider_result",
    ],
)
def test_products_of_16_bits_by_pairs_of_blocks(
    function: Any, arguments: list[torch.Tensor], by_consumers: bool, tmp_path: Path
) -> None:
    # There is no room for tiles of larger results.
    stores = 0 if function(*arguments).dtype is torch.float32 else 1
    emitted = with_contraction(Wrapped(function), arguments, PAIRS | {"bulk_stores": stores})
    assert ("warp_specialize" in emitted["source"]) == by_consumers
    pytest.importorskip("triton")
    for kernel in machine_code(emitted, tmp_path).values():
        assert "wgmma" in kernel.asm["ptx"]


def test_large_products_of_16_bits_are_pairs_by_default(tmp_path: Path) -> None:
    arguments = of_16_bits((4096, 1024), (6144, 1024), (6144,))
    emitted = compile_for_gpu(Wrapped(lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b))), *arguments)
    (group,) = emitted["schedule"]["groups"]
    assert group["parameters"]["consumers"] == 2 and group["parameters"]["bulk_stores"] == 1
    assert "warpgroup_mma_wait(1" in emitted["source"]
    pytest.importorskip("triton")
    assert len(machine_code(emitted, tmp_path)) == 1


def test_more_shared_memory_than_there_is_is_refused_before_it_is_compiled() -> None:
    with pytest.raises(errors.Error, match="bytes of shared memory at least"):
        with_contraction(Wrapped(torch.mm), of_16_bits((4096, 4096), (4096, 4096)), PAIRS | {"stages": 4})
