"""Matrix products on the GPU, as the planner schedules them and in small blocks, beside eager's and double precision's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
import torch.nn.functional as F
from contraction_cases import (
    CASES,
    FOLDS,
    PARTS,
    PARTS_OF_HALVES,
    PLACES_OF_TF32,
    STREAMS,
    Case,
    fault_of,
    in_tf32 as rounded_to_tf32,
    strewn,
    transposed,
)
from device_checks import Candidate, as_tuple, assert_planned, assert_within_contract, emit, in_double, moved, put_in
from movement_cases import Wrapped

from kernelwright.running.tf32 import Tf32

Tensor = torch.Tensor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")

# Of a few elements eager's own error, beside which a row's is held, is small by chance.
PLACES = 16  # last places


@dataclass(frozen=True)
class Planned(Case):
    """`parameters`: what the planner's choice must hold, so that the case tests the kernel that it is meant for."""

    parameters: dict[str, int] = field(default_factory=dict)
    schedulers: tuple[str, ...] = ("contraction",)
    kernels: int = 4  # two splits, the product, and what has no halves


def _relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.linear(x, w, b))


def _silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.linear(x, w, b))


def _residual(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.linear(x, w, b) + r


def _layer_norm(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return F.layer_norm(F.linear(x, w, b) + r, (b.shape[0],))


BF16, FP16 = torch.bfloat16, torch.float16
SPLIT = {"scheme": 1, "split_k": 1}
PAIRS = SPLIT | {"consumers": 2}
STREAMED = {"scheme": 2, "consumers": 2}
IN_PARTS = {"scheme": 2, "consumers": 2, "split_k": 2}
WHOLE = {"scheme": 0, "bulk": 1, "split_k": 1}
SQUARE = ((2048, 2048),) * 2

PLANNED = [
    # 1,024 pairs of blocks: each program walks several.
    Planned("persistent", torch.mm, ((4096, 4096),) * 2, parameters=PAIRS | {"bulk_stores": 0}),
    Planned("right_transposed", torch.mm, SQUARE, arrange=transposed(1), parameters=PAIRS),
    Planned("both_transposed", torch.mm, SQUARE, arrange=transposed(0, 1), parameters=SPLIT),
    Planned("ragged", torch.mm, ((2049, 2949), (2949, 1921)), parameters=PAIRS),
    Planned("primes", torch.mm, ((2053, 1531), (1531, 2551)), parameters=PAIRS),
    Planned("few_rows", _relu, ((128, 4096), (8192, 4096), (8192,)), parameters=IN_PARTS),
    Planned("sixteen_rows", _relu, ((16, 4096), (8192, 4096), (8192,)), parameters=IN_PARTS | {"block_m": 16}),
    Planned("few_columns", torch.mm, ((8192, 4096), (4096, 64)), parameters=IN_PARTS),
    Planned("streamed_whole", torch.mm, ((16384, 512), (512, 64)), parameters=STREAMED | {"split_k": 1}, kernels=3),
    Planned("deep", torch.mm, ((256, 65536), (65536, 256)), parameters={"scheme": 1, "split_k": 32}, kernels=5),
    Planned(
        "linear_gelu",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        ((8, 512, 1024), (2048, 1024), (2048,)),
        parameters=PAIRS | {"bulk_stores": 1},
    ),
    Planned(
        "linear_residual",
        _residual,
        ((4096, 1024), (2048, 1024), (2048,), (4096, 2048)),
        parameters=PAIRS | {"bulk_stores": 1},
    ),
    Planned("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2.0), ((2048, 2048),) * 3, parameters=PAIRS),
    Planned("bmm", torch.bmm, ((16, 512, 512),) * 2, parameters=PAIRS),
    Planned("broadcast_batches", torch.matmul, ((4, 1, 512, 512), (5, 512, 512)), parameters=PAIRS),
    Planned("tiny", torch.bmm, ((65536, 8, 8),) * 2, parameters=SPLIT | {"block_m": 16, "bulk": 0}),
    Planned(
        "tiny_halves", lambda a, b: F.relu(a @ b), ((65536, 16, 16),) * 2, BF16, parameters={"scheme": 0}, kernels=1
    ),
    Planned("bf16_silu", _silu, ((4096, 1024), (2048, 1024), (2048,)), BF16, parameters=WHOLE, kernels=1),
    Planned(
        "fp16_relu_residual",
        lambda x, w, r: F.relu(x @ w) + r,
        ((4096, 1024), (1024, 2048), (4096, 2048)),
        FP16,
        parameters=WHOLE,
        kernels=1,
    ),
    Planned("bf16_prime_rows", _silu, ((4099, 1024), (2048, 1024), (2048,)), BF16, parameters=WHOLE, kernels=1),
    Planned("bf16_prime_depth", _silu, ((4096, 1021), (2048, 1021), (2048,)), BF16, kernels=1),
    Planned(
        "bf16_softmax",
        lambda x, w: torch.softmax(x @ w, -1),
        ((16384, 512), (512, 256)),
        BF16,
        parameters=WHOLE | {"block_n": 256},
        kernels=1,
    ),
    Planned(
        "fp16_largest_of_rows",
        lambda x, w: (x @ w).amax(-1),
        ((16384, 512), (512, 256)),
        FP16,
        parameters=WHOLE | {"block_n": 256},
        kernels=1,
    ),
    Planned(
        "bf16_residual_layer_norm",
        _layer_norm,
        ((16384, 512), (128, 512), (128,), (16384, 128)),
        BF16,
        parameters=WHOLE | {"block_n": 128},
        kernels=1,
    ),
    Planned(
        "softmax_behind",
        lambda x, w: torch.softmax(x @ w, -1),
        ((16384, 512), (512, 128)),
        parameters=STREAMED,
        schedulers=("contraction", "normalisation"),
    ),
]

SMALL = {"block_m": 16, "block_n": 32, "block_k": 16, "stages": 2, "num_warps": 4}
WAYS = {
    "split": SMALL,
    "f32": SMALL | {"scheme": 0},
    "streamed": SMALL | {"scheme": 2},
    "both_streamed": SMALL | {"scheme": 3},
    "split_in_parts": SMALL | {"split_k": 2},
    "f32_in_parts": SMALL | {"scheme": 0, "split_k": 3},
    "streamed_in_parts": SMALL | {"scheme": 2, "split_k": 3},
    "both_streamed_in_parts": SMALL | {"scheme": 3, "split_k": 3},
}
RUNS = [(case, "f32" if place % 2 else "split") for place, case in enumerate(CASES + FOLDS)]
RUNS += [(case, "streamed") for case in STREAMS] + [(PARTS[0], "both_streamed"), (PARTS[2], "both_streamed")]
RUNS += [(case, [way for way in WAYS if "in_parts" in way][place % 4]) for place, case in enumerate(PARTS)]
RUNS += [(case, "f32_in_parts") for case in PARTS_OF_HALVES]


def assert_rows_are_close(
    candidate: Candidate, case: Case, arguments: list[Tensor], places: float = PLACES, in_tf32: bool = False
) -> None:
    """Row by row, with rows and columns of every magnitude, and NaN and infinities where eager has them. `in_tf32`: it
    is given rounded operands, whatever its library rounds of small products.
    """
    given = [rounded_to_tf32(one) for one in arguments] if in_tf32 else arguments
    found, eager = as_tuple(candidate(*arguments)), as_tuple(case.function(*given))
    for ours, theirs, right in zip(found, eager, as_tuple(case.function(*in_double(arguments))), strict=True):
        fault = fault_of(ours, theirs, right, places)
        assert not fault, fault


@pytest.mark.parametrize("case", PLANNED, ids=[case.name for case in PLANNED])
@torch.no_grad()
def test_planned_products(case: Planned, tmp_path: Path) -> None:
    drawn = case.arguments()
    given = moved(drawn)
    emitted = emit(Wrapped(case.function), given)
    assert_planned(emitted, list(case.schedulers), case.parameters)
    assert len(emitted["kernels"]) == case.kernels
    assert ("warp_specialize" in emitted["source"]) == ("consumers" in emitted["schedule"]["groups"][0]["parameters"])
    candidate = Candidate(emitted, tmp_path)
    found = candidate(*given)
    assert_within_contract(found, case.function(*given), case.function(*in_double(given)))
    for first, again in zip(as_tuple(found), as_tuple(candidate(*given)), strict=True):
        assert torch.equal(first, again)  # sums of parts are added in one order
    if case.dtype == torch.float32 and case.name != "softmax_behind":
        assert_rows_are_close(candidate, case, moved(put_in(drawn, strewn(drawn))))


@pytest.mark.parametrize("case, way", RUNS, ids=[f"{case.name}-{way}" for case, way in RUNS])
@torch.no_grad()
def test_products_in_small_blocks(case: Case, way: str, tmp_path: Path) -> None:
    drawn = case.arguments()
    emitted = emit(Wrapped(case.function), moved(drawn), "contraction", WAYS[way])
    assert_planned(emitted, ["contraction"], WAYS[way])
    candidate = Candidate(emitted, tmp_path)
    for arguments in (drawn, strewn(drawn)):
        assert_rows_are_close(candidate, case, moved(put_in(drawn, arguments)))


@pytest.fixture
def tf32() -> Iterator[None]:
    """PyTorch may use it, and does."""
    before = Tf32.here()
    Tf32(True, True).set()
    yield
    before.set()


IN_ONE_HALF = {"scheme": 4, "split_k": 1}
PLANNED_IN_TF32 = [
    Planned("square", torch.mm, ((4096, 4096),) * 2, parameters=IN_ONE_HALF),
    Planned("both_transposed", torch.mm, ((4096, 4096),) * 2, arrange=transposed(0, 1), parameters=IN_ONE_HALF),
    Planned("ragged", torch.mm, ((8205, 2949), (2949, 5921)), parameters=IN_ONE_HALF),
    Planned(
        "linear_gelu",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        ((8, 512, 4096), (4096, 4096), (4096,)),
        parameters=IN_ONE_HALF,
    ),
    Planned("bmm", torch.bmm, ((16, 2048, 2048),) * 2, parameters=IN_ONE_HALF),
]
WAYS_OF_ONE_HALF = {
    "split": SMALL | {"scheme": 4},
    "streamed": SMALL | {"scheme": 5},
    "both_streamed": SMALL | {"scheme": 6},
    "split_in_parts": SMALL | {"scheme": 4, "split_k": 2},
}
RUNS_OF_ONE_HALF = [(case, "split") for case in CASES + FOLDS if case.dtype == torch.float32]
RUNS_OF_ONE_HALF += [(case, "streamed") for case in STREAMS]
RUNS_OF_ONE_HALF += [(PARTS[0], "both_streamed"), (PARTS[2], "split_in_parts")]


@pytest.mark.parametrize("case", PLANNED_IN_TF32, ids=[case.name for case in PLANNED_IN_TF32])
@torch.no_grad()
def test_planned_products_in_tf32(case: Planned, tf32: None, tmp_path: Path) -> None:
    drawn = case.arguments()
    given = moved(drawn)
    emitted = emit(Wrapped(case.function), given)
    assert_planned(emitted, list(case.schedulers), case.parameters)
    candidate = Candidate(emitted, tmp_path)
    assert_within_contract(candidate(*given), case.function(*given), case.function(*in_double(given)))
    assert_rows_are_close(candidate, case, moved(put_in(drawn, strewn(drawn))), PLACES_OF_TF32)


@pytest.mark.parametrize("case, way", RUNS_OF_ONE_HALF, ids=[f"{case.name}-{way}" for case, way in RUNS_OF_ONE_HALF])
@torch.no_grad()
def test_products_in_tf32_in_small_blocks(case: Case, way: str, tf32: None, tmp_path: Path) -> None:
    drawn = case.arguments()
    candidate = Candidate(emit(Wrapped(case.function), moved(drawn), "contraction", WAYS_OF_ONE_HALF[way]), tmp_path)
    for arguments in (drawn, strewn(drawn)):
        assert_rows_are_close(candidate, case, moved(put_in(drawn, arguments)), PLACES_OF_TF32, in_tf32=True)


def bmm_strewn(a: Tensor, b: Tensor) -> None:
    """Batches of every magnitude, of zeros and of what is not finite."""
    for batch, scale in enumerate((2.0**100, 2.0**-100, 2.0**-130, 0.0, 1e-45)):
        a[batch] *= scale
    a[5, 3, 7], a[6, 0, 0], b[7, 2, 1], b[8, 5, 5] = float("inf"), float("nan"), float("-inf"), float("nan")
    a[9, 4, 4], b[9, 6, 2] = 2.0**58, 2.0**57
    a[9, 5, 4] = b[9, 4, 3] = 0.0


@pytest.mark.parametrize("shape", [(16, 512, 512), (65536, 8, 8)], ids=["large", "tiny"])
@torch.no_grad()
def test_batches_of_every_magnitude(shape: tuple[int, ...], tmp_path: Path) -> None:
    case = Case("bmm", torch.bmm, (shape, shape))
    given = moved(case.arguments())
    candidate = Candidate(emit(Wrapped(case.function), given), tmp_path)
    bmm_strewn(*given)
    assert_rows_are_close(candidate, case, given)


@pytest.mark.parametrize("dtype", [BF16, torch.float32], ids=str)
@torch.no_grad()
def test_results_of_more_elements_than_32_bits_count(dtype: torch.dtype, tmp_path: Path) -> None:
    rows, depth, columns = 66_000, 64, 33_000
    assert rows * columns > 1 << 31
    module = Wrapped(lambda x, w: F.relu(x @ w))
    x, w = torch.randn(rows, depth, device="cuda").to(dtype), torch.randn(depth, columns, device="cuda").to(dtype)
    emitted = emit(module, [x, w])
    assert_planned(emitted, ["contraction"], {"scheme": 0 if dtype == BF16 else 1})
    found = Candidate(emitted, tmp_path)(x, w)
    last = (1 << 31) // columns  # element 2^31 is one of this row's
    sample = [0, 1, last // 2, last - 1, last, last + 1, *range(rows - 130, rows)]
    some: Any = torch.tensor(sample, device="cuda")
    assert found.shape == (rows, columns) and found.is_contiguous()
    assert_within_contract(found[some], module(x[some], w), module(x[some].double(), w.double()))
