"""Emitted modules find their own tensors once, and notice whatever puts others in their place."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_emitted_modes import load
from torch import nn
from torch.nn.utils import parametrize, prune

from kernelwright import library
from kernelwright.capture import export

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(self.norm(x)) + self.shift)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.named = nn.ModuleDict({"last": nn.Linear(8, 8)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.named["last"](x)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.BatchNorm1d(8) for _ in range(5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x) + 1
        return x


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


def replace_block(net: Net) -> None:
    net.blocks[1] = Block()


def replace_list(net: Net) -> None:
    net.blocks = nn.ModuleList([Block(), Block()])


def replace_parameter(net: Net) -> None:
    net.blocks[0].linear.weight = nn.Parameter(torch.randn(8, 8))


def replace_data(net: Net) -> None:
    net.blocks[0].linear.weight.data = torch.randn(8, 8)


def replace_buffer(net: Net) -> None:
    net.blocks[0].shift = torch.randn(8)


def buffer_becomes_parameter(net: Net) -> None:
    del net.blocks[0].shift
    net.blocks[0].shift = nn.Parameter(torch.randn(8))


def assign_state(net: Net) -> None:
    net.load_state_dict(Net().state_dict(), assign=True)


def prune_weight(net: Net) -> None:
    prune.random_unstructured(net.named["last"], "weight", amount=0.5)


def prune_for_good(net: Net) -> None:
    prune_weight(net)
    prune.remove(net.named["last"], "weight")


def parametrize_weight(net: Net) -> None:
    parametrize.register_parametrization(net.blocks[1].linear, "weight", Doubled())


def change_in_place(net: Net) -> None:
    with torch.no_grad():
        net.named["last"].bias.add_(1.0)


CHANGES: list[Callable[[Net], None]] = [
    replace_block,
    replace_list,
    replace_parameter,
    replace_data,
    replace_buffer,
    buffer_becomes_parameter,
    assign_state,
    prune_weight,
    prune_for_good,
    parametrize_weight,
    change_in_place,
]


def emitted(net: nn.Module, folder: Path) -> Any:
    source = library.compile_graph(export.export_module(net, (X,)), "cpu")["source"]
    assert "def own_tensors(module):" in source
    return load(source, folder).ModelNew(net)


def globals_of(made: Any) -> dict[str, Any]:
    return type(made).forward.__globals__


def expect_same(made: nn.Module, net: nn.Module) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        torch.testing.assert_close(made(X), net(X))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_takes_their_place_is_noticed(change: Callable[[Net], None], tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net().eval()
    made = emitted(net, tmp_path)
    expect_same(made, net)
    before = net(X)
    change(net)
    net.eval()
    assert not torch.allclose(before, net(X))
    expect_same(made, net)
    expect_same(made, net)
    change_in_place(net)
    expect_same(made, net)


def test_other_shapes_run_the_original(tmp_path: Path) -> None:
    net = Net().eval()
    made = emitted(net, tmp_path)
    expect_same(made, net)
    net.named["last"] = nn.Linear(8, 4)
    with pytest.warns(UserWarning, match="named.last.weight is not a tensor of shape"), torch.no_grad():
        torch.testing.assert_close(made(X), net(X))


@pytest.mark.parametrize("guarded", [True, False])
def test_other_strides_of_the_same_memory_run_the_original(guarded: bool, tmp_path: Path) -> None:
    net = Net().eval()
    made = emitted(net, tmp_path)
    if not guarded:
        globals_of(made)["tensor_guards"] = lambda: None
    expect_same(made, net)
    expect_same(made, net)
    assert len(globals_of(made)["GUARDS"]) == guarded
    net.blocks[0].linear.weight.data = net.blocks[0].linear.weight.data.t()
    with pytest.warns(UserWarning, match="does not have the strides"), torch.no_grad():
        torch.testing.assert_close(made(X), net(X))


def test_the_modes_of_calls_take_turns(tmp_path: Path) -> None:
    net = Net().eval().requires_grad_(False)
    made = emitted(net, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
                with mode():
                    torch.testing.assert_close(made(X), net(X))
    assert len(globals_of(made)["GUARDS"]) in (2, 3)  # one for both where no tensor wants gradients
    net.requires_grad_()
    with pytest.warns(UserWarning, match="gradients are wanted"):
        made(X)


class Sum(Net):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + y


def test_one_tensor_may_be_passed_twice(tmp_path: Path) -> None:
    net = Sum().eval()
    source = library.compile_graph(export.export_module(net, (X, X.clone())), "cpu")["source"]
    made = load(source, tmp_path).ModelNew(net)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        torch.testing.assert_close(made(X, X), net(X, X))
        assert not globals_of(made)["GUARDS"]
        for other in (X.clone(), X, X + 1):
            torch.testing.assert_close(made(X, other), net(X, other))
    assert len(globals_of(made)["GUARDS"]) == 1


def test_a_part_in_another_mode_runs_the_original(tmp_path: Path) -> None:
    net = Normed()
    made = emitted(net, tmp_path)
    assert len(globals_of(made)["PARTS"]) == 5
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        made(X)
    net.parts[3].eval()
    with pytest.warns(UserWarning, match="it was made for training mode"), torch.no_grad():
        made(X)


def test_a_tensor_that_is_gone_is_missed(tmp_path: Path) -> None:
    net = Net().eval()
    made = emitted(net, tmp_path)
    expect_same(made, net)
    del net.blocks[0].linear.weight
    with pytest.raises(AttributeError, match="weight"):
        made(X)


def test_copies_have_their_own(tmp_path: Path) -> None:
    net = Net().eval()
    made = emitted(net, tmp_path)
    expect_same(made, net)
    other = copy.deepcopy(made)
    change_in_place(other.module)
    expect_same(other, other.module)
    expect_same(made, net)
    with torch.no_grad():
        weights = {f"module.{name}": torch.randn_like(value) for name, value in net.named_parameters()}
        torch.testing.assert_close(
            torch.func.functional_call(made, weights, X),
            torch.func.functional_call(net, {name.removeprefix("module."): one for name, one in weights.items()}, X),
        )
    expect_same(made, net)
