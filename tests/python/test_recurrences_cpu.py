"""Recurrent layers as C++ of ours: what PyTorch computes, for all that the CPU's scheduler takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from recurrence_cases import BOTH_WAYS, CASES, Case
from test_emitted_modes import load

from kernelwright import library
from kernelwright.capture import export

TAKEN = [case for case in CASES if case.dtype == torch.float32]
BLOCKS = [{"samples": 2, "block_rows": 3, "block_columns": 16}, {"samples": 5, "block_rows": 64, "block_columns": 64}]


def graph_of(case: Case) -> tuple[torch.nn.Module, list[torch.Tensor], Any]:
    module, arguments = case.build()
    module.eval()
    return module, arguments, export.export_module(module, tuple(arguments))


def scheduled(graph: Any, parameters: dict[str, int]) -> dict[str, Any]:
    schedule = library.compile_graph(graph, "cpu", caution="unfused")["schedule"]
    for group in schedule["groups"]:
        if group["scheduler"] == "extern":
            group |= {"scheduler": "recurrence", "parameters": parameters}
    return library.compile_graph(graph, "cpu", schedule=schedule)


def assert_is_pytorchs(module: torch.nn.Module, arguments: list[torch.Tensor], source: str, folder: Path) -> None:
    ours = load(source, folder, "recurrence_for_test").ModelNew(module)
    with torch.no_grad():
        found, eager = ours(*arguments), module(*arguments)
        exact = module.double()(*(one.double() for one in arguments))
    listed = [one if isinstance(one, tuple) else (one,) for one in (found, eager, exact)]
    for mine, theirs, right in zip(*listed, strict=True):
        assert mine.stride() == theirs.stride()
        error, bound = ((one.double() - right).abs().max() for one in (mine, theirs))
        assert error <= 2 * bound + 1e-6


@pytest.mark.by_day(3)
@pytest.mark.parametrize("parameters", BLOCKS, ids=["small", "large"])
@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name)
@pytest.mark.in_turns("parameters")
def test_recurrences_are_pytorchs(case: Case, parameters: dict[str, int], tmp_path: Path) -> None:
    module, arguments, graph = graph_of(case)
    emitted = scheduled(graph, parameters)
    assert emitted["library_ops"] == []
    assert_is_pytorchs(module, arguments, emitted["source"], tmp_path)


PLANNED = {
    "gru": Case("", "GRU", 64, 128, batch=8, steps=32, options={"batch_first": True}),
    "lstm_both_ways": Case("", "LSTM", 64, 96, 2, batch=5, steps=20, options=BOTH_WAYS),
    "rnn": Case("", "RNN", 64, 128, batch=16, steps=16),
    "projected": Case("", "LSTM", 64, 128, 2, batch=9, steps=20, begins=False, options={"proj_size": 33}),
}
LIBRARYS = {
    "halves": Case("", "GRU", 64, 128, batch=8, steps=32, dtype=torch.bfloat16),
    "double": Case("", "LSTM", 64, 128, batch=8, steps=32, dtype=torch.float64),
    "many_units": Case("", "RNN", 64, 1040, batch=8, steps=4),
    "projection_of_halves": Case(
        "", "LSTM", 64, 128, steps=10, begins=False, dtype=torch.bfloat16, options={"proj_size": 32}
    ),
}


@pytest.mark.parametrize("name", PLANNED)
def test_planned_recurrences_are_pytorchs(name: str, tmp_path: Path) -> None:
    module, arguments, graph = graph_of(PLANNED[name])
    emitted = library.compile_graph(graph, "cpu")
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]].count("recurrence") == 1
    assert emitted["library_ops"] == []
    assert_is_pytorchs(module, arguments, emitted["source"], tmp_path)


@pytest.mark.parametrize("name", LIBRARYS)
def test_what_is_not_taken_stays_the_librarys(name: str) -> None:
    assert library.compile_graph(graph_of(LIBRARYS[name])[2], "cpu")["library_ops"] != []


@pytest.mark.parametrize("name", ["gru", "projected"])
def test_infinities_and_nan_are_pytorchs(name: str, tmp_path: Path) -> None:
    module, arguments, graph = graph_of(PLANNED[name])
    arguments[0][1, 3, 5], arguments[0][2, 7, 1] = float("nan"), float("inf")
    ours = load(library.compile_graph(graph, "cpu")["source"], tmp_path, "recurrence_for_test").ModelNew(module)
    with torch.no_grad():
        for mine, theirs in zip(ours(*arguments), module(*arguments), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_a_parameter_that_there_is_not_is_named() -> None:
    with pytest.raises(Exception, match="'block_m'"):
        scheduled(graph_of(TAKEN[0])[2], {"block_m": 16})


class Cells(torch.nn.Module):
    """A loop over cells that forward writes out."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell = getattr(torch.nn, kind)(32, 64)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = []
        for step in range(len(x)):
            found = self.cell(x[step], states if len(states) > 1 else states[0])
            states = found if isinstance(found, tuple) else (found,)
            made.append(states[0])
        return torch.stack(made), states[-1]


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell"])
def test_loops_over_cells_are_walked(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Cells(kind).eval()
    arguments = [torch.randn(24, 6, 32), *(torch.randn(6, 64) for _ in range(1 if kind == "RNNCell" else 2))]
    emitted = library.compile_graph(export.export_module(module, tuple(arguments)), "cpu")
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]].count("recurrence") == 1
    assert_is_pytorchs(module, arguments, emitted["source"], tmp_path)
