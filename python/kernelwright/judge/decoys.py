"""Calls that nobody judges, made before one that is.

What a candidate keeps of a call shows only if a later call looks the same to whatever it is kept by. Each decoy
agrees with the judged call that follows in all but one respect. It needs no eager run and no reference of its own.

    weights   the same inputs, with the weights of the draw before (a result kept by the inputs' contents)
    elements  the same weights, with a few elements of the inputs replaced (kept by a sample or a hash of the inputs)
    halves    the same weights, with the halves of every input exchanged (kept by the version or address of the weights)

Which draws have which, and how many calls there are, follows from the secret seed: calls cannot be counted.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Callable, Iterator

import torch

from . import draws
from .runs import Inputs
from .yardstick import Draw, Yardstick

# Elements of an input that "elements" replaces: few, so that a sample of them is missed.
_FEW = 2

# Seconds a call may take for more than the decoys that every verification has, and all calls of the last draw's series.
_CHEAP = 0.05

# How many calls there are in that series.
_LEAST_SERIES, _MOST_SERIES = 2, 6

_CHUNK = 1 << 24


class Decoys:
    """`call` makes one call on the inputs as they are, puts the state back, and returns whether it changed the inputs."""

    def __init__(self, yardstick: Yardstick, call: Callable[[Draw], bool]) -> None:
        self.yardstick = yardstick
        self.call = call
        self.random = random.Random(draws.derive_seed(yardstick.seed, "decoys"))
        self.seconds = 0.0  # that the last one took
        later = range(1, len(yardstick.kinds))
        self.weights = self.random.choice(later) if later else 0

    def with_earlier_weights(self, draw: Draw) -> None:
        """To be called while the candidate still has the weights of the draw before."""
        extra = self.random.random() < 0.5
        if self.yardstick.model.state_dict() and (draw.number == self.weights or self._may(extra)):
            self._timed(draw)

    def with_other_inputs(self, draw: Draw) -> None:
        """To be called when the candidate has the weights of this draw."""
        varieties = _varieties(draw.kind)
        self.random.shuffle(varieties)
        for variety in varieties:
            extra = self.random.random() < 0.5
            if draw.kind == "signed" or self._may(extra):
                self._varied(draw, variety)
        # The first ones may have met the very elements that a result is kept by.
        if draw.kind == "signed" and self._may(True):
            self._varied(draw, "elements")
        if draw.number == len(self.yardstick.kinds) - 1:
            self._series(draw)

    def _series(self, draw: Draw) -> None:
        deadline = time.monotonic() + _CHEAP
        for _ in range(self.random.randint(_LEAST_SERIES, _MOST_SERIES)):
            if not self._may(True) or time.monotonic() > deadline:
                return
            varieties = _varieties(draw.kind)
            self._varied(draw, self.random.choice(varieties)) if varieties else self._timed(draw)

    def _may(self, extra: bool) -> bool:
        return extra and self.seconds < _CHEAP

    def _varied(self, draw: Draw, variety: str) -> None:
        inputs = self.yardstick.inputs
        memories = floating_memories(inputs)
        if not memories:
            self.yardstick.fill(draw, draws.derive_seed(draw.seed, "decoy"))
            self._timed(draw)
            self.yardstick.fill(draw)
            return
        with contextlib.ExitStack() as stack:
            for flat in memories:
                change = elements_replaced(flat, self.random) if variety == "elements" else halves_exchanged(flat)
                stack.enter_context(change)
            self._timed(draw, restored_by=stack)

    def _timed(self, draw: Draw, restored_by: contextlib.ExitStack | None = None) -> None:
        began = time.monotonic()
        changed = self.call(draw)
        self.seconds = time.monotonic() - began
        if restored_by is not None:
            restored_by.close()
        self.yardstick.refill(draw, anyway=changed)


def _varieties(kind: str) -> list[str]:
    # One element among infinities, or among magnitudes over twelve decades, changes nothing else; equal elements have
    # nothing to exchange.
    return {"constant": [], "special": ["halves"], "wide": ["halves"]}.get(kind, ["elements", "halves"])


def floating_memories(inputs: Inputs) -> list[torch.Tensor]:
    """Each memory that floating inputs lie in, flat and once."""
    found: dict[int, torch.Tensor] = {}
    for tensor in inputs.tensors().values():
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel():
            view = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            found.setdefault(tensor.untyped_storage().data_ptr(), draws.whole_storage(view.detach()))
    return list(found.values())


@contextlib.contextmanager
def elements_replaced(flat: torch.Tensor, chooser: random.Random) -> Iterator[None]:
    """A few elements are the tensor's largest, or its smallest where they were that: in range, and seen by a maximum."""
    if flat.itemsize == 1:  # 8-bit floats have no order of their own
        with halves_exchanged(flat):
            yield
        return
    where = torch.tensor(sorted(chooser.sample(range(flat.numel()), min(_FEW, flat.numel()))), device=flat.device)
    low, high = flat.aminmax()
    kept = flat[where]
    flat[where] = torch.where(kept == high, low, high)
    yield
    flat[where] = kept


@contextlib.contextmanager
def halves_exchanged(flat: torch.Tensor) -> Iterator[None]:
    """The first and the second half of the elements have changed places."""
    memory = flat.view(torch.uint8) if flat.itemsize == 1 else flat
    _exchange(memory)
    yield
    _exchange(memory)


def _exchange(flat: torch.Tensor) -> None:
    half = flat.numel() // 2
    first, second = flat[:half], flat[flat.numel() - half :]
    for start in range(0, half, _CHUNK):
        part = slice(start, start + _CHUNK)
        kept = first[part].clone()
        first[part].copy_(second[part])
        second[part].copy_(kept)
