"""Random programs of pointwise operators, views, reductions and norms: planned, evaluated, compared with eager.
KW_FUZZ=400 runs more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

from test_plan_semantics import check, randn

Tensor = torch.Tensor
Step = Callable[[list[Tensor]], Any]


def _step(rng: random.Random, values: list[Tensor]) -> tuple[Step, Tensor] | None:
    """One random operation on what there is, as a function of the list of values, with its result."""
    at = rng.randrange(len(values))
    x = values[at]
    rank = x.dim()
    dim = rng.randrange(rank) if rank else 0
    kind = rng.choice(
        ["unary", "unary", "binary", "binary", "reduce", "norm", "view", "view", "cat", "pad", "normalise"]
    )
    if kind == "unary":
        function = rng.choice(
            [
                torch.relu,
                torch.sigmoid,
                torch.tanh,
                F.gelu,
                F.silu,
                torch.abs,
                torch.neg,
                lambda t: t * 0.5 + 1,
                lambda t: t.clamp(-1, 1),
            ]
        )
        step: Step = lambda v: function(v[at])
    elif kind == "binary":
        others = [i for i, y in enumerate(values) if _broadcasts(x, y)] or [at]
        other = rng.choice(others)
        function = rng.choice(
            [torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 2)]
        )
        step = lambda v: function(v[at], v[other])
    elif rank == 0:
        return None
    elif kind == "reduce":
        keep = rng.random() < 0.5
        function = rng.choice([torch.sum, torch.mean, torch.amax, torch.amin, torch.logsumexp])
        step = lambda v: function(v[at], dim, keepdim=keep)
    elif kind == "norm":
        step = rng.choice(
            [
                lambda v: torch.softmax(v[at], dim),
                lambda v: F.layer_norm(v[at], v[at].shape[-1:]),
                lambda v: torch.log_softmax(v[at], dim),
            ]
        )
    elif kind == "normalise":
        step = lambda v: (
            (v[at] - v[at].mean(dim, keepdim=True)) / (v[at].var(dim, keepdim=True, correction=0) + 1.0).sqrt()
        )
    elif kind == "view":
        other = rng.randrange(rank)
        choices: list[Step] = [
            lambda v: v[at].transpose(dim, other),
            lambda v: v[at].unsqueeze(dim),
            lambda v: v[at].flatten(),
            lambda v: v[at].flip(dim),
        ]
        if x.shape[dim] > 2:
            choices += [lambda v: v[at].narrow(dim, 1, v[at].shape[dim] - 1), lambda v: v[at].select(dim, 1)]
        if x.shape[dim] % 2 == 0:
            choices += [lambda v: v[at].unflatten(dim, (2, -1)), lambda v: v[at].chunk(2, dim)[1]]
        step = rng.choice(choices)
    elif kind == "cat":
        same = [i for i, y in enumerate(values) if y.shape == x.shape]
        other = rng.choice(same)
        step = lambda v: torch.cat([v[at], v[other]], dim)
    else:
        step = lambda v: F.pad(v[at], (1, 2), value=0.5)
    result = step(values)
    return (step, result) if 0 < result.numel() <= 6000 and result.dim() <= 5 else None


def _broadcasts(a: Tensor, b: Tensor) -> bool:
    try:
        return len(torch.broadcast_shapes(a.shape, b.shape)) <= 4
    except RuntimeError:
        return False


def program(seed: int) -> tuple[Callable[..., Any], list[Tensor]]:
    rng = random.Random(seed)
    shape = [rng.choice([1, 2, 3, 4, 6, 8, 12]) for _ in range(rng.randint(1, 4))]
    inputs = [randn(*shape), randn(*shape[-1:]), randn(*shape).transpose(0, -1).contiguous().transpose(0, -1)]
    values, steps = list(inputs), []
    while len(steps) < rng.randint(3, 14):
        made = _step(rng, values)
        if made is None:
            continue
        steps.append(made[0])
        values.append(made[1])
    wanted = sorted({len(values) - 1, *(rng.randrange(len(inputs), len(values)) for _ in range(rng.randint(0, 2)))})

    def function(*arguments: Tensor) -> Any:
        current = list(arguments)
        for step in steps:
            current.append(step(current))
        return [current[i] for i in wanted]

    return function, inputs


@pytest.mark.parametrize("seed", range(int(os.environ.get("KW_FUZZ", "40"))))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    function, inputs = program(seed)
    check(function, *inputs, tmp_path=tmp_path)
