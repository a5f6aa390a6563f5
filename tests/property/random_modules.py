"""Random small modules for the property tests: a recipe (plain data that hypothesis can shrink) and the module it
stands for.

A recipe is a dict: ``inputs`` (shape, dtype, layout of each tensor), ``steps`` (operations applied to a running value)
and, where the family has one, ``core`` (the reduction or normalisation between prologue and epilogue). ``build`` turns
it into an ``nn.Module`` and its example inputs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from random_pools import pool

FLOATS = ["float32", "float32", "float32", "float16", "bfloat16", "float64"]

UNARY = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt_abs": lambda x: torch.sqrt(torch.abs(x)),
    "log1p_abs": lambda x: torch.log1p(torch.abs(x)),
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.5),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "mish": torch.nn.functional.mish,
    "softplus": torch.nn.functional.softplus,
    "elu": torch.nn.functional.elu,
    "selu": torch.nn.functional.selu,
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "hardswish": torch.nn.functional.hardswish,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardtanh": lambda x: torch.nn.functional.hardtanh(x, -0.5, 0.75),
    "clamp": lambda x: torch.clamp(x, min=-0.25, max=1.5),
    "floor": torch.floor,
    "round": torch.round,
    "sign": torch.sign,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "scale": lambda x: 1.5 * x - 0.25,
    "reciprocal": lambda x: 1.0 / (x * x + 1.0),
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "where": lambda x: torch.where(x > 0.1, x, 0.5 * x),
    "masked_fill": lambda x: x.masked_fill(x < -0.5, -2.0),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=0.5),
    "lerp_like": lambda x, y: x + 0.3 * (y - x),
    "greater": lambda x, y: (x > y).to(x.dtype),
}
REDUCTIONS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "argmax",
    "argmin",
    "any",
    "all",
    "var",
    "std",
    "norm2",
    "norm1",
    "logsumexp",
    "max_dim",
    "min_dim",
]
ONE_AXIS = {"argmax", "argmin", "prod", "max_dim", "min_dim"}
NORMALISATIONS = [
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "instance_norm",
    "batch_norm",
    "batch_norm_eval",
    "l2_normalize",
]
SCANS = ["cumsum", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
# What surrounds a scan: from the end to the start; without the element itself, in the two ways of writing it; only some
# of the elements.
SCAN_FORMS = ["plain", "plain", "reversed", "exclusive", "exclusive_slice", "exclusive_reversed", "masked"]


# More would take Triton's interpreter seconds a recipe.
MOST_ELEMENTS = 1 << 15


def shapes(min_rank: int = 1, max_rank: int = 4, largest: int = 40):
    """Shapes with the sizes that break kernels: 1, primes, powers of two and their neighbours."""
    sizes = st.sampled_from([1, 2, 3, 4, 7, 8, 16, 17, 31, 32, 33, largest])
    return st.lists(sizes, min_size=min_rank, max_size=max_rank).map(_fitting)


def _fitting(shape: list[int]) -> list[int]:
    """`shape` with its first axes cut to 2 until it has at most MOST_ELEMENTS."""
    cut = next(count for count in range(len(shape)) if math.prod([2] * count + shape[count:]) <= MOST_ELEMENTS)
    return [min(size, 2) for size in shape[:cut]] + shape[cut:]


def layouts():
    """How a tensor lies in memory: dense, with its axes stored in another order, every second element, or offset in its
    storage.
    """
    return st.sampled_from(["contiguous", "contiguous", "transposed", "strided", "offset"])


def tensor(shape: list[int], dtype: str, layout: str, generator: torch.Generator) -> torch.Tensor:
    """A random tensor of that shape, dtype and layout."""

    def draw(sizes: list[int]) -> torch.Tensor:
        if dtype == "bool":
            return torch.rand(sizes, generator=generator) > 0.5
        if dtype.startswith("int"):
            return torch.randint(-9, 10, sizes, generator=generator).to(getattr(torch, dtype))
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))

    if layout == "transposed" and len(shape) > 1:
        return draw([shape[-1], *shape[1:-1], shape[0]]).transpose(0, -1)
    if layout == "strided" and shape:
        return draw([*shape[:-1], shape[-1] * 2])[..., ::2]
    if layout == "offset" and shape:
        return draw([shape[0] + 1, *shape[1:]])[1:]
    return draw(shape)


@st.composite
def pointwise_recipes(draw) -> dict[str, Any]:
    """Chains of pointwise operations over one to three inputs of broadcastable shapes, one or two outputs."""
    shape = draw(shapes())
    dtype = draw(st.sampled_from(FLOATS))
    inputs = [{"shape": shape, "dtype": dtype, "layout": draw(layouts())}]
    for _ in range(draw(st.integers(0, 2))):
        kept = draw(st.integers(0, len(shape)))
        other = [1 if draw(st.booleans()) else size for size in shape[kept:]]
        inputs.append({"shape": other, "dtype": dtype, "layout": draw(layouts())})
    steps = draw(st.lists(st.sampled_from(sorted(UNARY)), min_size=1, max_size=4))
    joins = [draw(st.sampled_from(sorted(BINARY))) for _ in inputs[1:]]
    return {
        "family": "pointwise",
        "inputs": inputs,
        "steps": steps,
        "joins": joins,
        "second_output": draw(st.booleans()),
    }


@st.composite
def reduction_recipes(draw) -> dict[str, Any]:
    """A reduction over random axes with a pointwise prologue and epilogue."""
    shape = draw(shapes(1, 4, 257))
    core = draw(st.sampled_from(REDUCTIONS))
    dtype = draw(st.sampled_from(FLOATS))
    rank = len(shape)
    axes = sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=1 if core in ONE_AXIS else rank)))
    prologue = draw(st.lists(st.sampled_from(["scale", "relu", "abs", "square", "sigmoid"]), max_size=2))
    epilogue = draw(st.lists(st.sampled_from(["scale", "tanh", "abs"]), max_size=2))
    return {
        "family": "reduction",
        "inputs": [{"shape": shape, "dtype": dtype, "layout": draw(layouts())}],
        "core": core,
        "axes": axes,
        "keepdim": draw(st.booleans()),
        "prologue": prologue,
        "epilogue": epilogue,
    }


@st.composite
def normalisation_recipes(draw) -> dict[str, Any]:
    """Softmax and the norms over their axes, with a pointwise prologue and epilogue, affine or not."""
    core = draw(st.sampled_from(NORMALISATIONS))
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "bfloat16", "float64"]))
    if core in ("group_norm", "instance_norm", "batch_norm", "batch_norm_eval"):
        channels = draw(st.sampled_from([2, 4, 6, 8]))
        shape = [
            draw(st.sampled_from([2, 3, 5])),
            channels,
            *draw(st.lists(st.sampled_from([2, 3, 7, 16, 33]), min_size=1, max_size=2)),
        ]
    else:
        shape = draw(shapes(1, 3, 257))
    return {
        "family": "normalisation",
        "inputs": [{"shape": shape, "dtype": dtype, "layout": draw(layouts())}],
        "core": core,
        "axis": draw(st.integers(0, len(shape) - 1)),
        "affine": draw(st.booleans()),
        "prologue": draw(st.lists(st.sampled_from(["scale", "relu", "gelu", "tanh"]), max_size=2)),
        "epilogue": draw(st.lists(st.sampled_from(["scale", "silu", "abs"]), max_size=2)),
    }


@st.composite
def scan_recipes(draw) -> dict[str, Any]:
    """A scan along a random axis, reversed, exclusive or masked, with a pointwise prologue and epilogue."""
    shape = draw(shapes(1, 4, 257))
    core = draw(st.sampled_from(SCANS))
    dtype = draw(st.sampled_from(FLOATS + ([] if core == "logcumsumexp" else ["int64", "int32", "int16", "bool"])))
    steps = [] if dtype == "bool" else ["scale", "relu", "abs"] if dtype.startswith(("float", "bf")) else ["neg", "abs"]
    return {
        "family": "scan",
        "inputs": [{"shape": shape, "dtype": dtype, "layout": draw(layouts())}],
        "core": core,
        "axis": draw(st.integers(0, len(shape) - 1)),
        "form": draw(st.sampled_from(SCAN_FORMS)),
        "prologue": draw(st.lists(st.sampled_from(steps), max_size=2)) if steps else [],
        "epilogue": draw(st.lists(st.sampled_from(["scale", "abs"]), max_size=2)),
    }


def scan(
    core: str,
    shape: list[int],
    axis: int = -1,
    form: str = "plain",
    dtype: str = "float32",
    layout: str = "contiguous",
    **others: Any,
) -> dict[str, Any]:
    """One recipe of that family, written down."""
    inputs = [{"shape": shape, "dtype": dtype, "layout": layout}]
    return {
        "family": "scan",
        "inputs": inputs,
        "core": core,
        "axis": axis % len(shape),
        "form": form,
        "prologue": [],
        "epilogue": [],
    } | others


def reduction(
    core: str,
    shape: list[int],
    axes: tuple[int, ...] = (0,),
    dtype: str = "float32",
    layout: str = "contiguous",
    **others: Any,
) -> dict[str, Any]:
    """One recipe of that family, written down."""
    inputs = [{"shape": shape, "dtype": dtype, "layout": layout}]
    return {
        "family": "reduction",
        "inputs": inputs,
        "core": core,
        "axes": list(axes),
        "keepdim": False,
        "prologue": [],
        "epilogue": [],
    } | others


def normalisation(
    core: str, shape: list[int], dtype: str = "float32", layout: str = "contiguous", **others: Any
) -> dict[str, Any]:
    """One recipe of that family, written down."""
    inputs = [{"shape": shape, "dtype": dtype, "layout": layout}]
    return {
        "family": "normalisation",
        "inputs": inputs,
        "core": core,
        "axis": 0,
        "affine": False,
        "prologue": [],
        "epilogue": [],
    } | others


def _reduce(recipe: dict[str, Any], x: torch.Tensor) -> Any:
    axes, keepdim, core = recipe["axes"], recipe["keepdim"], recipe["core"]
    match core:
        case "sum":
            return x.sum(axes, keepdim=keepdim)
        case "mean":
            return x.mean(axes, keepdim=keepdim)
        case "amax":
            return x.amax(axes, keepdim=keepdim)
        case "amin":
            return x.amin(axes, keepdim=keepdim)
        case "prod":
            return x.prod(axes[0], keepdim=keepdim)
        case "argmax":
            return x.argmax(axes[0], keepdim=keepdim)
        case "argmin":
            return x.argmin(axes[0], keepdim=keepdim)
        case "any":
            return (x > 0.5).any(axes[0], keepdim=keepdim)
        case "all":
            return (x > -0.5).all(axes[0], keepdim=keepdim)
        case "var":
            return x.var(axes, keepdim=keepdim, correction=0)
        case "std":
            return (x * 1.0).std(axes, keepdim=keepdim, correction=0)
        case "norm2":
            return torch.linalg.vector_norm(x, 2, axes, keepdim=keepdim)
        case "norm1":
            return torch.linalg.vector_norm(x, 1, axes, keepdim=keepdim)
        case "logsumexp":
            return torch.logsumexp(x, axes, keepdim=keepdim)
        case "max_dim":
            return tuple(torch.max(x, axes[0], keepdim=keepdim))
        case "min_dim":
            return tuple(torch.min(x, axes[0], keepdim=keepdim))
    raise AssertionError(core)


def _scan(recipe: dict[str, Any], x: torch.Tensor) -> Any:
    core, axis = recipe["core"], recipe["axis"]

    def along(y: torch.Tensor) -> Any:
        if core.startswith("cumm"):
            return tuple(getattr(torch, core)(y, axis))
        return (
            getattr(torch, core)(y, axis, dtype=recipe["dtype"])
            if recipe.get("dtype")
            else getattr(torch, core)(y, axis)
        )

    def shifted(y: torch.Tensor) -> torch.Tensor:
        return torch.cat((torch.zeros_like(y.select(axis, 0).unsqueeze(axis)), y), dim=axis)

    shorter = x.narrow(axis, 0, x.size(axis) - 1)
    match recipe["form"] if x.size(axis) > 1 else "plain":
        case "reversed":
            y = along(x.flip(axis))
            return tuple(part.flip(axis) for part in y) if isinstance(y, tuple) else y.flip(axis)
        case "exclusive":
            y = along(shorter)
            return tuple(shifted(part) for part in y) if isinstance(y, tuple) else shifted(y)
        case "exclusive_slice":
            y = along(x)
            y = y[0] if isinstance(y, tuple) else y
            return shifted(y.narrow(axis, 0, x.size(axis) - 1))
        case "exclusive_reversed":
            y = along(x.flip(axis).narrow(axis, 0, x.size(axis) - 1))
            return shifted(y[0] if isinstance(y, tuple) else y).flip(axis)
        case "masked":
            return along(x * (x > 0))
    return along(x)


class RecipeModule(torch.nn.Module):
    """The module that a recipe describes."""

    def __init__(self, recipe: dict[str, Any]):
        super().__init__()
        self.recipe = recipe
        shape = recipe["inputs"][0]["shape"]
        dtype = getattr(torch, recipe["inputs"][0]["dtype"])
        core = recipe.get("core")
        if core in ("layer_norm", "rms_norm"):
            size = shape[recipe["axis"] :]
            self.core = (
                torch.nn.LayerNorm(size, elementwise_affine=recipe["affine"], dtype=dtype)
                if core == "layer_norm"
                else torch.nn.RMSNorm(size, elementwise_affine=recipe["affine"], dtype=dtype)
            )
        elif core == "group_norm":
            self.core = torch.nn.GroupNorm(2, shape[1], affine=recipe["affine"], dtype=dtype)
        elif core == "instance_norm":
            kind = torch.nn.InstanceNorm1d if len(shape) == 3 else torch.nn.InstanceNorm2d
            self.core = kind(shape[1], affine=recipe["affine"], dtype=dtype)
        elif core in ("batch_norm", "batch_norm_eval"):
            kind = torch.nn.BatchNorm1d if len(shape) == 3 else torch.nn.BatchNorm2d
            self.core = kind(shape[1], affine=recipe["affine"], dtype=dtype)
            self.core.train(core == "batch_norm")
        with torch.no_grad():
            generator = torch.Generator().manual_seed(7)
            for parameter in self.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator) + 0.5)

    def forward(self, *inputs: torch.Tensor) -> Any:
        recipe, x = self.recipe, inputs[0]
        if recipe["family"] == "pointwise":
            for other, join in zip(inputs[1:], recipe["joins"], strict=True):
                x = BINARY[join](x, other)
            first = x
            for step in recipe["steps"]:
                x = UNARY[step](x)
            return (x, first * 2.0) if recipe["second_output"] else x
        for step in recipe["prologue"]:
            x = UNARY[step](x)
        if recipe["family"] == "reduction":
            y = _reduce(recipe, x)
        elif recipe["family"] == "pooling":
            y = pool(recipe, x)
        elif recipe["family"] == "scan":
            y = _scan(recipe, x)
        elif recipe["core"] == "softmax":
            y = torch.softmax(x, recipe["axis"])
        elif recipe["core"] == "log_softmax":
            y = torch.log_softmax(x, recipe["axis"])
        elif recipe["core"] == "l2_normalize":
            y = torch.nn.functional.normalize(x, dim=recipe["axis"])
        else:
            y = self.core(x)
        if isinstance(y, torch.Tensor) and y.dtype.is_floating_point:
            for step in recipe["epilogue"]:
                y = UNARY[step](y)
        return y


def build(recipe: dict[str, Any], seed: int = 0) -> tuple[RecipeModule, list[torch.Tensor]]:
    """The module and fresh example inputs."""
    generator = torch.Generator().manual_seed(seed)
    module = RecipeModule(recipe)
    return module, [tensor(one["shape"], one["dtype"], one["layout"], generator) for one in recipe["inputs"]]
