"""Runs a graph's text form with PyTorch, one ATen call a node: what a pass did can be compared with what it was given."""

from __future__ import annotations

import json
import re
from typing import Any

import torch

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
    "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b1": torch.bool, "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip
MEMORY_FORMATS = {
    name: getattr(torch, name) for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
}
TYPE = re.compile(r"(\w+)\[([^\]]*)\](?: strides \[([^\]]*)\])?(?: offset (\d+))?")
VIEWS = {"view", "permute", "expand", "slice", "select", "as_strided", "diagonal", "unfold"}


def _integers(text: str) -> list[int]:
    return [int(item) for item in text.split(",")] if text.strip() else []


class Type:
    def __init__(self, match: re.Match[str]) -> None:
        self.dtype = DTYPES[match[1]]
        self.shape = _integers(match[2])
        self.strides = (
            list(torch.empty(self.shape, device="meta").stride()) if match[3] is None else _integers(match[3])
        )
        self.offset = int(match[4] or 0)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements under this type's strides."""
        assert tensor.dtype == self.dtype and list(tensor.shape) == self.shape, (
            tensor.dtype,
            list(tensor.shape),
            self.dtype,
            self.shape,
        )
        real = [stride for stride, size in zip(self.strides, self.shape) if size != 1]
        if [stride for stride, size in zip(tensor.stride(), self.shape) if size != 1] == real:
            return tensor
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype).copy_(tensor)


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket and no string."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == '"' and text[at - 1] != "\\"
        depth += 0 if quoted else (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0 and not quoted:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _argument(text: str, values: dict[str, torch.Tensor]) -> Any:
    if text[0] == "%":
        return values[text[1:]]
    if text[0] in "([":
        return [_argument(item, values) for item in _split(text[1:-1])]
    if text[0] == '"':
        return json.loads(text)
    if text in DTYPES:
        return DTYPES[text]
    if ":" in text:
        kind, name = text.split(":", 1)
        return {
            "memory_format": lambda: MEMORY_FORMATS[name],
            "device": lambda: torch.device(name),
            "layout": lambda: torch.strided,
        }[kind]()
    plain = {"None": None, "true": True, "false": False, "float[]": [], "bool[]": []}
    return plain[text] if text in plain else (int(text) if re.fullmatch(r"-?\d+", text) else float(text))


def _call(op: str, arguments: dict[str, Any]) -> Any:
    namespace, name, overload = op.split(".")
    function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    positional, keywords = [], {}
    for item in function._schema.arguments:
        if item.name not in arguments:
            if not item.kwarg_only:
                positional.append(item.default_value if item.has_default_value() else None)
        elif item.kwarg_only:
            keywords[item.name] = arguments[item.name]
        else:
            positional.append(arguments[item.name])
    unknown = set(arguments) - {item.name for item in function._schema.arguments}
    assert not unknown, f"{op} has no arguments {unknown}"
    return function(*positional, **keywords)


def _node(line: str, values: dict[str, torch.Tensor]) -> None:
    head, call = line.split(" = ", 1) if re.match(r"(%\w+|_)(, (%\w+|_))* = ", line) else ("", line)
    names = [name.strip() for name in head.split(",")] if head else []
    op, rest = call.split("(", 1)
    depth = 1
    for end, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            break
    arguments = {name: _argument(text, values) for name, text in (part.split("=", 1) for part in _split(rest[:end]))}
    types = [Type(match) for match in TYPE.finditer(rest[end + 1 :].split("  #")[0])]
    base = op.split(".")[1]
    if base in VIEWS and isinstance(arguments.get("self"), torch.Tensor) and "dtype" not in arguments:
        # The type says where the view lies; the operator says what it is. Both must agree.
        operand, kind = arguments["self"], types[0]
        result = operand.as_strided(kind.shape, kind.strides, kind.offset)
        meaning = operand.reshape(arguments["size"]) if base == "view" else _call(op, arguments)
        assert torch.allclose(result, meaning, rtol=0, atol=0, equal_nan=True), line
        results: Any = [result]
    else:
        results = _call(op, arguments)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        results = [
            kind.place(result)
            for kind, result in zip(types, [result for name, result in zip(names, results) if name != "_"])
        ]
    for name, result in zip([name for name in names if name != "_"], results):
        values[name[1:]] = result


def run(text: str, module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of the graph in their order; `inputs` by the parameter's name in forward."""
    values: dict[str, torch.Tensor] = {}
    outputs: list[torch.Tensor] = []
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for line in map(str.strip, text.splitlines()):
        if match := re.match(
            r'input %(\w+) : .*?\]( strides \[[^\]]*\])?( offset \d+)? (user|parameter|buffer|constant)(?: ("[^"]*"|\S+))?',
            line,
        ):
            name, kind, target = match[1], match[4], (match[5] or "").strip('"')
            access = re.search(r' access "([^"]*)"', line)
            data = re.search(r' data "(.*)"$', line)
            if kind == "user":
                values[name] = inputs[access[1]]
            elif kind == "constant" and data:
                values[name] = torch.tensor(json.loads(data[1].replace("\\", "")), dtype=Type(TYPE.search(line)).dtype)
            else:
                values[name] = (
                    state[target].detach() if target in state else eval(access[1], {"self": module, "torch": torch})
                )
        elif line.startswith("return "):
            outputs = [values[name] for name in re.findall(r"%(\w+)", line)]
        elif re.match(r"(%\w+|_|\w+\.\w+\.\w+\()", line):
            _node(line, values)
    return outputs
