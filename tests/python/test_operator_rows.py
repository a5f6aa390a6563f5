"""The operators' rows (src/ir/op_rows.cpp) agree with PyTorch: what they say of shapes, types and arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import graph_text
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
GRAPH_TOOL = ROOT / "build" / "tests" / "unit" / "graph_tool"
sys.path.append(str(ROOT / "bench"))

from harvesting.operators import arguments_of  # noqa: E402

NAMES = {dtype: name for name, dtype in graph_text.DTYPES.items()}
SHAPES = ((4, 6), (2, 3, 6, 6), (6,), (2, 3, 8), (5, 5), (1, 2, 4, 6, 6), ())
DTYPES = (torch.float32, torch.float16, torch.int64, torch.bool)
CONSTANT = re.compile(r"constexpr std::string_view (k\w+) =\s*((?:\"[^\"]*\"\s*)+);")
ROW = re.compile(
    r"""^    \{"([^"]+)", k\w+, \d+, k\w+, \d+"""  # name, class, FLOPs, lowering, weight
    r"""(?:, k\w+(?:,\s+((?:"[^"]*"\s*)+|k\w+)(?:,\s+[k| \w]+(?:,\s+"[^"]*")?)?)?)?\},$""",  # rule, formula, …
    re.MULTILINE,
)
NAME = re.compile(r"(?<![\w.])([a-z_]\w*)(?!\w|\()")
WORDS = {"and", "or", "xor", "not", "floating", "double", "largest", "inf", "row", "column"}


class Row(NamedTuple):
    name: str
    form: str


def rows() -> list[Row]:
    text = (ROOT / "src" / "ir" / "op_rows.cpp").read_text()

    def joined(literals: str) -> str:
        return "".join(re.findall(r'"([^"]*)"', literals))

    constants = {name: joined(value) for name, value in CONSTANT.findall(text)}
    found = ROW.findall(text.partition("kPlanned[]")[2].partition("struct Family")[0])
    return [Row(name, constants.get(form, joined(form))) for name, form in found]


def overloads(row: Row) -> Iterator[Any]:
    base, _, overload = row.name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    for each in packet.overloads() if packet else ():
        schema = getattr(packet, each)._schema
        makes_tensors = all("Tensor" in str(result.type) for result in schema.returns)
        if (not overload or each == overload) and "out" not in each and not schema.is_mutable and makes_tensors:
            yield getattr(packet, each)


def test_formulas_name_arguments_of_their_operators() -> None:
    checked = 0
    for row in rows():
        known = {argument.name for op in overloads(row) for argument in op._schema.arguments}
        if not row.form or not known:
            continue
        parts = {part.split("=")[0].strip() for part in row.form.split(";")[:-1]}
        asked = re.sub(r"is\((\w+), \w+\)", r"\1", row.form)
        assert set(NAME.findall(asked)) - parts - WORDS <= known, row
        checked += 1
    assert checked > 120


class Graph:
    """A graph's text, node by node."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.nodes: list[str] = []

    def written(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            self.inputs.append(f"  input %x{len(self.inputs)} : {typed(value)} user args.{len(self.inputs)}")
            return f"%x{len(self.inputs) - 1}"
        if isinstance(value, list):
            marks = "()" if any(isinstance(item, torch.Tensor) for item in value) else "[]"
            return marks[0] + ", ".join(self.written(item) for item in value) + marks[1]
        if isinstance(value, bool):
            return str(value).lower()
        if value is None or isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, torch.dtype):
            return NAMES[value]
        return f'"{value}"'

    def add(self, op: Any, arguments: tuple[Any, ...], results: list[torch.Tensor]) -> None:
        given = ", ".join(
            f"{argument.name}={self.written(value)}" for argument, value in zip(op._schema.arguments, arguments)
        )
        names = ", ".join(f"%r{len(self.nodes)}_{index}" for index in range(len(results)))
        self.nodes.append(f"  {names} = {op.name().replace('::', '.')}({given}) : {', '.join(map(typed, results))}")

    def text(self) -> str:
        return "\n".join(["graph Rows {", *self.inputs, *self.nodes, "}", ""])


def typed(tensor: torch.Tensor) -> str:
    return f"{NAMES[tensor.dtype]}{list(tensor.shape)} strides {list(tensor.stride())} offset {tensor.storage_offset()}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rules_give_the_types_that_pytorch_gives(dtype: torch.dtype, tmp_path: Path) -> None:
    graph = Graph()
    for op in (op for row in rows() for op in overloads(row)):
        for shape in SHAPES:
            arguments = arguments_of(op, shape, dtype)
            try:
                results = op(*arguments)
            except Exception:  # noqa: BLE001, S112: the guess at its arguments is none that it takes
                continue
            results = list(results) if isinstance(results, (tuple, list)) else [results]
            if results and all(isinstance(one, torch.Tensor) for one in results):
                name = op.name().replace("::", ".")
                graph.add(op, arguments, results)
                if "." not in name.removeprefix("aten."):
                    graph.nodes[-1] = graph.nodes[-1].replace(name + "(", name + ".default(")
    assert len(graph.nodes) > 300
    (tmp_path / "graph.txt").write_text(graph.text())
    done = subprocess.run([GRAPH_TOOL, tmp_path / "graph.txt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
