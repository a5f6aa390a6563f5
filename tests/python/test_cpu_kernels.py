"""Kernels printed for the CPU compute what PyTorch computes: every operation and reduction in every dtype, in each loop
form.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Callable

import pytest
import torch
from dtype_names import DTYPES
from printed_cpu_kernels import FLOATS, INTEGERS, SPECIAL, STORED_FLOATS, build, close, draw, own_cache  # noqa: F401

# --- Operations
# ------------------------------------------------------------------------------------------------------------------

UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sigmoid": torch.sigmoid,
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "logical_not": torch.logical_not,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}
LOGICAL = {
    "is_nan",
    "is_inf",
    "logical_not",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
}
INTEGER_UNARY = ["neg", "abs", "sign", "logical_not"]
INTEGER_BINARY = [
    "add",
    "sub",
    "mul",
    "fmod",
    "remainder",
    "floor_div",
    "trunc_div",
    "minimum",
    "maximum",
    "equal",
    "less",
    "logical_xor",
    "bit_and",
    "bit_or",
    "bit_xor",
    "shift_left",
    "shift_right",
]
FLOAT_BINARY = [name for name in BINARY if not name.startswith(("bit_", "shift_"))]
COUNT = 5003


def pointwise_kernel(op: str, dtype: str, operands: int) -> str:
    result = "b1" if op in LOGICAL else dtype
    names = ["x", "y"][:operands]
    lines = [f"buffer {name} : {dtype}[{COUNT}] input" for name in names] + [
        f"buffer out : {result}[{COUNT}] output",
        f"axis element = {COUNT} parallel block 1",
    ]
    lines += [f"%{name} = load {name}[element] : {dtype}" for name in names]
    lines += [f"%r = {op}({', '.join('%' + name for name in names)}) : {result}", "store %r to out[element]"]
    return "kernel " + f"{op}_kernel " + "{\n" + "\n".join(lines) + "\n}\n"


def check_pointwise(
    folder: Path, dtype: str, ops: list[str], table: dict[str, Callable[..., torch.Tensor]], operands: int
) -> None:
    module = build(folder, *(pointwise_kernel(op, dtype, operands) for op in ops))
    inputs = [draw(dtype, COUNT, seed, special=True) for seed in range(operands)]
    plain = [draw(dtype, COUNT, seed, special=False) for seed in range(operands)]
    if operands == 2 and dtype in INTEGERS:
        inputs[1][inputs[1] == 0] = 3
    for op in ops:
        # PyTorch's vectorised fmod gives NaN where the quotient is huge.
        arguments = list(plain if op in ("floor_div", "trunc_div", "remainder", "fmod") and dtype in FLOATS else inputs)
        if op.startswith("shift") and dtype != "u8":
            arguments[1] = arguments[1].abs()
        exact = dtype == "f32" and op not in (
            "floor_div",
            "trunc_div",
            "remainder",
            "fmod",
        )  # wide results would not be the rounded ones
        wanted = table[op](*(argument.double() if exact else argument for argument in arguments))
        wanted = wanted.to(torch.bool if op in LOGICAL else DTYPES[dtype])
        out = torch.empty(COUNT, dtype=wanted.dtype)
        getattr(module, f"launch_{op}_kernel")(*arguments, out)
        try:
            close(out, wanted)
        except AssertionError as error:
            raise AssertionError(f"{op}: {error}") from error


@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_operations_on_floats(dtype: str, tmp_path: Path) -> None:
    check_pointwise(tmp_path, dtype, list(UNARY), UNARY, 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_operations_on_floats(dtype: str, tmp_path: Path) -> None:
    check_pointwise(tmp_path, dtype, FLOAT_BINARY, BINARY, 2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_operations_on_integers(dtype: str, tmp_path: Path) -> None:
    for folder in ("unary", "binary"):
        (tmp_path / folder).mkdir()
    check_pointwise(tmp_path / "unary", dtype, [op for op in INTEGER_UNARY if dtype != "u8" or op != "neg"], UNARY, 1)
    check_pointwise(tmp_path / "binary", dtype, INTEGER_BINARY, BINARY, 2)


def cast_kernel(source: str, target: str) -> str:
    return f"""kernel cast_{source}_{target} {{
      buffer x : {source}[{COUNT}] input
      buffer out : {target}[{COUNT}] output
      axis element = {COUNT} parallel block 1
      %x = load x[element] : {source}
      %r = cast(%x) : {target}
      store %r to out[element]
    }}
    """


def test_casts_between_all_types(tmp_path: Path) -> None:
    pairs = [pair for pair in itertools.product([*STORED_FLOATS, *INTEGERS, "b1"], repeat=2) if pair[0] != pair[1]]
    module = build(tmp_path, *(cast_kernel(*pair) for pair in pairs))
    for source, target in pairs:
        x = draw(source, COUNT, 3, special=target in STORED_FLOATS + ["b1"])
        out = torch.empty(COUNT, dtype=DTYPES[target])
        getattr(module, f"launch_cast_{source}_{target}")(x, out)
        torch.testing.assert_close(
            out,
            x.to(DTYPES[target]),
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=lambda text, s=source, t=target: f"{s} to {t}: {text}",
        )


# --- Reductions in each loop form
# ----------------------------------------------------------------------------------------------------

# Parallel extents, reduce extents, and the order of all of them in memory: which axis is contiguous decides the form.
SHAPES = {
    "rows": ([37], [517], [0, 1]),
    "columns": ([517], [37], [1, 0]),
    "one_row": ([], [300007], [0]),
    "rows_of_two_axes": ([5], [13, 77], [0, 1, 2]),
    "batch_norm": ([6], [8, 300], [1, 0, 2]),
    "middle": ([9, 130], [41], [0, 2, 1]),
    "few_columns": ([20], [20011], [1, 0]),
    "many_columns": ([5000], [9], [1, 0]),
}


def layout(form: str) -> tuple[list[int], list[int], int]:
    parallel, reduce, order = SHAPES[form]
    extents = parallel + reduce
    strides = [0] * len(extents)
    size = 1
    for axis in reversed(order):
        strides[axis] = size
        size *= extents[axis]
    return extents, strides, len(parallel)


def view(x: torch.Tensor, form: str) -> torch.Tensor:
    extents, strides, parallel = layout(form)
    return x.as_strided(extents, strides).reshape(*extents[:parallel], -1)


def reduction_kernel(form: str, name: str, body: list[str], dtype: str, outputs: dict[str, tuple[str, bool]]) -> str:
    """`outputs`: buffer → (dtype, whether it has a value for every element rather than every reduction)."""
    extents, strides, parallel = layout(form)
    names = [f"p{axis}" if axis < parallel else f"r{axis}" for axis in range(len(extents))]
    everywhere = " + ".join(f"{stride}*{axis}" if stride != 1 else axis for stride, axis in zip(strides, names))
    outer, terms = 1, []
    for axis in reversed(range(parallel)):
        terms.insert(0, f"{outer}*{names[axis]}")
        outer *= extents[axis]
    total = math.prod(extents)
    lines = [f"buffer x : {dtype}[{total}] input"]
    lines += [f"buffer {out} : {kind}[{total if each else outer}] output" for out, (kind, each) in outputs.items()]
    lines += [
        f"axis {axis} = {extent} {'parallel block 1' if i < parallel else f'reduce block {extent}'}"
        for i, (axis, extent) in enumerate(zip(names, extents))
    ]
    lines += [f"%x = load x[{everywhere}] : {dtype}"] + body
    lines += [
        f"store %{out}_v to {out}[{everywhere if each else ' + '.join(terms) or '0'}]"
        for out, (_, each) in outputs.items()
    ]
    return f"kernel {name} {{\n" + "\n".join(lines) + "\n}\n"


def in_f32(dtype: str) -> tuple[list[str], str, str]:
    """Lines that widen 16-bit floats, the operand's name, and the dtype that reductions run in."""
    return (["%wide = cast(%x) : f32"], "%wide", "f32") if dtype in ("f16", "bf16") else ([], "%x", dtype)


@pytest.mark.in_turns("dtype")
@pytest.mark.parametrize("special", [False, True], ids=["normal", "special"])
@pytest.mark.parametrize("dtype", STORED_FLOATS)
@pytest.mark.parametrize("form", list(SHAPES))
def test_reductions(form: str, dtype: str, special: bool, tmp_path: Path) -> None:
    head, x, computed = in_f32(dtype)
    back = (lambda name: [f"%{name}_v = cast(%{name}_w) : {dtype}"]) if head else (lambda name: [])
    suffix = "w" if head else "v"
    body = list(head)
    for name, op in {"total": "sum", "largest": "max", "smallest": "min"}.items():
        body += [f"%{name}_{suffix} = reduce {op}({x}) : {computed}", *back(name)]
    body += [
        f"%largest_at_v = reduce arg_max({x}) : i64",
        f"%smallest_at_v = reduce arg_min({x}) : i64",
        f"%zero = constant 0.0 : {computed}",
        f"%positive = greater({x}, %zero) : b1",
        "%any_v = reduce any(%positive) : b1",
        "%all_v = reduce all(%positive) : b1",
    ]
    outputs = {
        "total": (dtype, False),
        "largest": (dtype, False),
        "smallest": (dtype, False),
        "largest_at": ("i64", False),
        "smallest_at": ("i64", False),
        "any": ("b1", False),
        "all": ("b1", False),
    }
    module = build(tmp_path, reduction_kernel(form, "reductions", body, dtype, outputs))
    source = draw(dtype, math.prod(layout(form)[0]), 5, special)
    rows = view(source, form)
    wanted = {
        "total": rows.double().sum(-1).to(rows.dtype),
        "largest": rows.amax(-1),
        "smallest": rows.amin(-1),
        "largest_at": rows.argmax(-1),
        "smallest_at": rows.argmin(-1),
        "any": (rows > 0).any(-1),
        "all": (rows > 0).all(-1),
    }
    results = {name: torch.empty(max(value.numel(), 1), dtype=value.dtype) for name, value in wanted.items()}
    module.launch_reductions(source, *results.values())
    for name, value in wanted.items():
        try:
            close(results[name], value.flatten(), 2.0)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.in_turns("dtype")
@pytest.mark.parametrize("form", list(SHAPES))
@pytest.mark.parametrize("dtype", ["i64", "i32", "u8", "b1"])
def test_integer_reductions(form: str, dtype: str, tmp_path: Path) -> None:
    body = [
        "%wide = cast(%x) : i64",
        "%total_v = reduce sum(%wide) : i64",
        f"%largest_v = reduce max(%x) : {dtype}",
        f"%smallest_v = reduce min(%x) : {dtype}",
    ]
    outputs = {"total": ("i64", False), "largest": (dtype, False), "smallest": (dtype, False)}
    if dtype != "b1":
        body.append("%largest_at_v = reduce arg_max(%x) : i64")
        outputs["largest_at"] = ("i64", False)
    module = build(tmp_path, reduction_kernel(form, "reductions", body, dtype, outputs))
    source = draw(dtype, math.prod(layout(form)[0]), 5, False)
    rows = view(source, form)
    wanted = {"total": rows.sum(-1), "largest": rows.amax(-1), "smallest": rows.amin(-1)}
    if dtype != "b1":
        wanted["largest_at"] = rows.argmax(-1)
    results = {name: torch.empty(max(value.numel(), 1), dtype=value.dtype) for name, value in wanted.items()}
    module.launch_reductions(source, *results.values())
    for name, value in wanted.items():
        assert torch.equal(results[name], value.flatten()), name


@pytest.mark.in_turns("dtype")
@pytest.mark.parametrize("special", [False, True], ids=["normal", "special"])
@pytest.mark.parametrize("dtype", STORED_FLOATS)
@pytest.mark.parametrize("form", list(SHAPES))
def test_softmax_and_normalisation(form: str, dtype: str, special: bool, tmp_path: Path) -> None:
    head, x, computed = in_f32(dtype)
    cast = (lambda name: [f"%{name}_v = cast(%{name}_w) : {dtype}"]) if head else (lambda name: [])
    suffix = "w" if head else "v"
    extents, _, parallel = layout(form)
    count = math.prod(extents[parallel:])
    body = head + [
        f"%row_max = reduce max_sum_exp.0({x}) : {computed}",
        f"%row_sum = reduce max_sum_exp.1({x}) : {computed}",
        f"%shifted = sub({x}, %row_max) : {computed}",
        f"%numerator = exp(%shifted) : {computed}",
        f"%softmax_{suffix} = div(%numerator, %row_sum) : {computed}",
        *cast("softmax"),
        f"%mean = reduce moments.0({x}) : {computed}",
        f"%squares = reduce moments.1({x}) : {computed}",
        f"%count = constant {float(count)} : {computed}",
        f"%variance = div(%squares, %count) : {computed}",
        f"%epsilon = constant 1e-05 : {computed}",
        f"%shifted_variance = add(%variance, %epsilon) : {computed}",
        f"%scale = rsqrt(%shifted_variance) : {computed}",
        f"%centred = sub({x}, %mean) : {computed}",
        f"%norm_{suffix} = mul(%centred, %scale) : {computed}",
        *cast("norm"),
    ]
    module = build(
        tmp_path, reduction_kernel(form, "normalise", body, dtype, {"softmax": (dtype, True), "norm": (dtype, True)})
    )
    source = draw(dtype, math.prod(extents), 7, special)
    source = torch.where(
        source.abs().double().isfinite() & (source.abs() > 1e30), torch.ones_like(source), source
    )  # its square is infinite in f32
    softmax, norm = torch.empty_like(source), torch.empty_like(source)
    module.launch_normalise(source, softmax, norm)
    rows = view(source, form).double()
    wanted_norm = (rows - rows.mean(-1, keepdim=True)) * torch.rsqrt(rows.var(-1, correction=0, keepdim=True) + 1e-5)
    for actual, wanted in ((softmax, torch.softmax(rows, -1)), (norm, wanted_norm)):
        epsilon = torch.finfo(source.dtype).eps * (
            8 if dtype == "f64" else 1
        )  # the f64 reference has an error of its own
        torch.testing.assert_close(
            view(actual, form).double(),
            wanted,
            rtol=8 * epsilon,
            atol=8 * epsilon * (1e-3 if actual is softmax else 1.0),
            equal_nan=True,
        )


# --- Indices
# ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner, divides", [(16, False), (4, True)])
def test_collapsed_axes_are_split_unless_that_leaves_short_loops(tmp_path: Path, inner: int, divides: bool) -> None:
    count = 15 * inner
    kernel = f"""kernel broadcast_kernel {{
      buffer x : f32[{count}] input
      buffer weight : f32[5] input
      buffer out : f32[{count}] output
      axis element = {count} parallel block 1
      %x = load x[element] : f32
      %weight = load weight[(element // {inner} % 5)] : f32
      %r = mul(%x, %weight) : f32
      store %r to out[element]
    }}
    """
    module = build(tmp_path, kernel)
    assert ("/" in module.CPP_SOURCE.partition("void broadcast_kernel")[2]) == divides
    x, weight, out = torch.randn(count), torch.randn(5), torch.empty(count)
    module.launch_broadcast_kernel(x, weight, out)
    assert torch.equal(out.view(3, 5, inner), x.view(3, 5, inner) * weight[:, None])


def test_axes_that_cannot_be_split_are_divided(tmp_path: Path) -> None:
    kernel = """kernel gather_kernel {
      buffer x : f32[7] input
      buffer out : f32[60] output
      axis element = 60 parallel block 1
      %x = load x[(element // 9)] : f32
      %p = index (element % 7) : i64
      %f = cast(%p) : f32
      %r = add(%x, %f) : f32
      store %r to out[element]
    }
    """
    module = build(tmp_path, kernel)
    x, out = torch.randn(7), torch.empty(60)
    module.launch_gather_kernel(x, out)
    position = torch.arange(60)
    assert torch.equal(out, x[position // 9] + (position % 7).float())


def test_guarded_loads_and_stores(tmp_path: Path) -> None:
    kernel = """kernel shift_kernel {
      buffer x : f32[100000] input
      buffer out : f32[100000] output
      axis element = 100000 parallel block 1
      %x = load x[element - 3] if 0 <= element - 3 < 99000 else -inf : f32
      store %x to out[element] if 10 <= element < 100000
    }
    """
    module = build(tmp_path, kernel)
    x, out = torch.randn(100000), torch.zeros(100000)
    module.launch_shift_kernel(x, out)
    wanted = torch.full((100000,), -math.inf)
    wanted[3:99003] = x[:99000]
    wanted[:10] = 0
    assert torch.equal(out, wanted)
