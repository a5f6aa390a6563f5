"""Concatenations whose parts are stored in place: what PyTorch computes, without copying the parts together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_checks import interpreter_of
from concatenation_cases import CASES, Concatenated, interpreted
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export
from kernelwright.errors import Error

interpreter = interpreter_of("concatenation_cases:interpreted")

SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "stages": 2, "num_warps": 4}


def emitted_in_place(case: Concatenated) -> dict[str, Any]:
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    joined = {node for product in case.products for node in product}
    groups = [group for group in schedule["groups"] if not joined.intersection(group["nodes"])]
    for product in case.products:
        is_convolution = "conv" in graph["nodes"][product[0]]["op"]
        scheduler = "convolution" if is_convolution else "contraction"
        groups.append({"nodes": list(product), "scheduler": scheduler, "parameters": SMALL})
    groups.sort(key=lambda group: group["nodes"][-1])
    (whole,) = (group for group in groups if group["nodes"] == [case.at])
    whole |= {"scheduler": "in_place", "parameters": {}}
    return library.compile_graph(graph, "triton", schedule=schedule | {"groups": groups})


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_parts_in_place_are_pytorchs(case: Concatenated, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    emitted = emitted_in_place(case)
    assert emitted["source"].count(".copy_(") - emitted["source"].count(").copy_(tensor)") == case.copies
    assert "aten.cat" not in emitted["library_ops"] and not any("cat" in name for name in emitted["kernels"])
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault


def test_parts_in_place_on_a_cpu(tmp_path: Path) -> None:
    case = next(one for one in CASES if one.name == "one that others read")
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    schedule = library.compile_graph(graph, "cpu", caution="unfused")["schedule"]
    (whole,) = (group for group in schedule["groups"] if group["nodes"] == [case.at])
    whole |= {"scheduler": "in_place", "parameters": {}}
    emitted = library.compile_graph(graph, "cpu", schedule=schedule)
    assert "aten.cat" not in emitted["library_ops"] and not any("cat" in name for name in emitted["kernels"])
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreted({"candidate": str(path), "case": case.name})
    assert not fault, fault


def test_nothing_else_can_be_stored_in_place() -> None:
    case = CASES[2]
    graph = export.export_module(Wrapped(case.function), tuple(case.arguments()), device="cpu")
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    schedule["groups"][0] |= {"scheduler": "in_place", "parameters": {}}
    with pytest.raises(Error, match="group 0 .*is no concatenation"):
        library.compile_graph(graph, "triton", schedule=schedule)
