"""What rounding decides, and what it excuses: terms that cancel, and steps behind a value whose last place has no one
answer.
"""

import pytest
from verification_problems import ELEMENTWISE, check, wrong_outputs  # noqa: F401, F811


DIVERGENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, student, teacher):
        return F.kl_div(F.log_softmax(student / 4, 1), F.softmax(teacher / 4, 1), reduction="batchmean") * 16

def get_inputs():
    return [torch.randn(64, 1000), torch.randn(64, 1000) * 2]

def get_init_inputs():
    return []
"""

OURS = """
class ModelNew(Model):
    def forward(self, student, teacher):
        log_share, share = F.log_softmax(student / 4, 1), F.softmax(teacher / 4, 1)
        term = {term}
        return {result}
"""


def diverging(
    term="(torch.xlogy(share, share).double() - share.double() * log_share).float()", result="term.sum() / 64 * 16"
):
    return OURS.format(term=term, result=result)


def test_terms_that_cancel_are_held_to_their_roundings(check):
    result = check(DIVERGENCE, diverging())
    assert wrong_outputs(result) == []
    row = next(draw["outputs"][0] for draw in result["draws"] if draw["kind"] == "constant")
    assert row["eager"]["norm"] == 0 and row["ours"]["norm"] > 1e100 and row["rounding"]["norm"] > 1e100


@pytest.mark.parametrize(
    ("candidate", "caught_on"),
    [
        (diverging(term="torch.xlogy(share, share) - share * log_share.bfloat16().float()"), "constant"),
        (
            diverging(term="torch.xlogy(share, share) - share * log_share", result="term.sum() / 64 * 16 + 1e-3"),
            "constant",
        ),
        (
            diverging(term="torch.xlogy(share, share) - share * log_share", result="term.sum() / 64 * 16 + 1e-5"),
            "generator",
        ),
        (diverging(result="term.sum() / 64 * 4"), "generator"),
        (diverging(result="torch.zeros_like(term.sum())"), "generator"),
    ],
)
def test_terms_that_cancel_excuse_nothing_else(check, candidate, caught_on):
    assert (caught_on, "output[0]") in wrong_outputs(check(DIVERGENCE, candidate))


def test_many_operators_excuse_no_coarser_arithmetic(check):
    problem = ELEMENTWISE.replace(
        "return torch.tanh(x) * 2",
        """for _ in range(40):
            x = torch.sin(x * 1.1) + x * 0.3
        return x""",
    ).replace("torch.rand(24, 40)", "torch.rand(24, 400)")
    coarse = problem[problem.index("        for") : problem.index("        return x") + 16].replace(
        "x * 0.3", "x * 0.30001"
    )
    wrong = wrong_outputs(check(problem, "class ModelNew(Model):\n    def forward(self, x):\n" + coarse))
    assert {("generator", "output[0]"), ("constant", "output[0]")} <= set(wrong)


def test_zeros_that_operators_answer_stay_zeros(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "torch.relu(torch.tanh(x) * 2 - 3)")
    result = check(
        problem, "class ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x) + 1e-30\n"
    )
    assert ("constant", "output[0]") in wrong_outputs(result)


STEPS = ELEMENTWISE.replace(
    "torch.tanh(x) * 2", "torch.round(x * 1000 / x.abs().mean(1, keepdim=True)).to(torch.int32)"
).replace("torch.rand(24, 40)", "torch.randn(1024, 1024)")


def steps(expression, prologue="pass"):
    return f"class ModelNew(Model):\n    def forward(self, x):\n        {prologue}\n        return {expression}\n"


def test_steps_that_rounding_decides_may_fall_otherwise(check):
    result = check(
        STEPS,
        steps("torch.round(x * 1000 / x.abs().flip(1).cumsum(1)[:, -1:].div(x.shape[1])).to(torch.int32)"),
        draws=3,
    )
    assert wrong_outputs(result) == []
    assert any(draw["outputs"][0]["mismatches"] for draw in result["draws"])


@pytest.mark.parametrize(
    "candidate",
    [
        steps(
            "torch.round(x * 1000 / (x.abs().mean(1, keepdim=True) * 1.00001)).to(torch.int32)"
        ),  # a mean that is a little off
        steps(
            "torch.round(x * 1000 / x.abs().mean(1, keepdim=True)).to(torch.int32).index_fill_(0, torch.tensor([1023]), 7)"
        ),  # a row that was left out
        steps(
            "y.index_put_((torch.tensor([5]), torch.tensor([7])), y[5, 7] + 1)", "y = super().forward(x)"
        ),  # one wrong element
        steps(
            "torch.trunc(x * 1000 / x.abs().mean(1, keepdim=True) + 0.5 * x.sign()).to(torch.int32)",
            "if x[0, 0] != x[0, 1]: return super().forward(x)",
        ),  # ties, on the constant draw
    ],
)
def test_steps_that_rounding_does_not_decide_may_not(check, candidate):
    problem = STEPS.replace("x * 1000", "x * 1000.5")
    assert wrong_outputs(check(problem, candidate.replace("x * 1000", "x * 1000.5")))
