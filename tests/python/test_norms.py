"""Norms by the batch's statistics behind convolutions: one kernel's work, or statistics and a pointwise norm."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, machine_code
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped
from norm_cases import AVERAGED, CASES, OF_SAMPLES, Norm

from kernelwright import compile_only, library
from kernelwright.capture import export

GRAPH_TOOL = Path(__file__).resolve().parents[2] / "build" / "tests" / "unit" / "graph_tool"

interpreter = interpreter_of("norm_cases:interpreted")


def _graph(case: Norm) -> dict[str, Any]:
    """As it would be captured on a GPU."""
    graph = json.dumps(export.export_module(case.block(), (case.input(),), device="cpu"))
    return json.loads(graph.replace('"cpu"', '"cuda"'))


def _operators(graph: dict[str, Any], folder: Path) -> list[str]:
    """Of the nodes that the planner sees."""
    assert GRAPH_TOOL.exists(), "configure with -DKW_TESTS=ON and build"
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    text = subprocess.run([GRAPH_TOOL, path, "triton", "all"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  %.* = aten\.(\w+)", text, re.M)


SMALL = {"block_m": 16, "block_k": 16, "stages": 2, "num_warps": 4}


BLOCKS = {
    "half": {"scheme": 0},
    "exact": {"scheme": 1},
    "half together": {"scheme": 0, "columns_together": 2},
    "exact together": {"scheme": 1, "columns_together": 2, "rows_together": 2},
}


def _behind_the_librarys(graph: dict[str, Any]) -> dict[str, Any]:
    """The norm as the planner has it, and the convolution, the first node, not as a kernel of ours."""
    schedule = library.compile_graph(graph, "triton")["schedule"]
    (first,) = (group for group in schedule["groups"] if group["nodes"] == [0])
    first |= {"scheduler": "extern", "parameters": {}}
    return schedule


def _norm_apart(
    graph: dict[str, Any], folder: Path, convolution: dict[str, int] | None = None, again: bool = False
) -> dict[str, Any]:
    """What the norm folds as a group, alone or, with a choice of blocks, with the convolution; and what follows, alone
    or with the convolution once more."""
    operators = _operators(graph, folder)
    whole = library.compile_graph(graph, "triton")["schedule"]
    views = {node for node, operator in enumerate(operators) if operator == "view"}
    first, given = operators.index("var_mean"), operators.index("batch_norm")
    counter = [node for node, operator in enumerate(operators) if operator == "add" and node < first]
    before = [node for node in range(1, first) if node not in counter]
    of_channels = [node for node in range(first, given) if node not in before]
    if "group_norm" not in str(graph["nodes"]):  # of running statistics, in 16 bits
        of_channels += [node for node in range(given, len(operators)) if operators[node] == "_to_copy"]
    after = [node for node in range(given, len(operators)) if node not in of_channels]
    folded = {"scheduler": "reduction", "parameters": {"r_block": 64}}
    norm = {"scheduler": "pointwise", "parameters": {"block": 128}}
    if convolution is None:
        groups = [{"nodes": [0], "scheduler": "extern", "parameters": {}}]
    else:
        groups, folded = [], {"scheduler": "convolution", "parameters": convolution}
        before = [0, *before]
    groups.append({"nodes": sorted({*before, *of_channels} - views), **folded})
    after = sorted({*before, *after} - {0} - views)
    groups.append({"nodes": [0, *after], **folded} if again else {"nodes": after, **norm})
    if counter:
        groups.append({"nodes": counter, "scheduler": "pointwise", "parameters": {"block": 128}})
    return whole | {"groups": groups}


@pytest.mark.by_day(2)
@pytest.mark.in_turns("how")
@pytest.mark.parametrize("how", ["one group", "apart", *BLOCKS, "half again", "exact again"])
@pytest.mark.parametrize("case", CASES + OF_SAMPLES, ids=[case.name for case in CASES + OF_SAMPLES])
def test_norms_are_pytorchs(case: Norm, how: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    graph = _graph(case)
    schedule = _behind_the_librarys(graph)
    if how != "one group":
        again = how.endswith("again")
        blocks = BLOCKS.get(how.removesuffix(" again"))
        if blocks:
            larger = 2 if blocks["scheme"] == 1 else 1
            blocks = SMALL | {"block_n": larger * case.positions, "rows": case.rows} | blocks
        schedule = _norm_apart(graph, tmp_path, blocks, again)
    emitted = library.compile_graph(graph, "triton", schedule=schedule)
    of_library = [f"aten.{_operators(graph, tmp_path)[0]}"] if how in ("one group", "apart") else []
    assert emitted["library_ops"] == of_library
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=not how.startswith("half"))
    assert not fault, fault


def _averaged() -> Iterator[Any]:
    for case in AVERAGED:
        # The norm of short channels and its statistics are always one group; beside others, statistics have a group
        # that does more.
        together = case.name in ("short_channels", "read_beside_their_average", "halves_without_a_norm")
        for how in ["one group"] if together else ["one group", "half", "exact"]:
            yield pytest.param(case, how, id=f"{case.name}-{how}")


@pytest.mark.parametrize("case, how", list(_averaged()))
def test_averages_of_norms_are_pytorchs(case: Norm, how: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    """From the statistics that a convolution gives, which nobody reads its result for."""
    graph = _graph(case)
    schedule = library.compile_graph(graph, "triton")["schedule"]
    if how != "one group":
        first = _operators(graph, tmp_path).index("var_mean")
        place = next(at for at, group in enumerate(schedule["groups"]) if first in group["nodes"])
        statistics = schedule["groups"][place]
        if behind := [node for node in statistics["nodes"] if node > first]:
            schedule["groups"].insert(place + 1, {"nodes": behind, "scheduler": "pointwise", "parameters": {}})
        statistics["nodes"] = sorted({0, *statistics["nodes"]} - {*behind})
        parameters = SMALL | {"block_n": case.positions, "scheme": 0 if how == "half" else 1}
        statistics |= {"scheduler": "convolution", "parameters": parameters}
        schedule["groups"] = [group for group in schedule["groups"] if group is statistics or group["nodes"] != [0]]
    emitted = library.compile_graph(graph, "triton", schedule=schedule)
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name, exact=how != "half")
    assert not fault, fault


LARGE = {
    "square": (torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.BatchNorm2d(64), (32, 64, 56, 56)),
    "depthwise": (
        torch.nn.Conv2d(96, 96, 5, stride=2, padding=2, groups=96),
        torch.nn.BatchNorm2d(96),
        (32, 96, 112, 112),
    ),
    "bfloat16": (torch.nn.Conv2d(64, 128, 3).bfloat16(), torch.nn.BatchNorm2d(128).bfloat16(), (64, 64, 64, 64)),
}


@pytest.mark.parametrize("name", LARGE)
def test_convolutions_give_statistics_without_spilled_registers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    convolution, norm, shape = LARGE[name]
    module = torch.nn.Sequential(convolution, norm, torch.nn.ReLU())
    emitted = compile_for_gpu(module, torch.randn(shape, dtype=convolution.weight.dtype))
    assert emitted["library_ops"] == []
    schedulers = {one["scheduler"] for one in emitted["schedule"]["groups"]}
    assert schedulers == {"convolution", "pointwise"}
    code = machine_code(emitted, tmp_path)
    assert any(kernel.endswith("_finish_kernel") for kernel in code)
    for kernel, one in code.items():
        assert compile_only._resources(one)["spills"] in (0, None), kernel


@pytest.mark.parametrize("columns", [64, 1 << 17], ids=["whole", "in_parts"])
def test_softmax_keeps_denormals(columns: int, tmp_path: Path) -> None:
    """PyTorch's has them, and what chooses the largest of it tells them apart; `.ftz` would make them 0."""
    pytest.importorskip("triton")
    emitted = compile_for_gpu(Wrapped(lambda x: torch.softmax(x, dim=-1)), torch.empty(512, columns))
    exponentials = [line for code in machine_code(emitted, tmp_path).values()
                    for line in code.asm["ptx"].splitlines() if "ex2.approx" in line]  # fmt: skip
    assert exponentials and not [line for line in exponentials if ".ftz" in line]
