"""How far eager itself lands from the reference when inputs, weights or its operators' results are rounded otherwise:
error that belongs to the problem, not to an algorithm. A candidate beyond eager's own error is held to it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ..running.state import slots
from ..running.tf32 import Tf32
from . import draws, metrics
from .rounding import OtherRoundings
from .runs import Outcome
from .yardstick import Draw, Yardstick

# How often eager is run on inputs one rounding away, where a candidate is beyond the bound: at least, and at most.
_LEAST_NUDGES, _MOST_NUDGES = 2, 8

# How many times its own error eager has to move by for that to count in outputs of 16 or 8 bits. Their inputs are given
# in as few bits, and nobody rounds them again: all of them moved by one unit come to two or three times the rounding of
# the output, which would excuse sums in 16 bits.
_FAR = 8.0

# How many units a function of single elements may come to by one rounding of its argument: of exp, whose argument is
# at most 88 in fp32. What comes to more (a sine of many turns) is to be reduced with more digits than that.
_FUNCTION_UNITS = 128.0

# How often at most it is then run with its operators' results rounded otherwise.
_ROUNDINGS = 4

# By how many units, where an integer changes hands between two roundings: several operators' worth.
_STEP_UNITS = 4.0


class Sensitivity:
    """Eager's other runs on a draw. `rows` are the outputs of a report (docs/worker-protocol.md), which get what is
    found.
    """

    def __init__(self, yardstick: Yardstick) -> None:
        self.yardstick = yardstick

    def add_sensitivity(self, draw: Draw, rows: list[dict[str, Any]], figures: dict[str, metrics.Figures]) -> None:
        """How far eager itself lands when inputs and weights move by one rounding: error that belongs to the problem,
        not to an algorithm.
        """
        seed = draw.forward_seed
        with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
            self.yardstick.refill(draw)  # the candidate has changed what eager changes
            moving = [slot.tensor for slot in slots(self.yardstick.model)] + list(
                self.yardstick.inputs.tensors().values()
            )
            # 8-bit floats are codes: one step of theirs is an eighth of the value, which would excuse any error.
            kept = [
                (tensor.detach(), draws.copy_with_gaps(tensor.detach()))
                for tensor in moving
                if tensor.is_floating_point() and tensor.itemsize > 1
            ]
            coarse, fine = self._tf32_rounding(draw)
            try:
                for trial in range(_MOST_NUDGES):
                    if trial >= _LEAST_NUDGES and not any_beyond(rows, figures):
                        break
                    for tensor, original in kept:
                        step = (
                            torch.finfo(tensor.dtype).eps
                            if tensor.data_ptr() in fine
                            else max(coarse, torch.finfo(tensor.dtype).eps)
                        )
                        # What a comparison is with stays what it is with: one unit further its answer is another one.
                        fixed = self.yardstick.constants if draw.kind == "special" else ()
                        draws.nudge(tensor, original, draws.derive_seed(seed, "nudge", trial), step, fixed)
                    moved, _ = self.yardstick.run_eager(seed)
                    self._note_spread(draw, moved, rows, figures, "sensitivity")
            finally:
                for tensor, original in kept:
                    tensor.copy_(original)

    def add_rounding(self, draw: Draw, rows: list[dict[str, Any]], figures: dict[str, metrics.Figures]) -> None:
        """How far eager lands when its operators' results are rounded otherwise."""
        with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
            for trial in range(_ROUNDINGS):
                if not any_beyond(rows, figures):
                    return
                self.yardstick.refill(draw)
                moved, _ = self.yardstick.run_eager(
                    draw.forward_seed, OtherRoundings(draws.derive_seed(draw.forward_seed, "rounding", trial))
                )
                self._note_spread(draw, moved, rows, figures, "rounding")

    def explain_steps(self, draw: Draw, ours: Outcome, rows: list[dict[str, Any]]) -> None:
        """Count the integers where the candidate's answer is none that eager comes to by other roundings, of those
        where eager is right and it is not.
        """
        eager = draw.eager.tensors
        names = [row["name"] for row in rows if is_undecided(row) and row["name"] in ours.tensors]
        # Where eager is right: it is the reference.
        wrong = {
            name: (ours.tensors[name] != eager[name]) & (eager[name] == draw.reference[name].to(eager[name].device))
            for name in names
        }
        with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
            for trial in range(2 * _ROUNDINGS):
                seed = draws.derive_seed(draw.forward_seed, "steps", trial // 2)
                self.yardstick.refill(draw)
                moved, _ = self.yardstick.run_eager(
                    draw.forward_seed, OtherRoundings(seed, -_STEP_UNITS if trial % 2 else _STEP_UNITS)
                )
                for name in names:
                    if name in moved.tensors:
                        wrong[name] &= moved.tensors[name] != ours.tensors[name]
                if not any(bool(one.any()) for one in wrong.values()):
                    break
        for row in rows:
            if row["name"] in wrong:
                row["unexplained"] = int(wrong[row["name"]].sum())

    def _note_spread(
        self, draw: Draw, moved: Outcome, rows: list[dict[str, Any]], figures: dict[str, metrics.Figures], key: str
    ) -> None:
        """Keep under `key` the largest error of eager's other runs so far."""
        for row in rows:
            tensor, reference = moved.tensors.get(row["name"]), draw.reference[row["name"]]
            if tensor is None or row["exact"] or tensor.shape != reference.shape:
                continue
            spread = metrics.compare(
                tensor, draw.eager.tensors[row["name"]], reference, skip_lost=draw.kind == "special"
            )
            if key == "sensitivity" and _is_narrow(row) and not _is_far(spread.ours, row["eager"]):
                continue
            if (
                key == "sensitivity"
                and draw.is_one_function
                and max(spread.ours.values()) > _FUNCTION_UNITS * row["epsilon"]
            ):
                continue
            old = row.get(key, spread.ours)
            row[key] = {name: max(old[name], spread.ours[name]) for name in spread.ours}
            buckets = figures[row["name"]].buckets if row["name"] in figures else None
            if buckets is not None and spread.buckets is not None:
                buckets.merge_moved(spread.buckets)

    def _tf32_rounding(self, draw: Draw) -> tuple[float, set[int]]:
        """How far PyTorch rounds what it multiplies (0 where it does not), and the addresses of weights that are never
        rounded so.
        """
        allowed = Tf32.under(self.yardstick.policy)
        if self.yardstick.device.type != "cuda":
            return 0.0, set()
        if allowed.products and draw.multiplies_matrices:
            return 2.0**-11, set()
        convolutions = any(isinstance(part, torch.nn.modules.conv._ConvNd) for part in self.yardstick.model.modules())
        linear = (part for part in self.yardstick.model.modules() if isinstance(part, torch.nn.Linear))
        return 2.0**-11 if allowed.convolutions and convolutions else 0.0, {part.weight.data_ptr() for part in linear}


def is_undecided(row: dict[str, Any]) -> bool:
    """Whether an integer output is wrong in so few elements that eager is wrong in half as many."""
    return row["exact"] and 0 < row["mismatches"] <= 2 * row["eager_mismatches"]


def any_beyond(rows: list[dict[str, Any]], figures: dict[str, metrics.Figures]) -> bool:
    buckets = ((row, figures[row["name"]].buckets) for row in rows if row["name"] in figures)
    return any(map(is_beyond, rows)) or any(one is not None and one.stand_out(row["epsilon"]) for row, one in buckets)


def is_beyond(row: dict[str, Any]) -> bool:
    """Whether a row's errors call for further runs of eager: where they are beyond error_bound() of
    src/judge/contract.cpp, which alone decides.

    The core cannot send the bound: it rests on what each run here finds, and on runs that are made because of it. Nor
    can the worker call the core, which may be a program alone, without libkernelwright.so. So the formula stands here
    once more, under the policy `reference`; tests/python/test_bounds_agree.py holds the two together. Here 16-bit
    outputs have no units of fp32's work, so that it asks a little sooner.
    """
    yardstick = {key: max(row["eager"][key], row.get("sensitivity", row["eager"])[key]) for key in ("norm", "max")}
    if (rounding := row.get("rounding")) and rounding["norm"] >= row["epsilon"] ** 0.5:
        yardstick = {key: max(yardstick[key], rounding[key]) for key in yardstick}
    one_accumulator = max(4.0, 0.5 * min(row.get("summands", 1), 1024) ** 0.5)
    units = (
        {"norm": 4.0, "max": one_accumulator}
        if row["epsilon"] <= metrics.epsilon(torch.float32)
        else {"norm": max(0.25, row["compared"] ** -0.5 if row["compared"] else 0.0), "max": 1.0}
    )
    return any(row["ours"][key] > 2 * yardstick[key] + units[key] * row["epsilon"] for key in yardstick)


def _is_narrow(row: dict[str, Any]) -> bool:
    return row["epsilon"] > metrics.epsilon(torch.float32)


def _is_far(spread: dict[str, float], eager: dict[str, float]) -> bool:
    return any(spread[key] >= _FAR * eager[key] for key in eager)
