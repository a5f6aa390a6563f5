"""The operators' rows (src/ir/op_rows.cpp) agree with PyTorch: what they say of shapes, types and arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

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
    r"""(?:, (k\w+)(?:,\s+((?:"[^"]*"\s*)+|k\w+)"""  # rule, formula
    r"""(?:,\s+([k| \w]+)(?:,\s+"[^"]*"){0,3})?)?)?\},$""",  # flags, names
    re.MULTILINE,
)
FAMILY = re.compile(r"""^    \{k\w+, \d+, ([k| \w]+),\s+((?:"[^"]*"\s*)+)\},$""", re.MULTILINE)
FLAGS = re.compile(r"constexpr unsigned (k\w+) = ([k| \w]+);")
NAME = re.compile(r"(?<![\w.])([a-z_]\w*)(?!\w|\()")
WORDS = {"and", "or", "xor", "not", "floating", "double", "largest", "inf", "row", "column"}


class Row(NamedTuple):
    name: str
    rule: str
    form: str
    flags: frozenset[str]


def _joined(literals: str) -> str:
    return "".join(re.findall(r'"([^"]*)"', literals))


def _flags(text: str, words: str) -> frozenset[str]:
    several = dict(FLAGS.findall(text))
    found: set[str] = set()
    for word in re.findall(r"k\w+", words):
        found |= _flags(text, several[word]) if word in several else {word}
    return frozenset(found)


def rows() -> list[Row]:
    text = (ROOT / "src" / "ir" / "op_rows.cpp").read_text()
    constants = {name: _joined(value) for name, value in CONSTANT.findall(text)}
    found = ROW.findall(text.partition("kPlanned[]")[2].partition("struct Family")[0])
    return [
        Row(name, rule, constants.get(form, _joined(form)), _flags(text, flags)) for name, rule, form, flags in found
    ]


def families() -> list[Row]:
    """What is the library's alone."""
    text = (ROOT / "src" / "ir" / "op_rows.cpp").read_text()
    found = FAMILY.findall(text.partition("kLibraryFamilies[]")[2])
    return [Row(name, "", "", _flags(text, flags)) for flags, names in found for name in _joined(names).split()]


def rules_of(predicate: str) -> set[str]:
    """The rules for which a predicate of src/ir/op_registry.hpp holds."""
    text = (ROOT / "src" / "ir" / "op_registry.hpp").read_text()
    rules = re.findall(r"^  (k\w+),", text.partition("enum class OpRule {")[2].partition("};")[0], re.MULTILINE)
    body = text.partition(f"constexpr bool {predicate}(OpRule rule)")[2].partition("}")[0]
    found = set(re.findall(r"rule == OpRule::(k\w+)", body))
    for first, last in re.findall(r"OpRule::(k\w+) <= rule && rule <= OpRule::(k\w+)", body):
        found |= set(rules[rules.index(first) : rules.index(last) + 1])
    return found


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


def first_results(row: Row, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[tuple[tuple, torch.Tensor]]:
    """Of the operator's overloads that eager runs on a guess at their arguments, floats changed so."""
    for op in overloads(row):
        for shape in SHAPES:
            arguments = tuple(
                change(one) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
                for one in arguments_of(op, shape, torch.float32)
            )
            try:
                results = op(*arguments)
            except Exception:  # noqa: BLE001, S112: the guess at its arguments is none that it takes
                continue
            first = results[0] if isinstance(results, (tuple, list)) else results
            if isinstance(first, torch.Tensor) and first.is_floating_point():
                yield arguments, first


def with_special_numbers(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor * 20
    special = torch.tensor([-0.0, 0.0, torch.inf, -torch.inf, torch.nan, -1.5, 3e38, -100.0])
    flat = tensor.view(-1)
    flat[: len(special)] = special[: len(flat)]
    return tensor


def never_negative(tensor: torch.Tensor) -> bool:
    return bool((tensor.isnan() | ~tensor.signbit()).all())


RANGES: dict[str, Callable[[torch.Tensor], bool]] = {
    "kNeverNegative": never_negative,
    "kAtMostOne": lambda result: bool((result.isnan() | (result <= 1)).all()),
    "kWhole": lambda result: bool((~result.isfinite() | (result == result.round())).all()),
}


@pytest.mark.parametrize("flag", RANGES)
def test_results_lie_in_the_range_that_the_row_states(flag: str) -> None:
    checked = set()
    for row in rows():
        if flag not in row.flags:
            continue
        for change in (lambda tensor: tensor * 20, with_special_numbers):
            for arguments, result in first_results(row, change):
                assert RANGES[flag](result), (row, arguments, result)
                checked.add(row.name)
    assert len(checked) > 2


def test_rules_that_pick_elements_make_none() -> None:
    checked = set()
    for row in rows():
        if row.rule not in rules_of("picks_elements"):
            continue
        for arguments, result in first_results(row, lambda tensor: tensor):
            known = torch.cat([one.flatten() for one in arguments if isinstance(one, torch.Tensor)])
            assert torch.isin(result, known).all(), (row, arguments, result)
            checked.add(row.name)
    assert len(checked) > 40


def test_rules_that_add_up_keep_what_is_not_negative() -> None:
    checked = set()
    for row in rows():
        if row.rule not in rules_of("adds_up"):
            continue
        for arguments, result in first_results(row, torch.abs):
            assert never_negative(result), (row, arguments, result)
            checked.add(row.name)
    assert len(checked) > 6


def test_what_has_memory_of_its_own_shares_none() -> None:
    checked = set()
    for row in rows() + families():
        if "kOwnMemory" not in row.flags:
            continue
        for arguments, result in first_results(row, lambda tensor: tensor):
            given = {one.untyped_storage().data_ptr() for one in arguments if isinstance(one, torch.Tensor)}
            assert result.untyped_storage().data_ptr() not in given, (row, arguments)
            checked.add(row.name)
    assert len(checked) > 5


def _draws(op: Any, settings: dict[str, Any]) -> bool:
    """Does a call move the generator on?"""
    known = {argument.name for argument in op._schema.arguments}
    tensors = {"self": torch.randn(2, 3, 4, 4), "input": torch.randn(2, 3, 4, 4), "noise": torch.zeros(2, 3, 4, 4)}
    torch.manual_seed(5)
    before = torch.get_rng_state()
    op(**{name: value for name, value in {**tensors, **settings}.items() if name in known})
    return not torch.equal(before, torch.get_rng_state())


def test_what_is_random_in_training_alone_draws_there_alone() -> None:
    checked = set()
    for row in rows() + families():
        if "kRandomInTraining" not in row.flags:
            continue
        op = getattr(torch.ops.aten, row.name).default
        assert _draws(op, {"train": True, "training": True, "p": 0.5}), row
        assert not _draws(op, {"train": False, "training": False, "p": 0.5}), row
        with_nothing_to_drop = _draws(op, {"train": True, "training": True, "p": 0.0})
        assert with_nothing_to_drop != ("kMayAlias" in row.flags), row
        checked.add(row.name)
    assert len(checked) == 8
