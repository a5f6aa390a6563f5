"""Operands of products that the kernels which make them store as halves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
import torch.nn.functional as F
from case_checks import compile_for_gpu, interpreter_of, machine_code
from contraction_cases import Case, transposed
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from split_cases import DEPTH, SIDE
from stored_halves_cases import ALONE, APART, IN_PARTS, SHARED, STREAMED, normed

from kernelwright import compile_only, library
from kernelwright.capture import export
from kernelwright.running.tf32 import Tf32

SMALL = {"block_m": 16, "block_n": 32, "block_k": 16, "stages": 2, "num_warps": 4}


@pytest.fixture
def tf32() -> Iterator[None]:
    """PyTorch may use it."""
    before = Tf32.here()
    Tf32(True, True).set()
    yield
    before.set()


interpreter = interpreter_of("stored_halves_cases:interpreted")
bounds = interpreter_of("split_cases:interpreted")


def with_products_of_ours(case: Case, parameters: dict[str, int], **options: Any) -> dict[str, Any]:
    """The default candidate, whose products are kernels of ours, however small they are; `options`: of their groups."""
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    schedule = library.compile_graph(graph, "triton")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "extern":
            group |= {"scheduler": "contraction", "parameters": parameters} | options
    return library.compile_graph(graph, "triton", schedule=schedule)


def kernels_that_split(emitted: dict[str, Any]) -> list[str]:
    return re.findall(r"    launch\(\s*(split_\w+)", emitted["source"])


def check(case: Case, emitted: dict[str, Any], interpreter: InterpreterProcess, folder: Path, **request: Any) -> None:
    assert emitted["library_ops"] == []
    path = folder / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, **request)
    assert not fault, fault


def stored_whole(emitted: dict[str, Any]) -> bool:
    """Does no kernel store an operand in halves alone, but for rows that these do not hold?"""
    return "_whole" not in emitted["source"]


def named(case: str) -> Case:
    return next(one for one in [*ALONE, *SHARED, *APART] if one.name == case)


@pytest.mark.parametrize("case", ALONE, ids=[case.name for case in ALONE])
def test_halves_alone_are_stored(case: Case, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """Not what the products' other operands are, which are arguments."""
    emitted = with_products_of_ours(case, SMALL)
    assert not stored_whole(emitted)
    assert all("_arguments_" in name for name in kernels_that_split(emitted))
    check(case, emitted, interpreter, tmp_path)


@pytest.mark.parametrize("case", ["relu", "embedding", "transposed", "with_itself", "rotated"])
def test_one_half_alone_is_stored(case: str, tf32: None, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """Of operands with the digits of what they are made of, which PyTorch rounds to 11."""
    emitted = with_products_of_ours(named(case), SMALL | {"scheme": 4})
    assert not stored_whole(emitted) and "_low" not in emitted["source"]
    check(named(case), emitted, interpreter, tmp_path, tf32=True)


@pytest.mark.parametrize(("case", "more"), [(STREAMED, {"scheme": 2}), (IN_PARTS, {"split_k": 2})],
                         ids=["streamed", "in_parts"])  # fmt: skip
def test_of_a_product_made_otherwise(
    case: Case, more: dict[str, int], interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_products_of_ours(case, SMALL | more)
    assert not stored_whole(emitted)
    assert len(kernels_that_split(emitted)) == (1 if case is IN_PARTS else 0)
    check(case, emitted, interpreter, tmp_path)


@pytest.mark.parametrize("case", SHARED, ids=[case.name for case in SHARED])
def test_what_others_read_is_stored_beside_its_halves(
    case: Case, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = with_products_of_ours(case, SMALL)
    assert stored_whole(emitted)
    assert all("_arguments_" in name for name in kernels_that_split(emitted))
    check(case, emitted, interpreter, tmp_path)


@pytest.mark.parametrize("case", APART, ids=[case.name for case in APART])
def test_what_its_kernel_cannot_split(case: Case, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = with_products_of_ours(case, SMALL)
    assert len(kernels_that_split(emitted)) == 2
    check(case, emitted, interpreter, tmp_path)


def test_a_schedule_of_the_kernel_that_splits_keeps_it(interpreter: InterpreterProcess, tmp_path: Path) -> None:
    case, kernel = named("relu"), {"row": {"grid": 16}, "depth": {"tile": 64}, "warps": 2}
    emitted = with_products_of_ours(case, SMALL, kernels={"split_relu_kernel": kernel})
    assert "split_relu_kernel" in kernels_that_split(emitted) and stored_whole(emitted)
    check(case, emitted, interpreter, tmp_path)


def test_they_keep_the_bound(bounds: InterpreterProcess, tmp_path: Path) -> None:
    """That of test_split_bound.py, of a left operand that a kernel makes anew of itself."""
    shapes = ((SIDE, DEPTH), (DEPTH, SIDE))
    case = Case("anew", lambda a, b: torch.mm(a.abs() * a.sign(), b), shapes, arrange=transposed(1))
    parameters = SMALL | {"block_k": 64}
    emitted = with_products_of_ours(case, parameters)
    assert not stored_whole(emitted)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = bounds.fault(candidate=str(path), block_k=parameters["block_k"])
    assert not fault, fault


class Block(torch.nn.Module):
    """A transformer's block: norms and a gate before products, which are wide enough to be ours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(width)) for _ in range(2))
        self.queries, self.keys = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        self.up, self.down = torch.nn.Linear(width, 8 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = normed(x, self.norms[0])
        x = x + torch.sigmoid(self.queries(h)) * self.keys(h)
        value, gate = self.up(normed(x, self.norms[1])).chunk(2, dim=-1)
        return x + self.down(value * F.gelu(gate))


def test_a_block_of_a_transformer_splits_nothing_but_weights(tmp_path: Path) -> None:
    """And its kernels are machine code for an H100 that spills no registers."""
    pytest.importorskip("triton")
    emitted = compile_for_gpu(Block(1024), torch.empty(8, 512, 1024))
    assert emitted["library_ops"] == []
    weights = kernels_that_split(emitted)
    assert weights and all("weight" in name for name in weights)
    code = machine_code(emitted, tmp_path)
    for name, kernel in code.items():
        if "_in_f32" not in name:
            assert compile_only._resources(kernel)["spills"] in (0, None), name
