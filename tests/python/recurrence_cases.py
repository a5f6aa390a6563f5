"""Recurrent layers, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # of torch.nn: LSTM, GRU, RNN
    features: int
    hidden: int
    layers: int = 1
    batch: int = 3
    steps: int = 6
    begins: bool = True  # with states that are passed; else with zeros
    reads: str = "all"
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> tuple[torch.nn.Module, list[Tensor]]:
        torch.manual_seed(7)
        module = Layer(self).to(self.dtype)
        first = self.options.get("batch_first", False)
        shape = (self.batch, self.steps) if first else (self.steps, self.batch)
        arguments = [torch.randn(*shape, self.features)]
        if self.begins:
            cells = self.layers * (2 if self.options.get("bidirectional") else 1)
            for _ in range(2 if self.kind == "LSTM" else 1):
                projected = self.options.get("proj_size") if len(arguments) == 1 else None
                arguments.append(torch.randn(cells, self.batch, projected or self.hidden))
        return module, [one.to(self.dtype) for one in arguments]


class Layer(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.layer = getattr(torch.nn, case.kind)(case.features, case.hidden, case.layers, **case.options)
        self.reads = case.reads

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        sequence, last = self.layer(x, None if not states else states[0] if len(states) == 1 else states)
        lasts = last if isinstance(last, tuple) else (last,)
        if self.reads == "sequence":
            return sequence
        if self.reads == "states":
            return lasts
        if self.reads == "hidden":
            return lasts[0] * 2.0
        return (sequence, *lasts)


def _of_kinds(name: str, *sizes: int, **more: Any) -> list[Case]:
    return [Case(f"{kind.lower()}_{name}", kind, *sizes, **more) for kind in ("LSTM", "GRU", "RNN")]


BOTH_WAYS = {"bidirectional": True}

CASES = [
    *_of_kinds("of_one_layer", 5, 20),
    *_of_kinds("stacked", 5, 20, 3, options={"batch_first": True}),
    *_of_kinds("both_ways", 5, 20, options=BOTH_WAYS),
    *_of_kinds("both_ways_stacked", 5, 20, 2, options=BOTH_WAYS | {"batch_first": True}),
    *_of_kinds("without_biases", 37, 16, 2, batch=17, options={"bias": False}),
    *_of_kinds("from_zeros", 6, 33, 2, batch=1, steps=5, begins=False),
    *_of_kinds("of_one_step", 6, 16, 2, batch=2, steps=1),
    *_of_kinds("of_one_step_both_ways", 6, 16, batch=2, steps=1, options=BOTH_WAYS),
    *_of_kinds("of_a_large_batch", 8, 16, 2, batch=70, steps=5),
    *_of_kinds("in_halves", 8, 40, 2, dtype=torch.float16),
    *_of_kinds("in_bfloat16", 8, 40, 2, dtype=torch.bfloat16, options=BOTH_WAYS),
    *_of_kinds("of_which_the_sequence_is_read", 5, 20, 2, reads="sequence", options=BOTH_WAYS),
    *_of_kinds("of_which_the_states_are_read", 5, 20, 2, reads="states"),
    *_of_kinds("of_which_one_state_is_read", 5, 20, 2, reads="hidden", options=BOTH_WAYS),
    Case("relu", "RNN", 5, 20, 2, options={"nonlinearity": "relu"}),
    Case("relu_both_ways", "RNN", 5, 20, options=BOTH_WAYS | {"nonlinearity": "relu"}),
    Case("of_one_unit", "LSTM", 1, 1, 2),
    Case("projected", "LSTM", 5, 20, options={"proj_size": 7}),
    Case("projected_stacked", "LSTM", 5, 20, 3, options={"proj_size": 7, "batch_first": True}),
    Case("projected_both_ways", "LSTM", 5, 20, 2, options=BOTH_WAYS | {"proj_size": 7, "batch_first": True}),
    Case("projected_from_zeros", "LSTM", 6, 33, 2, batch=1, begins=False, options={"proj_size": 16, "bias": False}),
    Case("projected_to_one", "LSTM", 6, 16, 2, batch=2, steps=1, options=BOTH_WAYS | {"proj_size": 1}),
    Case("projected_in_a_large_batch", "LSTM", 8, 16, batch=70, steps=5, options={"proj_size": 3}),
    Case("projected_of_which_the_sequence_is_read", "LSTM", 5, 20, 2, reads="sequence", options={"proj_size": 7}),
    Case("projected_of_which_the_states_are_read", "LSTM", 5, 20, 2, reads="states", options={"proj_size": 7}),
    Case("projected_of_which_one_state_is_read", "LSTM", 5, 20, reads="hidden", options=BOTH_WAYS | {"proj_size": 7}),
    Case("of_many_layers", "GRU", 3, 16, 7, steps=5),
    Case("dropout_in_evaluation", "LSTM", 5, 20, 2, options={"dropout": 0.5}),
]


# Large enough that what is made of their weights is kept between calls.
KEPT = [
    Case("kept_lstm", "LSTM", 16, 40, 2, batch=2, steps=2),
    Case("kept_gru_both_ways", "GRU", 16, 40, batch=2, steps=2, options=BOTH_WAYS),
]


def with_weights_changed(request: dict[str, Any]) -> str:
    """In the interpreter's process: what is made of a layer's weights is made once, and anew after each change of one."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in KEPT if one.name == request["case"])
    layer, arguments = case.build()
    layer.eval()
    ours, made, prepare = module.ModelNew(layer), [], module.prepared_weights
    module.prepared_weights = lambda *weights: made.append(1) or prepare(*weights)
    other = case.build()[0].state_dict()
    # Each with how often weights have been prepared behind it. The first layer's product reads its weight where it
    # lies.
    changes = {
        "nothing": (lambda: None, 1),
        "in place": (lambda: layer.layer.weight_hh_l0.mul_(-0.5), 2),
        "a bias": (lambda: layer.layer.bias_ih_l0.add_(0.25), 3),
        "what is read as it is": (lambda: layer.layer.weight_ih_l0.mul_(0.5), 3),
        "another parameter": (
            lambda: setattr(
                layer.layer, "weight_hh_l0", torch.nn.Parameter(other["layer.bias_hh_l0"][:, None].repeat(1, 40))
            ),
            4,
        ),
        "all": (lambda: layer.load_state_dict(other), 5),
    }
    with torch.no_grad():
        for name, (change, count) in changes.items():
            change()
            for _ in range(2):
                for mine, right in zip(ours(*arguments), layer(*arguments), strict=True):
                    if not torch.allclose(mine, right, rtol=1e-5, atol=1e-5):
                        return f"after {name}: off by {float((mine - right).abs().max()):.3g}"
            if len(made) != count:
                return f"after {name}: weights prepared {len(made)} times"
    return ""


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: a candidate's results, held to eager's own error."""
    specification = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    case = next(one for one in CASES if one.name == request["case"])
    layer, arguments = case.build()
    layer.eval()
    ours = module.ModelNew(layer)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = ours(*arguments)
        warnings.simplefilter("ignore")  # PyTorch's own, of projections on a CPU
        eager = layer(*arguments)
        exact = layer.double()(*(one.double() for one in arguments))
    for mine, theirs, right in zip(*map(_as_tuple, (actual, eager, exact)), strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype or mine.stride() != theirs.stride():
            return f"{mine.shape} {mine.dtype} {mine.stride()}, but eager's is {theirs.shape} {theirs.stride()}"
        # What TF32 rounds, PyTorch does not on a CPU.
        unit = torch.finfo(theirs.dtype).eps if request["exact"] else max(2.0**-10, torch.finfo(theirs.dtype).eps)
        allowed = 4 * float((theirs.double() - right).abs().max()) + 4 * unit
        error = float((mine.double() - right).abs().max())
        if not error <= allowed:
            return f"error {error:.3g}, of {allowed:.3g} allowed"
    return ""


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
