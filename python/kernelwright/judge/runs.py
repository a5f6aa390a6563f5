"""One run of a module: its inputs, and everything that can be seen of it afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Sequence

import torch
from torch.utils import _pytree as pytree

from ..running import guards
from ..running import problem as problems
from ..running.seeding import generator_state
from ..running.state import marks_of, slots
from . import draws, metrics


class Inputs:
    """The arguments of forward. One set of tensors serves every draw, refilled, so that a result remembered by address
    shows.
    """

    def __init__(self, problem: problems.Problem, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.values: list[Any] = []

    @torch.no_grad()
    def fill(
        self, kind: str, seed: int, bounded: bool, constants: tuple[float, ...] = (), subnormals: bool = False
    ) -> None:
        """Draw afresh; equal arguments give equal contents. `constants`: numbers of the problem's, for the special
        draw; `subnormals`: in which all inputs have some in the same places.
        """
        fresh = self.problem.inputs(draws.derive_seed(seed, "inputs"), self.device)
        draws.redraw_inputs(fresh, kind, seed, bounded=bounded, constants=constants, subnormals=subnormals)
        old, old_structure = pytree.tree_flatten(self.values)
        new, new_structure = pytree.tree_flatten(fresh)
        if old_structure != new_structure or not all(map(_same_form, old, new)) or _share_storage(new):
            self.values = fresh
            return
        for index, value in enumerate(new):
            if not isinstance(value, torch.Tensor):
                old[index] = value
            elif value.numel():
                draws.whole_storage(old[index]).copy_(draws.whole_storage(value))
        self.values = pytree.tree_unflatten(old, old_structure)

    def tensors(self) -> dict[str, torch.Tensor]:
        return self.named(self.values)

    @staticmethod
    def named(values: list[Any]) -> dict[str, torch.Tensor]:
        """The tensors of a call's arguments: "input[0]" …"""
        return {
            f"input[{index}]": leaf
            for index, leaf in enumerate(pytree.tree_leaves(values))
            if isinstance(leaf, torch.Tensor)
        }


class InputsCopy:
    """What `inputs` hold now, to be put back into the same tensors later."""

    @torch.no_grad()
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._values = inputs.values
        tensors = [
            leaf for leaf in pytree.tree_leaves(inputs.values) if isinstance(leaf, torch.Tensor) and leaf.numel()
        ]
        self._contents = [(draws.whole_storage(tensor), draws.whole_storage(tensor).clone()) for tensor in tensors]

    @torch.no_grad()
    def restore(self) -> None:
        self._inputs.values = self._values
        for memory, contents in self._contents:
            memory.copy_(contents)


def _same_form(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return type(old) is type(new)
    return (old.dtype, old.shape, old.stride(), old.device) == (new.dtype, new.shape, new.stride(), new.device)


def _share_storage(values: list[Any]) -> bool:
    pointers = [
        value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor) and value.numel()
    ]
    return len(pointers) != len(set(pointers))


def held_tensors(module: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Every tensor that a forward is given: "parameter fc.weight", "buffer bn.running_mean", "attribute hidden",
    "input[0]".
    """
    return module_tensors(module) | inputs.tensors()


def module_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"{slot.kind} {slot.name}": slot.tensor for slot in slots(module)}


def fingerprints(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: metrics.fingerprint(tensor) for name, tensor in tensors.items()}


# 64 units of single precision.
_NUMBERS_AGREE = 2.0**-17


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class Constant:
    """An output that is no tensor, by its type and its text."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text

    def __eq__(self, other: Any) -> bool:
        """Numbers with a fraction have been tensors of a narrower kind mostly, and need not agree to the last digit."""
        if not isinstance(other, Constant) or self.kind != other.kind:
            return False
        return self.text == other.text or (
            self.kind == "float" and math.isclose(_number(self.text), _number(other.text), rel_tol=_NUMBERS_AGREE)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, value: Any) -> Constant:
        return cls(type(value).__name__, repr(value)[:1000])


@dataclass
class Outcome:
    """What one run left behind: its outputs ("output[0]") and whatever it changed of what it was given, by name."""

    tensors: dict[str, torch.Tensor]
    constants: dict[str, Any]
    structure: str
    # Output → what it shares memory with.
    shares: dict[str, str] = field(default_factory=dict)
    generators: list[torch.Tensor] = field(default_factory=list)
    # Output → first and past-the-last byte, in its own process.
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    # Check → what was seen against it while it ran.
    faults: dict[str, list[str]] = field(default_factory=dict)
    form: str = ""
    # Output → what it leaves to its reader (running/state.py: marks).
    marks: dict[str, set[str]] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self.tensors.items() if name.startswith("output")}

    def changes(self, kind: str) -> list[str]:
        return [name for name in self.tensors if name.startswith(kind)]


def outcome(result: Any, module: torch.nn.Module, inputs: Inputs, before: dict[str, tuple[int, ...]]) -> Outcome:
    """Collect a run's outcome. What it changed is copied, since the next run starts from the state before."""
    leaves, structure = pytree.tree_flatten(result)
    names = [f"output[{index}]" for index in range(len(leaves))]
    tensors = {name: leaf.detach() for name, leaf in zip(names, leaves) if isinstance(leaf, torch.Tensor)}
    constants = {name: Constant.of(leaf) for name, leaf in zip(names, leaves) if not isinstance(leaf, torch.Tensor)}
    marks = {name: set(marks_of(leaf)) for name, leaf in zip(names, leaves) if isinstance(leaf, torch.Tensor)}
    ranges = {name: guards.address_range(tensor) for name, tensor in tensors.items()}
    held = held_tensors(module, inputs)
    shares = {}
    for name, tensor in tensors.items():
        shared = next((other for other, value in held.items() if guards.overlap(tensor, value)), None)
        if shared is not None:
            shares[name] = shared
    changed = [name for name, tensor in held.items() if name in before and metrics.fingerprint(tensor) != before[name]]
    if changed:
        tensors = {name: tensor.clone() if name in shares else tensor for name, tensor in tensors.items()}
    # Plain attributes are a module's own business: caches and hidden states come back as outputs where they matter.
    tensors |= {name: held[name].detach().clone() for name in changed if not name.startswith("attribute")}
    form = structure.type.__name__ if structure.type is not None else "one value"
    return Outcome(
        tensors, constants, repr(structure), shares, generator_state(inputs.device), ranges, form=form, marks=marks
    )


def compare_output(
    name: str, ours: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, kind: str
) -> tuple[dict[str, Any], metrics.Figures | None]:
    """One OUTPUT of the worker protocol on a `kind` of draw, and the figures behind it; None where shape or dtype rule
    a comparison out.
    """
    exact = not (eager.is_floating_point() or eager.is_complex())
    row: dict[str, Any] = {
        "name": name,
        "dtype": str(ours.dtype)[6:],
        "expected_dtype": str(eager.dtype)[6:],
        "shape": list(ours.shape),
        "expected_shape": list(eager.shape),
        "strides": list(ours.stride()),
        "expected_strides": list(eager.stride()),
        "dtype_ok": ours.dtype == eager.dtype,
        "shape_ok": ours.shape == eager.shape,
        "strides_ok": has_strides(ours, eager.stride()),
        "device_ok": ours.device == eager.device,
        "exact": exact,
        "mismatches": 0,
        "eager_mismatches": 0,
        "nonfinite_ok": True,
        "ours": {"norm": 0.0, "max": 0.0},
        "eager": {"norm": 0.0, "max": 0.0},
        "epsilon": metrics.epsilon(eager.dtype),
        "where": [],
        "ours_value": 0.0,
        "reference_value": 0.0,
        "compared": 0,
    }
    if not (row["dtype_ok"] and row["shape_ok"]):
        return row, None
    ours = ours.to(eager.device)
    if exact:
        figures = metrics.compare_exact(ours, eager, reference)
    else:
        figures = metrics.compare(ours, eager, reference, gate=kind == "generator", skip_lost=kind == "special")
    row |= {
        "mismatches": figures.mismatches,
        "eager_mismatches": figures.eager_mismatches,
        "nonfinite_ok": figures.nonfinite_mismatches == 0,
        "nonfinite_mismatches": figures.nonfinite_mismatches,
        "ours": figures.ours,
        "eager": figures.eager,
        "where": figures.where,
        "ours_value": figures.ours_value,
        "reference_value": figures.reference_value,
        "compared": figures.compared,
    }
    return row, figures


def has_strides(tensor: torch.Tensor, strides: Sequence[int] | None) -> bool:
    """Whether those strides of a tensor that mean something, of dimensions with more than one element, are these."""
    if strides is None or len(strides) != tensor.dim():
        return False
    return not tensor.numel() or all(
        own == other for size, own, other in zip(tensor.shape, tensor.stride(), strides) if size > 1
    )
