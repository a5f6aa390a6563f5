"""Packed sequences while forward is traced, where forward itself says how long they are.

`pack_padded_sequence` keeps the numbers of its lengths, and a layer that is given its result is called once for each
length, with the sequences that have it. So a layer of any kind sees ordinary tensors, and its last states are those of
each sequence's own end.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Iterator, NamedTuple

import torch
from torch.nn.utils import rnn
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from .. import errors
from .call_json import LARGEST_CONSTANT

# A layer is called once for each length of its sequences, and each call has launches of its own.
_MOST_LENGTHS = 16
_PADDED = (
    "Give the layer the padded tensor. In one direction its results up to each sequence's length are the same: leave out the "
    "others with torch.where, and take a last state with torch.gather; or pack outside of this module."
)

LAYERS = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
_MAKERS = (torch.tensor, torch.as_tensor, torch.full, torch.arange)
_CASTS = (torch.Tensor.to, torch.Tensor.long, torch.Tensor.int, torch.Tensor.cpu)


def refused(reason: str, hint: str = _PADDED) -> errors.Error:
    return errors.user_error("packed-sequence", reason, hint=hint)


class Group(NamedTuple):
    """Neighbours among the sorted sequences that have one length."""

    begin: int
    end: int
    length: int


class BatchSizes:
    """What a PackedSequence has as its batch sizes: how many sequences there are at each step, as numbers."""

    device = torch.device("cpu")

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        lengths = [sum(size > row for size in sizes) for row in range(sizes[0])]
        self.groups: list[Group] = []
        for length, rows in itertools.groupby(range(sizes[0]), key=lengths.__getitem__):
            found = list(rows)
            self.groups.append(Group(found[0], found[-1] + 1, length))
        self.lengths = lengths
        self.known: list[tuple[torch.Tensor, list[int | None], list[torch.Tensor]]] = []

    def __getitem__(self, step: int) -> int:
        return self.sizes[step]

    def __len__(self) -> int:
        return len(self.sizes)

    def size(self, dim: int = 0) -> int:
        return len(self.sizes)

    @classmethod
    def __torch_function__(cls, func: Any, *_: Any) -> Any:
        raise refused("forward computes with the batch sizes of a packed sequence.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refused(f"forward takes .{name} of the batch sizes of a packed sequence.")

    def packed(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The packed data of each group's [length, sequences, ...]. Nobody computes it where forward does not read it."""
        pieces, begin = [], 0
        for last in reversed(range(len(self.groups))):
            end = self.groups[last].length
            step = torch.cat([part[begin:end] for part in parts[: last + 1]], 1)
            pieces.append(step.flatten(0, 1))
            begin = end
        data = torch.cat(pieces)
        self.known.append((data, _versions([data, *parts]), parts))
        return data

    def parts(self, data: torch.Tensor) -> list[torch.Tensor]:
        """The opposite of `packed`: what `data` was made of, or, where forward computed it, slices of it."""
        for made, versions, parts in self.known:
            if made is data and None not in versions and versions == _versions([data, *parts]):
                return parts
        pieces: list[torch.Tensor] = []
        row = begin = 0
        for group in reversed(self.groups):
            count = (group.length - begin) * group.end
            pieces.append(data[row : row + count].unflatten(0, (group.length - begin, group.end)))
            row, begin = row + count, group.length
        return [
            torch.cat([piece[:, group.begin : group.end] for piece in pieces[: len(pieces) - place]])
            for place, group in enumerate(self.groups)
        ]


def _versions(tensors: list[torch.Tensor]) -> list[int | None]:
    """How often each was written to; of inference tensors PyTorch does not count it."""
    return [None if tensor.is_inference() else tensor._version for tensor in tensors]


def with_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> Any:
    """`made`, the result of a call in forward, with its numbers beside it where it may be the lengths of sequences."""
    if func in _CASTS:
        if (numbers := _numbers(args[0])) is not None:
            _note(made, numbers)
    elif func in _MAKERS and made.dim() == 1 and made.device.type == "cpu" and made.numel() <= LARGEST_CONSTANT:
        if not any(isinstance(one, torch.Tensor) for one in pytree.tree_leaves((args, kwargs))):
            with no_dispatch():
                _note(made, func(*args, **kwargs).tolist())
    return made


def _note(tensor: torch.Tensor, numbers: list[int]) -> None:
    if all(type(number) is int for number in numbers) and not tensor.is_inference():
        tensor.kw_numbers = (numbers, tensor._version)


def _numbers(tensor: torch.Tensor) -> list[int] | None:
    """The numbers in a tensor that forward made of constants, if it was not written to since."""
    numbers, version = getattr(tensor, "kw_numbers", (None, None))
    return numbers if numbers is not None and tensor._version == version else None


def _lengths(given: Any) -> list[int]:
    if isinstance(given, torch.Tensor):
        if (numbers := _numbers(given)) is not None:
            return numbers
    elif all(type(one) is int for one in given):
        return list(given)
    raise refused(
        "forward packs sequences whose lengths are in a tensor, and how many of them a layer takes at each step is known from their "
        "numbers alone.",
        hint="Give pack_padded_sequence the lengths as a list of numbers, where they are the same at every call. Else: "
        + _PADDED[0].lower()
        + _PADDED[1:],
    )


def pack(
    input: torch.Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> rnn.PackedSequence:
    numbers = _lengths(lengths)
    order = None
    if not enforce_sorted:
        order = sorted(range(len(numbers)), key=lambda row: -numbers[row])
        if order != list(range(len(numbers))):
            input = input.index_select(0 if batch_first else 1, torch.tensor(order, device=input.device))
    padded = input.transpose(0, 1) if batch_first else input
    sizes = _batch_sizes(padded, numbers if order is None else [numbers[row] for row in order])
    if len(sizes.groups) > _MOST_LENGTHS:
        raise refused(
            f"forward packs sequences of {len(sizes.groups)} different lengths. A layer is called once for each, {_MOST_LENGTHS} times at most."
        )
    data = sizes.packed([_part(_part(padded, 0, 0, one.length), 1, one.begin, one.end) for one in sizes.groups])
    if order is None:
        return rnn.PackedSequence(data, sizes)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    there, back = (torch.tensor(places, device=input.device) for places in (order, inverse))
    _note(back, inverse)
    return rnn.PackedSequence(data, sizes, there, back)


def _batch_sizes(padded: torch.Tensor, numbers: list[int]) -> BatchSizes:
    """PyTorch's own, which looks for what is wrong with the lengths too."""
    with no_dispatch():
        steps = torch.empty(*padded.shape[:2], min(1, padded.shape[2:].numel()))
        sizes = torch._pack_padded_sequence(steps, torch.tensor(numbers, dtype=torch.int64), False)[1]
        return BatchSizes(sizes.tolist())


def _part(tensor: torch.Tensor, dim: int, begin: int, end: int) -> torch.Tensor:
    return tensor if (begin, end) == (0, tensor.shape[dim]) else tensor.narrow(dim, begin, end - begin)


def pad(
    sequence: rnn.PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = sequence.batch_sizes
    if not isinstance(sizes, BatchSizes):
        raise refused("forward pads sequences that were packed outside of it.", "Give it the padded tensor.")
    total = len(sizes) if total_length is None else total_length
    if total < len(sizes):
        raise ValueError(f"total_length={total} is less than the length of the longest sequence, {len(sizes)}")
    parts = sizes.parts(sequence.data)
    ends = [[0, 0] * (part.dim() - 1) + [0, total - part.shape[0]] for part in parts]
    pad_one = torch.nn.functional.pad
    padded = [pad_one(part, end, value=padding_value) if any(end) else part for part, end in zip(parts, ends)]
    output = torch.cat(padded, 1) if len(padded) > 1 else padded[0]
    output = output.transpose(0, 1) if batch_first else output
    if sequence.unsorted_indices is None:
        return output, torch.tensor(sizes.lengths)
    output = output.index_select(0 if batch_first else 1, sequence.unsorted_indices)
    if (places := _numbers(sequence.unsorted_indices)) is None:
        raise refused("forward computes the order of packed sequences itself.")
    return output, torch.tensor([sizes.lengths[row] for row in places])


def layer(
    func: Any,
    data: torch.Tensor,
    sizes: BatchSizes,
    hx: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, ...]:
    """A recurrent layer of packed sequences: its packed output and its last states."""
    if train and dropout > 0 and num_layers > 1:
        raise refused(
            "forward gives packed sequences to a recurrent layer with dropout between its layers, which draws in their packed order.",
            hint="Give the layer the padded tensor, set its dropout to 0, or compile the module in evaluation mode.",
        )
    states = hx if func is torch.lstm else (hx,)
    found = []
    for part, one in zip(sizes.parts(data), sizes.groups):
        # cuDNN takes no states with gaps.
        given = tuple(_part(state, 1, one.begin, one.end).contiguous() for state in states)
        own = given if func is torch.lstm else given[0]
        found.append(func(part, own, params, has_biases, num_layers, dropout, train, bidirectional, False))
    outputs, *last = zip(*found)
    return sizes.packed(list(outputs)), *(torch.cat(state, 1) if len(state) > 1 else state[0] for state in last)


# These replace the code of PyTorch's functions, whose globals they see: forward may have imported them by any name.
def _pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):  # type: ignore[no-untyped-def]
    from kernelwright.capture import packed

    return packed.pack(input, lengths, batch_first, enforce_sorted)


def _pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):  # type: ignore[no-untyped-def]
    from kernelwright.capture import packed

    return packed.pad(sequence, batch_first, padding_value, total_length)


@contextlib.contextmanager
def taken_over() -> Iterator[None]:
    """PyTorch's functions are this module's in the body."""
    ours: dict[Any, Any] = {
        rnn.pack_padded_sequence: _pack_padded_sequence,
        rnn.pad_packed_sequence: _pad_packed_sequence,
    }
    codes = {function: function.__code__ for function in ours}
    try:
        for function, own in ours.items():
            function.__code__ = own.__code__
        yield
    finally:
        for function, code in codes.items():
            function.__code__ = code
