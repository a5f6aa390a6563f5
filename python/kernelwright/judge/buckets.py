"""Errors of an output by the size of its elements."""

from __future__ import annotations

from typing import Any, Iterator

import torch

# Within so many units of an element's own last place nobody asks how the errors of its bucket compare.
NEAR_UNITS = 8

# A chunk of more buckets than these is sorted by them.
_MOST_PASSES = 10

# How many times eager's errors in a bucket, before eager is run again to see whether they were luck.
TIMES_BEFORE_ASKING = 4

# An element of which we have at most this share is left out.
_SHARE_LEFT = 1 / 16

# By what part of what is left out eager errs at most, before it is run again likewise.
_PART_BEFORE_ASKING = 1 / 4


class Buckets:
    """Errors by the size of the reference, a factor of 16 a bucket: what is small stands beside what is as small.

    Absolute errors of the elements that are finite in all three and whose reference is not 0. `moved` are those of
    eager's other runs. What is left out (zeros, mostly) has sums of its own, so that eager's errors can be told there.
    """

    COUNT = 512  # of the 2048 exponents of a double, four a bucket
    PARTS = ("ours", "eager", "moved")
    # Squares are of errors in these units, so that none overflows or vanishes where the bucket's own numbers' would.
    units = torch.exp2(torch.arange(COUNT, dtype=torch.float64) * 4 - 1023)
    units = torch.where((units > 2.0**-400) & (units < 2.0**400), 1.0, units)

    def __init__(self) -> None:
        self.counts = torch.zeros(self.COUNT, dtype=torch.float64)
        self.squares = {part: torch.zeros(self.COUNT, dtype=torch.float64) for part in self.PARTS}
        self.peaks = {part: torch.zeros(self.COUNT, dtype=torch.float64) for part in self.PARTS}
        self.left_out = torch.zeros(3, self.COUNT, dtype=torch.float64)  # count, squares of reference, of eager's error
        self.values_left_out = torch.zeros(self.COUNT, dtype=torch.int64)  # different ones, in one chunk

    def add(self, reference: torch.Tensor, **errors: torch.Tensor) -> None:
        """A chunk's errors by part, all flat and in double precision."""
        number = _bucket_numbers(reference)
        sizes = torch.bincount(number, minlength=self.COUNT).cpu()
        found: dict[str, list[torch.Tensor]] = {part: [] for part in errors}
        for bucket, inside in _split(number, sizes, errors):
            if bucket:  # the first: zeros, and what a double has no exponent for
                unit = float(self.units[bucket])
                for part, error in inside.items():
                    peak = torch.linalg.vector_norm(error, float("inf"))
                    scaled = error if unit == 1.0 else error / unit
                    found[part] += [torch.dot(scaled, scaled), peak]
        sizes[0] = 0
        present = sizes.nonzero().flatten().tolist()
        self.counts += sizes.double()
        for part, pairs in found.items():
            if pairs:
                squares, peaks = torch.stack(pairs).cpu().view(-1, 2).unbind(1)
                self.squares[part][present] += squares
                self.peaks[part][present] = torch.maximum(self.peaks[part][present], peaks)
        self._add_left_out(number, reference, errors["ours"], errors["eager"])

    def _add_left_out(
        self, number: torch.Tensor, reference: torch.Tensor, ours: torch.Tensor, eager: torch.Tensor
    ) -> None:
        here = ((ours + reference).abs_() <= reference.abs().mul_(_SHARE_LEFT)) & (number > 0)
        if not bool(here.any()):
            return
        number, reference, eager = (part[here].cpu() for part in (number, reference, eager))
        unit = self.units[number]
        self.left_out += torch.stack(
            [
                torch.bincount(number, weights, self.COUNT)
                for weights in (torch.ones_like(reference), (reference / unit).square(), (eager / unit).square())
            ]
        )
        found = torch.bincount(_bucket_numbers(reference.unique()), minlength=self.COUNT)
        self.values_left_out = torch.maximum(self.values_left_out, found)

    def merge_moved(self, other: Buckets) -> None:
        """Keep the larger errors of another run of eager's, which stand in `other` as ours."""
        self.squares["moved"] = torch.maximum(self.squares["moved"], other.squares["ours"])
        self.peaks["moved"] = torch.maximum(self.peaks["moved"], other.peaks["ours"])

    def levels(self, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Root mean square and maximum of each bucket's errors."""
        return (self.squares[part] / self.counts.clamp(min=1)).sqrt() * self.units, self.peaks[part]

    def stand_out(self, epsilon: float) -> bool:
        """Whether eager should be run again before a bucket is judged: well before the contract's bound."""
        high = torch.exp2(torch.arange(self.COUNT, dtype=torch.float64) * 4 - 1019)
        for ours, eager, moved in zip(*map(self.levels, self.PARTS)):
            known = torch.nn.functional.max_pool1d(torch.maximum(eager, moved)[None], 3, 1, 1)[0]
            if bool((ours > TIMES_BEFORE_ASKING * known + NEAR_UNITS / 2 * epsilon * high)[1:].any()):
                return True
        count, squares, errors = self.left_out
        return bool(((2 * count >= self.counts) & (errors < _PART_BEFORE_ASKING**2 * squares) & (count > 1)).any())

    def rows(self) -> list[dict[str, Any]]:
        """The buckets that hold something, from the smallest: {"low", "count", "ours", "eager", "moved": {"rms",
        "max"}}, and "left_out": {"count", "values", "size", "eager"} (root mean squares) where something is.
        """
        rows = []
        for number in self.counts.nonzero().flatten().tolist():
            row: dict[str, Any] = {"low": 2.0 ** (4 * number - 1023), "count": int(self.counts[number])}
            for part in self.PARTS:
                row[part] = {name: float(level[number]) for name, level in zip(("rms", "max"), self.levels(part))}
            count, squares, errors = self.left_out[:, number].tolist()
            if count:
                size, eager = ((total / count) ** 0.5 * float(self.units[number]) for total in (squares, errors))
                values = int(self.values_left_out[number])
                row["left_out"] = {"count": int(count), "values": values, "size": size, "eager": eager}
            rows.append(row)
        return rows


def _split(
    number: torch.Tensor, sizes: torch.Tensor, errors: dict[str, torch.Tensor]
) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """Each bucket that holds something with its errors, among zeros or alone, in order. `sizes`: of all buckets."""
    present = sizes.nonzero().flatten().tolist()
    # To add to a handful of places at once would take a GPU far longer than either.
    if len(present) <= _MOST_PASSES:
        for bucket in present:
            here = number == bucket
            yield bucket, {part: torch.where(here, error, 0.0) for part, error in errors.items()}
        return
    order = number.to(torch.int16).argsort()
    parts = {part: error[order].split(sizes[present].tolist()) for part, error in errors.items()}
    for place, bucket in enumerate(present):
        yield bucket, {part: split[place] for part, split in parts.items()}


def _bucket_numbers(reference: torch.Tensor) -> torch.Tensor:
    return ((reference.view(torch.int64) >> 52) & 0x7FF) >> 2
