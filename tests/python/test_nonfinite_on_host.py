"""NaN that only a GPU's kernel makes: what PyTorch's formula keeps on the host is right."""

from types import SimpleNamespace

import pytest
import torch

from kernelwright.judge import metrics
from kernelwright.judge.nonfinite import NonFinite
from kernelwright.judge.runs import compare_output

INF, NAN = float("inf"), float("nan")


def explained(ours: torch.Tensor, host: torch.Tensor | None) -> dict:
    """The row of an output of which eager and its reference on the same device lost the first row."""
    eager = torch.tensor([[NAN, NAN, NAN], [1.0, 2.0, 3.0]])
    row, figures = compare_output("output[0]", ours, eager, eager.double(), "special")
    assert isinstance(figures, metrics.Figures)
    draw = SimpleNamespace(
        eager=SimpleNamespace(tensors={"output[0]": eager}),
        reference={"output[0]": eager.double()},
        reorders_sums=False,
        forward_seed=0,
    )
    yardstick = SimpleNamespace(
        reference_on_host=lambda _: None if host is None else {"output[0]": host},
        inputs=SimpleNamespace(tensors=dict),
        refill=lambda *_: None,
        run_eager=lambda _: (SimpleNamespace(tensors={"output[0]": eager}), None),
    )
    NonFinite(yardstick, draw, SimpleNamespace(tensors={"output[0]": ours})).explain([row], {"output[0]": figures})
    return row


HOST = torch.tensor([[0.0, NAN, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64)


def test_what_the_host_has_is_right():
    row = explained(torch.tensor([[0.0, NAN, 0.0], [1.0, 2.0, 3.0]]), HOST)
    assert row["nonfinite_ok"] and row["nonfinite_mismatches"] == 0


@pytest.mark.parametrize("lost", [[0.0, 0.0, 0.0], [0.0, NAN, 0.5], [0.0, INF, 0.0], [NAN, NAN, 0.0]])
def test_anything_else_is_not(lost):
    row = explained(torch.tensor([lost, [1.0, 2.0, 3.0]]), HOST)
    assert not row["nonfinite_ok"]


def test_without_a_host_eager_rules():
    assert not explained(torch.tensor([[0.0, NAN, 0.0], [1.0, 2.0, 3.0]]), None)["nonfinite_ok"]
