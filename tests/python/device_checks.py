"""Modules compiled for a GPU, their plans, and their results there beside eager's and double precision's."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from recipe_check import load
from torch import nn

from kernelwright import library
from kernelwright.capture import export
from kernelwright.judge import metrics

Tensor = torch.Tensor


def emit(
    module: nn.Module,
    arguments: list[Tensor],
    scheduler: str = "",
    parameters: dict[str, int] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """As the planner schedules it; or, with `parameters`, everything in one group of `scheduler`."""
    graph = export.export_module(module, tuple(arguments), device="cuda")
    if parameters is None:
        return library.compile_graph(graph, "triton", **options)
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    nodes = sorted({node for group in schedule["groups"] for node in group["nodes"]})
    schedule["groups"] = [{"nodes": nodes, "scheduler": scheduler, "parameters": parameters}]
    return library.compile_graph(graph, "triton", schedule=schedule, **options)


def schedulers_of(emitted: dict[str, Any]) -> list[str]:
    return [group["scheduler"] for group in emitted["schedule"]["groups"]]


def assert_planned(emitted: dict[str, Any], schedulers: list[str], parameters: dict[str, int]) -> None:
    """These schedulers took the module's groups, the first of them with these parameters among others."""
    assert schedulers_of(emitted) == schedulers and emitted["library_ops"] == []
    found = emitted["schedule"]["groups"][0]["parameters"]
    assert parameters.items() <= found.items(), found


class Candidate:
    """What was emitted, of a module or of a function. A call that falls back to the original raises."""

    def __init__(self, emitted: dict[str, Any], folder: Path, module: nn.Module | None = None) -> None:
        path = folder / "candidate.py"
        path.write_text(emitted["source"])
        self.model = load(path).ModelNew(module or nn.Module())

    def __call__(self, *arguments: Tensor) -> Any:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            return self.model(*arguments)


def moved(arguments: list[Tensor], device: str = "cuda") -> list[Tensor]:
    """The same numbers with the same strides, which Tensor.to gives up."""
    return [
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=device).copy_(one) for one in arguments
    ]


def put_in(old: list[Tensor], new: list[Tensor]) -> list[Tensor]:
    """The new numbers with the old ones' strides."""
    return [
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype).copy_(other)
        for one, other in zip(old, new, strict=True)
    ]


def in_double(arguments: list[Tensor]) -> list[Tensor]:
    return [one.double() if one.is_floating_point() else one for one in arguments]


def as_tuple(results: Any) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def assert_within_contract(actual: Any, eager: Any, exact: Any, layouts: bool = True) -> None:
    """Strides (`layouts`) of dimensions longer than 1 are eager's, and errors at most twice eager's and a few units of
    the result's type (docs/contract.md).
    """
    for ours, theirs, right in zip(as_tuple(actual), as_tuple(eager), as_tuple(exact), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert not layouts or not any(
            mine != eagers
            for size, mine, eagers in zip(ours.shape, ours.stride(), theirs.stride(), strict=True)
            if size > 1
        )
        figures = metrics.compare(ours, theirs, right, by_size=False)
        assert figures.compared > right.numel() // 2 and figures.nonfinite_mismatches == 0
        single, unit = torch.finfo(torch.float32).eps, torch.finfo(ours.dtype).eps
        # Of sums of 1,024 terms and more one accumulator's error is 16 units.
        of_norm, of_maximum = (4 * unit, 16 * unit) if unit <= single else (unit / 4 + 4 * single, unit + 4 * single)
        assert figures.ours["norm"] <= 2 * figures.eager["norm"] + of_norm, (figures.ours, figures.eager)
        assert figures.ours["max"] <= 2 * figures.eager["max"] + of_maximum, (figures.ours, figures.eager)
