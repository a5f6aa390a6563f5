"""Measurement: candidate, eager and torch.compile in turns, each in a process of its own, with raw samples as the
result. (Modules in memory are all timed where they live.)

Statistics over the samples are the parent's (src/measure/statistics.cpp). docs/measuring.md has the protocol and its
reasons.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import time
import warnings
from typing import Any, Callable, Iterator

import torch

from .. import errors
from ..running import candidate as candidates
from ..running import problem as problems
from ..running.limits import free_memory
from ..running.state import StateCopy
from ..running.tf32 import precision
from ..timing import device_lock
from ..timing.noise import Noise
from ..timing.profiling import Profile
from ..timing.memory_turn import in_memory_turn
from ..timing.timer import Perturbation, Timer, is_settled
from . import draws, metrics
from .contestants import Contestant, Local
from .nursing import Confinement
from .remote import Remote
from .runs import Inputs, InputsCopy
from .ties import Ties
from .timed import TimedCalls, eager_errors

Progress = Callable[..., None]

_WANTED_SAMPLES = 10
_FEWEST_SAMPLES = 3
_MOST_SAMPLES = 200
_ROOM = 1.25  # what several processes' allocators take beyond what their calls do
_WARM_UP_CALLS = 3  # the last in which a module may capture a CUDA graph

# Norm-relative distance to eager that separates another precision from another result.
_RECHECK = {torch.float16: 3e-2, torch.bfloat16: 1e-1, torch.float32: 5e-3, torch.float64: 1e-8}


class Measurement:
    """One request: the contestants, ready to be called, and their samples."""

    def __init__(self, params: dict[str, Any], progress: Progress) -> None:
        self.progress = progress
        self.seed = int(params.get("seed") or 0)
        self.budget = float(params.get("budget_seconds") or 5.0)
        self.compile_limit = float(params.get("compile_limit_seconds") or 240.0)
        self.candidate_seconds = params.get("candidate_seconds")
        self.kernels = list(params.get("kernels") or [])
        self.policy = params.get("tolerance_policy") or "reference"
        self.known_errors = dict(params.get("eager_errors") or {})
        self.device = torch.device(problems.check_device(params.get("device") or "cpu"))
        progress("loading", 0.0)
        # A path, or for modules in memory (api.py) the thing itself; so for the candidate.
        given = params["problem"]
        self.problem = given if isinstance(given, problems.Problem) else problems.load(given, params.get("size"))
        construction = draws.derive_seed(self.seed, "construct")
        self.model = self.problem.construct(self.device, seed=construction)
        self.inputs = Inputs(self.problem, self.device)
        self.inputs.fill("generator", draws.derive_seed(self.seed, "first"), False)
        self.perturbation = Perturbation(self.inputs.values, self._redrawn)
        self.weights = Perturbation([tensor.detach() for tensor in self.model.parameters()])
        self.takes_turns = False  # with a GPU's memory, which has no room for all contestants' at once
        self.contestants: dict[str, Contestant] = {}
        self.baseline_errors: dict[str, str] = {}
        self.ours: Contestant | None = None
        self._made_anew = lambda name: self._baseline(name, params, construction)
        try:
            if made := params.get("candidate"):
                self.ours = self.contestants["ours"] = self._candidate(made, params, construction)
            for name in params.get("baselines") or []:
                self.contestants[name] = self._baseline(name, params, construction)
        except BaseException:
            self.close()
            raise
        self.samples: dict[str, list[float]] = {}
        self.samples_with_new_weights: dict[str, list[float]] = {}
        self.timed = (
            TimedCalls(
                self.problem,
                self.model,
                self.inputs,
                self.ours,
                self.device,
                self.seed,
                self.policy,
            )
            if isinstance(self.ours, Remote)
            else None
        )
        self._before: tuple[StateCopy, InputsCopy] | None = None

    def _baseline(self, name: str, params: dict[str, Any], seed: int) -> Contestant:
        """Where the candidate is, in a process like its own: a call costs a little more or less in one that holds more."""
        if isinstance(self.ours, Local) or isinstance(params["problem"], problems.Problem):
            return Local(
                self.problem.path, self.model, self.model, self.device, None if name == "eager" else self._compiled()
            )
        role = "model" if name == "eager" else "compiled"
        return Remote(
            self.problem.path,
            self.problem,
            params.get("size"),
            self.model,
            self.device,
            seed,
            role=role,
            inputs_of=self._first_remote(),
            policy=self.policy,
            confinement=Confinement(),
        )

    def _first_remote(self) -> Remote | None:
        return next((contestant for contestant in self.contestants.values() if isinstance(contestant, Remote)), None)

    def _candidate(self, made: Any, params: dict[str, Any], seed: int) -> Contestant:
        if isinstance(made, candidates.Candidate):
            return Local(
                made.path, made.construct(self.problem, self.model, self.device, seed), self.model, self.device
            )
        limit = self.candidate_seconds
        deadline = None if limit is None else time.monotonic() + limit
        confinement = Confinement.of(params.get("confinement"))
        return Remote(
            made,
            self.problem,
            params.get("size"),
            self.model,
            self.device,
            seed,
            policy=self.policy,
            confinement=confinement,
            deadline=deadline,
            limit_seconds=limit,
        )

    def _compiled(self) -> Callable[..., Any]:
        import torch._dynamo

        torch._dynamo.reset()
        if self.device.type == "cpu":
            import torch._inductor.config

            # A pool of compiler processes costs more than it saves for a few C++ kernels, and competes with what is
            # timed.
            torch._inductor.config.compile_threads = 1
        return torch.compile(self.model)

    def _redrawn(self, step: int) -> list[Any]:
        return self.problem.inputs(draws.derive_seed(self.seed, "timed inputs", step), self.device)

    # The stages

    def prepare(self) -> None:
        """First calls, where kernels are compiled; a baseline that fails is left out, anything else is an error."""
        for name, contestant in list(self.contestants.items()):
            self.progress(f"first call of {name}", 0.05)
            try:
                self._first_call(name, contestant)
                if name == "eager":
                    self._note_changes(contestant)
            except Exception as error:
                if name == "ours":
                    raise (
                        error
                        if isinstance(error, errors.Error)
                        else candidates.explain(error, contestant.path, "running forward", "forward-raised")
                    ) from None
                if name == "eager":
                    raise _of_the_problem(error, self.problem.path) from None
                self.baseline_errors[name] = error.message if isinstance(error, errors.Error) else errors.summary(error)
                self.contestants.pop(name).close()

    def _first_call(self, name: str, contestant: Contestant) -> None:
        limit = self.compile_limit if name == "compile" else None
        try:
            with _time_limit(limit), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                contestant.first_call(self.inputs, limit)
        except errors.Error as error:
            if name != "compile" or error.code != "killed":
                raise
            # By whom nobody can tell: once more in another process, and it is left out where that is killed too.
            contestant.close()
            self.contestants[name] = self._made_anew(name)
            self.contestants[name].first_call(self.inputs, limit)

    def _note_changes(self, eager: Contestant) -> None:
        """Where eager changes its inputs or its state, keep both, so that every timed call starts from the same:
        repeated steps of an optimiser run away.
        """
        state, inputs = StateCopy(self.model), InputsCopy(self.inputs)
        left = eager.run(self.inputs, draws.derive_seed(self.seed, "forward"), "running forward", with_outputs=False)
        state.restore()
        inputs.restore()
        eager.adopt(self.model)
        if set(left.tensors) != set(left.outputs):
            self._before = state, inputs

    def _renew(self, name: str, new_weights: bool) -> None:
        """Inputs that differ from the last call's in every row, and state as it was at first; weights as they are now."""
        if self._before is not None:
            state, inputs = self._before
            state.restore()
            inputs.restore()
        if self._before is not None or new_weights:
            self.contestants[name].adopt(self.model)
        self.perturbation.apply()

    def _renew_weights(self) -> None:
        """Other weights for all: their elements change places."""
        if self._before is not None:
            self._before[0].restore()
        self.weights.apply()
        if self._before is not None:
            self._before = StateCopy(self.model), self._before[1]

    def _renews_weights_each_round(self, seconds: float) -> bool:
        """In training mode a call meets other weights each time, unless to give them takes more than is measured."""
        return self.model.training and bool(self.weights.flats) and seconds * _WANTED_SAMPLES < self.budget

    def peak_memory(self) -> dict[str, int]:
        """Bytes that one call takes beyond what it was given; only devices that count them."""
        return (
            {name: contestant.peak_memory(self.inputs) for name, contestant in self.contestants.items()}
            if self.device.type == "cuda"
            else {}
        )

    def _make_timers(self, peaks: dict[str, int]) -> None:
        """What a call needs of a GPU's memory, its process has before it is timed, as in a program that calls it again
        and again: it keeps that from call to call, where there is room for everybody's, or asks for it before each.
        """
        for contestant in self.contestants.values():
            contestant.rest()
        self.takes_turns = bool(peaks) and _ROOM * sum(peaks.values()) > free_memory(self.device)
        for name, contestant in self.contestants.items():
            contestant.timer(self.inputs, peaks[name] if self.takes_turns else None)

    def measure(self) -> None:
        """Rounds in which every contestant is timed once, in changing order, until the medians are settled or the
        budget is spent.
        """
        names = list(self.contestants)
        self.samples = {name: [] for name in names}
        order = random.Random(self.seed)
        self.samples_with_new_weights = {name: [] for name in names}
        renewal = 0.0
        for number in range(_WARM_UP_CALLS):
            began = time.monotonic()
            if number == 0:
                self._renew_weights()
            for name in names:
                self._renew(name, new_weights=number == 0)
            renewal = renewal or time.monotonic() - began
            for name in names:
                self.contestants[name].sample(self.inputs)
                self._end_turn(name)
        each_round = self._renews_weights_each_round(renewal)
        began = time.monotonic()
        for count in range(_MOST_SAMPLES):
            spent = time.monotonic() - began
            settled = len(self.samples[names[0]]) >= _WANTED_SAMPLES and all(map(is_settled, self.samples.values()))
            if (spent > self.budget and count >= _FEWEST_SAMPLES) or settled:
                break
            if count % 5 == 0:
                self.progress("timing", min(0.99, 0.1 + 0.9 * spent / self.budget))
            order.shuffle(names)
            self._round(count, names, each_round)

    def _round(self, count: int, names: list[str], each_round: bool) -> None:
        is_apart = (
            not each_round
            and self.timed is not None
            and bool(self.weights.flats)
            and count in self.timed.rounds_with_new_weights
        )
        if each_round or is_apart:
            self._renew_weights()
        seed = self.timed.seed_of(count) if self.timed is not None else 0
        for name in names:
            self._renew(name, each_round or is_apart)
            sample = self.contestants[name].sample(self.inputs, seed)
            (self.samples_with_new_weights if is_apart else self.samples)[name].append(sample)
            if name == "ours" and self.timed is not None and count in self.timed.rounds:
                self.timed.keep(count, self.ours)
            self._end_turn(name)

    def _end_turn(self, name: str) -> None:
        if self.takes_turns:
            self.contestants[name].rest()

    def _walls(self) -> dict[str, float]:
        for contestant in self.contestants.values():
            contestant.rest()
        walls = {}
        for name, taken in self.samples.items():
            walls[name] = self.contestants[name].wall(self.inputs, 5 if min(taken) < 500 else 1)
            self.contestants[name].rest()
        return walls

    def recheck(self) -> dict[str, Any]:
        """Whether the candidate, as it stands after all the timing, still computes what eager does on contents it has
        not seen.
        """
        if self.ours is None:
            return {"ok": True, "detail": "There is no candidate."}
        eager = Local(self.problem.path, self.model, self.model, self.device)
        ties = Ties()
        theirs, ours = self._outputs(eager, ties), self._outputs(self.ours)
        faults = self._faults(ours, theirs)
        if faults and ties.asked:
            calls = {name: ties.call_behind(tensor) for name, tensor in theirs.items()}
            proposals = {call: ours[name] for name, call in calls.items() if call is not None and name in ours}
            for as_they_stand in (False, True):
                faults = faults and self._faults(ours, self._outputs(eager, Ties(proposals, as_they_stand)))
        if faults:  # Eager may be further off on these weights and inputs than it was when the candidate was verified.
            self._fill_for_recheck()
            errors_here = eager_errors(self.problem, self.model, self.inputs, self.device, self.seed, self.policy)
            faults = self._faults(ours, theirs, errors_here)
        return {"ok": not faults, "detail": " ".join(faults)}

    def _outputs(
        self, contestant: Contestant, around: contextlib.AbstractContextManager | None = None
    ) -> dict[str, torch.Tensor]:
        """Of a call on inputs that nobody has seen; state is left as it was."""
        self._fill_for_recheck()
        contestant.adopt(self.model)
        with around or contextlib.nullcontext():
            left = contestant.run(self.inputs, draws.derive_seed(self.seed, "forward"), "running forward after timing")
        contestant.rewind()
        return left.outputs

    def _fill_for_recheck(self) -> None:
        self.inputs.fill("generator", draws.derive_seed(self.seed, "recheck"), False)

    def _faults(
        self,
        ours: dict[str, torch.Tensor],
        theirs: dict[str, torch.Tensor],
        errors_here: dict[str, float] | None = None,  # eager's, on these very inputs and weights
    ) -> list[str]:
        known = [self.known_errors, errors_here or {}]
        found = {
            name: difference(ours.get(name), expected, 3 * max(float(one.get(name, 0.0)) for one in known))
            for name, expected in theirs.items()
        }
        return [f"{name} {fault}." for name, fault in found.items() if fault is not None]

    def run(self) -> dict[str, Any]:
        try:
            return self._run()
        finally:
            self.close()

    def close(self) -> None:
        for contestant in reversed(self.contestants.values()):
            contestant.close()

    def _run(self) -> dict[str, Any]:
        # Those in this process, too: all are timed with the same rounding.
        with torch.no_grad(), precision(self.policy):
            with device_lock.hold(device_lock.CPU, "preparing", self.progress, shared=True):
                self.prepare()
                memory = self.peak_memory()
                self._make_timers(memory)
            with device_lock.hold(device_lock.name_of(self.device), "timing", self.progress):
                if isinstance(self.ours, Remote):
                    self.ours.renew(self.candidate_seconds)  # the wait for the device was not its own
                # A GPU is fed by one thread.
                noise = Noise(torch.get_num_threads() if self.device.type == "cpu" else 1, self.processor_seconds)
                self.measure()
                noise_figures = noise.figures()
                walls = self._walls()
                profile = self.ours.profile(self.inputs, self.kernels) if self.ours is not None else Profile()
            for name in [name for name in self.contestants if name != "ours"]:
                self.contestants.pop(name).close()
            if self.ours is not None:
                self.ours.rest()
            timed = self.timed.judged() if self.timed is not None else None
            recheck = self.recheck()
        timer = Timer(self.device)
        return ({"timed": timed} if timed is not None else {}) | {
            "samples_ms": self.samples,
            "new_weights_ms": {
                name: statistics.median(taken) for name, taken in self.samples_with_new_weights.items() if taken
            },
            "untold_ms": self._add_untold(noise_figures),
            "order": "interleaved",
            "flush_bytes": timer.flush_bytes,
            "timer": timer.name,
            "wall_ms": walls,
            "recheck": recheck,
            "runs_original": next(iter(self.ours.fallbacks), None) if self.ours is not None else None,
            "share_in_our_kernels": profile.share,
            "profile": profile.parts,
            "peak_memory_bytes": memory,
            "baseline_errors": self.baseline_errors,
            "threads": torch.get_num_threads(),
            "noise": noise_figures,
        }

    def processor_seconds(self) -> float:
        """Of this process and of those that contestants have for themselves."""
        return time.process_time() + sum(contestant.processor_seconds() for contestant in self.contestants.values())

    def _add_untold(self, noise: dict[str, Any]) -> float:
        """What the candidate's clock has kept to itself counts for the candidate's time. Where others use the cores,
        the judge's own process is kept waiting for its turn, and nothing can be said.
        """
        untold = self.ours.untold_ms() if self.ours is not None and not noise["reasons"] else 0.0
        if untold:
            self.samples["ours"] = [sample + untold for sample in self.samples["ours"]]
        return untold


def _of_the_problem(error: Exception, path: str) -> errors.Error:
    """The user's own fault, where eager is what failed."""
    if not isinstance(error, errors.Error):
        return errors.blame(error, path, "running forward", "forward-raised")
    return errors.Error(
        "user" if error.kind == "candidate" else error.kind,
        error.code,
        error.message,
        where=error.where,
        source=error.source,
        hint=error.hint,
        detail=error.detail,
    )


def difference(ours: Any, eager: torch.Tensor, allowed: float = 0.0) -> str | None:
    """How a tensor differs from eager's by more than another precision would explain, or by more than `allowed` where
    that is more; or None.
    """
    if not isinstance(ours, torch.Tensor) or ours.shape != eager.shape or ours.dtype != eager.dtype:
        return "has another shape or dtype than eager's after timing"
    if not eager.is_floating_point():
        wrong = 1.0 - (ours == eager).double().mean().item() if eager.numel() else 0.0
        return f"differs from eager's in {wrong:.2%} of its elements after timing" if wrong > 1e-3 else None
    figures = metrics.compare(ours, eager, eager.double() if eager.numel() < 1 << 26 else eager)
    if figures.nonfinite_mismatches:
        return f"differs from eager's in {figures.nonfinite_mismatches} values that are not finite after timing"
    if figures.ours["norm"] > max(allowed, _RECHECK.get(eager.dtype, 1e-1)):
        return f"is {figures.ours['norm']:.2g} of its norm away from eager's after timing"
    return None


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the main thread after `seconds`."""
    if seconds is None:
        yield
        return

    def expire(*_: Any) -> None:
        raise TimeoutError(f"took longer than {seconds:.0f} s to compile")

    try:
        old = signal.signal(signal.SIGALRM, expire)
    except ValueError:  # not the main thread: no limit can be set
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "measure" (docs/worker-protocol.md)."""
    return in_memory_turn(params, progress, _measure)


def _measure(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    with device_lock.hold(device_lock.CPU, "preparing", progress, shared=True):
        measurement = Measurement(params, progress)
    return measurement.run()
