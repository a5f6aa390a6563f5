"""Linear attention as kernels of ours: what PyTorch computes, what they move, and in machine code for an H100."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code
from contraction_cases import Case
from interpreter_process import InterpreterProcess
from linear_attention_cases import CASES, SMALLEST, positive
from movement_cases import Wrapped

from kernelwright import compile_only

SMALL = {"block_m": 16, "block_n": 16, "num_warps": 4}

interpreter = interpreter_of("linear_attention_cases:interpreted")


@pytest.mark.by_day(3)
@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize(
    "parameters", [SMALL, SMALL | {"split_keys": 3}, SMALL | {"scheme": 0}], ids=["whole", "in_parts", "f32"]
)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_linear_attention_is_pytorchs(
    case: Case, parameters: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "linear_attention", parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


@pytest.mark.parametrize("name", [case.name for case in SMALLEST])
def test_sums_of_one_are_right_whatever_takes_them(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """Passes make other operators of these."""
    case = next(one for one in SMALLEST if one.name == name)
    emitted = compile_for_gpu(Wrapped(case.function), *case.arguments())
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=name)
    assert not fault, fault


HEADS = (8, 16, 8192, 64)
LARGE = {
    "positive": (HEADS, torch.float32),
    "clamped": (HEADS, torch.float32),
    "unweighted": (HEADS, torch.float32),
    "values_first": (HEADS, torch.float32),
    "heads_inside": ((8, 4096, 16, 64), torch.float32),
    "views": ((8, 4096, 16, 128), torch.float16),
    "primes": ((8, 16, 8191, 61), torch.float32),
    "bfloat16": (HEADS, torch.bfloat16),
    "one_query": ((4, 16, 4096, 128), torch.float32),
    "keys_as_they_are": ((4, 16, 8192, 32), torch.float32),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_planner_chooses_it_and_nothing_is_spilled(name: str, tmp_path: Path) -> None:
    """Queries, keys and values are read once, and results written once."""
    pytest.importorskip("triton")
    case = next(one for one in CASES if one.name == name)
    shape, dtype = LARGE[name]
    emitted = compile_for_gpu(Wrapped(case.function), *(torch.empty(shape, dtype=dtype) for _ in range(3)))
    (group,) = emitted["schedule"]["groups"]
    assert group["scheduler"] == "linear_attention" and group["parameters"]["split_keys"] > 1
    assert emitted["library_ops"] == [] and len(emitted["kernels"]) == 3
    for code in machine_code(emitted, tmp_path).values():
        assert compile_only._resources(code)["spills"] in (0, None)


def test_heads_that_a_block_has_not_whole_are_left_to_others() -> None:
    wide = compile_for_gpu(Wrapped(positive), *(torch.empty(2, 4, 4096, 160) for _ in range(3)))
    assert "linear_attention" not in [group["scheduler"] for group in wide["schedule"]["groups"]]
