"""Products whose operand another kernel makes, and the check of a candidate for one in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from contraction_cases import PLACES_OF_TF32, Case, fault_of_candidate, strewn

Tensor = torch.Tensor


def normed(n: Tensor, weight: Tensor) -> Tensor:
    """By an RMS norm, times numbers of every magnitude: a norm of those would overflow itself."""
    return n * torch.rsqrt(n.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _with_tokens(drawn: list[Tensor]) -> list[Tensor]:
    return [*drawn[:2], (drawn[2].abs() * 40).long() % len(drawn[0])]


def _with_bytes(drawn: list[Tensor]) -> list[Tensor]:
    return [*drawn[:2], (drawn[2] * 40).to(torch.int8)]


def _gated(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    return F.linear(F.silu(g) * x, w)


# Nothing but products reads their left operands, which are stored as halves alone.
ALONE = [
    Case("relu", lambda x, w: F.relu(x) @ w, ((70, 48), (48, 33))),
    Case("gelu_of_batch", lambda x, w: F.linear(F.gelu(x), w), ((3, 20, 40), (24, 40))),
    Case("gate", _gated, ((70, 48), (33, 48), (70, 48))),
    Case("layer_norm", lambda x, w, n: F.linear(F.layer_norm(n, (48,)) * x, w), ((70, 48), (33, 48), (70, 48))),
    Case(
        "rms_norm_queries_keys_values",
        lambda x, q, k, v, n: tuple(F.linear(normed(n, x), w) for w in (q, k, v)),
        ((70, 48), (33, 48), (33, 48), (20, 48), (70, 48)),
    ),
    Case(
        "embedding", lambda t, w, i: F.linear(F.embedding(i, t), w), ((70, 48), (33, 48), (5, 9)), arrange=_with_tokens
    ),
    # Rows of the operand are columns of what makes it.
    Case("transposed", lambda x, w: (x * 0.5).t() @ w, ((64, 2048), (64, 33))),
    # The right operand, whose rows are the product's columns.
    Case(
        "dequantised", lambda x, s, q: F.linear(x, q.float() * s), ((70, 48), (33, 48), (33, 48)), arrange=_with_bytes
    ),
    Case("with_itself", lambda x: F.relu(x) @ F.relu(x).t(), ((40, 48),)),
    # Heads lie side by side in memory, whose rows are batches of the product.
    Case(
        "heads",
        lambda x, w: F.gelu(x).view(24, 2, 32).transpose(0, 1) @ w.view(2, 32, 20),
        ((24, 64), (64, 20)),
    ),
    Case("rotated", lambda x, w: F.linear(torch.cat([-x[:, 24:], x[:, :24]], 1) * 2.0, w), ((70, 48), (33, 48))),
]

# Few rows, whose right operand is split where it is read; and a depth that blocks share out.
STREAMED = Case("streamed", lambda x, w: F.relu(x) @ w, ((16, 64), (64, 200)))
IN_PARTS = Case("in_parts", lambda x, w: F.relu(x) @ w, ((70, 64), (64, 33)))

# Something else reads them: another operator, what follows the product, or the caller.
SHARED = [
    Case("scanned", lambda x, w, n: (F.linear(h := normed(n, x), w), h.cumsum(0)), ((70, 48), (33, 48), (70, 48))),
    Case("added_behind", lambda x, w, n: F.linear(h := normed(n, x), w) + h, ((70, 48), (48, 48), (70, 48))),
    Case("returned", lambda x, w, g: (F.linear(h := F.silu(g) * x, w), h), ((70, 48), (33, 48), (70, 48))),
]

# No kernel that makes them can split them: rows end within a vector of halves, or the product folds other rows than
# the norm.
APART = [
    Case("odd_rows", lambda x, w: F.relu(x) @ w, ((70, 45), (45, 33))),
    Case("across_the_norm", lambda x, w: F.layer_norm(x, (72,)).t() @ w, ((48, 72), (48, 33))),
]


def interpreted(request: dict[str, Any]) -> str:
    """In the interpreter's process: a candidate's results on drawn and on strewn arguments."""
    places = PLACES_OF_TF32 if request.get("tf32") else 4
    return fault_of_candidate(request, [*ALONE, STREAMED, IN_PARTS, *SHARED, *APART], strewn, places)
