"""Modules with loops over a sequence, which export unrolls."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Callable

import torch
from torch import nn

Tensor = torch.Tensor
BATCH, STEPS, FEATURES, HIDDEN = 3, 6, 5, 20


class Concatenated(nn.Module):
    """A state and an input, side by side in a linear layer; an output of each step."""

    def __init__(self, batch_first: bool = False, state_first: bool = False) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES + HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 4)
        self.batch_first, self.state_first = batch_first, state_first

    def forward(self, x: Tensor, h: Tensor) -> Any:
        outs = []
        for step in range(x.shape[1 if self.batch_first else 0]):
            now = x[:, step] if self.batch_first else x[step]
            h = torch.tanh(self.hidden(torch.cat((h, now) if self.state_first else (now, h), dim=1)))
            outs.append(torch.sigmoid(self.out(h)))
        return torch.stack(outs, dim=1 if self.batch_first else 0), h


class Cell(nn.Module):
    def __init__(self, nonlinearity: str) -> None:
        super().__init__()
        self.cell = nn.RNNCell(FEATURES, HIDDEN, nonlinearity=nonlinearity)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        states = []
        for now in x.unbind(0):
            h = self.cell(now, h)
            states.append(h)
        return torch.stack(states), states[-1], states[2]


class Matrices(nn.Module):
    """Products with matrices, from a state of zeros; the last state alone is read."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.randn(FEATURES, HIDDEN) / 2)
        self.w = nn.Parameter(torch.randn(HIDDEN, HIDDEN) / 5)
        self.b = nn.Parameter(torch.randn(HIDDEN))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        h = torch.zeros_like(h)
        for step in range(1, len(x)):
            h = torch.relu(x[step] @ self.u + h @ self.w + self.b)
        return h


class Stacked(nn.Module):
    """Two layers, of which the second reads the first's state of the same step, and writes a new input."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.RNNCell(FEATURES, HIDDEN), nn.RNNCell(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        low, high, states = h, h, []
        for now in x.unbind(0):
            low = self.low(now, low)
            high = self.high(low, high)
            states.append(high)
        return torch.stack(states, 1), low


class Fed(nn.Module):
    """Each step's input depends on the step before: no recurrence of this form."""

    def __init__(self, cell: type[nn.RNNCellBase] = nn.RNNCell) -> None:
        super().__init__()
        self.cell, self.out = cell(FEATURES, HIDDEN), nn.Linear(HIDDEN, FEATURES)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        now, outs = x[0], []
        for _ in range(STEPS):
            h = self.cell(now, h)
            now = self.out(h)
            outs.append(now)
        return torch.stack(outs)


class LongShortTerm(nn.Module):
    """A cell of PyTorch's, and one written out over concatenated input and state; the last memory of one is read."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gates = nn.LSTMCell(FEATURES, HIDDEN), nn.Linear(FEATURES + HIDDEN, 4 * HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        low, memory, high, kept, states = h, h * 0.5, h, torch.zeros_like(h), []
        for now in x.unbind(0):
            low, memory = self.cell(now, (low, memory))
            i, f, g, o = self.gates(torch.cat((now, high), dim=1)).chunk(4, dim=1)
            kept = torch.sigmoid(f) * kept + torch.sigmoid(i) * torch.tanh(g)
            high = torch.sigmoid(o) * torch.tanh(kept)
            states.append(high)
        return torch.stack(states), low, memory


class OtherGates(nn.Module):
    """An LSTM whose gates stand in another order, and one whose memories are all read."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gates = nn.LSTMCell(FEATURES, HIDDEN), nn.Linear(FEATURES + HIDDEN, 4 * HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        low, memory, high, kept, memories = h, h, h, h, []
        for now in x.unbind(0):
            low, memory = self.cell(now, (low, memory))
            memories.append(memory)
            f, i, g, o = self.gates(torch.cat((now, high), dim=1)).chunk(4, dim=1)
            kept = torch.sigmoid(f) * kept + torch.sigmoid(i) * torch.tanh(g)
            high = torch.sigmoid(o) * torch.tanh(kept)
        return torch.stack(memories), low, high, memories[0], memories[-1]


class Gated(nn.Module):
    """A GRU's cell, of which the last state is read, or all states and the last."""

    def __init__(self, bias: bool = True, stacks: bool = False, batch_first: bool = False) -> None:
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, HIDDEN, bias=bias)
        self.stacks, self.batch_first = stacks, batch_first

    def forward(self, x: Tensor, h: Tensor) -> Any:
        states = []
        for step in range(x.shape[1 if self.batch_first else 0]):
            h = self.cell(x[:, step] if self.batch_first else x[step], h)
            states.append(h)
        return (torch.stack(states, dim=1 if self.batch_first else 0), h) if self.stacks else h


class GatedLayers(nn.Module):
    """Two layers of GRU cells from states of zeros, of one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.GRUCell(FEATURES, HIDDEN), nn.GRUCell(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        x = x[:, :1]
        low, high, states = torch.zeros_like(h[:1]), None, []
        for now in x.unbind(0):
            low = self.low(now, low)
            high = self.high(low, high)
            states.append(high)
        return torch.cat(states), low


class GatesOfTwoLayers(nn.Module):
    """A GRU written out, of one layer for the input, and one without biases for the state; the states' outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(FEATURES, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, 4)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        outs = []
        for now in x.unbind(0):
            r, z, n = self.of_input(now).chunk(3, dim=-1)
            hr, hz, hn = self.of_state(h).split(HIDDEN, dim=-1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
            outs.append(self.out(h))
        return torch.stack(outs), h


class LayersOfGates(nn.Module):
    """A GRU with a layer, or a matrix, for each gate. The last of the inputs is read by nobody."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        for name in "rzn":
            setattr(self, "input_" + name, nn.Linear(FEATURES, HIDDEN))
            setattr(self, "state_" + name, nn.Linear(HIDDEN, HIDDEN, bias=bias))

    def forward(self, x: Tensor, h: Tensor) -> Any:
        states = []
        for now in x[:-1].unbind(0):
            reset = torch.sigmoid(self.input_r(now) + self.state_r(h))
            update = torch.sigmoid(self.state_z(h) + self.input_z(now))
            candidate = torch.tanh(self.input_n(now) + reset * self.state_n(h))
            h = update * h + (1.0 - update) * candidate
            states.append(h)
        return torch.stack(states, 1)


class JoinedGates(nn.Module):
    """Update and reset gates of one layer over input and state; the candidate's bias is the state's alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(FEATURES + HIDDEN, 2 * HIDDEN)
        self.w, self.u = nn.Parameter(torch.randn(FEATURES, HIDDEN)), nn.Parameter(torch.randn(HIDDEN, HIDDEN) / 5)
        self.b = nn.Parameter(torch.randn(HIDDEN))

    def forward(self, x: Tensor, h: Tensor) -> Any:
        for step in range(1, len(x)):
            update, reset = torch.sigmoid(self.gates(torch.cat((h, x[step]), dim=1))).chunk(2, dim=1)
            candidate = torch.tanh(reset * (h @ self.u + self.b) + x[step] @ self.w)
            h = candidate + update * (h - candidate)
        return h


class SpelledGates(nn.Module):
    """A GRU written out: its gates chunks or parts of a view; its update gate lets the new state in, or keeps the old
    one; the two mixed by shares, by a way, or by lerp.
    """

    def __init__(self, mixes: str, lets_in: bool = False, views: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.of_input = nn.Linear(FEATURES, 3 * HIDDEN, bias=bias)
        self.of_state = nn.Linear(HIDDEN, 3 * HIDDEN, bias=bias)
        self.mixes, self.lets_in, self.views = mixes, lets_in, views

    def gates(self, sums: Tensor) -> Any:
        return sums.view(-1, 3, HIDDEN).unbind(1) if self.views else sums.chunk(3, dim=1)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        states = []
        for now in x.unbind(0):
            r, z, n = self.gates(self.of_input(now))
            hr, hz, hn = self.gates(self.of_state(h))
            gate, new = torch.sigmoid(z + hz), torch.tanh(n + torch.sigmoid(r + hr) * hn)
            rest, gated = (h, new) if self.lets_in else (new, h)
            if self.mixes == "shares":
                h = (1 - gate) * rest + gate * gated
            elif self.mixes == "way":
                h = rest + gate * (gated - rest)
            else:
                h = torch.lerp(rest, gated, gate)
            states.append(h)
        return torch.stack(states), h


class GatesLetIn(nn.Module):
    """Two layers, a layer for each gate, whose update gates let the new state in."""

    def __init__(self) -> None:
        super().__init__()
        for name in "rzn":
            setattr(self, "input_" + name, nn.Linear(FEATURES + HIDDEN, HIDDEN))
        self.cells = LayersOfGates()

    def forward(self, x: Tensor, h: Tensor) -> Any:
        low = high = h
        for now in x.unbind(0):
            of = self.cells
            reset = torch.sigmoid(of.input_r(now) + of.state_r(low))
            update = torch.sigmoid(of.input_z(now) + of.state_z(low))
            low = low - update * low + update * torch.tanh(of.input_n(now) + reset * of.state_n(low))
            both = torch.cat((now, high), dim=1)
            update = torch.sigmoid(self.input_z(both))
            new = torch.tanh(of.input_n(now) + torch.sigmoid(self.input_r(both)) * of.state_n(high))
            high = (1 - update) * high + update * new
        return low, high


class GatedOtherwise(nn.Module):
    """No GRU of PyTorch's: the reset gate stands before the product."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input, self.gates = nn.Linear(FEATURES, 3 * HIDDEN), nn.Linear(HIDDEN, 2 * HIDDEN)
        self.of_state = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        for now in x.unbind(0):
            r, z, n = self.of_input(now).chunk(3, dim=1)
            hr, hz = self.gates(h).chunk(2, dim=1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + self.of_state(torch.sigmoid(r + hr) * h)) + z * h
        return h


class OneStep(nn.Module):
    """No loop at all."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(FEATURES, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        for now in x[:1].unbind(0):
            h = self.cell(now, h)
        return h


class Changing(nn.Module):
    """A last step that differs from the others."""

    def __init__(self, cell: Callable[[int, int], nn.Module] = nn.RNNCell) -> None:
        super().__init__()
        self.cell, self.last = cell(FEATURES, HIDDEN), cell(FEATURES, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        for step in range(len(x) - 1):
            h = self.cell(x[step], h)
        return self.last(x[-1], h)


# How many recurrences there are in each.
CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "concatenated": (Concatenated, 1),
    "concatenated_batch_first": (lambda: Concatenated(batch_first=True), 1),
    "concatenated_state_first": (lambda: Concatenated(state_first=True), 1),
    "cell": (lambda: Cell("tanh"), 1),
    "cell_of_relu": (lambda: Cell("relu"), 1),
    "matrices": (Matrices, 1),
    "stacked": (Stacked, 2),
    "lstm": (LongShortTerm, 2),
    "other_gates": (OtherGates, 2),
    "gru": (Gated, 1),
    "gru_of_all_steps": (lambda: Gated(stacks=True), 1),
    "gru_batch_first": (lambda: Gated(bias=False, stacks=True, batch_first=True), 1),
    "gru_layers": (GatedLayers, 2),
    "gru_of_two_layers": (GatesOfTwoLayers, 1),
    "gru_of_layers": (LayersOfGates, 1),
    "gru_of_layers_without_biases": (lambda: LayersOfGates(bias=False), 1),
    "gru_of_joined_gates": (JoinedGates, 1),
    "gru_by_lerp": (lambda: SpelledGates("lerp"), 1),
    "gru_of_views": (lambda: SpelledGates("way", views=True), 1),
    "gru_that_lets_in": (lambda: SpelledGates("shares", lets_in=True), 1),
    "gru_that_lets_in_by_a_way": (lambda: SpelledGates("way", lets_in=True, views=True, bias=False), 1),
    "gru_that_lets_in_by_lerp": (lambda: SpelledGates("lerp", lets_in=True), 1),
    "gru_of_layers_that_let_in": (GatesLetIn, 1),
    "gru_otherwise": (GatedOtherwise, 0),
    "gru_fed": (lambda: Fed(nn.GRUCell), 0),
    "gru_changing": (lambda: Changing(nn.GRUCell), 1),
    "one_step": (OneStep, 0),
    "fed": (Fed, 0),
    "changing": (Changing, 1),
}


def build(name: str) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(5)
    module = CASES[name][0]().eval()
    first = name.endswith("batch_first")
    return module, [
        torch.randn(*((BATCH, STEPS) if first else (STEPS, BATCH)), FEATURES),
        torch.randn(BATCH, HIDDEN),
    ]


def interpreted(request: dict[str, Any]) -> str:
    """A candidate's results, held to eager's own error; "" where they are right."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    candidate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(candidate)
    module, arguments = build(request["case"])
    ours = candidate.ModelNew(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        actual, eager = _as_tuple(ours(*arguments)), _as_tuple(module(*arguments))
        exact = _as_tuple(module.double()(*(one.double() for one in arguments)))
    for mine, theirs, right in zip(actual, eager, exact, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype or mine.stride() != theirs.stride():
            return f"{mine.shape} {mine.dtype} {mine.stride()}, but eager's is {theirs.shape} {theirs.stride()}"
        error, of_eager = (float((one.double() - right).abs().max()) for one in (mine, theirs))
        if not error <= 4 * of_eager + 4 * torch.finfo(theirs.dtype).eps:
            return f"error {error:.3g}, eager's {of_eager:.3g}"
    starts = [mine.untyped_storage().data_ptr() for mine in actual]
    return "" if len(set(starts)) == len(starts) else "two results share their memory"


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
