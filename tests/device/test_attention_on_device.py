"""Attention on the GPU, as the planner schedules it, by hand and in small blocks, beside eager's and double
precision's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from attention_cases import CASES, PLACES, by_hand, operator, strewn
from contraction_cases import Case, fault_of
from device_checks import Candidate, assert_planned, assert_within_contract, emit, in_double, moved, put_in
from movement_cases import Wrapped
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = torch.Tensor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")

# Scores of many features are larger than those of small cases, and so is the error of their exponentials.
MANY_FEATURES = 8
BLOCKS = {"block_m": 64, "block_n": 64, "stages": 3, "num_warps": 4, "bulk": 1}


@dataclass(frozen=True)
class Planned(Case):
    """`by_hand`: blocks for what the planner leaves to the library."""

    parameters: dict[str, int] = field(default_factory=dict)
    by_hand: dict[str, int] | None = None
    schedulers: tuple[str, ...] = ("attention",)


def heads(*shape: int) -> tuple[tuple[int, ...], ...]:
    return (shape,) * 3


def known(
    name: str, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype = torch.float32, label: str = ""
) -> Planned:
    """A case of attention_cases at other sizes."""
    case = next(one for one in CASES if one.name == name)
    scheme = {"scheme": 1 if dtype == torch.float32 else 0}
    return Planned(label or name, case.function, shapes, dtype, case.arrange, scheme)


BF16, FP16 = torch.bfloat16, torch.float16
LONG = heads(4, 8, 1024, 64)
UNEVEN = ((3, 5, 517, 64), (3, 5, 1031, 64), (3, 5, 1031, 64))
SHARED = ((2, 16, 1024, 64), (2, 4, 1024, 64), (2, 4, 1024, 64))
ONE_QUERY = ((4, 8, 1, 64), (4, 8, 4096, 64), (4, 8, 4096, 64))
WIDE = {"block_m": 128, "block_n": 64, "stages": 2, "num_warps": 8, "bulk": 1}

PLANNED = [
    *(known("operator", heads(4, 8, 1024, width), label=f"heads_of_{width}") for width in (32, 64, 96, 128, 256)),
    known("by_hand", heads(4, 8, 1024, 72)),
    known("by_hand", UNEVEN, label="uneven"),
    known("causal_square", LONG),
    known("causal", heads(3, 8, 1021, 64), label="causal_uneven"),
    known("some_keys", (*LONG, (4, 1, 1024, 1024))),
    known("bias_table", (*heads(4, 8, 512, 96), (1, 1, 1024, 1024))),
    known("shared_keys", SHARED),
    known("by_distance", (*heads(2, 16, 1024, 64), (16,))),
    known("into_features", LONG),
    known("by_distance", (*heads(2, 16, 1024, 64), (16,)), BF16, "bf16_by_distance"),
    known("bias_table", (*heads(4, 8, 512, 96), (1, 1, 1024, 1024)), BF16, "bf16_bias_table"),
    known("bfloat16", LONG, BF16, "bf16_by_hand"),
    known("softmax_in_single", LONG, FP16),
    known("relu_bfloat16", LONG, BF16),
    known("two_layers_in_half", ((16, 4096, 64), (256, 64), (64, 256), (256,), (64,)), FP16),
    *(
        Planned(f"bf16_heads_of_{width}", operator(), heads(4, 8, 1024, width), BF16, by_hand=blocks)
        for width, blocks in ((32, BLOCKS), (64, BLOCKS), (64, BLOCKS | {"bulk": 0}), (128, WIDE))
    ),
    Planned("bf16_causal", operator(is_causal=True), LONG, BF16, by_hand=BLOCKS),
    Planned("bf16_causal_uneven", operator(is_causal=True), heads(3, 8, 1021, 64), BF16, by_hand=BLOCKS),
    Planned("bf16_shared_keys", operator(enable_gqa=True, is_causal=True), SHARED, BF16, by_hand=BLOCKS),
    Planned("one_query", operator(), ONE_QUERY, parameters={"scheme": 0, "block_m": 1}),
    Planned(
        "prime_number_of_keys", operator(), ((1, 16, 1, 64), *heads(1, 16, 32771, 64)[1:]), parameters={"scheme": 0}
    ),
    Planned("few_queries", operator(), ((2, 8, 8, 128), *heads(2, 8, 16384, 128)[1:]), parameters={"scheme": 0}),
    Planned(
        "one_query_for_shared_keys",
        operator(enable_gqa=True),
        ((4, 32, 1, 128), *heads(4, 8, 8192, 128)[1:]),
        parameters={"scheme": 0, "block_m": 2},
    ),
    Planned(
        "bf16_one_query_in_parts",
        operator(enable_gqa=True),
        ((4, 32, 1, 128), *heads(4, 8, 8192, 128)[1:]),
        BF16,
        by_hand=BLOCKS | {"block_m": 16, "stages": 3, "split_keys": 8},
    ),
    Planned("bf16_one_query", by_hand, ONE_QUERY, BF16, by_hand=BLOCKS | {"block_m": 16, "stages": 2}),
]

SMALL = {"block_m": 16, "block_n": 16, "stages": 2, "num_warps": 4}


# The weights of keys with an infinity may round to 0 or not, as exponentials of subnormal results do.
ONLY_DRAWN = ("by_distance", "bf16_by_distance")


def assert_rows_are_close(candidate: Candidate, case: Case, arguments: list[Tensor]) -> None:
    """Row by row, with NaN and infinities where eager's formula has them."""
    found = candidate(*arguments)
    with sdpa_kernel(SDPBackend.MATH):  # others leave out blocks of keys, with what NaN they hold
        eager, exact = case.function(*arguments), case.function(*in_double(arguments))
    fault = fault_of(found.contiguous(), eager.contiguous(), exact.contiguous(), MANY_FEATURES * PLACES)
    assert not fault, fault


def names(cases: list[Planned]) -> list[str]:
    return [case.name for case in cases]


@pytest.mark.parametrize("case", PLANNED, ids=names(PLANNED))
@torch.no_grad()
def test_planned_attention(case: Planned, tmp_path: Path) -> None:
    drawn = case.arguments()
    given = moved(drawn)
    emitted = emit(Wrapped(case.function), given, "attention", case.by_hand)
    assert_planned(emitted, list(case.schedulers), case.by_hand or case.parameters)
    candidate = Candidate(emitted, tmp_path)
    found, exact = candidate(*given), case.function(*in_double(given))
    # How results lie is promised of what the planner takes.
    assert_within_contract(found, case.function(*given), exact, layouts=case.by_hand is None)
    assert torch.equal(found, candidate(*given))
    if case.dtype == torch.float32 and case.name not in ONLY_DRAWN:
        assert_rows_are_close(candidate, case, moved(put_in(drawn, strewn(drawn))))


WAYS = {
    "split": {"last_keys": 1},
    "f32": {"scheme": 0},
    "in_parts": {"scheme": 0, "split_keys": 3, "last_keys": 1},
    "few_queries": {"scheme": 0, "block_m": 2, "split_keys": 2},
}


@pytest.mark.parametrize("scheme", list(WAYS.values()), ids=list(WAYS))
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.in_turns("scheme")
@torch.no_grad()
def test_attention_in_small_blocks(case: Case, scheme: dict[str, int], tmp_path: Path) -> None:
    drawn = case.arguments()
    emitted = emit(Wrapped(case.function), moved(drawn), "attention", SMALL | scheme)
    assert_planned(emitted, ["attention"], SMALL | scheme)
    candidate = Candidate(emitted, tmp_path)
    for arguments in [drawn] if case.name in ONLY_DRAWN else [drawn, strewn(drawn)]:
        assert_rows_are_close(candidate, case, moved(put_in(drawn, arguments)))
