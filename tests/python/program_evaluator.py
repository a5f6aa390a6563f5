"""Runs a planned program without any printer: parses what plan_tool prints and computes every kernel over its whole iteration space with PyTorch.

It shows whether the plan is right, whatever a target makes of it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable

import torch

HOME = Path(__file__).resolve().parents[2]
PLAN_TOOL = HOME / "build" / "tests" / "unit" / "plan_tool"
TILE_TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b1": torch.bool,
}
Tensor = torch.Tensor


def _select(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(condition, yes, no)


def _bounded(index: Tensor, size: Tensor) -> Tensor:
    assert bool(((index >= 0) & (index < size)).all()), "an index is out of range"
    return index


OPS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_div": torch.floor_divide,
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "reciprocal": torch.reciprocal,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
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
    "atan2": torch.atan2,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sigmoid": torch.sigmoid,
    "pow": torch.pow,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "logical_not": torch.logical_not,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
    "bit_not": torch.bitwise_not,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "select": _select,
    "bounded": _bounded,
}


def plan(graph: dict[str, Any], target: str, folder: Path) -> str:
    """What plan_tool prints for a captured graph."""
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    done = subprocess.run([PLAN_TOOL, path, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _number(text: str) -> float:
    return (
        {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(text, None)
        if text in ("inf", "-inf", "nan")
        else float(text)
    )  # type: ignore[return-value]


class Kernel:
    """One kernel's text, run over all points of its axes at once."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.partition("\n  body {")[0].splitlines()]
        self.name = lines[0].split()[1]
        self.buffers = [re.match(r"buffer (\w+)", line)[1] for line in lines if line.startswith("buffer ")]  # type: ignore[index]
        self.axes = [re.match(r"axis (\w+) = (\d+) (\w+)", line).groups() for line in lines if line.startswith("axis ")]  # type: ignore[union-attr]
        self.reversed = any(re.search(r"^axis .* reversed", line) for line in lines)
        self.lines = [line for line in lines if line.startswith(("%", "store "))]

    def run(self, tensors: list[Tensor]) -> None:
        rank = len(self.axes)
        names: dict[str, Any] = {}
        for place, (name, extent, _) in enumerate(self.axes):
            names[name] = torch.arange(int(extent)).view([-1 if i == place else 1 for i in range(rank)])
        memory = dict(zip(self.buffers, tensors))
        self.full = [int(extent) for _, extent, _ in self.axes]
        self.reduce = [place for place, axis in enumerate(self.axes) if axis[2] == "reduce"]
        values: dict[str, Tensor] = {}
        scattered: dict[str, tuple[str, Tensor, Tensor]] = {}
        for line in self.lines:
            if line.startswith("store "):
                value, target = re.match(r"store (%\S+) to (.*?)(?: last)?$", line).groups()  # type: ignore[union-attr]
                buffer, index, mask, _ = self.access(target, names)
                if value in scattered:
                    self.scatter(memory[buffer], index, *scattered[value])
                    continue
                shape = torch.broadcast_shapes(index.shape, values[value].shape, mask.shape)
                index, stored, mask = index.expand(shape), values[value].expand(shape), mask.expand(shape)
                assert index[mask].unique().numel() == index[mask].numel(), (
                    f"{self.name} stores twice to one place of {buffer}"
                )
                memory[buffer][index[mask]] = stored[mask]
                continue
            if found := re.match(r"(%\S+) = scatter (\w+)\((%\S+), (%\S+)\)", line):
                scattered[found[1]] = (found[2], values[found[3]], values[found[4]])
                continue
            label, body, dtype = re.match(r"(%\S+) = (.*) : (\w+)(?: named \w+)?$", line).groups()  # type: ignore[union-attr]
            values[label] = self.value(body, DTYPES[dtype], values, names, memory)

    def scatter(self, memory: Tensor, index: Tensor, fold: str, place: Tensor, value: Tensor) -> None:
        """At every point of the axes in order, whether or not anything of it varies there."""
        place, value = (
            (index + place).expand(self.full).flatten().long(),
            value.expand(self.full).flatten().to(memory.dtype),
        )
        if fold == "put":
            for at, one in zip(place.tolist(), value):
                memory[at] = one
        else:
            memory.copy_(
                memory.scatter_reduce(
                    0, place, value, {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}[fold]
                )
            )

    def access(self, text: str, names: dict[str, Any]) -> tuple[str, Tensor, Tensor, float]:
        otherwise = 0.0
        if found := re.match(r"(.*) else (\S+)$", text):
            text, otherwise = found[1], _number(found[2])
        text, _, guards = text.partition(" if ")
        buffer, index = re.match(r"(\w+)\[(.*)\]$", text).groups()  # type: ignore[union-attr]
        where = (
            torch.as_tensor(eval(index, {}, names)).broadcast_to([1] * len(self.axes))
            if not re.search("[a-z]", index)
            else eval(index, {}, names)
        )
        return buffer, where, self.mask(guards, names), otherwise

    def mask(self, guards: str, names: dict[str, Any]) -> Tensor:
        mask = torch.ones([1] * len(self.axes), dtype=torch.bool)
        for guard in guards.split(" and ") if guards else []:
            low, middle, high = re.match(r"(-?\d+) <= (.*) < (-?\d+)$", guard).groups()  # type: ignore[union-attr]
            position = eval(middle, {}, names)
            mask = mask & (torch.as_tensor(position) >= int(low)) & (torch.as_tensor(position) < int(high))
        return mask

    def value(
        self, body: str, dtype: torch.dtype, values: dict[str, Tensor], names: dict[str, Any], memory: dict[str, Tensor]
    ) -> Tensor:
        kind, _, rest = body.partition(" ")
        if kind == "constant":
            return torch.full(
                [1] * len(self.axes),
                {"true": True, "false": False}.get(rest, rest)
                if rest in ("true", "false")
                else (
                    _number(rest)
                    if dtype.is_floating_point
                    else int(float(rest))
                    if "e" in rest or "." in rest
                    else int(rest)
                ),
                dtype=dtype,
            )
        if kind == "index":
            return (
                torch.as_tensor(eval(rest, {}, names))
                .to(dtype)
                .broadcast_to(
                    torch.broadcast_shapes([1] * len(self.axes), torch.as_tensor(eval(rest, {}, names)).shape)
                )
            )
        if kind == "load":
            buffer, index, mask, otherwise = self.access(rest, names)
            shape = torch.broadcast_shapes(index.shape, mask.shape)
            index, mask = index.expand(shape), mask.expand(shape)
            inside = torch.where(mask, index, 0)
            assert int(inside.max()) < memory[buffer].numel() and int(inside.min()) >= 0, (
                f"{self.name} reads outside {buffer}"
            )
            return torch.where(mask, memory[buffer][inside], torch.tensor(otherwise).to(dtype))
        if kind == "gather":
            text, at, condition = re.match(r"(.*) at (%\S+)(?: where (%\S+))?$", rest).groups()  # type: ignore[union-attr]
            buffer, index, mask, otherwise = self.access(text, names)
            index = index + values[at]
            mask = mask & values[condition] if condition else mask
            shape = torch.broadcast_shapes(index.shape, mask.shape)
            inside = torch.where(mask, index, 0).expand(shape)
            assert int(inside.max()) < memory[buffer].numel() and int(inside.min()) >= 0, (
                f"{self.name} reads outside {buffer}"
            )
            return torch.where(mask, memory[buffer][inside], torch.tensor(otherwise).to(dtype))
        if kind == "reduce":
            rest, _, guards = rest.partition(" if ")
            op, operands = re.match(r"(\S+?)\((.*)\)$", rest).groups()  # type: ignore[union-attr]
            folded = [values[one] for one in operands.split(", ")]
            if guards:
                nothing = (
                    torch.tensor({"max": -math.inf, "min": math.inf}.get(op, 0.0))
                    if dtype.is_floating_point
                    else torch.tensor({"max": torch.iinfo(dtype).min, "min": torch.iinfo(dtype).max}.get(op, 0))
                )
                folded = [torch.where(self.mask(guards, names), one, nothing.to(one.dtype)) for one in folded]
            return self.fold(op, folded, dtype)
        if kind == "scan":
            op, operands = re.match(r"(\S+?)\((.*)\)$", rest).groups()  # type: ignore[union-attr]
            return self.walk(op, [values[one] for one in operands.split(", ")], dtype)
        op, operands = re.match(r"(\w+)\((.*)\)$", body).groups()  # type: ignore[union-attr]
        arguments = [values[one] for one in operands.split(", ")]
        if op == "cast":
            return arguments[0].to(dtype)
        result = OPS[op](*arguments)
        assert result.dtype == dtype, f"{self.name}: {body} is {result.dtype}, not {dtype}"
        return result

    def walk(self, op: str, operands: list[Tensor], dtype: torch.dtype) -> Tensor:
        (axis,) = [place for place, one in enumerate(self.axes) if one[2] == "scan"]
        shape = [self.full[i] if i == axis else max(one.shape[i] for one in operands) for i in range(len(self.full))]
        name, _, component = op.partition(".")
        operands = [one.expand(shape).flip(axis) if self.reversed else one.expand(shape) for one in operands]
        x = operands[0]
        if name in ("max", "min"):
            extreme, place = torch.cummax(x, axis) if name == "max" else torch.cummin(x, axis)
            result = operands[1].gather(axis, place) if component else extreme
        else:
            result = {"sum": torch.cumsum, "prod": torch.cumprod, "log_sum_exp": torch.logcumsumexp}[name](x, axis)
        return (result.flip(axis) if self.reversed else result).to(dtype)

    def fold(self, op: str, operands: list[Tensor], dtype: torch.dtype) -> Tensor:
        shape = [
            self.full[i] if i in self.reduce else max(one.shape[i] for one in operands) for i in range(len(self.full))
        ]
        operands = [one.expand(shape) for one in operands]
        x, over = operands[0], self.reduce
        name, _, component = op.partition(".")
        if not over:
            return x
        simple = {
            "sum": lambda: x.sum(over, keepdim=True),
            "max": lambda: x.amax(over, keepdim=True),
            "min": lambda: x.amin(over, keepdim=True),
            "any": lambda: x.any(over[0], keepdim=True) if len(over) == 1 else x.flatten(over[0]).any(-1),
            "all": lambda: x.all(over[0], keepdim=True) if len(over) == 1 else x.flatten(over[0]).all(-1),
        }
        if name in simple:
            return simple[name]().reshape(x.shape[: over[0]] + (1,) * len(over)).to(dtype)
        kept = x.shape[: over[0]]
        flat = [one.reshape(kept + (-1,)) for one in operands]
        if name == "prod":
            result = flat[0].prod(-1)
        elif name in ("arg_max", "arg_min"):
            result = (flat[0].argmax(-1) if name == "arg_max" else flat[0].argmin(-1)).to(dtype)
        elif name == "moments":
            mean = flat[0].mean(-1)
            result = ((flat[0] - mean[..., None]) ** 2).sum(-1) if component else mean
        elif name == "combine_moments":
            mean, squares, count = flat
            total = (mean * count).sum(-1) / count.sum(-1)
            result = (squares + count * (mean - total[..., None]) ** 2).sum(-1) if component else total
        elif name == "max_sum_exp":
            result = (flat[0] - flat[0].amax(-1, keepdim=True)).exp().sum(-1) if component else flat[0].amax(-1)
        elif name == "combine_max_sum_exp":
            largest = flat[0].amax(-1)
            result = (flat[1] * (flat[0] - largest[..., None]).exp()).sum(-1) if component else largest
        else:
            raise AssertionError(f"unknown reduction {name}")
        return result.reshape(kept + (1,) * len(over)).to(dtype)


class TileProgram:
    """A tile program's text, which tile_tool interprets."""

    def __init__(self, text: str) -> None:
        self.text = text + "\n"
        self.name = text.split()[1]
        self.buffers = re.findall(r"^  buffer (\w+): \w+\[(\d+)\]", text, re.MULTILINE)
        self.sizes = dict.fromkeys(re.findall(r"^  size (\w+) = .* threads \d+$", text, re.MULTILINE), 3)

    def run(self, tensors: list[Tensor]) -> None:
        parts = {name: tensor[: int(size)] for (name, size), tensor in zip(self.buffers, tensors)}
        given = {name: [_json(one) for one in tensor.tolist()] for name, tensor in parts.items()}
        with tempfile.NamedTemporaryFile("w", suffix=".tile") as file:
            file.write(self.text)
            file.flush()
            done = subprocess.run(
                [TILE_TOOL, "run", file.name],
                input=json.dumps({"buffers": given, "sizes": self.sizes}),
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr + self.text
        for name, numbers in json.loads(done.stdout)["buffers"].items():
            parts[name].copy_(
                torch.tensor(
                    [float(one) if isinstance(one, str) else one for one in numbers], dtype=_wide(parts[name].dtype)
                )
            )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else torch.int64


def _json(number: float | int) -> float | int | str:
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number


def _type(text: str) -> tuple[torch.dtype, list[int], list[int], int]:
    dtype, shape = re.match(r"(\w+)\[([\d, ]*)\]", text).groups()  # type: ignore[union-attr]
    sizes = [int(one) for one in shape.split(",") if one.strip()]
    found = re.search(r"strides \[([\d, ]*)\]", text)
    strides = (
        [int(one) for one in found[1].split(",") if one.strip()]
        if found
        else list(torch.empty(sizes, device="meta").stride())
    )
    offset = re.search(r"offset (\d+)", text)
    return DTYPES[dtype], sizes, strides, int(offset[1]) if offset else 0


def _flat(tensor: Tensor) -> Tensor:
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    reach = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((max(extent, reach),), (1,), tensor.storage_offset())


def _literal(text: str, tensors: dict[str, Tensor]) -> Any:
    if text.startswith("%"):
        return tensors[text[1:]]
    if text.startswith("("):
        return [None if one == "None" else tensors[one[1:]] for one in text[1:-1].split(", ") if one]
    if text.startswith("["):
        return [_literal(one, tensors) for one in text[1:-1].split(", ") if one]
    if text in ("true", "false", "None"):
        return {"true": True, "false": False, "None": None}[text]
    if text.startswith('"'):
        return text[1:-1]
    if text.startswith("device:"):
        return torch.device(text[7:])
    if text in DTYPES:
        return DTYPES[text]
    return float(text) if any(c in text for c in ".en") else int(text)


def _call(text: str, tensors: dict[str, Tensor]) -> None:
    results, op, arguments = re.match(r"(.*?) = ([\w.]+)\((.*?)\) : ", text).groups()  # type: ignore[union-attr]
    pairs = re.findall(r"(\w+)=(\([^)]*\)|\[[^\]]*\]|\"[^\"]*\"|[^,]+)(?:, |$)", arguments)
    overload = torch.ops
    for part in op.split("."):
        overload = getattr(overload, part)
    answer = overload(**{name: _literal(value, tensors) for name, value in pairs})
    for name, one in zip(results.split(", "), answer if isinstance(answer, (tuple, list)) else [answer]):
        if name != "_":
            tensors[name[1:]] = one


def evaluate(text: str, inputs: dict[str, Tensor]) -> tuple[list[Tensor], list[str]]:
    """The graph's outputs in order, and the lines of the program's steps."""
    text, *programs = re.split(r"\n(?=program \w+ \{)", text)
    kernels: dict[str, Kernel | TileProgram] = {}
    for part in text.split("\nkernel ")[1:]:
        kernel = Kernel("kernel " + part)
        kernels[kernel.name] = kernel
    for part in programs:
        program_of_tiles = TileProgram(part)
        kernels[program_of_tiles.name] = program_of_tiles
    tensors = dict(inputs)
    program = (
        text.split("\nprogram {\n")[1].partition("}\n")[0]
        if "\nprogram {\n}" in text
        else text.split("\nprogram {\n")[1].split("\n}")[0]
    )
    steps = [line.strip() for line in program.splitlines()]
    for step in steps:
        if found := re.match(r"allocate (?:zeros )?(\w+) : (.*)", step):
            dtype, shape, strides, _ = _type(found[2])
            tensors[found[1]] = torch.empty_strided(shape, strides, dtype=dtype)
            if dtype.is_floating_point:
                tensors[found[1]].fill_(math.nan)
        elif found := re.match(r"view (\w+) = (\w+) as (.*)", step):
            _, shape, strides, offset = _type(found[3])
            tensors[found[1]] = tensors[found[2]].as_strided(shape, strides, offset)
        elif step.startswith("call "):
            _call(step[5:], tensors)
        else:
            name, arguments = re.match(r"(?:then, in its last program, )?(\w+)\((.*)\)", step).groups()  # type: ignore[union-attr]
            kernels[name].run([_flat(tensors[one]) for one in arguments.split(", ")])
    returned = re.search(r"^  return (.*)$", text, re.MULTILINE)
    names = re.findall(r"%(\w+)", returned[1]) if returned else []
    return [tensors[name] for name in names], steps
