"""Indices that PyTorch refuses, for every operator that looks something up: shared by the tests and by the
interpreter's process.
"""

from __future__ import annotations

import re
from typing import Any, Callable

import torch
import torch.nn.functional as F
from movement_cases import Wrapped

from kernelwright.running import problem

Tensor = torch.Tensor

# Functions of x [rows, 4] and one index, 0 being a good one; the bad index with 5 rows and with 1.
CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "embedding": (lambda x, i: F.embedding(i, x), 5),
    "negative embedding": (lambda x, i: F.embedding(i, x), -1),
    "index_select": (lambda x, i: torch.index_select(x, 0, i), 5),
    "gather": (lambda x, i: torch.gather(x, 0, i[:, None]), 5),
    "index": (lambda x, i: x[i], 5),
    "negative index": (lambda x, i: x[i], -6),
    "bag": (lambda x, i: F.embedding_bag(i.repeat(2), x, i.new_zeros(1)), 5),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(1, 4, device=x.device)), 5),
    "negative index_add": (lambda x, i: x.index_add(0, i, torch.ones(1, 4, device=x.device)), -1),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 1.0), 5),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None], torch.ones(1, 1, device=x.device)), -1),
    "index_put": (lambda x, i: x.index_put((i,), torch.ones(4, device=x.device)), 5),
    "negative index_put": (lambda x, i: x.index_put((i,), torch.ones(4, device=x.device)), -6),
    "nll_loss": (lambda x, i: F.nll_loss(x.T, i.repeat(4)), 5),
    "cross_entropy": (lambda x, i: F.cross_entropy(x.T, i.repeat(4)), 5),
    "negative cross_entropy": (lambda x, i: F.cross_entropy(x.T, i.repeat(4), reduction="none"), -1),
    "smoothed cross_entropy": (lambda x, i: F.cross_entropy(x.T, i.repeat(4), label_smoothing=0.1), 5),
    "weighted cross_entropy": (lambda x, i: F.cross_entropy(x.T, i.repeat(4), weight=x[:, 0].abs() + 1), 5),
    "cross_entropy of a picture": (lambda x, i: F.cross_entropy(x[None], i.repeat(1, 4)), 5),
    "cross_entropy of one": (lambda x, i: F.cross_entropy(x[:, 0], i[0]), 5),
}  # fmt: skip


def inputs(rows: int, index: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows)), torch.tensor([index])


def message(index: int, rows: int) -> str:
    """A pattern of what an IndexError says."""
    return rf"index .*{index}\b.* is out of range for a dimension of size {rows}\b"


def interpreted(request: dict[str, Any]) -> str:
    """{"case", "rows", "candidate": path}: the call that meets a bad index goes on, the next one raises, and the one
    after that is right.
    """
    function, wrong = CASES[request["case"]]
    rows = request["rows"]
    module = problem.load_module(request["candidate"], kind="candidate")[0].ModelNew(Wrapped(function))
    good = inputs(rows, 0)
    with torch.no_grad():
        expected = function(*good)
        if not torch.allclose(module(*good), expected):
            return "a good index gives another result"
        module(*inputs(rows, wrong))
        try:
            module(*good)
        except IndexError as error:
            if not re.search(message(wrong, rows), str(error)):
                return f"it says {error}"
        else:
            return "the bad index was not noticed"
        return "" if torch.allclose(module(*good), expected) else "a good index gives another result after a bad one"
