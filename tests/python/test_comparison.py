"""How outputs are held against eager's and the reference's: values that are not finite, lost digits, figures."""

import pytest
import torch
from verification_problems import ELEMENTWISE, check, wrong_outputs  # noqa: F401, F811

from kernelwright.judge import metrics


def test_comparison_rule_for_values_that_are_not_finite():
    nan, inf = float("nan"), float("inf")
    # Element by element: agreeing NaN, fp32 overflow that only eager shares, the same that only the reference shares, a
    # value beside both.
    eager = torch.tensor([nan, inf, inf, 1.0, 2.0])
    reference = torch.tensor([nan, 1e300, 1e300, 1.0, 2.0], dtype=torch.float64)
    fine = metrics.compare(torch.tensor([nan, inf, 3e38, 1.0, 2.0]), eager, reference)
    assert fine.nonfinite_mismatches == 0 and fine.compared == 2 and fine.ours == {"norm": 0.0, "max": 0.0}
    # An overflow has a sign, and is no NaN.
    assert metrics.compare(torch.tensor([nan, nan, -inf, 1.0, 2.0]), eager, reference).nonfinite_mismatches == 2
    # Where eager's sum came to infinity minus infinity, another order ends in one of them; a finite number only if it
    # is the reference's.
    lost = torch.tensor([nan, nan, nan])
    assert (
        metrics.compare(
            torch.tensor([nan, -inf, inf]), lost, torch.full((3,), 1e300, dtype=torch.float64)
        ).nonfinite_mismatches
        == 0
    )
    # A mean over an infinite number is infinite as a sum over n, NaN as a running update; never finite.
    both_nan = torch.tensor([nan, nan, nan])
    excused = metrics.compare(torch.tensor([inf, -inf, nan]), both_nan, both_nan.double())
    assert excused.nonfinite_mismatches == 0 and excused.infinite_for_nan == 2
    assert metrics.compare(torch.tensor([0.0, 1.0, 3e38]), both_nan, both_nan.double()).nonfinite_mismatches == 3
    both_infinite = torch.tensor([inf, inf, inf])
    assert (
        metrics.compare(torch.tensor([nan, -inf, 3e38]), both_infinite, both_infinite.double()).nonfinite_mismatches
        == 3
    )
    bad = metrics.compare(torch.tensor([1.0, nan, -inf, inf, nan]), eager, reference)
    assert bad.nonfinite_mismatches == 5 and bad.stray_nans == 1 and bad.compared == 0
    nothing = metrics.compare(eager[:2], eager[:2], reference[:2])
    assert nothing.compared == 0 and nothing.ours == nothing.eager == {"norm": 0.0, "max": 0.0}


def test_a_mean_may_be_a_sum_over_n_where_eager_updates_it(check):
    problem = ELEMENTWISE.replace("torch.rand(24, 40)", "torch.rand(256, 16)").replace(
        "return torch.tanh(x) * 2",
        """mean = torch.zeros(x.shape[0], dtype=x.dtype)
        for index in range(x.shape[1]):
            mean = mean + (x[:, index] - mean) / (index + 1)
        return mean""",
    )
    result = check(problem, "class ModelNew(Model):\n    def forward(self, x):\n        return (x / 16).sum(1)\n")
    assert wrong_outputs(result) == []


def test_an_infinity_does_not_stand_for_a_nan_that_came_in(check):
    problem = ELEMENTWISE.replace("torch.rand(24, 40)", "torch.rand(256, 16)").replace("torch.tanh(x) * 2", "x.sum(1)")
    result = check(
        problem,
        "class ModelNew(Model):\n    def forward(self, x):\n        return x.nan_to_num(nan=float('inf'), posinf=float('inf'), neginf=-float('inf')).sum(1)\n",
    )
    assert wrong_outputs(result) == [("special", "output[0]")]


def test_elements_of_which_eager_has_no_digit_leave_the_norms_of_the_special_draw():
    # Two rows: eager lost the first, and the candidate is wrong in it otherwise; both have the second but for a
    # rounding.
    reference = torch.tensor([[5.0, -7.0], [1.0, 2.0]], dtype=torch.float64)
    eager = torch.tensor([[0.0, 0.0], [1.0, 2.0 + 2e-7]])
    ours = torch.tensor([[30.0, 80.0], [1.0, 2.0 - 2e-7]])
    kept = metrics.compare(ours, eager, reference, skip_lost=True)
    assert kept.compared == 2 and kept.ours["max"] < 2e-7 and 0 < kept.eager["max"] < 2e-7
    everything = metrics.compare(ours, eager, reference)
    assert everything.compared == 4 and everything.ours["max"] > 10 and everything.eager["max"] == 1.0
    # What the candidate alone has lost counts.
    assert metrics.compare(ours, reference.float(), reference, skip_lost=True).ours["max"] > 10


def test_a_maximum_that_passes_over_nan_fails_the_special_draw(check):
    problem = ELEMENTWISE.replace("torch.rand(24, 40)", "torch.rand(256, 16)").replace("torch.tanh(x) * 2", "x.amax(1)")
    result = check(
        problem,
        "class ModelNew(Model):\n    def forward(self, x):\n        return x.nan_to_num(nan=-float('inf'), posinf=float('inf')).amax(1)\n",
    )
    assert wrong_outputs(result) == [("special", "output[0]")]


def test_figures_equal_the_plain_formulas_across_chunks(monkeypatch):
    monkeypatch.setattr(metrics, "_CPU_CHUNK", 7)
    reference = torch.randn(3, 5, 4, dtype=torch.float64)
    ours, eager = reference.float() * 1.001, reference.float()
    ours[2, 3, 1] += 0.5
    figures = metrics.compare(ours, eager, reference, gate=True)
    difference = ours.double() - reference
    assert figures.ours["norm"] == pytest.approx((difference.norm() / reference.norm()).item(), rel=1e-12)
    assert figures.ours["max"] == pytest.approx((difference.abs().max() / reference.abs().max()).item(), rel=1e-12)
    assert figures.where == [2, 3, 1]
    assert figures.gate_failures == int((~torch.isclose(ours, eager, rtol=1e-4, atol=1e-4)).sum())


def test_comparing_leaves_double_outputs_as_they_are():
    values = torch.randn(100, dtype=torch.float64)
    kept = values.clone()
    metrics.compare(values, values, kept.flip(0))
    assert torch.equal(values, kept)


def test_fingerprints_see_single_bits_and_order():
    values = torch.randn(1000)
    swapped, flipped = values.clone(), values.clone()
    swapped[[3, 700]] = values[[700, 3]]
    flipped.view(torch.int32)[500] ^= 1
    assert len({metrics.fingerprint(each) for each in (values, swapped, flipped, values.clone())}) == 3
    assert metrics.fingerprint(torch.tensor([0.0])) != metrics.fingerprint(torch.tensor([-0.0]))
