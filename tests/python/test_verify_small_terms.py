"""What is small beside something large is held to what eager shows among elements of its size."""

import textwrap

import pytest
import torch
from verification_problems import check, wrong_outputs  # noqa: F401

from kernelwright.judge import buckets, metrics

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return RESULT

def get_inputs():
    return [INPUT]

def get_init_inputs():
    return []
"""


def candidate(body):
    return "class ModelNew(Model):\n    def forward(self, x):\n" + textwrap.indent(textwrap.dedent(body), "        ")


MASK = "torch.triu(torch.full((64, 64), -1e9), 1)"
CHEATS = {
    "scores_beside_a_mask": (f"x @ x.t() / 8 + {MASK}", "torch.randn(64, 64)", f"return {MASK}"),
    "a_few_columns_of_a_product_of_columns": (
        "torch.cumprod(x, 1)",
        "torch.rand(8, 2000)",
        "out = torch.zeros_like(x)\nout[:, :64] = torch.cumprod(x[:, :64], 1)\nreturn out",
    ),
    "a_softplus_that_is_the_identity_above_six": (
        "nn.functional.softplus(x)",
        "torch.rand(64, 256) * 20",
        "return torch.where(x > 6, x, nn.functional.softplus(x))",
    ),
    "statistics_packed_beside_large_values": (
        "torch.cat([x * 1e8, x.mean(1, keepdim=True), x.var(1, keepdim=True)], 1)",
        "torch.randn(64, 256)",
        "return torch.cat([x * 1e8, x[:, :32].mean(1, keepdim=True), x[:, :32].var(1, keepdim=True)], 1)",
    ),
    "tails_of_a_gelu": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 256) * 4",
        "return torch.where(x < -4, 0.0, nn.functional.gelu(x))",
    ),
    "the_end_of_a_tail_of_which_eager_has_three_bits": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 128) * 2",
        "return torch.where(x < -5, 0.0, nn.functional.gelu(x))",
    ),
    "a_hundredth_of_it": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 128) * 2",
        "y = nn.functional.gelu(x)\nreturn torch.where(x < -5, y * 0.01, y)",
    ),
    "probabilities_that_vanish": (
        "torch.softmax(x * 8, 1)",
        "torch.randn(64, 256)",
        "y = torch.softmax(x * 8, 1)\nreturn torch.where(y < 1e-7, 0.0, y)",
    ),
}

HONEST = {
    "a_product_in_pieces": (
        "x @ x.t()",
        "torch.randn(96, 96)",
        "return x[:, :32] @ x[:, :32].t() + x[:, 32:64] @ x[:, 32:64].t() + x[:, 64:] @ x[:, 64:].t()",
    ),
    "a_softmax_by_exp2": (
        "torch.softmax(x * 8, 1)",
        "torch.randn(64, 256)",
        "y = x * (8 * 1.4426950408889634)\ny = torch.exp2(y - y.amax(1, keepdim=True))\nreturn y / y.sum(1, keepdim=True)",
    ),
    "differences_from_a_mean": (
        "x - x.mean(1, keepdim=True)",
        "torch.randn(1, 4096) + 3",
        "return x - x.view(64, 64).sum(1).sum() / 4096",
    ),
    "a_variance_by_moments": (
        "(x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)",
        "torch.randn(64, 512)",
        "n = x.shape[1]\nm = x.sum(1, keepdim=True) / n\nv = ((x - m) ** 2).sum(1, keepdim=True) / (n - 1)\nreturn (x - m) * v.rsqrt()",
    ),
    "a_product_of_columns_in_doubles": (
        "torch.cumprod(x, 1)",
        "torch.rand(8, 256) + 0.5",
        "return torch.cumprod(x.double(), 1).float()",
    ),
    "a_gelu_by_the_other_tail": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 128) * 2",
        "return torch.where(x < 0, x + nn.functional.gelu(-x), nn.functional.gelu(x))",
    ),
    "a_gelu_by_a_difference": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 128) * 2",
        "return x * (1 - 0.5 * torch.special.erfc(x * 0.7071067811865476))",
    ),
    "a_gelu_of_two_halves": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 128) * 2",
        "return 0.5 * x + 0.5 * x * torch.erf(x * 0.7071067811865476)",
    ),
    "a_gelu_by_erfc": (
        "nn.functional.gelu(x)",
        "torch.randn(64, 256) * 4",
        "return 0.5 * x * torch.special.erfc(-x * 0.7071067811865476)",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_is_left_out_where_it_is_small_fails(check, name):  # noqa: F811
    result, given, body = CHEATS[name]
    assert wrong_outputs(check(PROBLEM.replace("RESULT", result).replace("INPUT", given), candidate(body)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", HONEST)
def test_another_order_of_rounding_passes(check, name, seed):  # noqa: F811
    result, given, body = HONEST[name]
    assert (
        wrong_outputs(check(PROBLEM.replace("RESULT", result).replace("INPUT", given), candidate(body), seed=seed))
        == []
    )


def test_buckets_are_the_same_sorted_and_one_by_one(monkeypatch):
    torch.manual_seed(0)
    reference = torch.randn(5000, dtype=torch.float64) * torch.exp2(torch.randint(-100, 100, (5000,)).double())
    reference[::50] = 0.0
    eager, ours = reference * (1 + 1e-6), reference * (1 + 1e-4 * torch.randn(5000, dtype=torch.float64))
    found = []
    for most_passes in (0, 1000):
        monkeypatch.setattr(buckets, "_MOST_PASSES", most_passes)
        one = buckets.Buckets()
        one.add(reference, ours=ours - reference, eager=eager - reference)
        found.append(one)
    first, second = found
    assert int((first.counts > 0).sum()) > 40 and torch.equal(first.counts, second.counts)
    for part in ("ours", "eager"):
        torch.testing.assert_close(first.squares[part], second.squares[part], rtol=1e-12, atol=0.0)
        assert torch.equal(first.peaks[part], second.peaks[part])


def test_what_is_left_out_is_counted_by_size_and_by_value(monkeypatch):
    monkeypatch.setattr(metrics, "_CPU_CHUNK", 4)
    reference = torch.tensor([1.0, 1.5, 1e-9, 1e-9, 1.1e-9, 0.0, 1.2e-9, 1.0], dtype=torch.float64)
    eager = reference.float() * 1.25
    ours = torch.tensor([1.0, 1.5, 0.0, 0.0, 1e-11, 0.0, 1.2e-9, 0.5])
    small, large = metrics.compare(ours, eager, reference).buckets.rows()
    assert "left_out" not in large and small["count"] == 4
    left_out = small["left_out"]
    assert left_out["count"] == 3 and left_out["values"] == 1  # two alike in one chunk, another in the next
    assert left_out["size"] == pytest.approx(((2 + 1.21) / 3) ** 0.5 * 1e-9)
    assert left_out["eager"] == pytest.approx(left_out["size"] / 4, rel=1e-5)


def test_buckets_hold_the_errors_of_their_size(monkeypatch):
    monkeypatch.setattr(metrics, "_CPU_CHUNK", 3)
    reference = torch.tensor([1.0, 1.5, 1.3e-9, 1e-9, 0.0, 1e9, float("inf")], dtype=torch.float64)
    eager = reference.float()
    ours = eager.clone()
    ours[2] += 1e-9
    rows = metrics.compare(ours, eager, reference).buckets.rows()
    assert [row["count"] for row in rows] == [2, 2, 1]
    small = rows[0]
    assert small["low"] <= 1e-9 < 1.3e-9 < 16 * small["low"]
    assert small["ours"]["max"] == pytest.approx(1e-9, rel=1e-3) and small["ours"]["rms"] == pytest.approx(
        1e-9 / 2**0.5, rel=1e-3
    )
    assert rows[1]["ours"]["max"] == rows[1]["eager"]["max"] == 0.0
    assert metrics.compare(eager, eager, reference).buckets is None


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e155])
def test_errors_of_any_size_have_squares(size):
    """A double's largest and smallest numbers have none of their own: eager's cumprod is 0 where the reference is
    1e151.
    """
    reference = size * (1 + torch.arange(64, dtype=torch.float64) / 64)
    held = buckets.Buckets()
    held.add(reference, ours=-reference, eager=-reference)
    held.merge_moved(held)
    row = max(held.rows(), key=lambda row: row["count"])
    assert row["left_out"]["eager"] == pytest.approx(row["left_out"]["size"])
    assert size / 2 < row["left_out"]["size"] < 4 * size
    assert row["eager"]["rms"] == pytest.approx(row["left_out"]["size"], rel=0.5)
    assert not held.stand_out(2.0**-23)

    held = buckets.Buckets()
    held.add(reference, ours=-reference, eager=reference * 2.0**-20)
    held.merge_moved(buckets.Buckets())
    assert held.stand_out(2.0**-23)
