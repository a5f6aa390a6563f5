"""Signs of zeros and subnormal results count where no honest compiler gives them up, and nowhere else."""

import textwrap

import pytest
import torch
from verification_problems import check, failed_checks, wrong_outputs  # noqa: F401

from kernelwright.judge import draws

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return RESULT

def get_inputs():
    return [torch.randn(24, 40), torch.randn(24, 40)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def passes(check):  # noqa: F811
    def run(result, body, seed=11):
        candidate = "class ModelNew(Model):\n    def forward(self, x, y):\n" + textwrap.indent(body, "        ")
        found = check(PROBLEM.replace("RESULT", result), candidate, seed=seed)
        return not failed_checks(found) and not wrong_outputs(found)

    return run


@pytest.mark.parametrize("result", ["torch.tanh(x) * 2", "torch.sin(x.t())", "torch.cat([torch.erf(x), y / 3])"])
def test_odd_functions_and_positive_factors_keep_signs_of_zeros(passes, result):
    assert passes(result, f"return {result}")
    assert not passes(result, f"return {result} + 0.0")


@pytest.mark.parametrize(
    "result, body",
    [
        ("x * (y > 0)", "return torch.where(y > 0, x, 0.0)"),
        ("torch.relu(x)", "return torch.where(x <= 0, 0.0, x)"),
        ("-x", "return 0.0 - x"),
        ("torch.expm1(x)", "return torch.expm1(x) + 0.0"),
        ("x * -2", "return 0.0 - x * 2"),
    ],
)
def test_other_zeros_may_have_either_sign(passes, result, body):
    assert passes(result, body)


FLUSHED = "return torch.where(out.abs() < 1.1754943508222875e-38, out * 0.0, out)"


@pytest.mark.parametrize("result", ["x * 1.5 + y", "torch.maximum(x, y) - y * 0.5", "x.clamp(-1, 1)"])
def test_basic_operators_keep_subnormal_results(passes, result):
    assert not passes(result, f"out = {result}\n{FLUSHED}")


@pytest.mark.parametrize("seed", range(3))
def test_roundings_of_subnormal_results_may_differ(passes, seed):
    assert passes("x * 1.5 + y", "return (x.double() * 1.5 + y.double()).float()", seed)
    assert passes("(x + y) * 0.75", "return x * 0.75 + y * 0.75", seed)


@pytest.mark.parametrize("result", ["torch.erf(x)", "x / 3", "torch.exp(x * 30)"])
def test_others_may_flush_them(passes, result):
    assert passes(result, f"out = {result}\n{FLUSHED}")


def test_inputs_of_one_size_have_subnormal_numbers_in_the_same_places():
    drawn = draws.redraw_inputs([torch.ones(40, 8), torch.ones(320), torch.ones(4)], "special", 7, subnormals=True)
    is_subnormal = [(one.abs() < torch.finfo(torch.float32).tiny) & (one != 0) for one in drawn]
    both = is_subnormal[0].flatten() & is_subnormal[1]
    assert int(both.sum()) >= 3
    assert bool((drawn[0].flatten()[both] != drawn[1][both]).all())
