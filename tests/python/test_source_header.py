"""What a candidate's first comment says of its kernels: how they are scheduled, and what the cost model expects of
them.
"""

from __future__ import annotations

import re
from typing import Any, Callable

import pytest
import torch
from case_checks import compile_for_gpu
from kernelwright import library
from kernelwright.capture import export
from movement_cases import Wrapped

Tensor = torch.Tensor


def header(source: str) -> str:
    lines = source.splitlines()
    count = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    assert max(len(line) for line in lines[:count]) <= 120
    return "\n".join(lines[:count])


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(torch.nn.functional.linear(x, w, b))


def convolution(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(torch.nn.functional.conv2d(x, w, b))


LARGE = (torch.empty(4096, 4096), torch.empty(4096, 4096), torch.empty(4096))
IMAGE = (torch.empty(32, 64, 64, 64), torch.empty(128, 64, 3, 3), torch.empty(128))


@pytest.mark.parametrize(
    ("function", "arguments", "scheduler", "products"),
    [
        (linear, LARGE, "contraction", "; products of f32 by three of halves"),
        (linear, tuple(tensor.half() for tensor in LARGE), "contraction", ""),
        (convolution, IMAGE, "convolution", "; products of f32 by one of halves, for TF32"),
    ],
    ids=["linear", "linear_half", "convolution"],
)
def test_schedule_precision_and_share(
    function: Callable[..., Tensor], arguments: tuple[Tensor, ...], scheduler: str, products: str
) -> None:
    source = compile_for_gpu(Wrapped(function), *arguments)["source"]
    text = header(source)
    assert "# Scheduled for NVIDIA H200:" in text
    launched = re.findall(r"^def (\w+_kernel\w*)\(", source, re.M)
    named = re.findall(r"\w+_kernel\w*(?=[,:])", text)
    assert named and set(named) <= set(launched)
    in_one_line = re.sub(r"\n#     ", " ", text)
    [group] = re.findall(rf": {scheduler} (.*) ([\d.e-]+) ms expected, (\d+) % of the roofline(.*)", in_one_line)
    assert "block_m=" in group[0]
    assert float(group[1]) > 0 and 20 <= int(group[2]) <= 100
    assert group[3] == products


def test_long_modules_show_their_first_groups() -> None:
    def layers(x: Tensor) -> Tensor:
        for _ in range(25):
            x = torch.cumsum(torch.cumsum(x, 0), 1)
        return x

    text = header(compile_for_gpu(Wrapped(layers), torch.empty(256, 256))["source"])
    assert text.count("% of the roofline") == 20
    assert re.search(r"#   and \d+ more groups$", text)


def test_library_calls_alone_have_no_schedule() -> None:
    made: dict[str, Any] = library.compile_graph(
        export.export_module(Wrapped(torch.linalg.inv), (torch.randn(4, 4),)), "cpu"
    )
    assert "Scheduled for" not in made["source"]
    assert "# 0 kernels, 1 library call (aten.linalg_inv)." in header(made["source"])


NOTES = {
    "# The small products are added up first: ": "product_small",
    "# Added in f32 after each step: ": "product",
    "# The smaller scale first: ": "minimum = tl.minimum(",
    "# Up to 8 neighbours along row_block go ": "row_block",
}


@pytest.mark.parametrize("rows", [512, 2048], ids=["blocks", "consumers"])
def test_choices_of_a_product_are_explained_where_they_are_made(rows: int) -> None:
    arguments = torch.empty(rows, 1024), torch.empty(4096, 1024), torch.empty(4096)
    source = compile_for_gpu(Wrapped(linear), *arguments)["source"]
    lines = [line.strip() for line in source.splitlines()]
    for note, explained in NOTES.items():
        places = [place for place, line in enumerate(lines) if line.startswith(note)]
        assert places and all(explained in lines[place + 1] for place in places), note
    assert max(map(len, source.splitlines())) <= 140


def compile_for_cpu(function: Callable[..., Any], *arguments: Tensor) -> str:
    made: dict[str, Any] = library.compile_graph(export.export_module(Wrapped(function), arguments), "cpu")
    return str(made["source"])


def test_a_cpus_file_says_schedule_and_share() -> None:
    text = header(compile_for_cpu(lambda x: torch.softmax(x, -1), torch.randn(64, 1000)))
    assert "# Scheduled for generic CPU:" in text
    assert re.search(r"#   softmax_kernel: normalisation\n#     [\d.e-]+ ms expected, \d+ % of the roofline$", text)


WIDE = "In double precision"
NAN = "Comparisons pass over NaN"
ENDS = "Begins and ends where masks do"
SHORT = "Counted in 32 bits"
BLOCKS = "A block at a time"
PLACES = "Places in a second walk"
FIRST = "Counted from the first element"
OWNERS = "Each owner stores at its own places"
REFUSED = "Nothing is stored behind a refused index"
SPARE = "Some elements more"
SCRATCH = "More than a thread's stack may have room for"


def notes_of(source: str) -> dict[str, list[str]]:
    """Of each C++ function: its comments, as far as they give a reason."""
    notes: dict[str, list[str]] = {}
    for line in source.splitlines():
        if started := re.match(r'extern "C" .*?(\w+)\(', line):
            notes[started[1]] = []
        elif notes and (note := re.match(r" +// ([^:,.]*)", line)):
            notes[list(notes)[-1]].append(note[1])
        elif notes and line.startswith('"""'):
            return notes
    return notes


def extremes_and_places(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.argmax(1), x.argmax(2)


def two_results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.roll(x, 3, 1), x + y, x.t() * 2


def add_rows(x: Tensor, places: Tensor) -> Tensor:
    return torch.zeros(1000, 8).index_add(0, places, x)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


HEADS = tuple(torch.randn(2, 8, 1024, 64) for _ in range(3))
ROWS = torch.randn(1024, 777)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (torch.relu, (ROWS,), [[]]),
        (lambda x, y: torch.sigmoid(x) * y + 1, (ROWS, torch.randn(777)), [[]]),
        (lambda x: torch.softmax(x, 1), (ROWS,), [[NAN, WIDE]]),
        (lambda x: torch.softmax(x, 1), (ROWS.double(),), [[NAN, "In long double"]]),
        (lambda x: torch.nn.functional.layer_norm(x, (777,)), (ROWS,), [[FIRST, WIDE]]),
        (lambda x: torch.cumsum(x, 1), (ROWS,), [[WIDE, "Rows side by side", BLOCKS]]),
        (extremes_and_places, (torch.randn(16, 256, 300),), [[BLOCKS, ENDS, PLACES], [NAN, PLACES, SHORT]]),
        (lambda x: x.t().contiguous() + 1, (ROWS,), [["In squares", ENDS]]),
        (two_results, (ROWS, ROWS), [["Stores come last"]]),
        (add_rows, (torch.randn(20000, 8), torch.arange(20000) % 1000), [[], [OWNERS, REFUSED]]),
        (attention, HEADS, [[SCRATCH, BLOCKS, "Turned in squares", NAN]]),
    ],
    ids=[
        "relu",
        "pointwise",
        "softmax",
        "doubles",
        "layer_norm",
        "running",
        "places",
        "turned",
        "stores",
        "rows",
        "attention",
    ],
)
def test_a_cpus_kernels_say_why_once_where_a_reader_would_ask(
    function: Callable[..., Any], arguments: tuple[Tensor, ...], expected: list[list[str]]
) -> None:
    source = compile_for_cpu(function, *arguments)
    assert [sorted(notes) for notes in notes_of(source).values()] == [sorted(notes) for notes in expected]
    assert max(map(len, source.splitlines())) <= 140


def test_a_winograd_convolution_says_what_is_shared_and_what_is_left_out() -> None:
    arguments = torch.randn(2, 64, 56, 56), torch.randn(64, 64, 3, 3), torch.randn(64)
    function = lambda x, w, b: torch.relu(torch.nn.functional.conv2d(x, w, b, padding=1))  # noqa: E731
    notes = notes_of(compile_for_cpu(function, *arguments))
    [forms] = [name for name, found in notes.items() if "Winograd" in found]
    assert sorted(notes[forms]) == sorted(["Winograd", SCRATCH, SPARE])
    [again] = [name for name, found in notes.items() if "The data say which blocks need these products" in found]
    assert again != forms and "Blocks differ in work" in notes[again]


def test_a_product_of_halves_needs_no_notes_of_single_precision() -> None:
    source = compile_for_gpu(Wrapped(linear), *(one.half() for one in LARGE))["source"]
    assert "# Up to 8 neighbours along " in source
    assert not any(note in source for note in list(NOTES)[:3])
