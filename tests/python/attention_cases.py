"""Attention, as PyTorch's operator and as people write it, and the check of a candidate in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from contraction_cases import Case, fault_of_candidate, transposed
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = torch.Tensor


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1) @ v


def _with_bias_table(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    score = (q @ k.transpose(-2, -1)) / 5.0
    score = score.masked_fill(bias[:, :, : q.shape[-2], : k.shape[-2]] == 0, float("-inf"))
    return torch.softmax(score, dim=-1) @ v


def _by_distance(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    place = torch.arange(q.shape[-2], device=q.device)
    distance = place[:, None] - place[None, :]
    score = q @ k.transpose(-2, -1) - slopes[:, None, None] * distance.to(q.dtype)
    return torch.softmax(torch.where(distance >= 0, score, float("-inf")), dim=-1) @ v


def _near_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    query, key = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    near = (key <= query) & (query - key < 18)
    return torch.softmax((q @ k.mT * 0.3).masked_fill(~near, float("-inf")), dim=-1) @ v


def _near_keys_of_a_table(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    near = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril().triu(-16)
    return torch.softmax(torch.where(near, q @ k.mT, float("-inf")), dim=-1) @ v


def _into_features(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    y = F.scaled_dot_product_attention(q, k, v) * 2.0
    return y.transpose(1, 2).contiguous().view(q.shape[0], q.shape[2], -1)


def _in_single(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1, dtype=torch.float32)
    return weights.to(q.dtype) @ v


def _three(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(F.softmax(torch.bmm(q, k), dim=-1), v)


def _kept(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """A dropout whose draw is given."""
    weights = torch.softmax(q @ k.mT * 0.2, dim=-1)
    return (weights * keep.to(weights.dtype) * (1.0 / 0.7)) @ v


def _masked_behind(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Weights that are masked twice: keys that a row keeps do not add up to 1."""
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    weights = torch.softmax((q @ k.mT).masked_fill(later, float("-inf")), dim=-1)
    return weights.masked_fill(~keep, 0.0).masked_fill(later, 0.0) / 0.25 @ v


def _kept_in_single(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT, dim=-1, dtype=torch.float32)
    return (torch.where(keep, weights, 0.0) * 1.25).to(q.dtype) @ v


def _kept_of_shared_keys(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    repeats = q.shape[1] // k.shape[1]
    return _kept(q, k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1), keep)


def _relu(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.relu(q @ k.transpose(-2, -1) * 0.25) @ v


def _relu_of_some(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    score = (q @ k.transpose(-2, -1)).masked_fill(bias[:, :, : q.shape[-2], : k.shape[-2]] == 0, float("-inf"))
    return (F.relu(score) @ v).transpose(1, 2).contiguous()


def _decaying(q: Tensor, k: Tensor, v: Tensor, sums: Tensor) -> Tensor:
    """The part of a state-space model (Mamba-2) within one block."""
    place = torch.arange(q.shape[-2], device=q.device)
    since = (sums[..., :, None] - sums[..., None, :]).masked_fill(place[:, None] < place[None, :], float("-inf"))
    return (q @ k.mT * torch.exp(since)) @ v


def _two_layers(x: Tensor, wide: Tensor, narrow: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, wide, first)), narrow, second)


def _biased(x: Tensor, wide: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return torch.softmax(F.linear(x, wide, bias), dim=-1) @ v


def _added(q: Tensor, k: Tensor, v: Tensor, before: Tensor, after: Tensor) -> Tensor:
    weights = torch.softmax(torch.baddbmm(before, q, k, beta=0.5, alpha=0.3), dim=-1)
    return torch.baddbmm(after, weights, v, beta=-1.0, alpha=2.0)


def _with_repeated_heads(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    repeats = q.shape[1] // k.shape[1]
    return _with_bias_table(q, k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1), bias)


def _with_expanded_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, heads, length, features = q.shape

    def repeated(x: Tensor) -> Tensor:
        shared = (batch, x.shape[1], heads // x.shape[1], x.shape[2], x.shape[3])
        return x[:, :, None].expand(shared).reshape(batch, heads, x.shape[2], x.shape[3])

    return by_hand(q, repeated(k), repeated(v)).transpose(1, 2).reshape(batch, length, -1)


def _lower(drawn: list[Tensor]) -> list[Tensor]:
    """The last argument is a table of ones up to the diagonal."""
    return [*drawn[:3], torch.ones_like(drawn[3]).tril()]


def _some(drawn: list[Tensor]) -> list[Tensor]:
    """The last argument says which keys count; the second batch's third query has none."""
    mask = drawn[3] > 0
    mask[1, 0, 2] = False
    return [*drawn[:3], mask]


def _kept_by_chance(drawn: list[Tensor]) -> list[Tensor]:
    """The last argument says which weights are kept: of the first row none, of the second all."""
    keep = drawn[3] > -0.5
    keep[0, 0, :1], keep[0, 0, 1:2] = False, True
    return [*drawn[:3], keep]


def _keys_of_each(drawn: list[Tensor]) -> list[Tensor]:
    """The last argument says which keys count, those up to another place in each batch."""
    keys = torch.arange(drawn[3].shape[-1])
    return [*drawn[:3], (keys < torch.tensor([[[[100]]], [[[37]]]])).expand(drawn[3].shape).contiguous()]


def _lowest_beyond(drawn: list[Tensor]) -> list[Tensor]:
    *others, mask = _keys_of_each(drawn)
    return [*others, torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))]


HEADS = ((2, 3, 40, 24), (2, 3, 56, 24), (2, 3, 56, 20))
SQUARE = ((2, 3, 48, 16), (2, 3, 48, 16), (2, 3, 48, 16))


DECODED = ((2, 3, 130, 24), (2, 3, 130, 20))
DECODING = ((2, 6, 1, 24), *DECODED)


def operator(**options: Any) -> Any:
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options)


# An exponential makes an error of a score, which has a last place of its own size, one of a weight; and where one
# column of values is larger than all others, a row's largest is a sum that may cancel.
PLACES = 256


CASES = [
    Case("by_hand", by_hand, HEADS),
    Case("in_columns", by_hand, HEADS, arrange=transposed(0, 1, 2)),
    Case("three_dimensions", _three, ((3, 40, 24), (3, 24, 56), (3, 56, 20))),
    Case("one_query", by_hand, ((2, 3, 1, 24), (2, 3, 130, 24), (2, 3, 130, 24))),
    Case("one_key", by_hand, ((2, 3, 20, 24), (2, 3, 1, 24), (2, 3, 1, 24))),
    Case("one_feature", by_hand, ((2, 3, 20, 1), (2, 3, 30, 1), (2, 3, 30, 1))),
    Case("bias_table", _with_bias_table, (*SQUARE, (1, 1, 64, 64)), arrange=_lower),
    Case("by_distance", _by_distance, (*SQUARE, (3,))),
    # Too few features for numbers that are not finite, which masked keys would spread in eager.
    Case("near_keys", _near_keys, ((2, 3, 80, 8), (2, 3, 80, 8), (2, 3, 80, 8))),
    Case("near_keys_of_a_table", _near_keys_of_a_table, ((2, 3, 80, 8), (2, 3, 80, 8), (2, 3, 80, 8))),
    Case("operator", operator(), HEADS),
    Case("operator_of_three", operator(), ((3, 40, 24), (3, 56, 24), (3, 56, 20))),
    Case("into_features", _into_features, HEADS),
    Case("causal", operator(is_causal=True), HEADS),
    Case("causal_square", operator(is_causal=True, scale=0.5), SQUARE),
    Case("some_keys", operator(), (*HEADS, (2, 1, 40, 56)), arrange=_some),
    Case("added_mask", operator(), (*HEADS, (3, 40, 56))),
    Case("one_mask_of_keys", operator(), (*HEADS, (1, 56))),
    Case(
        "shared_keys",
        operator(enable_gqa=True, is_causal=True),
        ((2, 6, 48, 16), (2, 3, 48, 16), (2, 3, 48, 16)),
    ),
    Case(
        "repeated_heads",
        _with_repeated_heads,
        ((2, 6, 48, 16), (2, 2, 48, 16), (2, 2, 48, 20), (1, 1, 64, 64)),
        arrange=_lower,
    ),
    Case("expanded_heads", _with_expanded_heads, ((2, 6, 40, 24), (2, 3, 56, 24), (2, 3, 56, 24))),
    Case(
        "expanded_heads_in_halves",
        _with_expanded_heads,
        ((2, 6, 40, 24), (2, 3, 56, 24), (2, 3, 56, 24)),
        dtype=torch.float16,
        arrange=transposed(1, 2),
    ),
    Case("decoding", operator(), ((2, 3, 1, 24), (2, 3, 130, 24), (2, 3, 130, 20))),
    Case("decoding_for_shared_keys", operator(enable_gqa=True), DECODING),
    Case("decoding_up_to_a_key", operator(enable_gqa=True), (*DECODING, (2, 1, 1, 130)), arrange=_keys_of_each),
    Case("added_beyond_a_key", operator(), (*HEADS[:1], *DECODED, (2, 1, 40, 130)), arrange=_lowest_beyond),
    Case("decoding_in_halves", operator(enable_gqa=True), DECODING, dtype=torch.float16),
    # In tiles of 256 features, of values of which sums are tiles of 128 or 256.
    Case("wide_heads", by_hand, ((1, 2, 5, 272), (1, 2, 70, 272), (1, 2, 70, 520))),
    Case("wide_shared_heads", operator(enable_gqa=True), ((1, 6, 1, 328), (1, 2, 70, 328), (1, 2, 70, 256))),
    Case(
        "wide_heads_in_halves",
        operator(enable_gqa=True),
        ((1, 20, 1, 576), (1, 1, 70, 576), (1, 1, 70, 512)),
        dtype=torch.float16,
    ),
    Case("values_of_256", operator(), ((1, 3, 20, 24), (1, 3, 40, 24), (1, 3, 40, 256))),
    Case("halves", operator(), HEADS, dtype=torch.float16),
    Case("bfloat16", by_hand, HEADS, dtype=torch.bfloat16),
    Case("bfloat16_causal", operator(is_causal=True), SQUARE, dtype=torch.bfloat16),
    Case("softmax_in_single", _in_single, HEADS, dtype=torch.float16),
    Case("kept", _kept, (*HEADS, (2, 3, 40, 56)), arrange=_kept_by_chance),
    Case("kept_in_halves", _kept, (*HEADS, (2, 3, 40, 56)), dtype=torch.float16, arrange=_kept_by_chance),
    Case("kept_in_single", _kept_in_single, (*HEADS, (2, 3, 40, 56)), dtype=torch.bfloat16, arrange=_kept_by_chance),
    Case("masked_behind", _masked_behind, (*((2, 3, 80, 8),) * 3, (2, 3, 80, 80)), arrange=_kept_by_chance),
    Case("kept_of_shared_keys", _kept_of_shared_keys, (*DECODING, (2, 6, 1, 130)), arrange=_kept_by_chance),
    Case("biased", _biased, ((70, 24), (56, 24), (56, 20), (56,))),
    Case("added", _added, ((3, 40, 24), (3, 24, 56), (3, 56, 20), (40, 56), (3, 40, 20))),
    Case("relu", _relu, HEADS),
    Case("relu_of_some", _relu_of_some, (*SQUARE, (1, 1, 64, 64)), arrange=_lower),
    Case("relu_bfloat16", _relu, HEADS, dtype=torch.bfloat16),
    Case("decaying", _decaying, (*SQUARE, (2, 3, 48))),
    Case("two_layers", _two_layers, ((70, 24), (56, 24), (20, 56), (56,), (20,))),
    Case("two_layers_in_half", _two_layers, ((2, 35, 24), (56, 24), (20, 56), (56,), (20,)), dtype=torch.float16),
]


def strewn(arguments: list[Tensor]) -> list[Tensor]:
    """Heads of every magnitude, of zeros, subnormals, infinities and NaN, of numbers that halves do not hold."""
    q, k, v = (one.clone() for one in arguments[:3])
    if q.dtype != torch.float32 or min(q.dim(), k.dim(), v.dim()) < 3 or min(*q.shape[-2:], *k.shape[-2:]) < 12:
        return arguments
    heads = [one.flatten(0, -3) for one in (q, k, v)]
    for row, scale in enumerate((2.0**-100, 2.0**-130, 0.0, 1e-45)):
        heads[0][0, row] *= scale
    heads[0][0, 7] *= 2.0**22  # scores whose last places are whole numbers
    heads[2][0, :, 1] *= 2.0**100
    heads[2][0, :, 2] *= 2.0**-130
    heads[0][0, 5, 3], heads[0][0, 6, 4] = float("inf"), float("nan")
    heads[1][1, 0, 5] = float("inf")  # of keys to which every query attends
    heads[2][2, 0, 6] = float("nan")
    heads[2][2, 0, 3] = float("-inf")
    heads[2][2, 5, 4] = 2.0**58  # far larger than the rest of its column
    return [*(one.reshape(old.shape) for one, old in zip(heads, arguments)), *arguments[3:]]


def interpreted(request: dict[str, Any]) -> str:
    with sdpa_kernel(SDPBackend.MATH):  # others leave out blocks of keys, with what NaN they hold
        return fault_of_candidate(request, CASES, strewn, PLACES)
