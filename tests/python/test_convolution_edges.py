"""Convolutions and recurrences where sizes or weights are unusual: what is planned, and what is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of, load
from interpreter_process import InterpreterProcess
from loop_cases import BATCH, FEATURES, HIDDEN, Changing
from recurrence_cases import KEPT
from test_recurrences import AS_COLUMNS, emitted_for
from torch import nn

from kernelwright import library
from kernelwright.capture import export


def test_a_norm_in_evaluation_and_an_activation_are_of_the_convolutions_kernels() -> None:
    module = nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128), nn.ReLU()).eval()
    emitted = compile_for_gpu(module, torch.empty(32, 64, 56, 56))
    assert [one["scheduler"] for one in emitted["schedule"]["groups"]] == ["convolution"]
    assert emitted["library_ops"] == []
    forward = emitted["source"].partition("def kernel_forward(")[2].partition("\n\n\n")[0]
    stored = re.findall(r"(\w+) = torch\.empty\(\(32, 128, 54, 54\)", forward)
    assert len(stored) == 1, forward  # the result alone


def kernels_of(source: str) -> dict[str, str]:
    return dict(re.findall(r"@triton\.jit\ndef (\w+)\(.*?\):\n(.*?)(?=\n\n\n)", source, re.S))


@pytest.mark.parametrize("kind", ["plain", "transposed", "depthwise"])
def test_places_beyond_32_bits_are_counted_in_64(kind: str) -> None:
    """In every kernel that reads the image or writes the result; of small images in none."""
    part = {
        "plain": nn.Conv2d(16, 16, 3, padding=1),
        "transposed": nn.ConvTranspose2d(16, 16, 3, padding=1),
        "depthwise": nn.Conv2d(16, 16, 3, padding=1, groups=16),
    }[kind]
    module = nn.Sequential(part, nn.ReLU()).half().eval()
    for samples, counts_in_64 in ((33, True), (1, False)):
        emitted = compile_for_gpu(module, torch.empty(samples, 16, 2048, 2048, dtype=torch.float16))
        assert emitted["library_ops"] == []
        kernels = kernels_of(emitted["source"])
        assert len(kernels) == (1 if kind == "depthwise" else 3)
        kernels.pop("filters_kernel", None)  # which reads neither
        assert {name: "tl.int64" in body for name, body in kernels.items()} == dict.fromkeys(kernels, counts_in_64)


@pytest.mark.parametrize("steps", [40, pytest.param(512, marks=pytest.mark.slow)])
def test_many_steps_of_which_the_last_differs(steps: int) -> None:
    """Export unrolls them; the others are one recurrence, whatever their number."""
    torch.manual_seed(5)
    module = Changing().eval()
    x, h = torch.randn(steps, BATCH, FEATURES), torch.randn(BATCH, HIDDEN)
    source = library.compile_graph(export.export_module(module, (x, h), device="cpu"), "cpu")["source"]
    forward = source.partition("def kernel_forward(")[2].partition("\n\n\n")[0]
    assert forward.count(".rnn_steps_kernel(") == 1
    assert len(forward.splitlines()) < 40  # nothing is left of each step
    with torch.no_grad():
        torch.testing.assert_close(load(source).ModelNew(module)(x, h), module(x, h))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_a_recurrent_layer_takes_a_batch_of_none(kind: str, target: str) -> None:
    module = getattr(nn, kind)(5, 20, 2).eval()
    x = torch.empty(7, 0, 5)
    source = library.compile_graph(export.export_module(module, (x,), device="cpu"), target)["source"]
    assert f"torch.{kind.lower()}" in source or f"aten.{kind.lower()}" in source, (
        "PyTorch's layers know what is left to do"
    )
    if target == "cpu":
        with torch.no_grad():
            ours, theirs = load(source).ModelNew(module)(x), module(x)
        for mine, right in zip(
            torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs), strict=True
        ):
            assert mine.shape == right.shape and mine.stride() == right.stride()


interpreter = interpreter_of("recurrence_cases:with_weights_changed")


@pytest.mark.parametrize("case", KEPT, ids=[case.name for case in KEPT])
def test_recurrent_weights_that_change_between_calls_are_noticed(
    case: object, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    emitted = emitted_for(case, AS_COLUMNS, "exact-products")
    assert emitted["library_ops"] == []
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), case=case.name)
    assert not fault, fault
