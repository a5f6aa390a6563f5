"""Attention as one C++ kernel of ours: what PyTorch computes, and planned where the model expects it to be faster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import CASES, interpreted
from case_checks import as_one_group, load
from contraction_cases import Case
from movement_cases import Wrapped

from kernelwright import library
from kernelwright.capture import export
from kernelwright.judge import verification
from kernelwright.running import problem

BLOCKS: list[dict[str, int]] = [{}, {"queries": 16, "keys": 16}, {"queries": 17, "keys": 48}]


@pytest.mark.in_turns("parameters")
@pytest.mark.parametrize("parameters", BLOCKS, ids=["one_step", "small", "uneven"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_attention_is_pytorchs(case: Case, parameters: dict[str, int], tmp_path: Path) -> None:
    emitted = as_one_group(Wrapped(case.function), case.arguments(), "attention", parameters, target="cpu")
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreted({"candidate": str(path), "case": case.name})
    assert not fault, fault


MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.register_buffer("future", torch.ones(512, 512, dtype=torch.bool).triu(1))

    def forward(self, q, k, v, extra):
        {body}


def get_inputs():
    q, k, v = (torch.randn(shape, dtype=torch.{dtype}) for shape in {shapes})
    return [q, k, v, {extra}]


def get_init_inputs():
    return []
"""

UNEVEN = "((2, 4, 200, 72), (2, 4, 150, 72), (2, 4, 150, 40))"
LONGER = "((2, 4, 200, 72), (2, 4, 250, 72), (2, 4, 250, 40))"
SQUARE = "((2, 4, 256, 64),) * 3"
BY_HAND = "return torch.softmax({score}, dim=-1) @ v"
OPERATOR = "return F.scaled_dot_product_attention(q, k, v{more})"
PRODUCT = "(q @ k.transpose(-2, -1)) / 8.0"
NEVER = 'float("-inf")'
ADDED = f"torch.zeros(200, 150).masked_fill_(torch.rand(200, 150) < 0.3, {NEVER})"
# The third query attends to nothing.
SOME_KEYS = "(torch.rand(2, 1, 200, 250) > 0.3).index_fill(2, torch.tensor([2]), False)"


def module(body: str, shapes: str = UNEVEN, extra: str = "torch.zeros(1)", dtype: str = "float32") -> str:
    return MODULE.format(body=body, shapes=shapes, extra=extra, dtype=dtype)


PLANNED = {
    "by_hand": module(BY_HAND.format(score=PRODUCT)),
    "with_relu": module(f"return torch.relu({PRODUCT}) @ v"),
    "operator": module(OPERATOR.format(more="")),
    "causal": module(OPERATOR.format(more=", is_causal=True"), SQUARE),
    "causal_uneven": module(OPERATOR.format(more=", is_causal=True")),
    "masked_by_hand": module(
        BY_HAND.format(score=f"({PRODUCT}).masked_fill(self.future[:256, :256], {NEVER})"), SQUARE
    ),
    "added_mask": module(OPERATOR.format(more=", attn_mask=extra"), extra=ADDED),
    "some_keys": module(OPERATOR.format(more=", attn_mask=extra"), LONGER, extra=SOME_KEYS),
    "grouped": module(OPERATOR.format(more=", enable_gqa=True"), "((2, 8, 200, 64), (2, 2, 200, 64), (2, 2, 200, 64))"),
    "bias": module(BY_HAND.format(score=f"{PRODUCT} + extra"), extra="torch.randn(4, 200, 150)"),
    "bfloat16": module(OPERATOR.format(more=", is_causal=True"), SQUARE, dtype="bfloat16"),
    "normalised": module("return self.norm(F.scaled_dot_product_attention(q, k, v) + q)", SQUARE),
}  # fmt: skip


def emitted_for(text: str, path: Path) -> dict[str, Any]:
    path.write_text(text)
    loaded = problem.load(path)
    return library.compile_graph(export.capture(loaded, "cpu"), "cpu", problem_source=loaded.source)


def schedulers(emitted: dict[str, Any]) -> list[str]:
    return [group["scheduler"] for group in emitted["schedule"]["groups"]]


@pytest.mark.parametrize("name", PLANNED)
def test_is_planned_and_verified(name: str, tmp_path: Path) -> None:
    emitted = emitted_for(PLANNED[name], tmp_path / "module.py")
    assert schedulers(emitted) == ["attention"] + ["normalisation"] * (name == "normalised")
    assert emitted["library_ops"] == []
    candidate = tmp_path / "candidate.py"
    candidate.write_text(emitted["source"])
    assert max(map(len, emitted["source"].splitlines())) <= 140
    request = {
        "problem": str(tmp_path / "module.py"),
        "candidate": str(candidate),
        "device": "cpu",
        "seed": 1,
        "draws": 3,
    }
    verdict = library.judge(verification.run(request, lambda stage, fraction: None), "reference")
    assert verdict["verdict"] == "pass", verdict["reason"]


LEFT_TO_PYTORCH = {
    "products_in_bfloat16": module(BY_HAND.format(score=PRODUCT), dtype="bfloat16"),
    "one_query": module(OPERATOR.format(more=""), "((2, 4, 1, 64), (2, 4, 512, 64), (2, 4, 512, 64))"),
    "few_of_each": module(OPERATOR.format(more=""), "((4, 2, 4, 16),) * 3"),
    "wide_heads": module(OPERATOR.format(more=""), "((2, 4, 256, 320),) * 3"),
}


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_stays_the_librarys(name: str, tmp_path: Path) -> None:
    assert "attention" not in schedulers(emitted_for(LEFT_TO_PYTORCH[name], tmp_path / "module.py"))


def test_a_row_without_keys_is_as_in_pytorch() -> None:
    """NaN where the softmax is written out, zeros from the operator."""
    q, k, v = (torch.randn(1, 2, 48, 32) for _ in range(3))
    mask = torch.rand(48, 48) > 0.4
    mask[5] = False

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax((q @ k.mT).masked_fill(~mask, float("-inf")), dim=-1) @ v

    def operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for function, row in ((by_hand, float("nan")), (operator, 0.0)):
        emitted = as_one_group(Wrapped(function), [q, k, v, mask], "attention", {"queries": 16, "keys": 16}, "cpu")
        with torch.no_grad():
            actual = load(emitted["source"]).ModelNew(Wrapped(function))(q, k, v, mask)
        torch.testing.assert_close(actual, function(q, k, v, mask), rtol=1e-4, atol=1e-5, equal_nan=True)
        torch.testing.assert_close(actual[:, :, 5], torch.full((1, 2, 32), row), equal_nan=True)


def test_parts_of_one_tensor_are_passed_by_their_offsets() -> None:
    def packed(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.chunk(3, dim=-1)
        q, k, v = (one.view(2, 128, 4, 32).transpose(1, 2) for one in (q, k, v))
        y = torch.softmax(q @ k.transpose(-2, -1) / 32**0.5, dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(2, 128, 128)

    x = torch.randn(2, 128, 384)
    emitted = library.compile_graph(export.export_module(Wrapped(packed), (x,)), "cpu")
    assert schedulers(emitted) == ["attention"]
    assert sorted(re.findall(r"data_ptr\(\) \+ (\d+)", emitted["source"])) == [str(4 * 256), str(4 * 128)]
    with torch.no_grad():
        torch.testing.assert_close(
            load(emitted["source"]).ModelNew(Wrapped(packed))(x), packed(x), rtol=1e-4, atol=1e-5
        )
