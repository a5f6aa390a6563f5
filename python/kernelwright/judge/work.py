"""What kind of work a forward does, where rules of the contract depend on it (docs/contract.md)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

# Operators that copy elements and compute none; views are recognised by themselves.
_MOVING = {
    f"aten::{name}"
    for name in (
        "cat stack clone copy_ _to_copy contiguous _reshape_copy _unsafe_view lift_fresh index_select gather index "
        "embedding take masked_select roll flip rot90 repeat constant_pad_nd reflection_pad1d reflection_pad2d "
        "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle "
        "channel_shuffle im2col tril triu slice_scatter select_scatter diagonal_scatter"
    ).split()
}

# Odd functions that rise through the origin: of −0 they are −0, in C's Annex F, in CUDA's mathematical functions and in
# what torch.compile makes of them. Its atanh and expm1 in C++ answer +0.
_ODD = {f"aten::{name}" for name in "tanh sin asin asinh atan sinh tan erf".split()}

# One rounding each, and of a subnormal result as of any other.
_BASIC = {
    f"aten::{name}"
    for name in "add sub rsub mul neg abs relu maximum minimum clamp clamp_min clamp_max threshold where".split()
}

# Means, alone or beside a variance: one pass moves them step by step.
_STATISTICS = {
    f"aten::{name}"
    for name in (
        "mean var_mean std_mean native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
        "_native_batch_norm_legit_no_training _batch_norm_with_update cudnn_batch_norm native_layer_norm native_group_norm"
    ).split()
}

# Sums of products, and sums.
_SUMS = {
    f"aten::{name}" for name in "mm bmm addmm baddbmm addbmm mv addmv dot linear convolution cumsum sum mean".split()
}

_MATRICES = {f"aten::{name}" for name in "mm bmm addmm baddbmm addbmm linear".split()}


def keeps_signs_of_zeros(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether each element that a call answers with is one that it was given or a constant, or comes of one by an odd
    function or a positive factor: of −0 that is −0 in any honest kernel.
    """
    if _moves(func) or func._schema.name in _ODD:
        return True
    if func._schema.name not in ("aten::mul", "aten::div") or kwargs:
        return False
    factor = args[1] if len(args) > 1 else None
    return isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 < factor < float("inf")


def keeps_subnormals(calls: Counter) -> bool:
    """Whether every operator that computes rounds once, so that nothing but a flag of the compiler's or the processor's
    flushes its subnormal results.
    """
    return bool(calls) and all(_moves(func) or func._schema.name in _BASIC for func in calls)


def is_one_function(calls: Counter) -> bool:
    """Whether a single function is applied to each element of what forward is given, views and copies aside."""
    computing = [(func, count) for func, count in calls.items() if not _moves(func)]
    return len(computing) == 1 and computing[0][1] == 1 and torch.Tag.pointwise in computing[0][0].tags


def multiplies_matrices(calls: Counter) -> bool:
    """Whether there are products for which PyTorch may round their operands to TF32."""
    return any(func._schema.name in _MATRICES for func in calls)


def reorders_sums(calls: Counter) -> bool:
    """Whether the same mathematics can be summed in an order in which infinities meet elsewhere: statistics in one
    pass, and sums of sums, as (q k) v = q (k v).
    """
    sums = sum(count for func, count in calls.items() if func._schema.name in _SUMS)
    return sums > 1 or any(func._schema.name in _STATISTICS for func in calls)


_PRODUCTS = {
    f"aten::{name}": place
    for name, place in (("mm", 0), ("bmm", 0), ("mv", 0), ("dot", 0), ("addmm", 1), ("baddbmm", 1))
}


def summands(func: torch._ops.OpOverload, args: tuple[Any, ...], result: Any) -> int:
    """How many terms a call of a reduction or of a product of matrices adds up for one element; 1 for others."""
    place = _PRODUCTS.get(func._schema.name)
    if place is not None:
        return args[place].shape[-1]
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if torch.Tag.reduction in func.tags and isinstance(first, torch.Tensor) and isinstance(args[0], torch.Tensor):
        return args[0].numel() // max(1, first.numel())
    return 1


def _moves(func: torch._ops.OpOverload) -> bool:
    return func.is_view or func._schema.name in _MOVING
