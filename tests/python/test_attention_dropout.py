"""Attention whose weights are dropped in training is one kernel: with PyTorch's own draw, whatever stands in its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import operator
from attention_dropout_cases import Dropping, arguments
from case_checks import as_one_group, compile_for_gpu, interpreter_of, machine_code
from interpreter_process import InterpreterProcess
from movement_cases import Wrapped

from kernelwright import compile_only, errors, library
from kernelwright.capture import export

SMALL = {"block_m": 16, "block_n": 16, "stages": 2, "num_warps": 4}

interpreter = interpreter_of("attention_dropout_cases:interpreted")


def joined(module: torch.nn.Module, given: list[torch.Tensor], parameters: dict[str, int]) -> dict[str, Any]:
    """All but the draw as one group, however small it is. The draw is what stays apart where the planner joins it."""
    large = compile_for_gpu(module, *(torch.empty(4, 8, 512, 64, dtype=one.dtype) for one in given))
    (draw,) = (group for group in large["schedule"]["groups"] if group["scheduler"] == "extern")
    graph = json.loads(json.dumps(export.export_module(module, tuple(given), device="cpu")).replace('"cpu"', '"cuda"'))
    schedule = library.compile_graph(graph, "triton", caution="unfused")["schedule"]
    nodes = {node for group in large["schedule"]["groups"] for node in group["nodes"]} - set(draw["nodes"])
    schedule["groups"] = [draw, {"nodes": sorted(nodes), "scheduler": "attention", "parameters": parameters}]
    return library.compile_graph(graph, "triton", schedule=schedule)


@pytest.mark.parametrize(
    "case, dtype, p, parameters",
    [
        ("queries", "float32", 0.3, {}),
        ("queries", "float32", 0.9, {"scheme": 0}),
        ("queries", "bfloat16", 0.3, {}),
        ("an_odd_number_of_weights", "float32", 0.5, {}),
        ("decoding", "float32", 0.2, {"scheme": 0, "block_m": 2, "split_keys": 2}),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True], ids=["all_keys", "causal"])
def test_dropped_weights_are_pytorchs(
    case: str,
    dtype: str,
    p: float,
    parameters: dict[str, int],
    is_causal: bool,
    interpreter: InterpreterProcess,
    tmp_path: Path,
) -> None:
    emitted = joined(Dropping(p, is_causal), arguments(case, getattr(torch, dtype)), SMALL | parameters)
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    request = {"case": case, "dtype": dtype, "p": p, "is_causal": is_causal, "seed": 11, "offset": 8}
    fault = interpreter.fault(candidate=str(path), **request)
    assert not fault, fault


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["all_keys", "causal"])
def test_the_planner_makes_one_kernel_of_dropped_attention(dtype: torch.dtype, is_causal: bool, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    emitted = compile_for_gpu(Dropping(0.1, is_causal), *(torch.empty(4, 8, 1024, 64, dtype=dtype) for _ in range(3)))
    assert emitted["library_ops"] == [] and "keep_mask_kernel" in emitted["kernels"]
    schedulers = [group["scheduler"] for group in emitted["schedule"]["groups"]]
    assert sorted(schedulers) == ["attention", "extern"]  # and the draw, which is a kernel written by hand
    for name, code in machine_code(emitted, tmp_path).items():
        if name.startswith(("split_", "whole_heads", "last_keys", "keep_mask")) or "_in_f32" in name:
            continue
        assert code.asm["ptx"].count("wgmma.mma_async") > 0
        assert compile_only._resources(code)["spills"] in (0, None)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_is_drawn_where_chance_decides_nothing(p: float) -> None:
    """Of no dropout nothing is left; where all weights are dropped, PyTorch's operator stays."""
    emitted = compile_for_gpu(Dropping(p), *(torch.empty(4, 8, 512, 64) for _ in range(3)))
    assert "keep_mask_kernel" not in emitted["kernels"]
    groups = [group["scheduler"] for group in emitted["schedule"]["groups"]]
    assert (groups == ["attention"]) == (p == 0.0)


def test_the_operators_own_dropout_is_pytorchs() -> None:
    """Its kernels number the weights otherwise than a dropout does."""
    emitted = compile_for_gpu(Wrapped(operator(dropout_p=0.1)), *(torch.empty(4, 8, 512, 64) for _ in range(3)))
    assert emitted["library_ops"] == ["aten.scaled_dot_product_attention"]


def test_weights_that_are_more_than_kept_or_dropped_are_not_taken() -> None:
    def gated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(q @ k.mT, dim=-1) * gate) @ v

    def shifted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(q @ k.mT, dim=-1) + gate) @ v

    def squared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(q @ k.mT, dim=-1)
        return (weights * weights * (gate > 0)) @ v

    def filled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT, dim=-1).masked_fill(gate > 0, 1.0) @ v

    def scaled_far(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(q @ k.mT, dim=-1) * (gate > 0) * 2.0**15) @ v

    def of_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT
        return torch.softmax(scores, dim=-1).masked_fill(scores < 0, 0.0) @ v

    for function in (gated, shifted, squared, filled, scaled_far, of_scores):
        given = [*(torch.randn(2, 3, 48, 16) for _ in range(3)), torch.randn(2, 3, 48, 48)]
        with pytest.raises(errors.Error, match="attention"):
            as_one_group(Wrapped(function), given, "attention", SMALL)
