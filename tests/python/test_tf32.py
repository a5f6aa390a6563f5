"""Whether PyTorch may use TF32: as a process has it, as a policy wants it, and in every process that is compared."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import kernelwright
from kernelwright import errors
from kernelwright.capture import export
from kernelwright.judge.measurement import Measurement
from kernelwright.running.tf32 import Tf32, precision

OFF, ON = Tf32(False, False), Tf32(True, True)

FLAGS = "torch.tensor([torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]).float()"
PROBLEM = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {FLAGS} + x

def get_inputs():
    return [torch.zeros(2)]

def get_init_inputs():
    return []
"""
ON_AT_IMPORT = PROBLEM.replace("class Model", "torch.backends.cuda.matmul.allow_tf32 = True\n\nclass Model")


@pytest.fixture(autouse=True)
def as_pytorch_has_it():
    before = Tf32.here()
    Tf32(False, True).set()
    yield
    before.set()


def test_policies_decide():
    assert Tf32.here() == Tf32(False, True)
    for policy, wanted in (("reference", Tf32(False, True)), ("ieee", OFF), ("relaxed", ON)):
        assert Tf32.under(policy) == wanted
        with precision(policy):
            assert Tf32.here() == wanted
            assert (torch.get_float32_matmul_precision() == "highest") != wanted.products
        assert Tf32.here() == Tf32(False, True)


def test_the_newer_names_count_too():
    text = (
        "import torch; from kernelwright.running.tf32 import Tf32\n"
        "if hasattr(torch.backends.cuda.matmul, 'fp32_precision'):\n"
        "    torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "    assert Tf32.here().products\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_policy_that_cannot_be_met_is_an_error(monkeypatch):
    Tf32(True, True).set()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert Tf32.here() == OFF == Tf32.under("reference")
    for has_gpu, on_gpu in ((True, False), (False, True)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
        with pytest.raises(errors.Error, match="NVIDIA_TF32_OVERRIDE=0") as caught:
            Tf32.under("relaxed", on_gpu=on_gpu)
        assert caught.value.kind == "user"
    assert Tf32.under("relaxed") == ON  # on a CPU


@pytest.mark.parametrize("products", [False, True])
def test_the_graph_says_what_is_allowed(products):
    Tf32(products, not products).set()
    graph = export.export_module(torch.nn.Linear(4, 4), (torch.empty(2, 4),), device="cpu")
    assert (graph["tf32_products"], graph["tf32_convolutions"]) == (products, not products)


class Flags(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]).float() + x


@pytest.mark.parametrize("policy", ["reference", "ieee", "relaxed"])
def test_modules_in_memory_are_held_to_the_same_flags(policy):
    report = kernelwright.verify(Flags(), Flags(), [torch.zeros(2)], policy=policy, draws=1)
    assert report["errors"] and all(row["ours"] == row["eager"] for row in report["errors"])


@pytest.mark.parametrize(
    ("problem", "policy", "flags"),
    [
        (PROBLEM, "reference", [0.0, 1.0]),
        (PROBLEM, "ieee", [0.0, 0.0]),
        (PROBLEM, "relaxed", [1.0, 1.0]),
        (ON_AT_IMPORT, "reference", [1.0, 1.0]),
        (ON_AT_IMPORT, "ieee", [0.0, 0.0]),
    ],
    ids=["reference", "ieee", "relaxed", "set by the module", "set by the module, ieee"],
)
def test_all_that_are_timed_run_with_the_same_flags(problem, policy, flags, tmp_path):
    (tmp_path / "problem.py").write_text(problem)
    (tmp_path / "candidate.py").write_text(problem.replace("class Model", "class ModelNew"))
    params = {
        "problem": str(tmp_path / "problem.py"),
        "candidate": str(tmp_path / "candidate.py"),
        "baselines": ["eager"],
        "tolerance_policy": policy,
    }
    measurement = Measurement(params, lambda *_: None)
    try:
        for contestant in measurement.contestants.values():
            (found,) = contestant.run(measurement.inputs, 1, "running forward").outputs.values()
            assert found.tolist() == flags
            assert contestant.settings_at_load == []
    finally:
        measurement.close()
