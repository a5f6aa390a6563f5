"""Problems that verification is tested on, and how its tests ask it."""

import textwrap

import pytest

from kernelwright import library
from kernelwright.judge import verification as verify

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.fc = nn.Linear(width, out)
        self.bn = nn.BatchNorm1d(out)

    def forward(self, x):
        return torch.relu(self.bn(self.fc(x)))

def get_inputs():
    return [torch.rand(24, 40)]

def get_init_inputs():
    return [40, 56]
"""

MODEL = PROBLEM.split("def get_inputs")[0]

ELEMENTWISE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2

def get_inputs():
    return [torch.rand(24, 40)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def check(tmp_path):
    def run(problem, candidate, **params):
        (tmp_path / "problem.py").write_text(problem)
        (tmp_path / "candidate.py").write_text(problem.split("def get_inputs")[0] + textwrap.dedent(candidate))
        given = {
            "problem": str(tmp_path / "problem.py"),
            "candidate": str(tmp_path / "candidate.py"),
            "device": "cpu",
            "seed": 11,
            "draws": 5,
        }
        return verify.run(given | params, lambda stage, fraction: None)

    return run


def wrong_outputs(result):
    """(draw, output) of every row that the contract fails, in the order of the draws."""
    return [(row["draw"], row["output"]) for row in library.judge(result, "reference")["errors"] if not row["ok"]]


def failed_checks(result):
    return {check["name"] for check in result["checks"] if not check["ok"]}
