"""What is made ahead of a candidate: a verification that finds it reports the same as one that does not."""

import json

import pytest
import torch

from kernelwright import errors, protocol
from kernelwright.judge import preparation, verification, yardstick

HEAD = "import torch\nimport torch.nn as nn\n"
TAIL = """
def get_inputs():
    return [torch.rand(24, 40)]

def get_init_inputs():
    return []
"""

# Each has something that the next draw's run could overwrite, or must find as the one before left it.
PROBLEMS = {
    "buffers": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(40, 56), nn.BatchNorm1d(56)
    def forward(self, x):
        return torch.relu(self.bn(self.fc(x)))
""",
    "random": """
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.3) + torch.rand(40)
""",
    "input changed": """
class Model(nn.Module):
    def forward(self, x):
        return x.mul_(2).sum(1)
""",
    "input returned": """
class Model(nn.Module):
    def forward(self, x):
        return x.t(), x + 1
""",
    "weight returned": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(40))
    def forward(self, x):
        return self.weight[2:], x * self.weight
""",
    "buffer returned": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(40))
    def forward(self, x):
        self.sum += x.mean(0)
        return self.sum
""",
    "attribute": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(24, 40)
    def forward(self, x):
        self.hidden = torch.tanh(self.hidden + x)
        return self.hidden
""",
    "raises on some draws": """
class Model(nn.Module):
    def forward(self, x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return x * 3
""",
}


@pytest.fixture(autouse=True)
def one_thread():
    """Work made ahead leaves a thread to the capture; sums in another order would show in the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def params(tmp_path):
    def write(model, candidate="class ModelNew(Model):\n    pass\n"):
        (tmp_path / "problem.py").write_text(HEAD + model + TAIL)
        (tmp_path / "candidate.py").write_text(HEAD + model + candidate)
        return {"problem": str(tmp_path / "problem.py"), "device": "cpu", "seed": 11, "draws": 7}

    return write


def verify(given, tmp_path):
    """The report as it is sent, where NaN equals NaN, without the time that it took."""
    report = json.loads(
        protocol.encode(
            verification.run(given | {"candidate": str(tmp_path / "candidate.py")}, lambda stage, fraction: None)
        )[4:]
    )
    del report["prepared_seconds"]
    return report


@pytest.mark.parametrize("steps", [2, 7])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_report_is_the_same(params, tmp_path, name, steps):
    given = params(PROBLEMS[name])
    expected = verify(given, tmp_path)
    taken = [None for _, _ in zip(range(steps), preparation.work(given))]
    assert len(taken) == steps
    assert verify(given, tmp_path) == expected


@pytest.mark.parametrize("limit", [0, 20_000, 60_000])
def test_the_report_is_the_same_where_memory_ends_the_work_early(params, tmp_path, monkeypatch, limit):
    given = params(PROBLEMS["buffers"])
    expected = verify(given, tmp_path)
    monkeypatch.setattr(yardstick, "_AHEAD_BYTES", limit)
    taken = list(preparation.work(given))
    assert len(taken) < 7
    assert verify(given, tmp_path) == expected


def test_a_wrong_candidate_is_found_on_the_same_draws(params, tmp_path):
    given = params(
        PROBLEMS["buffers"],
        "class ModelNew(Model):\n    def forward(self, x):\n        return torch.relu(self.fc(x))\n",
    )
    expected = verify(given, tmp_path)
    list(preparation.work(given))
    assert verify(given, tmp_path) == expected
    assert any(row["ours"]["norm"] > 0.1 for draw in expected["draws"] for row in draw["outputs"])


def test_other_parameters_do_not_get_what_was_prepared(params):
    given = params(PROBLEMS["buffers"])
    list(preparation.work(given))
    assert preparation.yardstick_for(given | {"seed": 12}).seed == 12
    assert preparation.yardstick_for(given).seed == 11


def test_a_problem_that_cannot_be_constructed_is_told_by_the_verification(params, tmp_path):
    given = params(
        "class Model(nn.Module):\n    def __init__(self):\n        raise ValueError('no')\n    def forward(self, x):\n        return x\n"
    )
    with pytest.raises(errors.Error):
        next(preparation.work(given))
    with pytest.raises(errors.Error, match="constructing Model: ValueError: no"):
        verify(given, tmp_path)
