"""Calls that nobody judges, before those that are judged: results kept by anything but all that they depend on show,
and honest caches pass.
"""

import pytest
import torch
from verification_problems import ELEMENTWISE, PROBLEM, check, failed_checks, wrong_outputs  # noqa: F401, F811

from kernelwright.judge import decoys, runs
from kernelwright.running import problem as problems

# The key by which results are kept, for a module with weights and for one without.
KEPT = """
class ModelNew(Model):
    kept = {{}}
    def forward(self, x):
        key = {key}
        if key not in self.kept:
            self.kept[key] = super().forward(x)
        return self.kept[key].clone()
"""

LINEAR = PROBLEM.replace("torch.relu(self.bn(self.fc(x)))", "torch.relu(self.fc(x))").replace(
    "        self.bn = nn.BatchNorm1d(out)\n", ""
)

LOOKUP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 8)

    def forward(self, x):
        return self.table(x) * 2

def get_inputs():
    return [torch.randint(40, (30,))]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(
    ("problem", "key"),
    [
        (LINEAR, "x.numpy().tobytes()"),
        (LINEAR, "self.fc.weight._version"),
        (LINEAR, "(x.flatten()[::97].numpy().tobytes(), self.fc.weight._version)"),
        (ELEMENTWISE, "tuple(x[0, :4].tolist())"),
        (LOOKUP, "x.numpy().tobytes()"),
        (LOOKUP, "self.table.weight._version"),
    ],
)
def test_results_kept_by_a_part_of_what_they_depend_on_show(check, problem, key, seed):
    assert wrong_outputs(check(problem, KEPT.format(key=key), seed=seed))


@pytest.mark.parametrize(
    "key",
    [
        "(x.numpy().tobytes(), self.fc.weight._version)",
        "(x.numpy().tobytes(), self.fc.weight.detach().numpy().tobytes(), self.fc.bias._version)",
    ],
)
def test_results_kept_by_all_that_they_depend_on_are_fine(check, key):
    result = check(LINEAR, KEPT.format(key=key))
    assert wrong_outputs(result) == [] and failed_checks(result) == set()


def test_calls_cannot_be_counted(check, tmp_path):
    counted = """
        class ModelNew(Model):
            def forward(self, x):
                with open("COUNT", "a") as file:
                    file.write(".")
                return torch.tanh(x) * 2
    """.replace("COUNT", str(tmp_path / "count"))
    counts = []
    for seed in range(6):
        (tmp_path / "count").write_text("")
        assert wrong_outputs(check(ELEMENTWISE, counted, seed=seed)) == []
        counts.append(len((tmp_path / "count").read_text()))
    assert min(counts) > 7 and len(set(counts)) > 1


def test_slow_candidates_are_called_seldom(check, tmp_path):
    slow = """
        import time
        class ModelNew(Model):
            def forward(self, x):
                with open("COUNT", "a") as file:
                    file.write(".")
                time.sleep(0.06)
                return torch.tanh(x) * 2
    """.replace("COUNT", str(tmp_path / "count"))
    check(ELEMENTWISE, slow)
    assert len((tmp_path / "count").read_text()) <= 9


def test_a_candidate_may_raise_where_nobody_judges(check):
    raising = """
        class ModelNew(Model):
            calls = 0
            def forward(self, x):
                self.calls += 1
                if self.calls == 4:
                    raise ValueError("not these")
                return torch.tanh(x) * 2
    """
    assert wrong_outputs(check(ELEMENTWISE, raising)) == []


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64]
)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_inputs_come_back_as_they_were(tmp_path, dtype, count):
    (tmp_path / "problem.py").write_text(ELEMENTWISE)
    inputs = runs.Inputs(problems.load(str(tmp_path / "problem.py")), torch.device("cpu"))
    given = torch.randn(count, 3).to(dtype)
    inputs.values = [given, given[1:], torch.arange(3)]
    before = given.clone()
    (flat,) = decoys.floating_memories(inputs)
    chooser = decoys.random.Random(1)
    for change in (decoys.elements_replaced(flat, chooser), decoys.halves_exchanged(flat)):
        with change:
            assert not torch.equal(given.view(torch.uint8), before.view(torch.uint8))
        assert torch.equal(given.view(torch.uint8), before.view(torch.uint8))


def test_inputs_that_forward_changes_are_put_back(check):
    problem = ELEMENTWISE.replace("return torch.tanh(x) * 2", "return x.mul_(2).sum(1)")
    assert (
        wrong_outputs(
            check(
                problem,
                "class ModelNew(Model):\n    def forward(self, x):\n        x.add_(x)\n        return x.sum(1)\n",
            )
        )
        == []
    )
