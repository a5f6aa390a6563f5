"""Candidates as a verification and a measurement call them: in a process of their own (remote.py), or, for modules
that exist only in this one, here.

Both answer with an `Outcome` and with what was seen while they ran.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Protocol

import torch
from torch.utils import _pytree as pytree

from ..errors import Error, candidate_error
from ..running import fallbacks, guards
from ..running.candidate import explain
from ..running.limits import free_memory
from ..running.seeding import seed_everything
from ..running.settings import GlobalState
from ..running.state import Snapshot, copy_state
from ..running.tf32 import precision
from ..timing.profiling import Profile, profile_call
from ..timing.timer import Timer
from . import metrics
from .runs import Inputs, Outcome, fingerprints, held_tensors, outcome

# Work on other streams shows in outputs that change after the current one is done.
LATE = "The outputs still changed after the current stream was done: work runs on another stream."
# So long a GPU may still be at work then; a host that is late itself takes some milliseconds.
_BUSY_MS = 50.0


def other_streams(late: Any, busy_ms: Any) -> list[str]:
    """What a candidate's process tells of the time after its current stream was done, as a fault."""
    if late is True:
        return [LATE]
    if float(busy_ms) > _BUSY_MS:
        return [
            f"The GPU was busy for {busy_ms:.0f} ms after the current stream was done: work runs on another stream."
        ]
    return []


def odd_output(what: str) -> Error:
    return candidate_error(
        "output-type",
        f"ModelNew returns a {what}, not a plain tensor.",
        hint="Return torch.Tensor: a subclass may compute when it is read.",
    )


class Activity(Protocol):
    def leftovers(self) -> list[str]:
        """What appeared since and does not end by itself within a third of a second."""

    def more_threads(self) -> int:
        """How many, when those that are about to end have ended."""

    def more(self) -> list[str]:
        """One sentence for each other kind of thing of which there is more than before."""


class Contestant(Protocol):
    path: str
    # What loading it changed of the process, and which protections its process lacks: sentences.
    settings_at_load: list[str]
    missing: list[str]
    # Why calls have run the original module, where this is a file of the compiler's.
    fallbacks: list[str]

    def adopt(self, model: torch.nn.Module) -> None:
        """Take over the parameters, buffers and attributes of `model`."""

    def run(
        self,
        inputs: Inputs,
        seed: int,
        doing: str,
        *,
        guarded: bool = False,
        with_gradients: bool = False,
        with_state: bool = True,
        with_outputs: bool = True,
    ) -> Outcome:
        """One call on the state and inputs as they are. `guarded`: allocations get guard bands; `with_gradients`:
        recorded, though nothing wants one; `with_state`: the outcome says what became of parameters and buffers;
        `with_outputs`: and of its outputs. Whatever the candidate raises leaves as a candidate error.
        """

    def rewind(self) -> None:
        """Buffers and attributes as they were adopted."""

    def altered(self, earlier: Outcome) -> list[str]:
        """Names of the outputs of an earlier run that are not any more what they were."""

    def release(self, earlier: Outcome) -> None:
        """Forget an earlier run's outputs."""

    def rest(self) -> None:
        """Leave a GPU's memory to others where it is scarce: what is forgotten, and what the last timed call returned."""

    def activity(self) -> Activity: ...

    def first_call(self, inputs: Inputs, limit_seconds: float | None = None) -> None:
        """Where kernels are compiled."""

    def timer(self, inputs: Inputs, reserve: int | None = None) -> None:
        """Get ready to be timed on these inputs. `reserve`: bytes of a GPU's memory to have before each timed call, and
        to give back when told to rest; without it, what calls have needed is kept from one to the next.
        """

    def sample(self, inputs: Inputs, seed: int = 0) -> float:
        """Milliseconds of one call on these inputs, from that state of the random generators."""

    def wall(self, inputs: Inputs, repeats: int) -> float:
        """Median milliseconds from an idle device to an idle device, caches as they are."""

    def peak_memory(self, inputs: Inputs) -> int:
        """Bytes of a GPU's memory that one call takes beyond what it was given."""

    def profile(self, inputs: Inputs, kernels: list[str]) -> Profile: ...

    def processor_seconds(self) -> float:
        """What a process of its own has used of the processor."""

    def untold_ms(self) -> float:
        """Milliseconds of a call that its own clock does not show."""

    def close(self) -> None: ...


# In this process


class LocalActivity(guards.Activity):
    def more(self) -> list[str]:
        return []


class Local:
    """A module that lives in this process: what it does it does to this process. `timed`: what is called in its stead
    where it is timed.
    """

    def __init__(
        self,
        path: str,
        made: torch.nn.Module,
        model: torch.nn.Module,
        device: torch.device,
        timed: Callable[..., Any] | None = None,
        policy: str = "reference",
    ) -> None:
        self.policy = policy
        self.path, self.made, self.model, self.device, self.timed = path, made, model, device, timed
        self.settings_at_load: list[str] = []
        self.missing: list[str] = []
        self.fallbacks: list[str] = []
        self._snapshot = Snapshot(self.made, like=model)
        self._marks: dict[int, dict[str, tuple[int, ...]]] = {}

    def adopt(self, model: torch.nn.Module) -> None:
        copy_state(model, self.made)
        self._snapshot = Snapshot(self.made, like=model)

    def run(
        self,
        inputs: Inputs,
        seed: int,
        doing: str,
        *,
        guarded: bool = False,
        with_gradients: bool = False,
        with_state: bool = True,
        with_outputs: bool = True,
    ) -> Outcome:
        before = fingerprints(held_tensors(self.made, inputs))
        settings = GlobalState()
        # The allocations that a guarded run keeps alive must not crowd out the run itself.
        watch = guards.GuardedAllocations(free_memory(self.device) // 4) if guarded else None
        late: list[str] = []
        seed_everything(seed)
        try:
            with (
                torch.no_grad(),
                precision(self.policy),
                fallbacks.noted(self.made, self.fallbacks),
                watch or contextlib.nullcontext(),
            ):  # gradients would need the caller's own parameters changed
                result = self.made(*inputs.values)
            if self.device.type == "cuda":
                early = _fingerprints_of(result) if guarded else None
                torch.cuda.synchronize(self.device)
                late = [LATE] if early is not None and early != _fingerprints_of(result) else []
        except BaseException as error:
            raise explain(error, self.path, doing, "forward-raised") from None
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and type(leaf) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                raise odd_output(type(leaf).__name__)
        left = outcome(result, self.made, inputs, before)
        left.faults = {
            "guard-bands": watch.violations() if watch else [],
            "no-leftover-work": late,
            "global-state": settings.undo(),
        }
        self._marks[id(left)] = fingerprints(left.outputs)
        return left

    def rewind(self) -> None:
        self._snapshot.restore()

    def altered(self, earlier: Outcome) -> list[str]:
        return [
            name
            for name, tensor in earlier.outputs.items()
            if metrics.fingerprint(tensor) != self._marks[id(earlier)][name]
        ]

    def release(self, earlier: Outcome) -> None:
        self._marks.pop(id(earlier), None)

    def rest(self) -> None:
        pass

    def activity(self) -> LocalActivity:
        return LocalActivity()

    # Timing

    def _call(self, inputs: Inputs) -> Callable[[], Any]:
        function, values = self.made if self.timed is None else self.timed, inputs.values
        return lambda: function(*values)

    def first_call(self, inputs: Inputs, limit_seconds: float | None = None) -> None:
        with fallbacks.noted(self.made, self.fallbacks):
            self._call(inputs)()
        self._synchronise()

    def timer(self, inputs: Inputs, reserve: int | None = None) -> None:
        self._timer = Timer(self.device)

    def sample(self, inputs: Inputs, seed: int = 0) -> float:
        seed_everything(seed)
        return self._timer.sample(self._call(inputs))

    def wall(self, inputs: Inputs, repeats: int) -> float:
        return self._timer.wall(self._call(inputs), repeats)

    def peak_memory(self, inputs: Inputs) -> int:
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self._call(inputs)()
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before

    def profile(self, inputs: Inputs, kernels: list[str]) -> Profile:
        return profile_call(self._call(inputs), kernels, self.device)

    def processor_seconds(self) -> float:
        return 0.0

    def untold_ms(self) -> float:
        return 0.0

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        pass


def _fingerprints_of(result: Any) -> list[tuple[int, ...]]:
    return [metrics.fingerprint(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
