"""Linear recurrences of elements, written as loops, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Callable

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    kernels: int = 1  # that walk steps

    def arguments(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(11)
        return [torch.rand(shape, generator=generator) * 1.8 - 0.7 for shape in self.shapes]


def _from_zeros(a: Tensor, b: Tensor) -> Tensor:
    h, states = torch.zeros_like(b[0]), []
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states)


def _from_a_state(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for t in range(a.shape[1]):
        h = b[:, t] + h * a[:, t]
        states.append(h)
    return torch.stack(states, 1), h


def _along_the_last(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(a.shape[-1]):
        h = a[..., t] * h + b[..., t]
        states.append(h)
    return torch.stack(states, -1)


def _last_alone(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    for t in range(len(a)):
        h = a[t] * h + b[t]
    return h


def _of_one_decay(x: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(len(x)):
        h = 0.75 * h + 0.25 * x[t]
        states.append(h)
    return torch.stack(states)


def _of_a_decay_for_each_column(x: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    h = x[0]
    states = [h]
    for t in range(1, len(x)):
        h = decay * h + x[t]
        states.append(h)
    return torch.stack(states), h


def _of_a_decay_for_each_row(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.cat([h.unsqueeze(0) for h in states])


def _gated(x: Tensor, y: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(x.shape[1]):
        h = torch.sigmoid(x[:, t]) * h + y[:, t] * torch.tanh(x[:, t])
        states.append(h)
    return torch.stack(states, 1)


def _running_sum(x: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(len(x)):
        h = h + x[t]
        states.append(h)
    return torch.stack(states)


def _two(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    g, states = h, []
    for t in range(len(a)):
        h, g = a[t] * h + b[t], b[t] * g + a[t]
        states.append(g)
    return h, torch.stack(states, 1)


def _backwards_in_part(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """The last steps alone, one of whose states is read besides."""
    states = []
    for t in range(3, len(a)):
        h = a[t] * h + b[t]
        states.append(torch.exp(h) if t == 7 else h)
    return torch.stack(states)


def _in_turn(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """Steps that read other slices than the next are none of one recurrence."""
    for t in range(len(a)):
        h = a[t] * h + b[len(a) - 1 - t]
    return h


THREE = ((12, 4, 40), (12, 4, 40), (4, 40))
CASES = (
    Case("from_zeros", _from_zeros, ((12, 4, 40), (12, 4, 40))),
    Case("of_eight_steps", _from_zeros, ((8, 3, 5), (8, 3, 5))),
    Case("of_seven_steps", _from_zeros, ((7, 3, 5), (7, 3, 5)), kernels=0),
    Case("of_one_step", _from_zeros, ((1, 3, 5), (1, 3, 5)), kernels=0),
    Case("of_a_vector", _from_zeros, ((13, 37), (13, 37))),
    Case("of_one_element", _from_zeros, ((17, 1, 1), (17, 1, 1))),
    Case("of_four_axes", _from_a_state, ((2, 9, 3, 5, 7), (2, 9, 3, 5, 7), (2, 3, 5, 7))),
    Case("from_a_state", _from_a_state, ((5, 11, 33), (5, 11, 33), (5, 33))),
    Case("of_one_sample", _from_a_state, ((1, 19, 21), (1, 19, 21), (1, 21))),
    Case("along_the_last", _along_the_last, ((3, 5, 10), (3, 5, 10), (3, 5))),
    Case("of_which_the_last_is_read", _last_alone, THREE),
    Case("of_one_decay", _of_one_decay, ((12, 4, 40), (4, 40))),
    Case("of_a_decay_for_each_column", _of_a_decay_for_each_column, ((12, 4, 40), (40,))),
    Case("of_a_decay_for_each_row", _of_a_decay_for_each_row, ((12, 4, 1), (12, 4, 40), (4, 40))),
    Case("gated", _gated, ((4, 12, 40), (4, 12, 40), (4, 40))),
    Case("running_sum", _running_sum, ((12, 4, 40), (4, 40))),
    Case("two", _two, THREE, kernels=2),
    Case("some_of_a_sequence", _backwards_in_part, ((15, 4, 9), (15, 4, 9), (4, 9))),
    Case("in_turn", _in_turn, THREE, kernels=0),
    Case("of_no_sample", _from_a_state, ((0, 11, 33), (0, 11, 33), (0, 33)), kernels=0),
)


def interpreted(request: dict[str, Any]) -> str:
    """A candidate's results, held to eager's own error, NaN and infinities to eager's; "" where they are right."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CASES if one.name == request["case"])
    arguments = case.arguments()
    if request.get("special"):
        for one, number in zip(arguments, (float("inf"), float("nan"), float("-inf"))):
            one.view(-1)[one.numel() // 2] = number
    ours = _as_tuple(module.ModelNew(torch.nn.Module())(*arguments))
    eager = _as_tuple(case.function(*arguments))
    exact = _as_tuple(case.function(*(one.double() for one in arguments)))
    for mine, theirs, right in zip(ours, eager, exact, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype or mine.stride() != theirs.stride():
            return f"{mine.shape} {mine.dtype} {mine.stride()}, but eager's is {theirs.shape} {theirs.stride()}"
        if not torch.equal(mine.isnan(), theirs.isnan()) or not torch.equal(mine.isinf(), theirs.isinf()):
            return "NaN or infinities elsewhere than eager's"
        finite = theirs.isfinite()
        error, of_eager = ((one.double() - right)[finite].abs() for one in (mine, theirs))
        if mine.numel() and not float(error.max()) <= 2 * float(of_eager.max()) + 1e-6:
            return f"error {float(error.max()):.3g}, eager's {float(of_eager.max()):.3g}"
    starts = [mine.untyped_storage().data_ptr() for mine in ours if mine.numel()]
    return "" if len(set(starts)) == len(starts) else "two results share their memory"


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
