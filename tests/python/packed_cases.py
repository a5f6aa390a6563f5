"""Recurrent layers of packed sequences, and the check of a candidate for one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Tensor = torch.Tensor
SORTED, MIXED = [5, 5, 3, 1], [1, 5, 3, 5]


class Packing(nn.Module):
    """Packs, gives a layer what is packed, and pads again."""

    def __init__(self, layer: nn.RNNBase, lengths: list[int], **padding: Any) -> None:
        super().__init__()
        self.layer, self.lengths, self.padding = layer, lengths, padding
        self.is_sorted = lengths == sorted(lengths, reverse=True)

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, self.lengths, first, enforce_sorted=self.is_sorted)
        packed, last = self.layer(packed, None if not states else states[0] if len(states) == 1 else states)
        return *pad_packed_sequence(packed, first, **self.padding), last


def _states(layer: nn.RNNBase, samples: int) -> list[Tensor]:
    cells = layer.num_layers * (2 if layer.bidirectional else 1)
    sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: 2 if isinstance(layer, nn.LSTM) else 1]
    return [torch.randn(cells, samples, size) for size in sizes]


FIRST: dict[str, Any] = {"batch_first": True}
CASES: dict[str, tuple[nn.RNNBase, list[int], dict[str, Any]]] = {
    "lstm": (nn.LSTM(4, 6), SORTED, {}),
    "gru": (nn.GRU(4, 6, **FIRST), SORTED, {}),
    "rnn": (nn.RNN(4, 6, nonlinearity="relu"), SORTED, {"padding_value": float("-inf")}),
    "lstm_both_ways": (nn.LSTM(4, 6, 2, bidirectional=True, **FIRST), MIXED, {}),
    "gru_both_ways": (nn.GRU(4, 6, bidirectional=True), MIXED, {"total_length": 9, "padding_value": -2.5}),
    "rnn_stacked": (nn.RNN(4, 6, 3, bias=False), MIXED, {"total_length": 5}),
    "projected": (nn.LSTM(4, 6, 2, proj_size=3, **FIRST), MIXED, {}),
    "equal_lengths": (nn.GRU(4, 6, **FIRST), [5, 5, 5], {}),
    "whole_length": (nn.LSTM(4, 6), [7, 7], {}),
    "of_one_step": (nn.LSTM(4, 6, bidirectional=True), [1, 1, 1], {"total_length": 3}),
    "one_sequence": (nn.RNN(4, 6, **FIRST), [2], {}),
    "sixteen_lengths": (nn.GRU(4, 6), list(range(1, 17)), {}),
}


def built(name: str, begins: bool) -> tuple[Packing, list[Tensor]]:
    """The module and its arguments: states to begin with, or the input alone."""
    torch.manual_seed(7)
    layer, lengths, padding = CASES[name]
    steps, samples = max(7, *lengths), len(lengths)
    x = torch.randn(*((samples, steps) if layer.batch_first else (steps, samples)), layer.input_size)
    return Packing(layer, lengths, **padding).eval(), [x, *(_states(layer, samples) if begins else [])]


def interpreted(request: dict[str, Any]) -> str:
    """What is wrong with a candidate's results; also in the interpreter's process."""
    specification = importlib.util.spec_from_file_location("candidate", Path(request["candidate"]))
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    layer, arguments = built(request["case"], begins=False)
    with torch.no_grad():
        found, right = module.ModelNew(layer)(*arguments), layer(*arguments)
    for mine, theirs in zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(right), strict=True
    ):
        if mine.shape != theirs.shape or mine.stride() != theirs.stride():
            return f"{mine.shape} {mine.stride()}, but eager's is {theirs.shape} {theirs.stride()}"
        if not torch.allclose(mine, theirs, rtol=1e-5, atol=1e-5):
            return f"off by {float((mine - theirs).abs().max()):.3g}"
    return ""
