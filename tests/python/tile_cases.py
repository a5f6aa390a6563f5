"""Kernels, schedules and tile programs with what PyTorch says they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
from golden_references import products_in_order

HOME = Path(__file__).resolve().parent.parent.parent
KERNELS = HOME / "tests" / "golden" / "kernel"
PROGRAMS = HOME / "tests" / "golden" / "tile"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A kernel's text under schedules, or a tile program's text where there are none."""

    name: str
    make: Callable[[], Tensors]  # every buffer, outputs included
    expect: Callable[[Tensors], Tensors]  # of inputs in double precision
    schedules: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    bound: float = 1e-5  # of the largest element
    on_cpu: bool = True  # a CPU has a form of it
    on_gpu: bool = True  # Triton has one
    waits: bool = False  # its blocks wait for each other

    @property
    def file(self) -> Path:
        return KERNELS / f"{self.name}.kernel" if self.schedules else PROGRAMS / f"{self.name}.tile"


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def _halves(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Each row as a power of two times the sum of two halves."""
    scale = torch.exp2(torch.floor(torch.log2(values.abs().amax(1))))
    scaled = values / scale[:, None]
    high = scaled.half()
    return high, (scaled - high.float()).half(), scale


def _halves_inputs() -> Tensors:
    a_high, a_low, a_scale = _halves(_random(64, 120))
    w_high, w_low, w_scale = _halves(_random(48, 120) / 11)
    made = {"a_high": a_high, "a_low": a_low, "a_scale": a_scale, "w_high": w_high, "w_low": w_low, "w_scale": w_scale}
    return made | {"bias": _random(48), "y": torch.empty(64, 48), "row_sum": torch.zeros(64)}


def _linear_of_halves(t: Tensors) -> Tensors:
    a = (t["a_high"] + t["a_low"]) * t["a_scale"][:, None]
    w = (t["w_high"] + t["w_low"]) * t["w_scale"][:, None]
    y = F.gelu(F.linear(a, w, t["bias"]))
    return {"y": y, "row_sum": y.sum(1)}


def _norm_fp16x3_inputs() -> Tensors:
    w_high, w_low, w_scale = _halves(_random(96, 192) / 14)
    made = {"x": _random(48, 192) * 5, "gain": _random(192), "w_high": w_high, "w_low": w_low, "w_scale": w_scale}
    made["x"][3] = 0.0  # a row without a largest element
    return made | {"bias": _random(96), "y": torch.empty(48, 96), "row_sum": torch.zeros(48)}


def _norm_fp16x3(t: Tensors) -> Tensors:
    w = (t["w_high"] + t["w_low"]) * t["w_scale"][:, None]
    y = F.gelu(F.linear(F.rms_norm(t["x"], (192,), t["gain"], 1e-5), w, t["bias"]))
    return {"y": y, "row_sum": y.sum(1)}


def _norm_inputs(dtype: torch.dtype) -> Tensors:
    made = {"x": (_random(48, 192) * 5).to(dtype), "gain": _random(192), "w": (_random(96, 192) / 14).to(dtype)}
    return made | {"bias": _random(96), "y": torch.empty(48, 96), "row_sum": torch.zeros(48)}


def _norm_linear(t: Tensors) -> Tensors:
    y = F.gelu(F.linear(F.rms_norm(t["x"], (192,), t["gain"], 1e-5), t["w"], t["bias"]))
    return {"y": y, "row_sum": y.sum(1)}


def _shared_rows(t: Tensors) -> Tensors:
    x = t["x"].reshape(3, 300)
    normal = F.layer_norm(x, (300,)).reshape(3, 2, 150) * t["gain"][:, None]
    return {"y": normal.reshape(3, 300).softmax(1).reshape(3, 2, 150), "spread": x.amax(1) - x.amin(1)}


def _again_inputs() -> Tensors:
    made = {"a": _random(48, 40), "w": _random(128, 40), "y": torch.zeros(48, 128)}
    for name, count in {"a": 48, "w": 128}.items():
        made[f"{name}_needs"] = torch.full((count,), -1, dtype=torch.int32)
        made[f"{name}_large"] = torch.randint(20, 41, (count,), dtype=torch.int32)
    made["a_needs"][21] = 30
    made["w_needs"][[0, 127]] = 25
    return made


def _linear_again(t: Tensors) -> Tensors:
    missed = (t["a_needs"][:, None] >= t["w_large"]) | (t["w_needs"] >= t["a_large"][:, None])
    return {"y": torch.where(missed, F.linear(t["a"], t["w"]), 0.0)}


def _corner_inputs() -> Tensors:
    made = {"a": _random(2, 16, 16), "b": _random(16, 16), "narrow": _random(2, 16, 16, dtype=torch.bfloat16)}
    made |= {"y": torch.empty(2, 16, 16), "highest": _random(16), "chosen": torch.empty(2)}
    narrow = {"top": torch.empty(2, 16), "running": torch.empty(2, 16, 16)}
    return made | {name: tensor.bfloat16() for name, tensor in narrow.items()}


def _bag_inputs() -> Tensors:
    start = torch.tensor([0, 3, 3, 20, 21, 29, 40])
    made = {"start": start, "ids": torch.randint(0, 9, (40,)), "table": _random(9, 20)}
    return made | {"total": torch.empty(6, 20), "largest": torch.empty(6, 20)}


def _bags(t: Tensors) -> Tensors:
    bags = [t["table"][t["ids"][start:end]] for start, end in zip(t["start"], t["start"][1:])]
    largest = torch.stack([bag.amax(0) if len(bag) else torch.zeros(20, dtype=bag.dtype) for bag in bags])
    return {"total": torch.stack([bag.sum(0) for bag in bags]), "largest": largest}


def _neighbour_inputs() -> Tensors:
    return {"x": _random(3, 4, 64), "y": torch.empty(3, 4, 32)}


def _neighbours(t: Tensors) -> Tensors:
    x = t["x"].clone()
    x[..., 62:] = 0.0
    fours = x.view(3, 4, 16, 4)
    return {"y": torch.stack([fours[..., :3].amax(-1), fours[..., 1:].amax(-1)], -1).view(3, 4, 32)}


def _scatter(t: Tensors) -> Tensors:
    places = t["token"].long()
    last = t["last"].clone()
    for place, row in zip(places, t["x"]):
        last[place] = row
    return {"sums": t["sums"].index_add(0, places, t["x"] * 2), "last": last}


def _corners(t: Tensors) -> Tensors:
    return {
        "y": t["a"] @ t["b"].T,
        "highest": torch.maximum(t["highest"], t["a"].amax((0, 1))),
        "top": t["narrow"].amax(2),
        "running": t["narrow"].cummin(2).values,
        "chosen": torch.stack([torch.tensor(7.0).double(), t["a"][1].sum()]),
    }


def _linear(t: Tensors) -> Tensors:
    y = F.gelu(F.linear(t["a"], t["w"], t["bias"]))
    return {"y": y, "row_sum": y.sum(1)}


def _attention(t: Tensors) -> Tensors:
    k, v = (t[name].repeat_interleave(2, 0) for name in "kv")
    return {"y": F.scaled_dot_product_attention(t["q"], k, v, is_causal=True, scale=0.25)}


def _lstm(t: Tensors) -> Tensors:
    h, c, rows = t["h0"], t["c0"], []
    for step in t["gates"]:
        i, f, g, o = (step[:, gate] + h @ t["w"][gate].T for gate in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        rows.append(h)
    return {"y": torch.stack(rows)}


def _state_space(t: Tensors) -> Tensors:
    """Step after step: s = exp(decay) · s + b xᵀ, y = c · s."""
    state, rows = torch.zeros(16, 16, dtype=torch.float64), []
    for chunk in range(4):
        for at in range(16):
            state = state * t["decay"][chunk, at].exp() + torch.outer(t["b"][chunk, at], t["x"][chunk, at])
            rows.append(t["c"][chunk, at] @ state)
    return {"y": torch.stack(rows).reshape(4, 16, 16)}


def _sizes(t: Tensors) -> Tensors:
    picked = torch.where(t["ids"][:, None] >= 0, t["table"][t["ids"].clamp(min=0)], 0.5)
    x = t["x"]
    return {"y": x - x.mean(1, keepdim=True) + picked, "total": t["total"] + x.sum()}


def _sized(rows: int, columns: int) -> Tensors:
    ids = torch.randint(-2, 5, (rows,))
    made = {"x": _random(rows, columns), "ids": ids, "table": _random(5, columns)}
    return made | {"y": torch.empty(rows, columns), "total": torch.zeros(1)}


def _ties(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(-9, 9, (rows, columns)) / 2


def _running(t: Tensors) -> Tensors:
    largest, at = t["x"].cummax(1)
    return {"sums": t["x"].cumsum(1), "largest": largest, "largest_at": at, "log_sums": t["x"].logcumsumexp(1)}


def _in_order(t: Tensors) -> Tensors:
    largest, at = t["x"].sort(dim=1, descending=True, stable=True)
    return {"top": largest[:, :5], "top_at": at[:, :5], "ascending": t["x"].sort(1).values}


# Three blocks of rows in groups of two, and blocks that are not full.
NORMS = (
    '{"m":{"grid":16},"n":{"grid":32},"k":{"loop":64,"stages":2},"order":{"grouped":"m","along":"n","count":2}}',
    '{"m":{"grid":32},"n":{"grid":64},"k":{"loop":128},"warps":8}',
)

CASES = [
    Case(
        "running",
        lambda: {
            "x": _ties(6, 150),
            "sums": torch.empty(6, 150),
            "largest": torch.empty(6, 150),
            "largest_at": torch.empty(6, 150, dtype=torch.int32),
            "log_sums": torch.empty(6, 150),
        },
        _running,
        (
            '{"row":{"grid":1},"column":{"loop":32}}',
            # Of several elements a thread, Triton's compiler takes a carried sum that nothing reads behind the loop for
            # one it may fold there, and fails (OptimizeThreadLocality); where dimensions stay, as in what schedulers
            # make, it does not.
            '{"row":{"grid":4},"column":{"loop":16}}',
            '{"row":{"grid":4},"column":{"loop":1}}',
            '{"row":{"grid":2},"column":{"tile":256}}',
        ),
        on_cpu=False,
    ),
    Case(
        "products",
        lambda: {"x": torch.rand(6, 256) * 2 + 0.01, "y": torch.empty(6, 256)},
        lambda t: {"y": products_in_order(t["x"].float(), 32)},
        (
            '{"row":{"grid":4},"column":{"loop":32,"network":true,"prefetch":4}}',
            '{"row":{"grid":1},"column":{"loop":32,"network":true}}',
        ),
        bound=0.0,
        on_cpu=False,
    ),
    Case(
        "in_order",
        lambda: {
            "x": _ties(6, 150),
            "top": torch.empty(6, 5),
            "top_at": torch.empty(6, 5, dtype=torch.int32),
            "ascending": torch.empty(6, 150),
        },
        _in_order,
        ('{"row":{"grid":4},"column":{"tile":256}}', '{"row":{"grid":1},"column":{"tile":256}}'),
        on_cpu=False,
    ),
    Case(
        "shared_rows",
        lambda: {
            "x": _random(3, 2, 150) + 2,
            "gain": _random(2) * 3,
            "y": torch.empty(3, 2, 150),
            "spread": torch.empty(3),
        },
        _shared_rows,
        (
            '{"row":{"grid":1},"plane":{"grid":1,"cooperative":true},"column":{"grid":64,"cooperative":true}}',
            '{"row":{"grid":2},"plane":{"grid":2,"cooperative":true},"column":{"grid":32,"cooperative":true}}',
            '{"row":{"grid":1},"plane":{"grid":1,"cooperative":true},"column":{"grid":16,"cooperative":true},"warps":1}',
        ),
        on_cpu=False,
        waits=True,
    ),
    Case(
        "rms_norm",
        lambda: {"x": _random(12, 40), "weight": _random(40), "y": torch.empty(12, 40)},
        lambda t: {"y": F.rms_norm(t["x"], (40,), t["weight"], 1e-5)},
        ('{"row":{"grid":4},"column":{"tile":64}}', '{"row":{"grid":2},"column":{"loop":16}}'),
    ),
    Case(
        "softmax",
        lambda: {"x": _random(6, 150) * 3, "y": torch.empty(6, 150)},
        lambda t: {"y": t["x"].softmax(1)},
        (
            '{"row":{"grid":1},"column":{"loop":64,"online":true}}',
            '{"row":{"grid":2},"column":{"loop":32}}',
            '{"row":{"grid":2},"column":{"tile":256}}',
        ),
    ),
    Case(
        "linear_gelu",
        lambda: {
            "a": _random(40, 72),
            "w": _random(24, 72) / 8,
            "bias": _random(24),
            "y": torch.empty(40, 24),
            "row_sum": torch.empty(40),
        },
        _linear,
        (
            '{"m":{"grid":16},"n":{"tile":32},"k":{"loop":32,"stages":3},"warps":8}',
            '{"m":{"grid":16},"n":{"tile":32},"k":{"loop":32,"stages":3},"scheme":"fp16x3"}',
        ),
    ),
    Case(
        "attention",
        lambda: {
            "q": _random(4, 48, 16, dtype=torch.bfloat16),
            "k": _random(2, 48, 16, dtype=torch.bfloat16),
            "v": _random(2, 48, 16, dtype=torch.bfloat16),
            "y": torch.empty(4, 48, 16),
        },
        _attention,
        (
            '{"head":{"grid":1},"query":{"grid":16},"key":{"loop":16,"online":true,"stages":2},'
            '"feature":{"tile":16},"value":{"tile":16}}',
            '{"head":{"grid":1},"query":{"grid":32},"key":{"tile":64},"feature":{"tile":16},"value":{"tile":16}}',
            '{"head":{"grid":1},"query":{"grid":32},"key":{"loop":32,"online":true,"stages":2},'
            '"feature":{"tile":16},"value":{"tile":16},"bulk":true}',
            '{"head":{"grid":1},"query":{"grid":32},"key":{"loop":16,"online":true},'
            '"feature":{"tile":16},"value":{"tile":16},"bulk_stores":true}',
            '{"head":{"grid":1},"query":{"grid":16},"key":{"loop":16,"online":true,"bounded":true},'
            '"feature":{"tile":16},"value":{"tile":16}}',
            '{"head":{"grid":1},"query":{"grid":16},"key":{"loop":32,"bounded":true},'
            '"feature":{"tile":16},"value":{"tile":16}}',
        ),
        bound=8e-3,  # the weights are rounded to bfloat16 before the second product
    ),
    Case(
        "lstm",
        lambda: {
            "gates": _random(7, 5, 4, 16),
            "w": _random(4, 16, 16) / 4,
            "h0": _random(5, 16),
            "c0": _random(5, 16),
            "y": torch.empty(7, 5, 16),
        },
        _lstm,
        (
            '{"step":{"loop":1},"batch":{"grid":4},"unit":{"tile":16},"source":{"tile":16}}',
            '{"step":{"loop":1},"batch":{"tile":16},"unit":{"tile":16},"source":{"tile":16}}',
        ),
    ),
    Case(
        "convolution",
        lambda: {"image": _random(2, 6, 13, 13), "weight": _random(20, 6, 3, 3), "y": torch.empty(2, 20, 7, 7)},
        lambda t: {"y": F.conv2d(t["image"], t["weight"], stride=2, padding=1)},
        (
            '{"pixel":{"grid":32},"filter":{"grid":16},"channel":{"tile":16},"dy":{"loop":1},"dx":{"loop":1}}',
            '{"pixel":{"grid":32},"filter":{"grid":16},"channel":{"loop":4,"stages":3},"dy":{"loop":1},"dx":{"loop":1},'
            '"nest":[["dy","dx","channel"]]}',
        ),
    ),
    Case(
        "state_space",
        lambda: {
            "decay": -torch.rand(4, 16),
            "b": _random(4, 16, 16),
            "c": _random(4, 16, 16),
            "x": _random(4, 16, 16),
            "y": torch.empty(4, 16, 16),
        },
        _state_space,
        ('{"chunk":{"loop":1},"at":{"tile":16},"before":{"tile":16},"channel":{"grid":16},"inner":{"tile":16}}',),
    ),
    Case(
        "sizes",
        lambda: _sized(5, 24),
        _sizes,
        ('{"row":{"grid":4},"column":{"loop":16}}', '{"row":{"loop":1},"column":{"tile":64}}'),
        {"rows": 5, "columns": 24},
    ),
    Case(
        "linear_again",
        _again_inputs,
        _linear_again,
        (
            '{"m":{"grid":16},"n":{"grid":16},"k":{"loop":32},"skip_masked":true}',
            '{"m":{"grid":16},"n":{"grid":16},"k":{"loop":32},"skip_masked":true,"walkers":3}',
            '{"m":{"grid":32},"n":{"grid":16},"k":{"loop":32},"skip_masked":true,"walkers":5}',
        ),
    ),
    Case(
        "linear_halves",
        _halves_inputs,
        _linear_of_halves,
        (
            '{"m":{"grid":32},"n":{"tile":64},"k":{"loop":32,"stages":3},"scheme":"fp16x3"}',
            '{"m":{"grid":16},"n":{"tile":64},"k":{"loop":64,"stages":2},"scheme":"fp16x3","bulk":true}',
            '{"m":{"grid":16},"n":{"tile":64},"k":{"loop":64},"scheme":"fp16x3","bulk_stores":true}',
            '{"m":{"grid":16},"n":{"tile":64},"k":{"tile":128},"warps":8}',
        ),
        bound=1e-6,
    ),
    Case(
        "norm_linear_f32", _norm_fp16x3_inputs, _norm_fp16x3, tuple(text[:-1] + ',"scheme":"fp16x3"}' for text in NORMS)
    ),
    Case("norm_linear_bf16", lambda: _norm_inputs(torch.bfloat16), _norm_linear, NORMS, bound=2e-2),
    Case("norm_linear_tf32", lambda: _norm_inputs(torch.float32), _norm_linear, NORMS, bound=2e-3),
    Case(
        "bags",
        _bag_inputs,
        _bags,
        (
            '{"bag":{"grid":1},"column":{"grid":32},"entry":{"loop":4,"stops":true}}',
            '{"bag":{"grid":4},"column":{"grid":8},"entry":{"loop":1,"stops":true}}',
            '{"bag":{"grid":1},"column":{"grid":32},"entry":{"loop":8}}',
        ),
    ),
    Case(
        "scatter",
        lambda: {
            "token": torch.randint(0, 7, (90,), dtype=torch.int32),
            "x": _random(90, 20),
            "sums": _random(7, 20),
            "last": _random(7, 20),
        },
        _scatter,
        (
            '{"column":{"loop":1,"simd":true},"row":{"loop":1},"nest":["row","column"],"in_order":true}',
            '{"column":{"loop":1,"simd":true},"row":{"loop":1},"nest":["row","column"],"in_order":true,"owners":1}',
            '{"column":{"loop":8,"threads":true},"row":{"loop":1},"in_order":true}',
            '{"column":{"tile":32,"simd":true},"row":{"loop":1},"in_order":true,"owners":4}',
        ),
        on_gpu=False,
    ),
    Case("norm_linear_fp16x3", _norm_fp16x3_inputs, _norm_fp16x3),
    Case("corners", _corner_inputs, _corners),
    Case("neighbours", _neighbour_inputs, _neighbours, on_cpu=False),
]


def expected(case: Case, made: Tensors) -> Tensors:
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in made.items()}
    return case.expect(wide)


def fault_of(case: Case, found: Tensors, wanted: Tensors) -> str:
    """What is wrong with outputs; empty where they are within the bound."""
    for name, right in wanted.items():
        error = float((found[name].double() - right).abs().max() / right.abs().max().clamp(min=1e-30))
        if not error <= case.bound or math.isnan(error):
            return f"{case.name}: {name} is off by {error:.2e} of its largest element, allowed are {case.bound:.0e}"
    return ""
