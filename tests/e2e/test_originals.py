"""Candidates of the compiler's that run the original module on the problem's own inputs: they are no answer."""

import json

import pytest
import torch
from command_line import GOOD, CommandLine
from torch import nn

import kernelwright

# As long as chance has it, and a kernel is made for one length.
LENGTHS = GOOD.replace("torch.randn(16, 64)", "torch.randn(int(torch.randint(100, 200, ())), 64)")
PARTS_IN_OTHER_MODES = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.norm.eval()

    def forward(self, x):
        return torch.relu(self.norm(x)) * 2.0


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def kw(kw_binary, tmp_path_factory):
    return CommandLine(kw_binary, tmp_path_factory.mktemp("originals"))


@pytest.fixture(scope="module")
def refused(kw):
    result = kw("optimize", kw.file("lengths.py", LENGTHS), "--budget", 0, "--json", "report.json")
    return result, json.loads((kw.folder / "report.json").read_text())


def test_they_fail_by_name(refused):
    result, report = refused
    assert result.code == 1 and "is not a tensor of shape" in result.out.splitlines()[0]
    assert (report["verdict"], report["code"]) == ("fail", "runs-original")
    assert report["runs_original"] in report["reason"]
    assert report["candidate"].endswith("lengths_kw.rejected.py")
    assert any("The fused candidate failed" in note for note in report["notes"]), "the next one was tried"


@pytest.mark.parametrize("command", [("verify",), ("measure", "--budget", 0.1, "--baseline", "eager")])
def test_other_commands_say_so_first(kw, refused, command):
    _, report = refused
    name, *options = command
    result = kw(name, report["problem"], report["candidate"], *options, "--json", "other.json")
    assert result.code == 0, result.text
    assert result.out.startswith("original   on the problem's own inputs the original module ran")
    assert "is not a tensor of shape" in json.loads((kw.folder / "other.json").read_text())["runs_original"]


def test_parts_that_a_constructor_puts_into_another_mode(kw):
    result = kw("optimize", kw.file("modes.py", PARTS_IN_OTHER_MODES), "--budget", 0, "--json", "modes.json")
    report = json.loads((kw.folder / "modes.json").read_text())
    assert result.code == 0, result.text
    assert "runs_original" not in report and report["kernels"] and "notes" not in report


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return torch.relu(self.norm(x)) * 2.0


def test_modules_in_memory_keep_the_modes_of_their_parts():
    module = Frozen()
    module.norm.eval()
    made = kernelwright.optimize(module, torch.randn(16, 64))
    assert made.training and module.training and not module.norm.training
    assert made.report["verdict"] == "pass" and made.report["kernels"]


def test_modules_in_memory_fail_by_name():
    with torch.autocast("cpu"), pytest.raises(kernelwright.VerificationError, match="the module itself ran") as caught:
        kernelwright.optimize(nn.Softmax(-1), torch.randn(16, 64))
    assert caught.value.report["code"] == "runs-original"


def test_a_judged_module_warns_afterwards():
    made = kernelwright.optimize(nn.Softmax(-1), torch.randn(16, 64))
    with pytest.warns(UserWarning, match="runs the original forward"):
        made(torch.randn(3, 64))
