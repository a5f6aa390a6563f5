"""What the signed and the special draw hold beside normal numbers, and what a 16-bit input one rounding away excuses."""

import pytest
import torch
from verification_problems import ELEMENTWISE, check, wrong_outputs  # noqa: F401, F811

from kernelwright.judge import draws, reference

SAME = "class ModelNew(Model):\n    pass\n"


def computing(result):
    return ELEMENTWISE.replace("torch.tanh(x) * 2", result)


def candidate(result):
    return f"class ModelNew(Model):\n    def forward(self, x):\n        return {result}\n"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("x < 0.75", "x <= 0.75"),
        ("torch.where(x > 3.0, x, -x)", "torch.where(x >= 3.0, x, -x)"),
        ("torch.nn.functional.threshold(x, 0.5, 20.0)", "torch.where(x >= 0.5, x, 20.0)"),
    ],
)
def test_a_bound_taken_in_shows_on_the_special_draw(check, right, wrong):
    assert ("special", "output[0]") in wrong_outputs(check(computing(right), candidate(wrong)))
    assert wrong_outputs(check(computing(right), SAME)) == []


def test_numbers_among_the_arguments_are_noted_and_sizes_are_not():
    with torch.no_grad(), reference.Record() as record:
        x = torch.rand(5, 7)
        (x.clamp(-6, 6.5) > 0.75).sum(1)
        torch.nn.functional.softplus(x.view(7, 5).transpose(0, 1), threshold=17)
    assert {-6.0, 6.5, 0.75, 17.0} <= record.constants and not {5.0, 7.0} & record.constants


def test_only_constants_that_a_type_holds_exactly_are_strewn():
    for dtype, held in ((torch.float32, {0.75, 1.001953125}), (torch.bfloat16, {0.75})):
        x = torch.randn(4096).to(dtype)
        draws.redraw_inputs([x], "special", 3, constants=(0.1, 0.75, 1.001953125, 1e30))
        assert held == {0.1, 0.75, 1.001953125, 1e30} & set(x.double().tolist())


@pytest.mark.parametrize("epsilon", ["1e-6", "1e-5"])
@pytest.mark.parametrize("dim", [-1, (1,), (0, 1)])
def test_an_epsilon_left_out_of_a_norm_shows_unless_the_batch_hides_it(check, epsilon, dim):
    right = f"x * torch.rsqrt(x.pow(2).mean({dim}, keepdim=True) + {epsilon})"
    found = wrong_outputs(check(computing(right), candidate(right.replace(f" + {epsilon}", ""))))
    assert ("signed", "output[0]") in found
    assert wrong_outputs(check(computing(right), SAME)) == []


def test_some_samples_of_a_batch_are_small():
    x = torch.rand(64, 3, 9)
    draws.redraw_inputs([x], "signed", 5)
    sizes = x.flatten(1).abs().amax(1)
    assert 1 <= (sizes < 0.01).sum() <= 8 and (sizes > 0.1).sum() >= 56
    for kept in (torch.rand(64), torch.rand(1, 64), torch.rand(4, 64), torch.rand(1, 64).expand(64, 64)):
        draws.redraw_inputs([kept], "signed", 5)
        assert (kept.abs() < 1e-4).float().mean() < 0.05


PRODUCT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(64, 256).to(DTYPE), torch.randn(256, 48).to(DTYPE)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_sums_in_16_bits_show(check, dtype):
    problem = PRODUCT.replace("DTYPE", dtype)
    coarse = f"""
class ModelNew(Model):
    def forward(self, a, b):
        total = torch.zeros(a.shape[0], b.shape[1], dtype={dtype})
        for start in range(0, a.shape[1], 8):
            total += a[:, start : start + 8] @ b[start : start + 8]
        return torch.where(total.isfinite(), total, a @ b)
"""
    fine = "class ModelNew(Model):\n    def forward(self, a, b):\n        return sum(x.float() @ y.float() for x, y in zip(a.chunk(4, 1), b.chunk(4, 0))).to(a.dtype)\n"
    assert ("generator", "output[0]") in wrong_outputs(check(problem, coarse))
    assert wrong_outputs(check(problem, fine)) == []
