"""Inputs and weights to verify with: five kinds of draws, every one from its own seed.

`redraw_inputs` keeps what a synthetic draw must not touch: shapes, strides, storage sharing, integers (they may be
indices, lengths or labels, so the problem's own generator makes them) and everything that is not a tensor.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable

import torch
from torch.utils._pytree import tree_map_only

KINDS = ("generator", "signed", "wide", "constant", "special")

# Elements filled at once: bounds the scratch memory that a draw of a huge tensor takes.
_CHUNK = 1 << 24

# One sample of so many is small on the signed draw, and at most so many are.
_SAMPLES_TO_ONE_SMALL, _MOST_SMALL = 8, 16


# Inputs of fewer elements have no place to spare for subnormal numbers.
_LEAST_TO_MEET = 64


def kinds(count: int) -> list[str]:
    """The kinds of `count` draws: one of each first, then more of the problem's own generator."""
    return [KINDS[index] if index < len(KINDS) else "generator" for index in range(count)]


def derive_seed(seed: int, *labels: object) -> int:
    """A seed of its own for each purpose, so that knowing one draw tells nothing of the next."""
    text = repr((int(seed), *map(str, labels))).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "little")


def redraw_inputs(
    inputs: list[Any],
    kind: str,
    seed: int,
    *,
    bounded: bool = False,
    constants: tuple[float, ...] = (),
    subnormals: bool = False,
) -> list[Any]:
    """`inputs` with every floating tensor refilled in place as `kind` asks; a "generator" draw stays as it is.

    `bounded` keeps the values within the range that the generator showed, for problems with operators that abort the
    process outside of it (binary cross-entropy on a GPU, say). `constants` are numbers that the problem's operators are
    given; the special draw holds them. `subnormals`: in a few places all inputs of one size have subnormal numbers
    there.
    """
    if kind == "generator":
        return inputs
    done: set[int] = set()

    def refill(tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
            return tensor
        storage = tensor.untyped_storage().data_ptr()
        if storage not in done:
            done.add(storage)
            view = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            flat = whole_storage(view)
            generator = torch.Generator(device=flat.device).manual_seed(derive_seed(seed, kind, len(done)))
            if bounded:
                fill_bounded(flat, kind, generator)
            else:
                fill(flat, kind, generator, constants)
                if kind == "special" and subnormals:
                    _meet_subnormals(flat, derive_seed(seed, kind, "subnormals"), len(done))
                if kind == "signed":
                    _shrink_samples(tensor, generator)
        return tensor

    return tree_map_only(torch.Tensor, refill, inputs)


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The dense one-dimensional tensor over all memory that `tensor` reaches: expanded and overlapping views stay
    consistent.
    """
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((extent,), (1,), tensor.storage_offset())


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    """float32 for all that is narrower: the 8-bit floats have neither arithmetic nor promotion of their own."""
    return dtype if dtype == torch.float64 else torch.float32


def _in_chunks(flat: torch.Tensor, write: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        part.copy_(write(torch.empty(part.shape, dtype=_computed_in(flat.dtype), device=flat.device)))


def fill(flat: torch.Tensor, kind: str, generator: torch.Generator, constants: tuple[float, ...] = ()) -> None:
    """Refill a dense floating tensor. "signed": normal with the old root mean square; "wide": magnitudes over 12
    decades (4 in 16-bit floats of small range), either sign; "constant": one power of two, so that sums of it are
    exact; "special": normal, with signed zeros, subnormals, infinities, NaN and large values, whose squares can still
    be summed, strewn thinly enough that most rows stay finite, and with `constants`.
    """
    if kind == "signed" or kind == "special":
        scale = _root_mean_square(flat)
        _in_chunks(flat, lambda scratch: scratch.normal_(generator=generator).mul_(scale))
    if kind == "wide":
        octaves = 20.0 if torch.finfo(flat.dtype).max > 1e30 else 6.0

        def wide(scratch: torch.Tensor) -> torch.Tensor:
            scratch.uniform_(-octaves, octaves, generator=generator).exp2_()
            return scratch.mul_(torch.empty_like(scratch).uniform_(-1, 1, generator=generator).sign_())

        _in_chunks(flat, wide)
    if kind == "constant":
        values = (-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 2.0)
        flat.fill_(values[int(torch.randint(len(values), (1,), generator=generator, device=flat.device))])
    if kind == "special":
        _strew(flat, generator, constants)


def _shrink_samples(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Make some samples of a batch small by a power of two, so that what is added to their norm or variance shows.

    Not smaller than that: the softmax of numbers around 10⁻⁶ is uniform in fp32, and where a sum of it reaches 0.9 is
    luck.
    """
    dim = next((index for index, size in enumerate(tensor.shape) if size > 1), 0)
    if tensor.dim() - dim < 2 or tensor.shape[dim] < _SAMPLES_TO_ONE_SMALL:
        return
    if tensor.itemsize == 1 or torch._debug_has_internal_overlap(tensor) != 0:
        return
    size = tensor.shape[dim]
    count = min(size // _SAMPLES_TO_ONE_SMALL, _MOST_SMALL)
    for place in torch.randint(size, (count,), generator=generator, device=tensor.device).unique().tolist():
        tensor.select(dim, place).mul_(2.0**-10 if torch.finfo(tensor.dtype).max > 1e30 else 2.0**-6)


def _strew(flat: torch.Tensor, generator: torch.Generator, constants: tuple[float, ...]) -> None:
    info = torch.finfo(flat.dtype)
    # Sums of thousands of their squares stay finite, in any order; the error figures themselves are doubles.
    largest = min(info.max**0.5, 1e150) / 64
    mild = [0.0, -0.0, info.tiny / 2, -info.tiny / 4, info.smallest_normal]
    harsh = [float("inf"), float("-inf"), float("nan"), largest, -largest]
    count = min(max(flat.numel() // 64, 1), 40)

    def place(values: list[float], below: int) -> None:
        where = torch.randint(below, (count,), generator=generator, device=flat.device)
        strewn = (
            torch.tensor(values, device=flat.device, dtype=torch.float64)
            .to(flat.dtype)
            .repeat(count // len(values) + 1)[:count]
        )
        if flat.itemsize == 1:  # 8-bit floats cannot be indexed
            flat.view(torch.uint8)[where] = strewn.view(torch.uint8)
        else:
            flat[where] = strewn

    place(mild, flat.numel())
    # The second half stays finite: an output that mixes all of its inputs is NaN anyway, any other keeps elements to
    # compare.
    if flat.numel() > 1:
        place(harsh, flat.numel() // 2)
    if flat.itemsize > 1:
        # Rounded, a constant would lie on one side of itself in this precision and on the other in double.
        exact = [value for value in constants if 0 < abs(value) < largest and _is_exact(value, flat.dtype)]
        _place_once(flat, exact, generator)


def _meet_subnormals(flat: torch.Tensor, seed: int, number: int) -> None:
    """Put subnormal numbers at places that follow from the seed and the size alone, other ones for each `number`."""
    if flat.numel() < _LEAST_TO_MEET or flat.itemsize == 1:
        return
    tiny = torch.finfo(flat.dtype).tiny
    values = [tiny / 8, -tiny / 16, tiny / 32, tiny * 3 / 64]
    values = values[number % 4 :] + values[: number % 4]
    generator = torch.Generator(device=flat.device).manual_seed(seed)
    where = torch.randint(flat.numel() // 2, (len(values),), generator=generator, device=flat.device)
    flat[where] = torch.tensor(values, device=flat.device, dtype=torch.float64).to(flat.dtype)


def _is_exact(value: float, dtype: torch.dtype) -> bool:
    return torch.tensor(value, dtype=torch.float64).to(dtype).item() == value


def _place_once(flat: torch.Tensor, values: list[float], generator: torch.Generator) -> None:
    """Put each value at one place of the second half: twice, it would be a tie for whatever orders the elements."""
    half = flat.numel() // 2
    values = values[: half // 4]
    if values:
        spacing = half // len(values)
        first = flat.numel() - half + int(torch.randint(spacing, (1,), generator=generator, device=flat.device))
        given = torch.tensor(values, device=flat.device, dtype=torch.float64)
        flat[first::spacing][: len(values)] = given.to(flat.dtype)


def fill_bounded(flat: torch.Tensor, kind: str, generator: torch.Generator) -> None:
    """As `fill`, within the range of the values that stand there."""
    low, high = _range(flat)
    span = high - low
    write: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "signed": lambda scratch: scratch.uniform_(0, 1, generator=generator).mul_(span).add_(low),
        "wide": lambda scratch: scratch.uniform_(-20, 0, generator=generator).exp2_().mul_(span).add_(low),
        "constant": lambda scratch: scratch.fill_(low + span / 2),
        "special": lambda scratch: scratch.uniform_(-1, 2, generator=generator).clamp_(0, 1).mul_(span).add_(low),
    }
    if kind in write:
        # Rounded to fewer bits, what is within two numbers that these bits hold stays within them.
        _in_chunks(flat, lambda scratch: write[kind](scratch).clamp_(low, high))


def _range(flat: torch.Tensor) -> tuple[float, float]:
    """The smallest and the largest value; 8-bit floats have neither of their own."""
    parts = [part.to(_computed_in(flat.dtype)).aminmax() for part in flat.split(_CHUNK)]
    return min(part.min.item() for part in parts), max(part.max.item() for part in parts)


def _root_mean_square(flat: torch.Tensor) -> float:
    total = 0.0
    for start in range(0, flat.numel(), _CHUNK):
        total += flat[start : start + _CHUNK].to(torch.float64).square_().sum().item()
    value = (total / max(flat.numel(), 1)) ** 0.5
    return value if 1e-6 < value < 1e6 else 1.0


@torch.no_grad()
def redraw_weights(model: torch.nn.Module, seed: int) -> None:
    """Refill the parameters, and the running statistics of norms, with values of the same mean and spread.

    A parameter without spread (the ones and zeros that norms and biases start from) gets some, so that a kernel which
    leaves it out shows. Other buffers are left to buffers.py.
    """
    seen: set[int] = set()
    named = list(model.named_parameters()) + [
        (name, tensor)
        for name, tensor in model.named_buffers()
        if name.rpartition(".")[2] in ("running_mean", "running_var")
    ]
    for name, tensor in named:
        if id(tensor) in seen or tensor.numel() == 0 or not tensor.is_floating_point():
            continue
        seen.add(id(tensor))
        generator = torch.Generator(device=tensor.device).manual_seed(derive_seed(seed, "weights", name))
        if name.endswith("running_var"):
            tensor.copy_(torch.empty_like(tensor, dtype=torch.float32).uniform_(0.5, 1.5, generator=generator))
            continue
        wide = tensor.to(_computed_in(tensor.dtype))
        mean = wide.mean()
        spread = wide.std(correction=0)
        spread = torch.where(
            spread > 1e-6 * mean.abs(), spread, torch.where(mean != 0, 0.2 * mean.abs(), torch.full_like(mean, 0.1))
        )
        tensor.copy_(torch.empty_like(wide).normal_(generator=generator).mul_(spread).add_(mean))


def copy_with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `tensor`, whatever lies between its elements."""
    return whole_storage(tensor).clone().as_strided(tensor.shape, tensor.stride()) if tensor.numel() else tensor.clone()


@torch.no_grad()
def nudge(target: torch.Tensor, original: torch.Tensor, seed: int, step: float, fixed: tuple[float, ...] = ()) -> None:
    """Fill `target` with `original`, every element moved up or down by `step` of itself, but for the numbers in
    `fixed`.
    """
    if target.numel() == 0:
        return
    flat, source = whole_storage(target), whole_storage(original)
    if flat.shape != source.shape:
        target.copy_(original)
        return
    generator = torch.Generator(device=flat.device).manual_seed(seed)
    for start in range(0, flat.numel(), _CHUNK):
        part = source[start : start + _CHUNK]
        noise = torch.empty(part.shape, dtype=_computed_in(part.dtype), device=part.device)
        noise.uniform_(-1, 1, generator=generator).sign_().mul_(step).add_(1)
        if fixed:
            numbers = torch.tensor(fixed, dtype=torch.float64, device=part.device)
            noise.masked_fill_(torch.isin(part.to(torch.float64), numbers), 1.0)
        flat[start : start + _CHUNK].copy_(noise.mul_(part.to(noise.dtype)))
