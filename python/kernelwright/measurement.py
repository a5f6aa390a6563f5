"""Measurement: candidate, eager and torch.compile in turns, in one process on one device, with raw samples as the result.

Statistics over the samples are the parent's (src/measure/statistics.cpp). docs/measuring.md has the protocol and its reasons.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
import warnings
from typing import Any, Callable, Iterator

import torch

from . import candidate as candidates, device_lock, draws, errors, metrics, problem as problems
from .noise import Noise
from .profiling import Profile, profile_call
from .reference import seed_everything
from .runs import Inputs, outcome
from .state import Snapshot, copy_state
from .ties import Ties
from .timing import Perturbation, Timer, is_settled, memory_turn

Progress = Callable[..., None]

_WANTED_SAMPLES = 10
_FEWEST_SAMPLES = 3
_MOST_SAMPLES = 200
_WARM_UP_CALLS = 3

# Norm-relative distance to eager that separates another precision from another result.
_RECHECK = {torch.float16: 3e-2, torch.bfloat16: 1e-1, torch.float32: 5e-3, torch.float64: 1e-8}


class Measurement:
    """One request: the contestants, ready to be called, and their samples."""

    def __init__(self, params: dict[str, Any], progress: Progress) -> None:
        self.progress = progress
        self.seed = int(params.get("seed") or 0)
        self.budget = float(params.get("budget_seconds") or 5.0)
        self.compile_limit = float(params.get("compile_limit_seconds") or 240.0)
        self.kernels = list(params.get("kernels") or [])
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
        self.perturbation = Perturbation(self.inputs.values)
        self.contestants: dict[str, Callable[..., Any]] = {}
        self.baseline_errors: dict[str, str] = {}
        self.ours: torch.nn.Module | None = None
        self.path = ""
        if made := params.get("candidate"):
            loaded = made if isinstance(made, candidates.Candidate) else candidates.load(made)
            self.path = loaded.path
            self.ours = loaded.construct(self.problem, self.model, self.device, construction)
            self.contestants["ours"] = self.ours
        for name in params.get("baselines") or []:
            self.contestants[name] = self.model if name == "eager" else self._compiled()
        self.samples: dict[str, list[float]] = {}

    def _compiled(self) -> Callable[..., Any]:
        import torch._dynamo

        torch._dynamo.reset()
        if self.device.type == "cpu":
            import torch._inductor.config

            # A pool of compiler processes costs more than it saves for a few C++ kernels, and competes with what is timed.
            torch._inductor.config.compile_threads = 1
        return torch.compile(self.model)

    def call(self, name: str) -> Callable[[], Any]:
        function, values = self.contestants[name], self.inputs.values
        return lambda: function(*values)

    # The stages

    def prepare(self) -> None:
        """First calls, where kernels are compiled; a baseline that fails is left out, anything else is an error."""
        for name in list(self.contestants):
            self.progress(f"first call of {name}", 0.05)
            try:
                with _time_limit(self.compile_limit if name == "compile" else None), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.call(name)()
                    self._synchronise()
            except Exception as error:
                if name == "ours":
                    raise candidates.explain(error, self.path, "running forward", "forward-raised") from None
                if name == "eager":
                    raise errors.blame(error, self.problem.path, "running forward", "forward-raised") from None
                self.baseline_errors[name] = errors.summary(error)
                del self.contestants[name]

    def peak_memory(self) -> dict[str, int]:
        """Bytes that one call takes beyond what it was given; only devices that count them."""
        found: dict[str, int] = {}
        if self.device.type == "cuda":
            for name in self.contestants:
                torch.cuda.synchronize(self.device)
                torch.cuda.reset_peak_memory_stats(self.device)
                before = torch.cuda.memory_allocated(self.device)
                self.call(name)()
                torch.cuda.synchronize(self.device)
                found[name] = torch.cuda.max_memory_allocated(self.device) - before
        return found

    def measure(self, timer: Timer) -> None:
        """Rounds in which every contestant is timed once, in changing order, until the medians are settled or the budget is spent."""
        names = list(self.contestants)
        self.samples = {name: [] for name in names}
        order = random.Random(self.seed)
        for _ in range(_WARM_UP_CALLS):
            for name in names:
                self.perturbation.apply()
                timer.sample(self.call(name))
        began = time.monotonic()
        for count in range(_MOST_SAMPLES):
            spent = time.monotonic() - began
            settled = count >= _WANTED_SAMPLES and all(map(is_settled, self.samples.values()))
            if (spent > self.budget and count >= _FEWEST_SAMPLES) or settled:
                break
            if count % 5 == 0:
                self.progress("timing", min(0.99, 0.1 + 0.9 * spent / self.budget))
            order.shuffle(names)
            for name in names:
                self.perturbation.apply()
                self.samples[name].append(timer.sample(self.call(name)))

    def recheck(self) -> dict[str, Any]:
        """Whether the candidate, as it stands after all the timing, still computes what eager does on contents it has not seen."""
        if self.ours is None:
            return {"ok": True, "detail": "There is no candidate."}
        copy_state(self.model, self.ours)
        self.inputs.fill("generator", draws.derive_seed(self.seed, "recheck"), False)
        ties = Ties()
        theirs, ours = self._outputs(self.model, ties), self._outputs(self.ours)
        faults = self._faults(ours, theirs)
        if faults and ties.asked:
            calls = {name: ties.call_behind(tensor) for name, tensor in theirs.items()}
            proposals = {call: ours[name] for name, call in calls.items() if call is not None and name in ours}
            for as_they_stand in (False, True):
                faults = faults and self._faults(ours, self._outputs(self.model, Ties(proposals, as_they_stand)))
        return {"ok": not faults, "detail": " ".join(faults)}

    def _outputs(self, module: torch.nn.Module, around: contextlib.AbstractContextManager | None = None) -> dict[str, torch.Tensor]:
        snapshot = Snapshot(module, like=self.model)
        seed_everything(draws.derive_seed(self.seed, "forward"))
        with around or contextlib.nullcontext():
            result = module(*self.inputs.values)
        self._synchronise()
        outputs = outcome(result, module, self.inputs, {}).outputs
        snapshot.restore()
        self.inputs.fill("generator", draws.derive_seed(self.seed, "recheck"), False)
        return outputs

    def _faults(self, ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> list[str]:
        found = {name: difference(ours.get(name), expected, 3 * float(self.known_errors.get(name, 0.0))) for name, expected in theirs.items()}
        return [f"{name} {fault}." for name, fault in found.items() if fault is not None]

    def run(self) -> dict[str, Any]:
        with torch.no_grad():
            with device_lock.hold(device_lock.CPU, "preparing", self.progress, shared=True):
                self.prepare()
                memory = self.peak_memory()
                timer = Timer(self.device)
            with device_lock.hold(device_lock.name_of(self.device), "timing", self.progress):
                # A GPU is fed by one thread.
                noise = Noise(torch.get_num_threads() if self.device.type == "cpu" else 1)
                self.measure(timer)
                noise_figures = noise.figures()
                walls = {name: timer.wall(self.call(name), 5 if min(taken) < 500 else 1) for name, taken in self.samples.items()}
                profile = profile_call(self.call("ours"), self.kernels, self.device) if self.ours is not None else Profile()
            recheck = self.recheck()
        return {
            "samples_ms": self.samples,
            "order": "interleaved",
            "flush_bytes": timer.flush_bytes,
            "timer": timer.name,
            "wall_ms": walls,
            "recheck": recheck,
            "share_in_our_kernels": profile.share,
            "profile": profile.parts,
            "peak_memory_bytes": memory,
            "baseline_errors": self.baseline_errors,
            "threads": torch.get_num_threads(),
            "noise": noise_figures,
        }

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def difference(ours: Any, eager: torch.Tensor, allowed: float = 0.0) -> str | None:
    """How a tensor differs from eager's by more than another precision would explain, or by more than `allowed` where that is more; or None."""
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
    with memory_turn(params, progress):
        with device_lock.hold(device_lock.CPU, "preparing", progress, shared=True):
            measurement = Measurement(params, progress)
        return measurement.run()
