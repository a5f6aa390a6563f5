"""Kernels whose operands the bulk copy engine reads, called with tensors that begin where it cannot."""

from __future__ import annotations

from typing import Any

import torch
from case_checks import load
from contraction_cases import Case, fault_of

Tensor = torch.Tensor


def moved(tensor: Tensor, start: int = 1) -> Tensor:
    """A copy that begins `start` elements behind an address that 16 divides, with numbers around it that show."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = torch.full((start + extent + 8,), 1e4, dtype=tensor.dtype, device=tensor.device)
    place = memory.as_strided(tensor.shape, tensor.stride(), start)
    return place.copy_(tensor)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * 0.25, -1) @ v


def _packed(x: Tensor) -> Tensor:
    """Queries, keys and values side by side in one tensor, of which the second and third begin further on."""
    q, k, v = x.chunk(3, -1)
    return _attention(q, k, v)


BLOCKS = {"block_m": 16, "block_n": 16, "stages": 2, "num_warps": 4}
PRODUCT = BLOCKS | {"block_k": 16}

# Each with the scheduler of its one group and parameters. Of these the engine reads what the kernels of attention do.
CASES = {
    case.name: (case, scheduler, parameters)
    for case, scheduler, parameters in (
        (Case("attention", _attention, ((2, 32, 16),) * 3, torch.float16), "attention", BLOCKS),
        (Case("packed", _packed, ((2, 32, 48),), torch.bfloat16), "attention", BLOCKS),
        (Case("halves", lambda x, w: torch.relu(x @ w), ((40, 32), (32, 24)), torch.float16), "contraction", PRODUCT),
        (Case("streamed", torch.mm, ((16, 64), (64, 32))), "contraction", PRODUCT | {"scheme": 2}),
    )
}


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: a candidate's results on tensors that begin at each of several places."""
    case, _, _ = CASES[request["case"]]
    with open(request["candidate"]) as file:
        candidate = load(file.read())
    ours, arguments = candidate.ModelNew(torch.nn.Module()), case.arguments()
    with torch.no_grad():
        eager, exact = case.function(*arguments), case.function(*(one.double() for one in arguments))
        for starts in request["starts"]:
            given = [moved(one, start) for one, start in zip(arguments, starts)]
            reason = candidate.why_not(torch.nn.Module(), given)
            fault = reason or fault_of(ours(*given), eager, exact)
            if fault:
                return f"beginning at {starts}: {fault}"
    return ""
