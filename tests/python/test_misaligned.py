"""Tensors that begin at an address that 16 does not divide, where the bulk copy engine would fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from alignment_cases import CASES, moved
from case_checks import as_one_group, interpreter_of
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from test_emitted_modes import load

from kernelwright import errors

interpreter = interpreter_of("alignment_cases:interpreted")

ALIGNED = re.compile(r"aligned\((\w+), (\d+), (\d+)\)")


def described(source: str) -> list[str]:
    """The kernels' parameters that they read, or write, through the bulk copy engine."""
    return re.findall(r"make_tensor_descriptor\(\s*(\w+)", source)


def emitted_of(name: str, arguments: list[torch.Tensor] | None = None) -> dict[str, Any]:
    case, scheduler, parameters = CASES[name]
    return as_one_group(Wrapped(case.function), arguments or case.arguments(), scheduler, parameters)


@pytest.mark.parametrize("name", CASES)
def test_calls_may_pass_them(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(emitted_of(name)["source"])
    count = len(CASES[name][0].shapes)
    starts = [[0] * count, [1] * count, [0] * (count - 1) + [3], [5] + [0] * (count - 1)]
    fault = interpreter.fault(case=name, candidate=str(path), starts=starts)
    assert not fault, fault


def test_only_what_the_engine_reads_of_a_call_is_asked_for_its_address() -> None:
    asked = {name: sorted(ALIGNED.findall(emitted_of(name)["source"])) for name in CASES}
    assert asked == {
        "attention": [(f"arguments_{place}", "0", "1024") for place in range(3)],
        "packed": [("arguments_0", str(start), str(63 * 48 + 16)) for start in (0, 16, 32)],
        "halves": [("arguments_0", "0", "1280"), ("arguments_1", "0", "768")],
        "streamed": [],  # but for parts that the kernels make themselves
    }


# They run on a GPU alone.
CONSUMERS = {"block_m": 128, "block_n": 64, "block_k": 64, "stages": 3, "num_warps": 4, "consumers": 2, "scheme": 2}


def linear(start: int, parameters: dict[str, int]) -> str:
    """The candidate's source, of a weight that begins so many elements behind an address that 16 divides."""
    arguments = [torch.empty(128, 1024), moved(torch.zeros(512, 1024), start)]
    return as_one_group(Wrapped(torch.nn.functional.linear), arguments, "contraction", parameters)["source"]


def test_a_weight_that_consumers_split_is_asked_for_its_address() -> None:
    source = linear(0, CONSUMERS)
    assert ALIGNED.findall(source) == [("arguments_1", "0", str(512 * 1024))]
    assert described(source) == ["arguments_0_high", "arguments_0_low", "arguments_1"]


def test_consumers_do_not_split_a_weight_that_was_captured_so() -> None:
    with pytest.raises(errors.Error, match="loads boxes"):
        linear(1, CONSUMERS)
    assert described(linear(1, CONSUMERS | {"consumers": 1})) == ["arguments_0_high", "arguments_0_low"]


def test_a_copy_holds_what_the_kernel_reads_and_begins_where_it_must(tmp_path: Path) -> None:
    aligned = load(emitted_of("packed")["source"], tmp_path).aligned
    memory = torch.arange(200, dtype=torch.float16)
    whole = memory[:160].view(4, 40)
    assert aligned(whole, 0, 160) is whole
    assert aligned(whole, 16, 136).data_ptr() == memory[16:].data_ptr()  # lies well where it is
    for tensor, start in ((memory[1:161].view(4, 40), 0), (memory[1:161].view(4, 40), 16), (whole, 4)):
        copy = aligned(tensor, start, 100)
        first = tensor.storage_offset() + start
        assert copy.data_ptr() % 16 == 0 and torch.equal(copy, memory[first : first + 100])


@pytest.mark.parametrize("name", CASES)
def test_captured_so_the_engine_does_not_read_them(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    case, _, _ = CASES[name]
    arguments = [moved(one) for one in case.arguments()]
    source = emitted_of(name, arguments)["source"]
    assert not set(described(source)) & {"q", "k", "v", "arguments_0", "arguments_1"}
    assert "aligned(" not in source
    path = tmp_path / "candidate.py"
    path.write_text(source)
    count = len(arguments)
    fault = interpreter.fault(case=name, candidate=str(path), starts=[[1] * count, [0] * count])
    assert not fault, fault
