"""Ties: any choice among equal elements that eager's operator might have made passes, and no other answer does."""

import pytest
import torch
from verification_problems import ELEMENTWISE, check, failed_checks, wrong_outputs  # noqa: F401, F811

from kernelwright.judge import verification
from kernelwright.judge.ties import strays

# Few different values, so that every row has ties, NaN among them.
GRADED = "torch.tensor([0.0, -0.0, 1.0, 2.0, float('nan')])[torch.randint(0, 5, (24, 40))]"


def problem(expression, x=GRADED):
    return ELEMENTWISE.replace("torch.tanh(x) * 2", expression).replace("torch.rand(24, 40)", x)


def candidate(*lines, prologue=""):
    body = "\n".join(f"        {line}" for line in lines)
    return f"{prologue}\nclass ModelNew(Model):\n    def forward(self, x):\n{body}\n"


# In double precision the sines differ, and with them the order: rounding excuses what the positions then say.
STEEP = problem("tuple(torch.topk(torch.sin(x * 1e6), 30, 1))", "torch.randn(24, 40)")
TWICE = candidate("values, at = torch.topk(torch.sin(x * 1e6), 30, 1)", "at[3] = at[3, 0]", "return values, at")

# Of equal elements the last ones first.
BACKWARDS = """
def backwards(x, dim, descending):
    values, at = x.flip(dim).sort(dim=dim, descending=descending, stable=True)
    return values, x.shape[dim] - 1 - at
"""


def test_any_choice_among_equals_passes(check):
    result = check(
        problem("torch.topk(x, 7, 1)"),
        candidate(
            "values, at = backwards(x, 1, True)",
            "return torch.return_types.topk((values[:, :7].contiguous(), at[:, :7].contiguous()))",
            prologue=BACKWARDS,
        ),
    )
    assert wrong_outputs(result) == [] and failed_checks(result) == set()
    assert any(row.get("ties") for draw in result["draws"] for row in draw["outputs"])


@pytest.mark.parametrize(
    ("expression", "ours"),
    [
        ("tuple(torch.sort(x, 0, True))", ["values, at = backwards(x, 0, True)", "return values, at"]),
        (
            "tuple(torch.sort(x.t(), 1))",
            [
                "values, at = backwards(x.t(), 1, False)",
                "return torch.empty_like(x).t().copy_(values), torch.empty_like(x, dtype=torch.int64).t().copy_(at)",
            ],
        ),
        ("torch.argsort(x, 1)", ["return backwards(x, 1, False)[1]"]),
        (
            "x.topk(5, 1, largest=False).indices.unsqueeze(1)",
            ["return backwards(x, 1, False)[1][:, :5].contiguous().unsqueeze(1)"],
        ),
        (
            "x.topk(5, 1, largest=False).indices.to(torch.int32)",
            ["return backwards(x, 1, False)[1][:, :5].to(torch.int32)"],
        ),
        (
            "tuple(x.kthvalue(9, 1))",
            ["values, at = backwards(x, 1, False)", "return values[:, 8].clone(), at[:, 8].clone()"],
        ),
        # What depends on the choice depends on the candidate's, where that shows ...
        (
            "(x.topk(5, 1).indices, torch.arange(40.0).log1p()[x.topk(5, 1).indices])",
            ["at = backwards(x, 1, True)[1][:, :5].contiguous()", "return at, torch.arange(40.0).log1p()[at]"],
        ),
        # ... and where it does not, on the order in which the elements stand.
        (
            "torch.zeros_like(x).scatter(1, x.topk(5, 1).indices, 1.0).cumsum(1)",
            [
                "at = torch.sort(x, dim=1, descending=True, stable=True).indices[:, :5]",
                "return torch.zeros_like(x).scatter(1, at, 1.0).cumsum(1)",
            ],
        ),
        ("x.topk(5, 1, sorted=False).indices", ["return x.topk(5, 1).indices.flip(1)"]),
    ],
)
def test_other_choices_of_every_operator_pass(check, expression, ours):
    result = check(problem(expression), candidate(*ours, prologue=BACKWARDS))
    assert wrong_outputs(result) == [] and failed_checks(result) == set()


@pytest.mark.parametrize(
    "spoilt",
    [
        "at[3, 0] = at[3, 0] * 0 + values[3].argmin()",  # another element than the largest
        "at[3] = at[3].flip(0)",  # the right ones in the wrong order
        "at[3, 1] = at[3, 0]",  # one of them twice
        "at[3, 0] = 40",  # none
        "at[3, 0] -= 40",  # the right one, counted from the end
    ],
)
@pytest.mark.parametrize("kind", ["ties", "none"])
def test_a_wrong_position_never_passes(check, spoilt, kind):
    given = GRADED if kind == "ties" else "torch.randn(24, 40)"
    ours = candidate(
        "values, at = backwards(x, 1, True)",
        "values, at = values[:, :30].contiguous(), at[:, :30].contiguous()",
        spoilt,
        "return values, at",
        prologue=BACKWARDS,
    )
    result = check(problem("tuple(torch.topk(x, 30, 1))", given), ours, draws=1)
    assert wrong_outputs(result) == [("generator", "output[1]")]


def test_values_and_positions_belong_together(check):
    ours = candidate(
        "values, at = backwards(x, 1, True)",
        "return values[:, :9].contiguous().abs(), at[:, :9].contiguous()",
        prologue=BACKWARDS,
    )
    result = check(problem("tuple(torch.topk(x - 1, 9, 1))"), ours)
    assert ("generator", "output[0]") in wrong_outputs(result)


def test_a_stable_sort_has_one_answer(check):
    result = check(
        problem("torch.sort(x, dim=1, stable=True).indices"),
        candidate("return backwards(x, 1, False)[1]", prologue=BACKWARDS),
    )
    assert ("generator", "output[0]") in wrong_outputs(result)


def test_positions_twice_are_a_fault_even_where_rounding_excuses_the_element(check):
    assert failed_checks(check(STEEP, TWICE, draws=1)) == {"distinct-positions"}


def test_positions_are_checked_elsewhere_where_the_device_has_no_memory_for_it(check, monkeypatch):
    calls = []

    def short_of_memory(*args):
        calls.append(args)
        if len(calls) % 2:
            raise torch.OutOfMemoryError
        return strays(*args)

    monkeypatch.setattr(verification, "strays", short_of_memory)
    assert failed_checks(check(STEEP, TWICE, draws=1)) == {"distinct-positions"}
    assert len(calls) == 4


def test_positions_that_could_not_be_found_are_no_passed_check(check, monkeypatch):
    def short_of_memory(*args):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(verification.Verification, "_find_positions", short_of_memory)
    result = check(STEEP, TWICE, draws=1)
    assert [row["name"] for row in result["checks"] if "unchecked" in row] == ["distinct-positions"]


def test_strays_are_found_along_any_dim():
    indices = torch.tensor([[0, 2, 1], [1, 2, 5], [0, 7, 1]])
    assert strays(indices, 0, 6).tolist() == [[False, False, False], [False, True, False], [True, True, True]]
    assert not strays(indices[:1], 1, 3).any()
