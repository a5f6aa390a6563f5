"""Draws: what synthetic inputs and redrawn weights keep of the problem's own."""

import pytest
import torch

from kernelwright.judge import draws


def test_synthetic_draws_keep_integers_sharing_and_bounds():
    base = torch.rand(6, 4)
    inputs = [base, base[2:], torch.arange(5), 3]
    draws.redraw_inputs(inputs, "wide", 1)
    assert torch.equal(inputs[0][2:], inputs[1]) and inputs[2].tolist() == list(range(5)) and inputs[3] == 3
    assert base.abs().max() / base.abs().min() > 100 and base.min() < 0
    for kind in draws.KINDS[1:]:
        probability = torch.rand(500)
        low, high = probability.min(), probability.max()
        draws.redraw_inputs([probability], kind, 2, bounded=True)
        assert probability.min() >= low and probability.max() <= high


def test_redrawn_weights_keep_their_scale_and_never_their_values():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    draws.redraw_weights(model, 5)
    after = model.state_dict()
    assert after["0.weight"].std().item() == pytest.approx(before["0.weight"].std().item(), rel=0.1)
    assert after["1.running_var"].min() > 0
    assert all(not torch.equal(before[name], after[name]) for name in before if "num_batches" not in name)


@pytest.mark.parametrize("kind", draws.KINDS)
def test_bounded_draws_of_8_bit_floats_stay_within_their_range(kind):
    codes = (torch.rand(4096) + 0.25).to(torch.float8_e4m3fn)
    low, high = codes.float().min(), codes.float().max()
    draws.redraw_inputs([codes], kind, 2, bounded=True)
    assert codes.float().min() >= low and codes.float().max() <= high


# A divergence between distributions that are equal on the constant draw, where eager's error is 0 as well.
