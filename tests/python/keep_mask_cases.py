"""PyTorch's random stream on a GPU, as its kernels walk it, in plain Python: what the masks of emitted candidates are
held against.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.running import problem

THREADS = 512  # of the device that the tests pretend to have
_WORD = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 (Salmon et al. 2011)."""
    for _ in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = ((right >> 32) ^ counter[1] ^ key[0], right & _WORD, (left >> 32) ^ counter[3] ^ key[1], left & _WORD)
        key = ((key[0] + 0x9E3779B9) & _WORD, (key[1] + 0xBB67AE85) & _WORD)
    return counter


class Stream:
    """The numbers of one thread, from `offset` on."""

    def __init__(self, seed: int, thread: int, offset: int) -> None:
        self.key = (seed & _WORD, seed >> 32)
        self.thread = thread
        self.counter = offset // 4

    def four(self) -> list[float]:
        """Uniform over (0, 1], in single precision."""
        drawn = philox((self.counter & _WORD, self.counter >> 32, self.thread, 0), self.key)
        self.counter += 1
        return (torch.tensor(drawn, dtype=torch.int64).float() * 2.0**-32 + 2.0**-33).tolist()


def numbers(elements: int, vector: int, seed: int, offset: int, threads: int) -> torch.Tensor:
    """One for each element, thread by thread."""
    result = torch.full((elements,), float("nan"))
    for thread in range(threads):
        stream = Stream(seed, thread, offset)
        if vector > 1:
            for first in range(thread * vector, elements, threads * vector):
                drawn = [number for _ in range(max(1, vector // 4)) for number in stream.four()]
                result[first : first + vector] = torch.tensor(drawn[:vector])
            continue
        for first in range(thread, elements, threads * 4):
            for place, number in zip(range(first, elements, threads), stream.four()):
                result[place] = number
    assert not result.isnan().any()
    return result


def threads_for(elements: int) -> int:
    return min(THREADS, 256 * ((elements + 255) // 256))


def advance(elements: int) -> int:
    """By how much a draw moves the generator's offset."""
    return ((elements - 1) // (threads_for(elements) * 4) + 1) * 4


def vector_of(elements: int, dtype: torch.dtype) -> int:
    vector = 16 // dtype.itemsize
    while elements % vector:
        vector //= 2
    return vector


class Dropped(nn.Module):
    """Two dropouts and one of whole channels, with work around them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(torch.relu(x), 0.3) + 1.0
        return torch.abs(F.dropout1d(y, 0.25)) - F.dropout(y * 0.5, 0.1)


def expected(x: torch.Tensor, seed: int, offset: int) -> torch.Tensor:
    def drop(value: torch.Tensor, p: float) -> torch.Tensor:
        nonlocal offset
        elements = value.numel()
        kept = (
            numbers(elements, vector_of(elements, value.dtype), seed, offset, threads_for(elements))
            < torch.tensor(1.0 - p).item()
        )
        offset += advance(elements)
        return value * kept.view(value.shape) * (1.0 / (1.0 - p))

    y = drop(torch.relu(x), 0.3) + 1.0
    channels = numbers(x.shape[0] * x.shape[1], 1, seed, offset, threads_for(x.shape[0] * x.shape[1])).view(
        x.shape[0], x.shape[1], 1
    )
    offset += advance(x.shape[0] * x.shape[1])
    whole = y * ((channels < 0.75).float() / 0.75).to(x.dtype)
    return torch.abs(whole) - drop(y * 0.5, 0.1)


def prepare(candidate: types.ModuleType, seed: int, offset: int) -> list[int]:
    """Gives a candidate a device of THREADS threads and a generator; what it returns holds the generator's offset."""
    held = [offset]

    def take_numbers(count: int, device: torch.device) -> tuple[int, int]:
        before = held[0]
        held[0] += count
        return seed - 2**64 if seed >= 2**63 else seed, before // 4

    candidate.threads_of = lambda elements, device: threads_for(elements)
    candidate.take_numbers = take_numbers
    return held


def interpreted(request: dict[str, Any]) -> str:
    """{"candidate": path, "shape", "dtype", "seed", "offset"}, in Triton's interpreter."""
    candidate = problem.load_module(request["candidate"], kind="candidate")[0]
    held = prepare(candidate, request["seed"], request["offset"])
    x = torch.randn(request["shape"], generator=torch.Generator().manual_seed(1)).to(getattr(torch, request["dtype"]))
    with torch.no_grad():
        ours, wanted = candidate.ModelNew(Dropped())(x), expected(x, request["seed"], request["offset"])
    elements = x.numel()
    if held[0] != request["offset"] + 2 * advance(elements) + advance(x.shape[0] * x.shape[1]):
        return f"the generator is left at {held[0]}"
    tolerance = 0.0 if x.dtype is torch.float32 else 0.03
    wrong = ~torch.isclose(ours.float(), wanted.float(), rtol=1e-6 + tolerance, atol=1e-6 + tolerance)
    return f"{int(wrong.sum())} of {elements} elements differ" if wrong.any() else ""
