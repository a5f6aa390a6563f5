"""Buffers whose contents a checkpoint may replace have others on some draws; tables and counters keep theirs."""

import pytest
import torch
from verification_problems import check, failed_checks, wrong_outputs  # noqa: F401, F811

from kernelwright.judge import buffers
from kernelwright.judge.yardstick import Yardstick
from kernelwright.running import problem as problems

TEMPLATE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", CONTENTS, persistent=PERSISTENT)

    def forward(self, x):
        return RESULT

def get_inputs():
    return [torch.randn(12, 12)]

def get_init_inputs():
    return []
"""

MASKED = "torch.softmax(x @ x.t() + self.held, dim=-1)"

KEEPS_THE_FIRST = """
class ModelNew(Model):
    kept = None
    def forward(self, x):
        if self.kept is None:
            self.kept = [self.held.clone()]
        return RESULT
"""


def written(contents, result, persistent=True):
    return TEMPLATE.replace("CONTENTS", contents).replace("RESULT", result).replace("PERSISTENT", str(persistent))


def keeping(result):
    return KEEPS_THE_FIRST.replace("RESULT", result.replace("self.held", "self.kept[0]"))


CHANGED = {
    "drawn integers": ("torch.randint(-127, 128, (12, 12), dtype=torch.int8)", "x @ self.held.float()"),
    "drawn projection": ("torch.randn(12, 12)", "x @ self.held"),
    "causal mask": ("torch.full((12, 12), -1e9).triu(1)", MASKED),
    "infinite mask": ("torch.full((12, 12), -float('inf')).triu(1)", MASKED),
    "boolean mask": ("torch.ones(12, 12, dtype=torch.bool).tril()", "x.masked_fill(~self.held, 0.0)"),
    "channels kept": ("(torch.arange(12) % 3 == 0).float()", "x * self.held"),
}

LEFT = {
    "positions": ("torch.sin(torch.arange(144.0)).view(12, 12)", "x + self.held"),
    "indices": ("torch.arange(12).flip(0)", "x[self.held]"),
    "a number": ("torch.tensor(3.0)", "x * self.held"),
    "ones": ("torch.ones(12)", "x * self.held"),
    "filter": ("torch.tensor([[1.0, -1.0]] * 12)", "x @ self.held"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_contents_kept_from_the_first_call_show(check, name):
    contents, result = CHANGED[name]
    assert ("signed", "output[0]") in wrong_outputs(check(written(contents, result), keeping(result)))


@pytest.mark.parametrize("name", CHANGED)
def test_contents_read_at_each_call_are_fine(check, name):
    contents, result = CHANGED[name]
    report = check(written(contents, result), "class ModelNew(Model):\n    pass\n")
    assert wrong_outputs(report) == [] and failed_checks(report) == set()
    assert not any("skipped" in draw for draw in report["draws"])


@pytest.mark.parametrize("name", LEFT)
def test_tables_keep_their_values(check, name):
    contents, result = LEFT[name]
    assert wrong_outputs(check(written(contents, result), keeping(result))) == []


def test_what_no_checkpoint_holds_keeps_its_values(check):
    contents, result = CHANGED["causal mask"]
    assert wrong_outputs(check(written(contents, result, persistent=False), keeping(result))) == []


def test_buffers_that_eager_cannot_take_stay(check):
    contents = "torch.eye(12)"
    result = "torch.linalg.cholesky(self.held) @ x"
    report = check(written(contents, result), keeping(result))
    assert not any("skipped" in draw for draw in report["draws"]) and wrong_outputs(report) == []


def test_a_causal_mask_never_hides_a_whole_row():
    for mask in (torch.full((9, 9), -1e9).triu(1), torch.ones(9, 9).tril().triu(-2)):
        hidden = mask.min()
        other = buffers.moved(mask)
        for corner in (9, 5, 2):
            part = other[:corner, :corner]
            assert not torch.equal(part, mask[:corner, :corner]) and (part != hidden).any(1).all()


def test_the_model_gets_its_own_contents_back(tmp_path):
    (tmp_path / "problem.py").write_text(written("torch.randn(12, 12)", "x @ self.held"))
    problem = problems.load(str(tmp_path / "problem.py"))
    model = problem.construct("cpu", seed=1)
    before = model.held.clone()
    other = buffers.OtherBuffers(problem, model, torch.device("cpu"), 2)
    other.put(own=False)
    assert not torch.equal(model.held, before)
    other.put(own=True)
    assert torch.equal(model.held, before)


def test_a_buffer_that_eager_writes_to_counts_where_it_stays_as_it_was(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(written("torch.zeros(12)", "self.held.mul_(0.9).add_(x.mean(0), alpha=0.1) * 1"))
    yardstick = Yardstick({"problem": str(path), "seed": 1})
    assert "buffer held" in yardstick.draw(0).eager.tensors
    for tensor in [*yardstick.inputs.tensors().values(), yardstick.model.held]:
        tensor.zero_()
    left, _ = yardstick.run_eager(0)
    assert torch.equal(left.tensors["buffer held"], torch.zeros(12))


# A mean in which all cancels, so that the buffer stays as it is when that is added; and a buffer that nobody writes to.
SILENT_WRITES = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("bias", torch.zeros(12))

    def forward(self, x):
        self.calls += 1
        self.mean.mul_(0.9).add_(0.1 * (torch.tanh(x) + torch.tanh(-x)).mean(0))
        return x + self.bias

def get_inputs():
    return [torch.randn(4, 12)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "change, passes",
    [("self.mean += 1e-9 * torch.tanh(x[0])", True), ("self.bias += 1e-9 * x[0]", False), ("self.mean += x[0]", False)],
)
def test_a_write_that_changes_nothing_is_a_write(check, change, passes):
    candidate = f"""
        class ModelNew(Model):
            def forward(self, x):
                result = super().forward(x)
                {change}
                return result
    """
    result = check(SILENT_WRITES, candidate)
    assert not failed_checks(result) or not passes, failed_checks(result)
    assert bool(failed_checks(result) or wrong_outputs(result)) is not passes
