"""Races: several candidates of one search timed against one another, losers stopped early.

The problem, its inputs and the first candidate (the anchor, to which all times are compared) stay loaded between the
races of a search, since making gigabytes of inputs takes longer than timing them. What is timed here has not been
verified: outputs are only compared with the anchor's, roughly, and a candidate is kept by the parent only after its
verification.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from typing import Any, Callable

import torch
from torch.utils import _pytree as pytree

from .. import errors
from ..running import candidate as candidates
from ..running import problem as problems
from ..running.seeding import seed_everything
from ..running.state import slots
from ..running.tf32 import precision
from ..timing import device_lock
from ..timing.memory_turn import fills_memory, in_memory_turn
from ..timing.timer import Perturbation, Timer, is_settled
from . import draws
from .measurement import difference
from .runs import Inputs

Progress = Callable[..., None]

# After the call whose outputs are compared: a module that captures a CUDA graph does so in its third call.
_WARM_UP_CALLS = 2
_FEWEST_ROUNDS = 3
_MOST_ROUNDS = 60
_CLEARLY_SLOWER = 1.15


class Track:
    """What the races of one search have in common."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.key = key_of(params)
        self.seed = int(params.get("seed") or 0)
        self.device = torch.device(problems.check_device(params.get("device") or "cpu"))
        self.problem = problems.load(params["problem"], params.get("size"))
        self.construction = draws.derive_seed(self.seed, "construct")
        self.model = self.problem.construct(self.device, seed=self.construction)
        self.inputs = Inputs(self.problem, self.device)
        self.inputs.fill("generator", draws.derive_seed(self.seed, "first"), False)
        self.perturbation = Perturbation(self.inputs.values)
        self.timer = Timer(self.device)
        self.kept: dict[str, torch.nn.Module] = {}
        # The anchor's outputs; the perturbation of the inputs moves on, so that they hold for one race only.
        self.expected: list[Any] = []
        # What eager itself is away from fp64: a small difference of large numbers may be all error.
        self.allowed = 3 * max(map(float, (params.get("eager_errors") or {}).values()), default=0.0)

    def construct(self, path: str) -> torch.nn.Module:
        made = candidates.load(path).construct(self.problem, self.model, self.device, self.construction)
        # One copy of the weights serves all.
        ours = {(slot.kind, slot.name): slot.tensor for slot in slots(self.model)}
        for slot in slots(made):
            if slot.kind == "parameter" and (slot.kind, slot.name) in ours:
                slot.tensor.data = ours[(slot.kind, slot.name)].data
        return made

    def outputs(self, module: torch.nn.Module) -> list[Any]:
        seed_everything(self.seed)
        leaves = pytree.tree_leaves(module(*self.inputs.values))
        self.timer.synchronise()
        return leaves


_track: Track | None = None


def key_of(params: dict[str, Any]) -> tuple[Any, ...]:
    return params["problem"], params.get("size"), params.get("device"), int(params.get("seed") or 0)


def release() -> None:
    """Give back what the races keep loaded."""
    global _track
    if _track is None:
        return
    _track = None
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _enter(track: Track, entry: dict[str, Any], is_anchor: bool) -> tuple[torch.nn.Module | None, str]:
    """The candidate's module, ready to be timed, or None and why not."""
    path = entry["path"]
    try:
        module = track.kept.get(path) or track.construct(path)
        results = track.outputs(module)
    except Exception as error:
        wrong = (
            error
            if isinstance(error, errors.Error)
            else candidates.explain(error, path, "running forward", "forward-raised")
        )
        if wrong.code == "device-error" or is_anchor:
            raise wrong from None
        return None, wrong.message
    if is_anchor:
        track.expected = results
        return module, ""
    if len(results) != len(track.expected):
        return None, "returns another number of tensors"
    for index, (ours, known) in enumerate(zip(results, track.expected)):
        if isinstance(known, torch.Tensor) and (fault := difference(ours, known, track.allowed)) is not None:
            return None, f"output[{index}] {fault}"
    return module, ""


def _loses(ours: list[float], best: list[float]) -> bool:
    """Whether the times of the same rounds leave no doubt that `ours` is the slower one."""
    ratios = sorted(left / right for left, right in zip(ours, best))
    count = len(ratios)
    if count < 6:
        return ratios[0] > _CLEARLY_SLOWER
    # The lower end of the 95 % interval of the median, by order statistics.
    return ratios[max(0, int(count / 2 - 0.98 * count**0.5))] > 1.0


def _race(
    track: Track, runners: dict[str, torch.nn.Module], anchor: str, budget: float, progress: Progress
) -> tuple[dict[str, list[float]], set[str]]:
    """Samples of each in milliseconds, and which were stopped early."""
    samples: dict[str, list[float]] = {name: [] for name in runners}
    running = list(runners)
    stopped: set[str] = set()
    order = random.Random(track.seed)

    def call(name: str) -> Callable[[], Any]:
        module, values = runners[name], track.inputs.values
        return lambda: module(*values)

    for _ in range(_WARM_UP_CALLS):
        for name in running:
            track.perturbation.apply()
            track.timer.sample(call(name))
    began = time.monotonic()
    for count in range(_MOST_ROUNDS):
        spent = time.monotonic() - began
        if (
            len(running) == 1
            or (spent > budget and count >= _FEWEST_ROUNDS)
            or all(is_settled(samples[name]) for name in running)
        ):
            break
        progress("racing", min(0.99, spent / max(budget, 1e-3)))
        order.shuffle(running)
        for name in running:
            track.perturbation.apply()
            samples[name].append(track.timer.sample(call(name)))
        if count + 1 >= _FEWEST_ROUNDS:
            best = min(running, key=lambda name: statistics.median(samples[name]))
            losers = {name for name in running if name not in (anchor, best) and _loses(samples[name], samples[best])}
            stopped |= losers
            running = [name for name in running if name not in losers]
    return samples, stopped


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "race" (docs/worker-protocol.md)."""
    global _track
    entries = params.get("candidates") or []
    if _track is not None and (not entries or _track.key != key_of(params)):
        release()
    if not entries:
        return {"results": []}
    return in_memory_turn(params, progress, _run_race)


@torch.no_grad()
def _run_race(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    global _track
    entries, policy = params["candidates"], params.get("tolerance_policy") or "reference"
    with device_lock.hold(device_lock.CPU, "preparing", progress, shared=True):
        if _track is None:
            progress("loading", 0.0)
            _track = Track(params)
        track = _track
        anchor = entries[0]["name"]
        runners: dict[str, torch.nn.Module] = {}
        faults: dict[str, str] = {}
        for index, entry in enumerate(entries):
            with precision(policy):
                module, fault = _enter(track, entry, index == 0)
            if module is None:
                faults[entry["name"]] = fault
            else:
                runners[entry["name"]] = module
                if index == 0 or entry.get("keep"):
                    track.kept = {path: kept for path, kept in track.kept.items() if path == entries[0]["path"]} | {
                        entry["path"]: module
                    }
    try:
        with (
            device_lock.hold(device_lock.name_of(track.device), "timing", progress),
            precision(policy),
        ):
            samples, stopped = _race(track, runners, anchor, float(params.get("budget_seconds") or 1.0), progress)
        track.expected = []
    finally:
        if fills_memory(track.device, int(params.get("input_bytes") or 0)):
            release()  # others wait for the memory, and a GPU makes its inputs again in a moment
    return {
        "results": [
            {
                "name": entry["name"],
                "samples_ms": samples.get(entry["name"], []),
                "stopped": entry["name"] in stopped,
                "error": faults.get(entry["name"]),
            }
            for entry in entries
        ],
        "timer": track.timer.name,
    }
