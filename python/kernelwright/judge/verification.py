"""Verification: runs a candidate, eager and the double-precision reference on several draws and reports every figure of
the contract.

What passes is decided by the parent process (src/judge/contract.cpp); here is only measured. docs/contract.md has the
rules.
"""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import replace
from typing import Any, Callable

import torch

from .. import errors
from ..errors import candidate_error
from ..running import candidate as candidates
from ..running.limits import free_memory
from ..timing import device_lock
from ..timing.memory_turn import in_memory_turn
from . import draws, metrics
from .activity import growth
from .contestants import Activity, Contestant, Local
from .decoys import Decoys
from .hoarding import answer_for_memory
from .nonfinite import NonFinite
from .nursing import Confinement
from .preparation import yardstick_for
from .remote import Remote
from .runs import Outcome, compare_output, has_strides, held_tensors
from .sensitivity import Sensitivity, any_beyond, is_beyond, is_undecided
from .ties import Ties, strays
from .yardstick import Draw, Yardstick

Progress = Callable[..., None]
Turn = Callable[[], contextlib.AbstractContextManager]

CHECKS = (
    "inputs-unchanged",
    "weights-unchanged",
    "fresh-outputs",
    "guard-bands",
    "poison",
    "no-leftover-work",
    "deterministic-recheck",
    "distinct-positions",
    "plain-outputs",
    "signed-zeros",
    "random-state",
    "global-state",
)

# Trivial answers further off than this are not worth reporting, whatever the tolerance.
_NEARLY = 0.05

# What fp32 outputs may be off by where no honest kernel flushes subnormal numbers: a few of the smallest of them.
_UNDERFLOW = 8 * 2.0**-149

# Draws whose allocations are guarded; the others run the candidate exactly as a user would.
_GUARDED_DRAWS = 2


class Verification:
    """One request: the modules, the draws, and the findings so far."""

    def __init__(self, params: dict[str, Any], progress: Progress) -> None:
        self.progress = progress
        progress("loading", 0.0)
        limit = params.get("candidate_seconds")
        self.deadline = None if limit is None else time.monotonic() + limit
        self.confinement = Confinement.of(params.get("confinement"))
        self.yardstick = yardstick_for(params)
        self.problem, self.model, self.inputs, self.device = (
            self.yardstick.problem,
            self.yardstick.model,
            self.yardstick.inputs,
            self.yardstick.device,
        )
        self._begin(self._contestant(params))

    @classmethod
    def of_parts(cls, yardstick: Yardstick, contestant: Contestant) -> Verification:
        """Of calls that somebody else makes: `judge` is told what they left."""
        made = cls.__new__(cls)
        made.progress, made.deadline, made.confinement, made.yardstick = (
            (lambda *_, **__: None),
            None,
            Confinement(),
            yardstick,
        )
        made.problem, made.model, made.inputs, made.device = (
            yardstick.problem,
            yardstick.model,
            yardstick.inputs,
            yardstick.device,
        )
        made._begin(contestant)
        return made

    def _begin(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.sensitivity = Sensitivity(self.yardstick)
        self.decoys = Decoys(self.yardstick, self.call_unjudged)
        self.draws: list[dict[str, Any]] = []
        self.vacuous: list[dict[str, Any]] = []
        self.faults: dict[str, list[str]] = {name: [] for name in CHECKS}
        self.faults["global-state"] += self.contestant.settings_at_load
        self.unchecked: dict[str, str] = {}  # why a check could not be made on every draw
        self.gate: dict[str, Any] = {"ok": True, "atol": 1e-4, "rtol": 1e-4}
        self.earlier: dict[
            str, tuple[float, torch.Tensor | None]
        ] = {}  # of the first draw: mean, and the output where it is small
        self.kept: list[tuple[str, Outcome, set[str]]] = []  # every draw's, and which outputs are its own
        self.positions: dict[str, tuple[int, int | None, int]] | None = (
            None  # outputs that are positions: the call that answers with them, dim, elements of a row
        )

    def _contestant(self, params: dict[str, Any]) -> Contestant:
        made, seed = params["candidate"], self.yardstick.construction_seed
        if isinstance(made, candidates.Candidate):
            return Local(
                made.path,
                made.construct(self.problem, self.model, self.device, seed),
                self.model,
                self.device,
                policy=self.yardstick.policy,
            )
        return Remote(
            made,
            self.problem,
            params.get("size"),
            self.model,
            self.device,
            seed,
            shares_large=True,
            policy=self.yardstick.policy,
            confinement=self.confinement,
            memory_limit=params.get("memory_limit_bytes"),
            deadline=self.deadline,
            limit_seconds=params.get("limit_seconds"),
        )

    def run(self, turn: Turn = contextlib.nullcontext) -> dict[str, Any]:
        """`turn`: holds the device for a draw, so that whoever wants to time need not wait for all of them."""
        try:
            return self._run(turn)
        finally:
            self.contestant.close()

    def _run(self, turn: Turn) -> dict[str, Any]:
        kinds = self.yardstick.kinds
        for number, kind in enumerate(kinds):
            self.progress(f"draw {number + 1} of {len(kinds)} ({kind})", number / len(kinds))
            asked = time.monotonic()
            with turn():
                if isinstance(self.contestant, Remote):
                    self.contestant.grant(time.monotonic() - asked)  # the wait for the device was not its own
                self._draw(number)
            if self.faults["guard-bands"]:
                # Without guards the same writes would hit this process's own memory, and its last words would be lost.
                break
        with turn():
            self._check_kept()
        return self.figures()

    def figures(self) -> dict[str, Any]:
        return {
            "reference": self.yardstick.reference.name,
            "reference_note": self.yardstick.reference.note,
            "draws": self.draws,
            "checks": [
                {"name": name, "ok": not found, "detail": " ".join(dict.fromkeys(found))}
                | ({"unchecked": self.unchecked[name]} if name in self.unchecked else {})
                for name, found in self.faults.items()
            ],
            "runs_original": next(iter(self.contestant.fallbacks), None),
            "vacuous": self.vacuous,
            "kernelbench_gate": self.gate,
            "prepared_seconds": self.yardstick.seconds_ahead,
            "missing_protections": self.contestant.missing if self.confinement.namespaces else None,
        }

    def _draw(self, number: int) -> None:
        try:
            self.draw(number)
        except torch.OutOfMemoryError as error:
            self._answer_for_memory(error, number)
            raise

    def _answer_for_memory(self, error: BaseException, number: int) -> None:
        def again() -> None:
            draw = self.yardstick.completed(Draw(number, self.yardstick.kinds[number], self.yardstick.seed))
            if isinstance(draw.error, torch.OutOfMemoryError):
                raise draw.error

        if isinstance(self.contestant, Remote):
            answer_for_memory(self.contestant, error, again)

    def draw(self, number: int) -> None:
        self.contestant.rest()
        draw = self.yardstick.draw(number)
        report: dict[str, Any] = {"kind": draw.kind, "seed": draw.seed, "outputs": []}
        self.draws.append(report)
        if draw.error is not None:
            if isinstance(draw.error, torch.OutOfMemoryError):
                self._answer_for_memory(draw.error, number)
            if draw.kind == "generator":
                raise errors.blame(draw.error, self.problem.path, "running forward", "forward-raised") from None
            report["skipped"] = f"Model raises on this draw: {errors.summary(draw.error)}"
            return
        if isinstance(self.contestant, Remote):
            self.contestant.private = number % 2 == draws.derive_seed(self.yardstick.seed, "memory") % 2
        if number:
            self.decoys.with_earlier_weights(draw)
            self.contestant.adopt(self.model)
            self.decoys.with_other_inputs(draw)
        doing = f"running forward on the {draw.kind} draw"
        activity = self.contestant.activity()
        ours = self.run_ours(draw, doing, guarded=number < _GUARDED_DRAWS)
        figures = self.judge(draw, ours, report)
        self.contestant.rewind()
        # With NaN strewn about, fewer answers look right, none wrong ones more.
        if draw.kind != "special":
            self._check_vacuous(draw, figures, report["outputs"])
        # Twice the size of the outputs, which the further calls may need.
        draw.reference = {}
        if number == 0 and not self.faults["guard-bands"]:
            self.yardstick.refill(draw)
            self._check_second_call(draw, ours, doing)
            self.contestant.rewind()
            self.yardstick.refill(draw)
            self._check_leftovers(activity, draw, ours, doing)
            self.contestant.rewind()
        self._keep(draw, ours)

    def judge(self, draw: Draw, ours: Outcome, report: dict[str, Any]) -> dict[str, metrics.Figures]:
        """Everything that the contract asks of what one call has left; the rows of its outputs go into `report`."""
        self._check_effects(draw.eager, ours)
        figures = self._compare(draw, ours, report["outputs"])
        for row in report["outputs"]:
            row["summands"] = draw.summands
            if draw.keeps_subnormals and row["expected_dtype"] == "float32":
                row["underflow"] = _UNDERFLOW
        if not draw.is_double or any_beyond(report["outputs"], figures):
            self.sensitivity.add_sensitivity(draw, report["outputs"], figures)
        if draw.is_double and any_beyond(report["outputs"], figures):
            self.sensitivity.add_rounding(draw, report["outputs"], figures)
        for row in report["outputs"]:
            if (one := figures.get(row["name"])) is not None and one.buckets is not None:
                row["buckets"] = one.buckets.rows()
        if any(one.infinite_for_nan or one.nan_for_infinite or one.finite_for_nan for one in figures.values()):
            with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
                NonFinite(self.yardstick, draw, ours).explain(report["outputs"], figures)
        if draw.is_double and any(map(is_undecided, report["outputs"])):
            self.sensitivity.explain_steps(draw, ours, report["outputs"])
        return figures

    def run_ours(self, draw: Draw, doing: str, *, guarded: bool, **how: bool) -> Outcome:
        """The candidate from the current state and inputs. Whatever it raises leaves as a candidate error."""
        left = self._called(draw, doing, guarded=guarded, **how)
        if left.changes("input"):
            self.yardstick.refill(draw, anyway=True)
        return left

    def _called(self, draw: Draw, doing: str, **how: bool) -> Outcome:
        left = self.contestant.run(self.inputs, draw.forward_seed, doing, **how)
        for check, found in left.faults.items():
            self.faults[check] += found
        return left

    def call_unjudged(self, draw: Draw) -> bool:
        """A decoy: a call on state and inputs that may differ from the draw's, of which only faults count. Returns
        whether it changed its inputs.
        """
        changed = False
        try:
            doing, guarded = f"running forward before the {draw.kind} draw", draw.number < _GUARDED_DRAWS
            left = self._called(draw, doing, guarded=guarded, with_state=False, with_outputs=False)
            changed = bool(left.changes("input"))
            self.contestant.release(left)
        except errors.Error as error:
            # Eager might raise on these values too; what is wrong with the candidate shows on the draw itself.
            if error.code != "forward-raised":
                raise
        self.contestant.rewind()
        return changed

    # Figures

    def _compare(self, draw: Draw, ours: Outcome, rows: list[dict[str, Any]]) -> dict[str, metrics.Figures]:
        kind, eager = draw.kind, draw.eager
        if ours.structure != eager.structure:
            raise candidate_error(
                "output-structure",
                f"ModelNew returns {_form(ours)} where Model returns {_form(eager)}.",
                hint="Return what Model returns, in the same nesting.",
            )
        for name, value in eager.constants.items():
            if ours.constants.get(name, ...) != value:
                raise candidate_error(
                    "output-constant", f"{name} of ModelNew is {ours.constants.get(name)!r} and should be {value!r}."
                )
        found = self._figures(draw, ours, rows)
        if draw.leaves_ties_open:
            self._check_positions(draw, ours, found)
            found = self._settle_ties(draw, ours, rows, found)
        for name, figures in found.items():
            if figures.stray_nans:
                self.faults["poison"].append(
                    f"{figures.stray_nans} elements of {name} are NaN on the {kind} draw where eager's are not; they may never have been written."
                )
        if kind == "generator":
            for name in draw.eager.outputs:
                self.gate["atol"] = self.gate["rtol"] = max(
                    metrics.gate_tolerance(draw.eager.tensors[name].dtype), self.gate["atol"]
                )
                self.gate["ok"] &= name in found and found[name].gate_failures == 0
        return found

    def _figures(self, draw: Draw, ours: Outcome, rows: list[dict[str, Any]]) -> dict[str, metrics.Figures]:
        """Fill `rows` with the draw's outputs, and return the figures of those whose form lets them be compared."""
        found: dict[str, metrics.Figures] = {}
        untouched = held_tensors(self.model, self.inputs)
        for name, expected in draw.eager.tensors.items():
            given = ours.tensors.get(name, untouched.get(name))
            if given is None:
                kind = getattr(ours.constants.get(name), "kind", "missing")
                raise candidate_error(
                    "output-structure",
                    f"{name} of ModelNew is {kind} where Model's is a tensor.",
                    hint="Return what Model returns.",
                )
            row, figures = compare_output(name, given, expected, draw.reference[name], draw.kind)
            if not row["strides_ok"] and row["shape_ok"]:
                row["strides_ok"] = has_strides(given, self.yardstick.strides_with_gradients(draw).get(name))
            rows.append(row)
            if name in ours.tensors and given.device != expected.device:
                ours.tensors[name] = given = given.to(expected.device)  # said in the row; its elements are still judged
            if figures is not None:
                found[name] = figures
                if draw.keeps_signs_of_zeros and (count := metrics.other_zeros(given, expected)):
                    self.faults["signed-zeros"].append(
                        f"{count} zeros of {name} have the other sign on the {draw.kind} draw; every operator of forward keeps it."
                    )
        return found

    def _check_positions(self, draw: Draw, ours: Outcome, found: dict[str, metrics.Figures]) -> None:
        try:
            with torch.no_grad():
                self._find_positions(draw)
        except torch.OutOfMemoryError:
            self.unchecked["distinct-positions"] = f"no memory for another run of eager on the {draw.kind} draw"
            return
        for name, (_, dim, size) in self._comparable_positions(draw, ours, found).items():
            if (
                dim is not None
                and _has_strays(ours.tensors[name], dim, size)
                and not _has_strays(draw.eager.tensors[name], dim, size)
            ):
                self.faults["distinct-positions"].append(
                    f"{name} names an element of a row twice, or one that is not there, on the {draw.kind} draw."
                )

    def _comparable_positions(
        self, draw: Draw, ours: Outcome, found: dict[str, metrics.Figures]
    ) -> dict[str, tuple[int, int | None, int]]:
        return {
            name: call
            for name, call in (self.positions or {}).items()
            if name in found and ours.tensors[name].dtype == draw.eager.tensors[name].dtype
        }

    def _settle_ties(
        self, draw: Draw, ours: Outcome, rows: list[dict[str, Any]], found: dict[str, metrics.Figures]
    ) -> dict[str, metrics.Figures]:
        """Where the candidate differs, hold it against eager with another choice among equal elements, if one explains
        it.
        """
        if self.positions is None:
            return found
        with torch.no_grad(), contextlib.suppress(torch.OutOfMemoryError):
            alike = self._comparable_positions(draw, ours, found)
            differing = _differing(rows)
            if not differing:
                return found
            proposals = {call: ours.tensors[name] for name, (call, _, _) in alike.items()}
            for as_they_stand in (False, True):
                if not proposals and not as_they_stand:
                    continue
                eager, reference = self.yardstick.run_again(draw, Ties(proposals, as_they_stand))
                other = replace(draw, eager=eager, reference=reference)
                other_rows: list[dict[str, Any]] = []
                figures = self._figures(other, ours, other_rows)
                if _differing(other_rows) < differing:
                    rows[:] = [row | {"ties": True} for row in other_rows]
                    draw.eager, draw.reference = eager, reference
                    return figures
        return found

    def _find_positions(self, draw: Draw) -> None:
        if self.positions is not None:
            return
        ties = Ties()
        self.yardstick.refill(draw)
        eager, _ = self.yardstick.run_eager(draw.forward_seed, ties)
        calls = {name: ties.call_behind(tensor) for name, tensor in eager.outputs.items()}
        self.positions = {
            name: (call, *ties.row_of(call, eager.tensors[name])) for name, call in calls.items() if call is not None
        }

    # Checks beside the figures

    def _check_effects(self, eager: Outcome, ours: Outcome) -> None:
        for check, kinds in (("inputs-unchanged", ("input",)), ("weights-unchanged", ("parameter", "buffer"))):
            for name in (name for kind in kinds for name in ours.changes(kind)):
                if name not in eager.tensors:
                    self.faults[check].append(f"forward changed {name}, which Model leaves alone.")
        for name, marks in ours.marks.items():
            for mark in sorted(marks - eager.marks.get(name, set())):
                self.faults["plain-outputs"].append(f"{name} {mark}, which Model's does not.")
        if not all(torch.equal(mine, theirs) for mine, theirs in zip(ours.generators, eager.generators)):
            self.faults["random-state"].append(
                "forward leaves the random generator in another state than Model's does."
            )

    def _check_second_call(self, draw: Draw, ours: Outcome, doing: str) -> None:
        # Where eager itself returns a view of what it was given, the candidate may.
        own = {name: tensor for name, tensor in ours.outputs.items() if name not in draw.eager.shares}
        for name in own:
            if name in ours.shares:
                self.faults["fresh-outputs"].append(f"{name} shares memory with {ours.shares[name]}.")
        again = self.run_ours(
            draw, f"{doing}, called a second time", guarded=True, with_gradients=True, with_state=False
        )
        altered = self.contestant.altered(ours)
        for name, tensor in own.items():
            repeated = again.tensors.get(name)
            if repeated is None:
                self.faults["deterministic-recheck"].append(f"{name} is missing from a second call.")
                continue
            if _meet(ours, again, name):
                self.faults["fresh-outputs"].append(
                    f"{name} of two calls share memory: the second call overwrites the first one's result."
                )
            elif name in altered:
                self.faults["fresh-outputs"].append(f"A second call changed {name} of the first.")
            if metrics.fingerprint(repeated) != metrics.fingerprint(tensor):
                self._check_repeated(name, tensor, repeated)
        self.contestant.release(again)

    def _check_repeated(self, name: str, first: torch.Tensor, second: torch.Tensor) -> None:
        fault = ""
        if first.shape != second.shape or first.dtype != second.dtype or not first.is_floating_point():
            fault = "differs"
        else:
            figures = metrics.compare(second, second, first.double())
            # Atomic additions may come in another order; more than their rounding is a race.
            if figures.nonfinite_mismatches or figures.ours["norm"] > 16 * metrics.epsilon(first.dtype):
                fault = f"differs by {figures.ours['norm']:.2g} of its norm"
        if fault:
            self.faults["deterministic-recheck"].append(f"{name} {fault} in a second call with the same inputs.")

    def _keep(self, draw: Draw, ours: Outcome) -> None:
        """Hold on to a draw's outputs, as a caller may, where memory allows."""
        own = {name for name in ours.outputs if name not in draw.eager.shares}
        if sum(tensor.nbytes for tensor in ours.outputs.values()) * 8 < free_memory(self.device):
            self.kept.append((f"the {draw.kind} draw", ours, own))
        else:
            self.contestant.release(ours)

    def _check_kept(self) -> None:
        for what, ours, own in self.kept:
            self.faults["fresh-outputs"] += [
                f"A later call changed {name} of {what}." for name in self.contestant.altered(ours) if name in own
            ]

    def _check_leftovers(self, activity: Activity, draw: Draw, ours: Outcome, doing: str) -> None:
        self.faults["no-leftover-work"] += activity.leftovers()
        # Files are opened and written by the first calls, which compile.
        settled = self.contestant.activity()

        def call_again(which: str) -> Outcome:
            return self.run_ours(draw, f"{doing}, called {which}", guarded=True, with_state=False)

        def call_once_more() -> None:
            self.contestant.rewind()
            self.yardstick.refill(draw)
            self.contestant.release(call_again("once more"))

        third = call_again("a third time")
        for name in third.outputs:
            if name not in draw.eager.shares and name in ours.outputs and _meet(ours, third, name):
                self.faults["fresh-outputs"].append(f"{name} of the first and the third call share memory.")
        self.faults["no-leftover-work"] += settled.more()
        self.contestant.release(third)
        self.faults["no-leftover-work"] += growth(settled, call_once_more)

    def _check_vacuous(self, draw: Draw, figures: dict[str, metrics.Figures], rows: list[dict[str, Any]]) -> None:
        """Note which trivial answers come near on this draw; one that passes on every draw makes the problem vacuous."""
        reference = draw.reference
        for row in rows:
            name = row["name"]
            if name not in figures or row["exact"] or not name.startswith("output"):
                continue
            given = {f"{key} itself": tensor for key, tensor in self.inputs.tensors().items()}
            constants = {"zeros": 0.0, "ones": 1.0}
            if name in self.earlier:
                mean, earlier = self.earlier[name]
                constants["a constant"] = mean
                if earlier is not None:
                    given["the output for other inputs and weights"] = earlier
            elif figures[name].compared:
                small = reference[name].numel() <= 1 << 22
                self.earlier[name] = (
                    figures[name].reference_sum / figures[name].compared,
                    reference[name] if small else None,
                )
            for answer in metrics.trivial_answers(figures[name], reference[name], constants, given):
                if answer["norm"] <= _NEARLY:
                    self.vacuous.append(
                        {
                            "output": name,
                            "draw": draw.kind,
                            "draw_index": draw.number,
                            **answer,
                            "eager": row["eager"],
                            "epsilon": row["epsilon"],
                            "compared": row["compared"],
                        }
                    )


def _has_strays(positions: torch.Tensor, dim: int, size: int) -> bool:
    try:
        return bool(strays(positions, dim, size).any())
    except torch.OutOfMemoryError:
        return bool(strays(positions.cpu(), dim, size).any())


def _differing(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows if row["mismatches"] > 0 or not row["nonfinite_ok"] or is_beyond(row)}


def _meet(one: Outcome, other: Outcome, name: str) -> bool:
    """Whether an output's memory in two calls has a byte in common."""
    (low, high), (other_low, other_high) = one.ranges[name], other.ranges[name]
    return one.tensors[name].device == other.tensors[name].device and low < other_high and other_low < high


def _form(left: Outcome) -> str:
    names = len(left.outputs)
    return f"{left.form} ({names} tensor{'' if names == 1 else 's'})"


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The worker's method "verify" (docs/worker-protocol.md)."""
    return in_memory_turn(params, progress, _verify)


def _verify(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    turn = functools.partial(
        device_lock.hold, device_lock.name_of(params.get("device") or "cpu"), "verifying", progress, shared=True
    )
    with turn():
        verification = Verification(params, progress)
    return verification.run(turn)
