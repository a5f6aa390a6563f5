"""Judges what timed calls returned, by the whole contract, when nothing is timed any more.

A candidate might be honest in every call but those that are timed. Calls are chosen at random; their outputs are kept
with the inputs, weights and random state that they had.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any

import torch

from .. import errors
from ..running import problem as problems
from ..running.limits import free_memory
from ..running.state import StateCopy, slots
from . import draws, metrics
from .contestants import Contestant
from .reference import Reference
from .runs import Inputs, InputsCopy, Outcome
from .verification import Verification
from .yardstick import Draw, Yardstick

# One round of each of these is judged, so that short runs have one and long ones a few.
_ROUNDS = ((0, 3), (3, 10), (10, 40), (40, 200))

# What is kept may take this share of the memory that is free.
_SHARE = 8


@dataclass
class _Call:
    seed: int
    state: StateCopy
    inputs: InputsCopy


class _Yardstick(Yardstick):
    """Of calls whose inputs and weights are given, not drawn."""

    def __init__(
        self,
        problem: problems.Problem,
        model: torch.nn.Module,
        inputs: Inputs,
        device: torch.device,
        seed: int,
        policy: str,
    ) -> None:
        self.seed, self.device, self.policy = seed, device, policy
        self.problem, self.model, self.inputs = problem, model, inputs
        self.construction_seed = draws.derive_seed(seed, "construct")
        self.reference = Reference(problem, device, self.construction_seed)
        self.kinds, self.constants, self.seconds_ahead = [], (), 0.0
        self._buffers, self._bounded, self._kept, self._written = None, False, {}, set()
        self._inputs: InputsCopy | None = None

    def draw_of(self, number: int, call: _Call) -> Draw:
        self._inputs = call.inputs
        call.state.restore()
        call.inputs.restore()
        return self.completed(Draw(number, "generator", call.seed))

    def fill(self, draw: Draw, seed: int | None = None) -> None:
        assert self._inputs is not None, "a draw of a call is filled again"
        self._inputs.restore()


def eager_errors(
    problem: problems.Problem, model: torch.nn.Module, inputs: Inputs, device: torch.device, seed: int, policy: str
) -> dict[str, float]:
    """How far eager is from the reference, norm-relative, on inputs and weights as they are; empty where there is no
    reference in double precision, or no memory for it. Leaves both as they are."""
    call = _Call(seed, StateCopy(model), InputsCopy(inputs))
    yardstick = _Yardstick(problem, model, inputs, device, seed, policy)
    found: dict[str, float] = {}
    with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
        draw = yardstick.draw_of(0, call)
        if draw.error is None and draw.is_double:
            found = {
                name: metrics.compare(tensor, tensor, draw.reference[name]).ours["norm"]
                for name, tensor in draw.eager.outputs.items()
                if tensor.is_floating_point()
            }
    call.state.restore()
    call.inputs.restore()
    return found


class TimedCalls:
    """Those of one measurement that are judged. `policy`: as a verification's."""

    def __init__(
        self,
        problem: problems.Problem,
        model: torch.nn.Module,
        inputs: Inputs,
        contestant: Contestant,
        device: torch.device,
        seed: int,
        policy: str,
    ) -> None:
        self.problem, self.model, self.inputs, self.contestant = problem, model, inputs, contestant
        self.device, self.seed, self.policy = device, seed, policy
        self._random = random.Random(draws.derive_seed(seed, "timed"))
        self.rounds = {self._random.randrange(*span) for span in _ROUNDS}
        # In which of them weights are new is chosen apart, so that neither shows the other.
        self.rounds_with_new_weights = {self._random.randrange(*span) for span in _ROUNDS[2:]}
        self._calls: list[tuple[_Call, Outcome]] = []

    def seed_of(self, number: int) -> int:
        """The random state of a round's calls, as Draw.forward_seed has it."""
        return draws.derive_seed(self._seed(number), "forward")

    def _seed(self, number: int) -> int:
        return draws.derive_seed(self.seed, "timed", number)

    def keep(self, number: int, ours: Any) -> None:
        """Hold on to what the timed call before has left, where memory allows. `ours`: the candidate's process."""
        held = [slot.tensor for slot in slots(self.model)] + list(self.inputs.tensors().values())
        size = sum(tensor.nbytes for tensor in held)
        if _SHARE * size > free_memory(self.device):
            return
        left = ours.timed_outcome(self.inputs)
        if self.device.type == "cuda":  # what is large stands in the arena, where the next call's will
            if _SHARE * sum(tensor.nbytes for tensor in left.tensors.values()) > free_memory(self.device):
                self.contestant.release(left)
                return
            left.tensors = {name: draws.copy_with_gaps(tensor) for name, tensor in left.tensors.items()}
        self._calls.append((_Call(self._seed(number), StateCopy(self.model), InputsCopy(self.inputs)), left))

    def judged(self) -> dict[str, Any]:
        """Figures, as a verification's (docs/worker-protocol.md)."""
        state, inputs = StateCopy(self.model), InputsCopy(self.inputs)
        yardstick = _Yardstick(self.problem, self.model, self.inputs, self.device, self.seed, self.policy)
        verification = Verification.of_parts(yardstick, self.contestant)
        for number, (call, ours) in enumerate(self._calls):
            draw = yardstick.draw_of(number, call)
            report: dict[str, Any] = {"kind": "generator", "seed": call.seed, "outputs": []}
            verification.draws.append(report)
            if draw.error is not None:
                report["skipped"] = f"Model raises on what was timed: {errors.summary(draw.error)}"
                continue
            try:
                verification.judge(draw, ours, report)
            except errors.Error as error:
                verification.faults[error.code] = [error.message]
            self.contestant.release(ours)
        state.restore()
        inputs.restore()
        return verification.figures()
