"""NaN and infinities of a candidate that are not eager's, and are right all the same: what eager would have had where
other numbers came in (docs/contract.md).
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Callable

import torch

from . import metrics
from .runs import Outcome
from .yardstick import Draw, Yardstick


class NonFinite:
    """One draw, whose rows of the candidate's figures are `rows`."""

    def __init__(self, yardstick: Yardstick, draw: Draw, ours: Outcome) -> None:
        self.yardstick, self.draw, self.ours = yardstick, draw, ours

    def explain(self, rows: list[dict[str, Any]], figures: dict[str, metrics.Figures]) -> None:
        """Count in `rows` what is wrong and only that."""
        found = [(row, figures[row["name"]]) for row in rows if row["name"] in figures and not row["exact"]]
        found = self._without_what_the_host_has(found)
        wrong: dict[str, torch.Tensor] = {}
        if any(one.infinite_for_nan or one.nan_for_infinite and self.draw.reorders_sums for _, one in found):
            finite = self._eager_with(lambda values: values.nan_to_num(nan=math.nan, posinf=1.0, neginf=-1.0))
            for row, _ in found:
                wrong[row["name"]] = self._count_infinities(row, finite)
        self._explain_unread(found, wrong)
        for row, _ in found:
            row["nonfinite_ok"] = row.get("nonfinite_mismatches", 0) == 0

    def _without_what_the_host_has(
        self, found: list[tuple[dict[str, Any], metrics.Figures]]
    ) -> list[tuple[dict[str, Any], metrics.Figures]]:
        """A GPU's own kernel may lose what PyTorch's formula keeps (of a row with one infinity its RMS norm makes NaN
        throughout). An output that is what the reference is on the host, NaN, infinities and numbers, is right.
        """
        if not any(row.get("nonfinite_mismatches") for row, _ in found):
            return found
        host = self.yardstick.reference_on_host(self.draw)
        if host is None:
            return found
        left = []
        for row, figures in found:
            mine, expected = _wide(self.ours, row["name"]), host[row["name"]]
            if mine is None or expected.is_complex() or not _is_close(mine, expected.to(mine).double(), row, figures):
                left.append((row, figures))
            else:
                row["nonfinite_mismatches"], row["nonfinite_ok"] = 0, True
        return left

    def _count_infinities(self, row: dict[str, Any], finite: Outcome) -> torch.Tensor:
        """Infinities that stand for a NaN that was among the inputs are wrong: where they stand. A NaN for an infinity
        is right where sums may be reordered and the infinity was among the inputs.
        """
        mine, moved, eager = (_wide(one, row["name"]) for one in (self.ours, finite, self.draw.eager))
        if mine is None or moved is None or eager is None or mine.shape != moved.shape:
            return torch.zeros((), dtype=torch.bool)
        wrong = mine.isinf() & moved.isnan() & eager.isnan()
        row["nonfinite_mismatches"] += int(wrong.sum())
        if self.draw.reorders_sums:
            reference = self.draw.reference[row["name"]].to(eager.device, torch.float64)
            row["nonfinite_mismatches"] -= int(
                (mine.isnan() & (eager.isinf() & (eager == reference)) & moved.isfinite()).sum()
            )
        return wrong

    def _explain_unread(
        self, found: list[tuple[dict[str, Any], metrics.Figures]], wrong: dict[str, torch.Tensor]
    ) -> None:
        """A number is right where eager has NaN only because it multiplied something with zero: where it has the same
        number whatever finite values stand in some inputs in the place of NaN, or of all that is not finite, and the
        candidate has it too. `wrong`: infinities that are to be explained as well.
        """
        names = [row["name"] for row, one in found if one.finite_for_nan or row["name"] in wrong]
        waiting = {
            name: self._finite_for_nan(name) | wrong.get(name, torch.zeros((), dtype=torch.bool)) for name in names
        }
        found = [(row, one) for row, one in found if row["name"] in waiting]
        count = len(self._changeable())
        several = [set(chosen) for size in range(count, 0, -1) for chosen in itertools.combinations(range(count), size)]
        for chosen, whole in itertools.islice(itertools.product(several, (True, False)), _MOST_CHOICES):
            if not any(bool(asked.any()) for asked in waiting.values()):
                return
            filled = [
                self._eager_with(functools.partial(_filled, number=at, whole=whole), chosen) for at in range(_FILLS)
            ]
            for row, figures in found:
                explained = waiting[row["name"]] & self._are_unread(row, figures, filled)
                waiting[row["name"]] &= ~explained
                row["nonfinite_mismatches"] -= int(explained.sum())

    def _finite_for_nan(self, name: str) -> torch.Tensor:
        mine, eager = _wide(self.ours, name), _wide(self.draw.eager, name)
        if mine is None or eager is None or mine.shape != eager.shape:
            return torch.zeros((), dtype=torch.bool)
        return mine.isfinite() & eager.isnan() & self.draw.reference[name].to(eager.device).isnan()

    def _are_unread(self, row: dict[str, Any], figures: metrics.Figures, filled: list[Outcome]) -> torch.Tensor:
        mine = _wide(self.ours, row["name"])
        answers = [one for one in (_wide(left, row["name"]) for left in filled) if one is not None]
        if mine is None or len(answers) < len(filled) or any(one.shape != mine.shape for one in answers):
            return torch.zeros((), dtype=torch.bool)
        first, *others = answers
        same = ~first.isnan()
        for other in others:
            same &= other == first
        finite = first[same & first.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
        return same & ((mine == first) | ((mine - first).abs() <= _allowed(scale, row, figures)))

    def _eager_with(self, change: Callable[[torch.Tensor], torch.Tensor], chosen: set[int] | None = None) -> Outcome:
        """Eager where inputs that hold what is not finite, or those `chosen` of them, are changed."""
        self.yardstick.refill(self.draw)
        kept = [
            (tensor, tensor.detach().clone())
            for number, tensor in enumerate(self._changeable())
            if chosen is None or number in chosen
        ]
        try:
            for tensor, original in kept:
                tensor.copy_(change(original))
            return self.yardstick.run_eager(self.draw.forward_seed)[0]
        finally:
            for tensor, original in kept:
                tensor.copy_(original)

    def _changeable(self) -> list[torch.Tensor]:
        given = self.yardstick.inputs.tensors().values()
        wide = [tensor for tensor in given if tensor.is_floating_point() and tensor.itemsize > 1]
        return [tensor for tensor in wide if not tensor.isfinite().all()]


_FILLS = 4

# Which inputs are filled: all of them first, then fewer.
_MOST_CHOICES = 8


def _wide(left: Outcome, name: str) -> torch.Tensor | None:
    """In a type that has every operator; complex numbers are left to be wrong."""
    found = left.tensors.get(name)
    return None if found is None or found.is_complex() else found.double()


def _is_close(mine: torch.Tensor, expected: torch.Tensor, row: dict[str, Any], figures: metrics.Figures) -> bool:
    """The same NaN and infinities, and finite numbers within what `_are_unread` allows."""
    finite = expected.isfinite()
    if mine.shape != expected.shape or not torch.equal(mine.isfinite(), finite):
        return False
    if not torch.equal(mine[~finite].nan_to_num(nan=0.0), expected[~finite].nan_to_num(nan=0.0)):
        return False
    scale = float(expected[finite].abs().max()) if bool(finite.any()) else 0.0
    return bool(((mine - expected)[finite].abs() <= _allowed(scale, row, figures)).all())


def _allowed(scale: float, row: dict[str, Any], figures: metrics.Figures) -> float:
    return scale * (3 * figures.eager["max"] + 8 * row["epsilon"])


def _filled(values: torch.Tensor, number: int, whole: bool) -> torch.Tensor:
    """Finite numbers where NaN are, or, if `whole`, where none are: beyond all others on either side, which a maximum
    would show, and two small ones of different magnitude, which an even function would.
    """
    finite = values[values.isfinite()].double().abs()
    largest, middle = (float(finite.max()), float(finite.median())) if finite.numel() else (1.0, 1.0)
    most = torch.finfo(values.dtype).max
    fill = (min(2 * largest, most), max(-2 * largest, -most), 0.37 * middle, -0.71 * middle)[number]
    return torch.where(values.isfinite() if whole else ~values.isnan(), values, torch.full_like(values, fill))
