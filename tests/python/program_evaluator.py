"""Runs a planned program without any printer: parses what plan_tool prints and has tile_tool interpret every kernel.

It shows whether the plan is right, whatever a target makes of it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from dtype_names import DTYPES

HOME = Path(__file__).resolve().parents[2]
PLAN_TOOL = HOME / "build" / "tests" / "unit" / "plan_tool"
TILE_TOOL = HOME / "build" / "tests" / "unit" / "tile_tool"

Tensor = torch.Tensor


def plan(graph: dict[str, Any], target: str, folder: Path, *options: str) -> str:
    """What plan_tool prints for a captured graph."""
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    done = subprocess.run([PLAN_TOOL, path, target, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


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
    kernels = {kernel.name: kernel for kernel in map(TileProgram, programs)}
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
