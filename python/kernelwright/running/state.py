"""The tensors that a module holds: parameters, buffers, and tensors kept as plain attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

import torch


@dataclass
class Slot:
    """One place in a module tree where a tensor stands. `kind` is "parameter", "buffer" or "attribute"."""

    kind: str
    name: str
    store: dict[str, Any]
    key: str

    @property
    def tensor(self) -> torch.Tensor:
        return self.store[self.key]


def slots(module: torch.nn.Module) -> Iterator[Slot]:
    for path, part in module.named_modules():
        prefix = path + "." if path else ""
        for kind, store in (("parameter", part._parameters), ("buffer", part._buffers), ("attribute", part.__dict__)):
            for key, value in store.items():
                if isinstance(value, torch.Tensor):
                    yield Slot(kind, prefix + key, store, key)


def marks_of(tensor: torch.Tensor) -> list[str]:
    """What a tensor leaves to whoever reads it, in words."""
    marks = {
        "wants a gradient": tensor.requires_grad,
        "is still to be conjugated": tensor.is_conj(),
        "is still to be negated": tensor.is_neg(),
    }
    return [mark for mark, has in marks.items() if has]


class Snapshot:
    """What a forward may change (buffers and plain attributes), kept so that every run starts from the same state.

    `like` limits it to the places that another module has too: what a candidate keeps beside them (packed weights, say)
    is its own to keep up to date, and putting back its old contents behind its back would make it wrong.
    """

    def __init__(self, module: torch.nn.Module, like: torch.nn.Module | None = None) -> None:
        known = None if like is None else {slot.name for slot in slots(like)}
        self._kept = [
            (slot, slot.tensor, None if slot.kind == "parameter" else slot.tensor.detach().clone())
            for slot in slots(module)
            if known is None or slot.name in known
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put every tensor back in its place, with its old contents."""
        for slot, tensor, contents in self._kept:
            slot.store[slot.key] = tensor
            if contents is not None:
                tensor.copy_(contents)


class StateCopy:
    """All tensors of a module as they are now, to be put back into the same places and the same tensors later."""

    @torch.no_grad()
    def __init__(self, module: torch.nn.Module) -> None:
        self._kept = [(slot, slot.tensor, slot.tensor.detach().clone()) for slot in slots(module)]

    @torch.no_grad()
    def restore(self) -> None:
        for slot, tensor, contents in self._kept:
            slot.store[slot.key] = tensor
            tensor.copy_(contents)


@torch.no_grad()
def copy_state(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Give `target` the parameters, buffers and tensor attributes of `source`, cast to the dtypes it already has."""
    target.load_state_dict(source.state_dict())
    given = {slot.name: slot.tensor for slot in slots(source)}
    for slot in slots(target):
        value = given.get(slot.name)
        if slot.kind != "parameter" and value is not None and value.shape == slot.tensor.shape:
            slot.tensor.copy_(value)


def to_double(module: torch.nn.Module) -> torch.nn.Module:
    """`module` in double precision, plain tensor attributes included; integers stay."""
    module.double()
    for slot in list(slots(module)):
        if slot.kind == "attribute" and slot.tensor.is_floating_point():
            slot.store[slot.key] = slot.tensor.double()
    return module
