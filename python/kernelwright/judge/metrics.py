"""Error figures of outputs against a reference, in double precision and in chunks, so that a 16 GB output needs little
extra memory.

An element counts towards the errors where candidate, eager and reference are all finite. Where eager and reference
agree on what kind of value stands there (finite, +inf, -inf, NaN), the candidate must show the same; where they differ
(fp32 overflowed and fp64 did not, say) it must show one of the two, or, where eager alone has NaN, what is not finite.
An infinity where both have NaN is counted apart: whether it passes depends on where the NaN comes from.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import zlib
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch

from . import buckets

# On the CPU a chunk stays in the cache; on a GPU it is large enough to hide the launches.
_CPU_CHUNK = 1 << 17
_GPU_CHUNK = 1 << 24

# KernelBench's own gate: absolute and relative tolerance by dtype.
_GATE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}


def gate_tolerance(dtype: torch.dtype) -> float:
    return _GATE.get(dtype, 1e-4)


def epsilon(dtype: torch.dtype) -> float:
    """The distance from 1 to the next number of a floating dtype; 0 for integers and booleans."""
    if dtype.is_complex:
        dtype = dtype.to_real()
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


@dataclass
class Figures:
    """What one comparison yields; norms are relative to the reference's."""

    ours: dict[str, float] = field(default_factory=lambda: {"norm": 0.0, "max": 0.0})
    eager: dict[str, float] = field(default_factory=lambda: {"norm": 0.0, "max": 0.0})
    mismatches: int = 0  # exact outputs: elements where eager is right and the candidate is not
    eager_mismatches: int = 0  # exact outputs: elements where eager is not the reference
    nonfinite_mismatches: int = 0
    stray_nans: int = 0  # NaN where eager's is finite and the reference has none
    infinite_for_nan: int = 0  # infinities where eager and the reference have NaN
    nan_for_infinite: int = 0  # NaN where eager and the reference have the same infinity; counted as mismatches too
    finite_for_nan: int = 0  # finite where eager and the reference have NaN; counted as mismatches too
    gate_failures: int = 0
    where: list[int] = field(default_factory=list)
    ours_value: float = 0.0
    reference_value: float = 0.0
    reference_sum: float = 0.0
    reference_squares: float = 0.0
    reference_min: float = math.inf
    reference_max: float = -math.inf
    compared: int = 0  # elements finite in all three
    buckets: buckets.Buckets | None = None  # None where every element is within a few units of its own last place


def chunks(shape: torch.Size, limit: int) -> Iterator[tuple[slice, ...]]:
    """Index tuples that cover a tensor of `shape` in pieces of at most about `limit` elements, cut along leading
    dimensions.
    """
    if math.prod(shape) <= limit or not shape:
        yield ()
        return
    dim = next((index for index, size in enumerate(shape) if size > 1), 0)
    rest = math.prod(shape[dim + 1 :])
    step = max(1, limit // max(rest, 1))
    for start in range(0, shape[dim], step):
        head = (slice(None),) * dim + (slice(start, start + step),)
        if step == 1 and rest > limit:
            for tail in chunks(shape[dim + 1 :], limit):
                yield head + tail
        else:
            yield head


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _limit(tensor: torch.Tensor) -> int:
    return _GPU_CHUNK if tensor.is_cuda else _CPU_CHUNK


def _classes(values: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 +inf, 2 -inf, 3 NaN."""
    return (
        (values == math.inf).to(torch.int8)
        + 2 * (values == -math.inf).to(torch.int8)
        + 3 * values.isnan().to(torch.int8)
    )


@contextlib.contextmanager
def _few_threads(tensor: torch.Tensor) -> Iterator[None]:
    """One thread for what one thread does in a moment: waiting for others at every small operation is slow on a busy
    machine.
    """
    before = torch.get_num_threads()
    if tensor.is_cuda or tensor.numel() > 1 << 24 or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(
    ours: torch.Tensor,
    eager: torch.Tensor,
    reference: torch.Tensor,
    *,
    gate: bool = False,
    skip_lost: bool = False,
    by_size: bool = True,
) -> Figures:
    """All figures of one floating output. The three have one shape; `ours` and `eager` have the output's dtype.

    `gate` asks for the count of elements outside of KernelBench's tolerance too. `skip_lost` leaves out the elements of
    which eager itself has no digit: where squares overflowed or everything cancelled, nobody's error means anything,
    and eager's would excuse all others. Without `by_size` there are no buckets.
    """
    with torch.no_grad(), _few_threads(ours):
        return _compare(ours, eager, reference, gate, skip_lost, by_size)


def _compare(
    ours: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, gate: bool, skip_lost: bool, by_size: bool
) -> Figures:
    figures = Figures()
    if ours.numel() == 0:
        return figures
    tolerance = gate_tolerance(ours.dtype) if gate else None
    ours, eager, reference = _real(ours), _real(eager), _real(reference)
    totals = [0.0, 0.0, 0.0, 0.0]  # squares of ours' error, of eager's error and of the reference; sum of the reference
    peaks = [0.0, 0.0]  # largest errors
    near = buckets.NEAR_UNITS * epsilon(ours.dtype)
    for index in chunks(ours.shape, _limit(ours)):
        o, e, r = (
            part[index].to(device=ours.device, dtype=torch.float64).reshape(-1) for part in (ours, eager, reference)
        )
        figures.compared += o.numel()
        if tolerance is not None:
            figures.gate_failures += int(((o - e).abs_() > e.abs().mul_(tolerance).add_(tolerance)).sum())
        # Not in place: for double outputs these are the outputs themselves.
        sums, extremes = _sums(o - r, e - r, r)
        if skip_lost or not all(map(math.isfinite, sums)):
            o, e, r = _without_nonfinite(figures, o, e, r)
            if skip_lost:
                o, e, r = _without_lost(figures, o, e, r)
            if r.numel() == 0:
                continue
            sums, extremes = _sums(o - r, e - r, r)
        if by_size and figures.buckets is None and bool(((o - r).abs_() > r.abs() * near).any()):
            figures.buckets = buckets.Buckets()
        totals = [total + part for total, part in zip(totals, sums)]
        peak, eager_peak, low, high = extremes
        peaks[1] = max(peaks[1], eager_peak)
        figures.reference_min, figures.reference_max = min(figures.reference_min, low), max(figures.reference_max, high)
        if peak > peaks[0] or not figures.where:
            peaks[0] = max(peaks[0], peak)
            figures.where = _position(ours.shape, index, int(_distance(ours, reference, index).argmax()))
    figures.reference_squares, figures.reference_sum = totals[2], totals[3]
    magnitude = max(abs(figures.reference_min), abs(figures.reference_max)) if figures.compared else 0.0
    figures.ours = _relative(totals[0], peaks[0], totals[2], magnitude)
    figures.eager = _relative(totals[1], peaks[1], totals[2], magnitude)
    if figures.buckets is not None:
        for index in chunks(ours.shape, _limit(ours)):
            o, e, r = (
                part[index].to(device=ours.device, dtype=torch.float64).reshape(-1) for part in (ours, eager, reference)
            )
            kept = o.isfinite() & e.isfinite() & r.isfinite()
            if skip_lost:
                kept &= ~_lost(e, r)
            if not bool(kept.all()):
                o, e, r = o[kept], e[kept], r[kept]
            figures.buckets.add(r, ours=o - r, eager=e - r)
    at = tuple(figures.where) if figures.where else (0,) * ours.dim()
    figures.ours_value, figures.reference_value = ours[at].item(), reference[at].item()
    return figures


def _sums(error: torch.Tensor, eager_error: torch.Tensor, reference: torch.Tensor) -> tuple[list[float], list[float]]:
    """Sums that are finite only if every element is (a square that overflows errs on the safe side), and extremes."""
    sums = torch.stack(
        [torch.dot(error, error), torch.dot(eager_error, eager_error), torch.dot(reference, reference), reference.sum()]
    )
    (a, b), (c, d), (low, high) = (part.aminmax() for part in (error, eager_error, reference))
    extremes = torch.stack([torch.maximum(-a, b), torch.maximum(-c, d), low, high])
    both = torch.cat([sums, extremes]).tolist()
    return both[:4], both[4:]


def _without_nonfinite(
    figures: Figures, o: torch.Tensor, e: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The elements that are finite in all three; what the others say goes into `figures`."""
    finite = o.isfinite() & e.isfinite() & r.isfinite()
    co, ce, cr = _classes(o), _classes(e), _classes(r)
    # Where eager's own sum came to infinity minus infinity and the reference's did not, the order of summation decides
    # what it ends in.
    either = (ce == 3) & (cr != 3) & (co != 0)
    # The mean of a row with an infinite number is infinite as a sum over n, and NaN as a running update.
    infinite_for_nan = (ce == 3) & (cr == 3) & (co != 0) & (co != 3)
    figures.infinite_for_nan += int(infinite_for_nan.sum())
    figures.nonfinite_mismatches += int(((co != ce) & (co != cr) & ~either & ~infinite_for_nan).sum())
    figures.nan_for_infinite += int(((co == 3) & (ce == cr) & ((ce == 1) | (ce == 2))).sum())
    figures.finite_for_nan += int(((co == 0) & (ce == 3) & (cr == 3)).sum())
    figures.stray_nans += int(((co == 3) & (ce == 0) & (cr != 3)).sum())
    # A NaN is never outside of a tolerance.
    figures.gate_failures += int(((co != ce) & (o.isnan() | e.isnan())).sum())
    figures.compared -= int((~finite).sum())
    return o[finite], e[finite], r[finite]


def _lost(e: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return (e - r).abs_() > r.abs().mul_(0.5)


def _without_lost(
    figures: Figures, o: torch.Tensor, e: torch.Tensor, r: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kept = ~_lost(e, r)
    figures.compared -= int((~kept).sum())
    return o[kept], e[kept], r[kept]


def _distance(ours: torch.Tensor, reference: torch.Tensor, index: tuple[slice, ...]) -> torch.Tensor:
    """|ours − reference| over a chunk, 0 where either is not finite."""
    difference = (
        (ours[index].double() - reference[index].to(device=ours.device, dtype=torch.float64)).abs_().reshape(-1)
    )
    return difference.nan_to_num_(nan=0.0, posinf=0.0)


def _relative(squares: float, peak: float, reference_squares: float, reference_peak: float) -> dict[str, float]:
    # A reference of zeros has no scale: the floor makes any deviation from it a huge, but comparable, relative error.
    floor = 1e-150
    peak_error = peak / max(reference_peak, floor)
    norm = math.sqrt(squares) / max(math.sqrt(reference_squares), floor)
    return {"norm": norm if math.isfinite(norm) else peak_error, "max": peak_error}


def _position(shape: torch.Size, index: tuple[slice, ...], flat: int) -> list[int]:
    """The index in the whole tensor of element `flat` of the chunk that `index` cuts out."""
    sizes = [len(range(size)[cut]) for size, cut in zip(shape, index)] + list(shape[len(index) :])
    starts = [range(size)[cut].start for size, cut in zip(shape, index)] + [0] * (len(shape) - len(index))
    position = []
    for size, start in zip(reversed(sizes), reversed(starts)):
        position.append(flat % size + start)
        flat //= size
    return position[::-1]


@torch.no_grad()
def compare_exact(ours: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> Figures:
    """Integers and booleans: how often the candidate differs from the reference where eager does not."""
    figures = Figures()
    if ours.numel() == 0:
        return figures
    for index in chunks(ours.shape, _limit(ours)):
        o, e, r = ours[index], eager[index], reference[index].to(ours.device)
        wrong = (o != r) & (e == r)
        count = int(wrong.sum())
        figures.eager_mismatches += int((e != r).sum())
        if count and not figures.mismatches:
            figures.where = _position(ours.shape, index, int(wrong.reshape(-1).to(torch.uint8).argmax()))
        figures.mismatches += count
    figures.compared = ours.numel()
    if figures.mismatches:
        at = tuple(figures.where)
        figures.ours_value, figures.reference_value = float(ours[at].item()), float(reference[at].item())
    figures.gate_failures = figures.mismatches
    return figures


@torch.no_grad()
def other_zeros(ours: torch.Tensor, eager: torch.Tensor) -> int:
    """How many zeros have the other sign than eager's."""
    if not ours.is_floating_point() or ours.itemsize == 1 or ours.shape != eager.shape:
        return 0
    ours = ours.to(eager.device)
    return int(((ours == 0) & (eager == 0) & (ours.signbit() != eager.signbit())).sum())


@torch.no_grad()
def trivial_answers(
    figures: Figures, reference: torch.Tensor, constants: dict[str, float], tensors: dict[str, torch.Tensor]
) -> list[dict[str, Any]]:
    """Errors that answers needing no computation would have: one value everywhere, or a tensor that is at hand anyway."""
    count = figures.compared
    if not count or reference.is_complex():
        return []
    rows = []
    scale = (figures.reference_squares, max(abs(figures.reference_min), abs(figures.reference_max)))
    for name, constant in constants.items():
        squares = max(
            0.0, figures.reference_squares - 2 * constant * figures.reference_sum + count * constant * constant
        )
        peak = max(figures.reference_max - constant, constant - figures.reference_min)
        # The expanded square cancels to rounding noise; the largest deviation bounds the norm without that.
        rows.append((name, _relative(min(squares, count * peak * peak), peak, *scale)))
    for name, tensor in tensors.items():
        if tensor.shape == reference.shape and tensor.is_floating_point():
            result = compare(tensor, tensor, reference, by_size=False)
            if result.compared == count:
                rows.append((name, result.ours))
    return [{"trivial": name, **errors} for name, errors in rows]


@functools.lru_cache(maxsize=3)
def _weights(count: int, device: torch.device) -> torch.Tensor:
    """Odd 64-bit factors, so that a change of any one element changes the sum."""
    weights = torch.arange(1, 2 * count, 2, device=device).mul_(0x9E3779B97F4A7C15 - (1 << 64))
    weights.bitwise_xor_(weights >> 29)
    return weights.bitwise_or_(1)


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> tuple[int, ...]:
    """Position-dependent checksums of a tensor's bits. A change goes unseen with odds of some 2⁻³²."""
    if tensor.numel() == 0 or tensor.is_meta:
        return (tensor.numel(),)
    tensor = _real(tensor.detach())
    if not tensor.is_cuda:
        return (_crc(tensor),)
    plain = tensor.element_size()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain]
    totals = []
    for index in chunks(tensor.shape, _limit(tensor)):
        bits = tensor[index].contiguous().view(integer).reshape(-1).to(torch.int64)
        weights = _weights(bits.numel(), bits.device)
        totals.append(torch.stack([bits.sum(), (bits * weights).sum()]))
    return tuple(torch.cat(totals).tolist())


def _crc(tensor: torch.Tensor) -> int:
    code = 0
    for index in chunks(tensor.shape, 1 << 22):
        part = tensor[index].contiguous()
        memory = (ctypes.c_char * (part.numel() * part.element_size())).from_address(part.data_ptr())
        code = zlib.crc32(memory, code)
    return code
