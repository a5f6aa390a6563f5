"""Linear attention as people write it, and the check of a candidate in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from contraction_cases import Case, fault_of_candidate

Tensor = torch.Tensor


def positive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Katharopoulos et al. 2020."""
    q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
    weight = (q * k.sum(dim=2, keepdim=True)).sum(dim=-1, keepdim=True)
    return (q @ (k.transpose(-1, -2) @ v)) / (weight + 1e-6)


def _clamped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = torch.relu(q), torch.relu(k)
    summary = torch.einsum("bhnd,bhne->bhde", k, v)
    return torch.einsum("bhnd,bhde->bhne", q, summary) / (q @ k.sum(-2).unsqueeze(-1)).clamp(min=1e-3)


def _heads_inside(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(batch, length, heads, features), in the einsums of the authors' own code."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    summary = torch.einsum("nshd,nshm->nhmd", k, v)
    share = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(dim=1)) + 1e-6)
    return torch.einsum("nlhd,nhmd,nlh->nlhm", q, summary, share).contiguous()


def _views(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    q, k = torch.exp(q.clamp(max=3)), torch.exp(k.clamp(max=3))
    weight = (q * k.sum(dim=-2, keepdim=True)).sum(-1, keepdim=True)
    return (q @ (k.mT @ v)) / weight


def _unweighted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.relu(q) @ (torch.relu(k).mT @ v) * 0.125


def _masked(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    q, k = torch.sigmoid(q), torch.sigmoid(k) * keep[:, None, :, None].to(k.dtype)
    return (q @ (k.mT @ v)) / ((q * k.sum(2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


def _gated(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    return positive(q, k, v) * torch.sigmoid(gate) + v[:, :, : q.shape[2]]


def _values_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The summary has a row for each feature of the values."""
    q, k = F.softplus(q), F.softplus(k)
    summary = v.mT @ k
    return (q @ summary.mT) / (q @ k.sum(2)[..., None] + 1e-6)


def _keys_as_they_are(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ (k.mT @ v)) / (1 + (q @ k.sum(2)[..., None]).abs())


def _of(name: str, function: Any, rows: int, keys: int, d: int, e: int, *more: tuple[int, ...], **options: Any) -> Case:
    return Case(name, function, ((2, 3, rows, d), (2, 3, keys, d), (2, 3, keys, e), *more), **options)


def _inside(name: str, function: Any, rows: int, keys: int, d: int, e: int, **options: Any) -> Case:
    return Case(name, function, ((2, rows, 3, d), (2, keys, 3, d), (2, keys, 3, e)), **options)


CASES = [
    _of("positive", positive, 64, 96, 32, 32),
    _of("primes", positive, 37, 101, 13, 7),
    _of("one_query", positive, 1, 67, 16, 16),
    _of("clamped", _clamped, 33, 70, 24, 16),
    _inside("heads_inside", _heads_inside, 31, 50, 16, 8),
    _inside("views", _views, 40, 47, 20, 20),
    _of("unweighted", _unweighted, 30, 65, 16, 48),
    _of("masked", _masked, 30, 65, 16, 16, (2, 65), arrange=lambda drawn: [*drawn[:3], drawn[3] > 0]),
    _of("gated", _gated, 30, 65, 16, 16, (2, 3, 30, 16)),
    _of("values_first", _values_first, 30, 65, 16, 24),
    _of("keys_as_they_are", _keys_as_they_are, 30, 65, 16, 24),
    _of("bfloat16", positive, 30, 65, 16, 24, dtype=torch.bfloat16),
    _of("float16", _clamped, 30, 65, 16, 24, dtype=torch.float16),
    Case("no_heads", lambda q, k, v: q.relu() @ (k.relu().mT @ v), ((30, 16), (65, 16), (65, 24))),
]

SMALLEST = [_of("one_key", positive, 5, 1, 8, 8), _of("one_feature", positive, 19, 33, 1, 1)]


def _strewn(arguments: list[Tensor]) -> list[Tensor]:
    """With infinities and NaN here and there, of single heads."""
    made = [one.clone() for one in arguments]
    q, k, v = made[:3]
    for tensor, value in ((q, float("inf")), (k, float("nan")), (v, float("inf")), (k, float("-inf"))):
        flat = tensor.view(-1) if tensor.is_contiguous() else tensor.reshape(-1)
        flat[flat.numel() // (3 if value != value else 5)] = value
    return made


# Of the last place of a row's largest: where keys have either sign, weights and results are sums that cancel.
PLACES = 32


def interpreted(request: dict[str, Any]) -> str:
    return fault_of_candidate(request, [*CASES, *SMALLEST], _strewn, PLACES)
