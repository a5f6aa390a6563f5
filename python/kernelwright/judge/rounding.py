"""Eager with every result of its operators rounded otherwise: how far an output is decided by rounding alone.

Where terms cancel (a divergence between equal distributions, x − mean(x) of equal numbers), eager's own error is luck:
log(1/n) and −log(n) agree in the last place or do not. Moving the inputs does not show it, since the terms still
cancel; moving the terms does.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from .reference import Mode

# Operators whose results are their operands' numbers, unrounded.
_EXACT = {
    "_index_put_impl_", "_local_scalar_dense", "_to_copy", "abs", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "amin", "aminmax", "arange", "bitwise_and",
    "cat", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd", "copy", "copy_", "cummax", "cummin", "diag_embed", "embedding", "empty",
    "empty_like", "empty_strided", "eye", "fill", "fill_", "flip", "fmax", "fmin", "full", "full_like", "gather", "hardtanh", "im2col", "index", "index_put",
    "index_put_", "index_select", "lift_fresh", "lift_fresh_copy", "masked_fill", "masked_fill_", "max", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "maximum", "min", "minimum", "nan_to_num", "neg", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu", "relu_", "repeat", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "roll", "round", "floor", "ceil", "trunc", "scalar_tensor", "scatter", "select_scatter", "sgn", "sign", "slice_scatter", "sort", "stack", "threshold", "topk",
    "tril", "triu", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "where", "zero_", "zeros", "zeros_like",
}  # fmt: skip


class OtherRoundings(Mode):
    """Moves the floating results of every operator that rounds by a unit of their dtype, all elements of one call the
    same way: what rounds alike everywhere does so in one direction, and does not average out. Negative `units` are
    those of the same seed turned round.
    """

    def __init__(self, seed: int, units: float = 1.0) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._units = units

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = func._schema
        is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns)
        if is_view or schema.name.partition("::")[2] in _EXACT or torch.Tag.nondeterministic_seeded in func.tags:
            return result
        units = self._random.choice((-1.0, 1.0)) * self._units

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point() or tensor.itemsize == 1:
                return tensor
            factor = 1.0 + units * torch.finfo(tensor.dtype).eps
            return tensor.mul_(factor) if schema.is_mutable else tensor * factor

        return tree_map_only(torch.Tensor, moved, result)
