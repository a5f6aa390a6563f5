"""Tile programs printed as C++ compute what PyTorch does."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from test_tile_programs import NAMES, RUNS, drawn, tool
from tile_cases import HOME, Case, expected, fault_of

LOADER = (HOME / "src" / "emit" / "cpu" / "loader.py").read_text()
THREADS = 2


def compiler_flags() -> list[str]:
    """Those of emitted kernels."""
    text = re.findall(r"COMPILER_FLAGS = \((.*?)\)\.split", LOADER, re.DOTALL)[0]
    return " ".join(re.findall(r'"(.*?)"', text)).split()


def compiled(folder: Path, sources: list[str]) -> tuple[ctypes.CDLL, list[str]]:
    """All of them in one library, and their functions' heads; each function gets its source's number."""
    parts, heads = [], []
    for number, source in enumerate(sources):
        head = re.findall(r'^extern "C" [^{]*', source, re.MULTILINE)[0]
        name = re.findall(r"(\w+)\(", head)[0]
        body = re.sub(r"^#include .*\n", "", source, flags=re.MULTILINE).replace(f" {name}(", f" printed_{number}(", 1)
        parts.append(f"namespace case_{number} {{\n{body}}}\n")
        heads.append(head)
    includes = sorted(set(re.findall(r"^#include .*\n", "".join(sources), re.MULTILINE)))
    file = folder / "printed.cpp"
    file.write_text("".join(includes) + "".join(parts))
    subprocess.run(["g++", *compiler_flags(), file, "-o", folder / "printed.so"], check=True)
    return ctypes.CDLL(str(folder / "printed.so")), heads


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[str], list[str]]:
    sources = [tool("cpu", case.file, schedule) for case, schedule in RUNS]
    return *compiled(tmp_path_factory.mktemp("cpu"), sources), sources


def call(kernels: ctypes.CDLL, number: int, head: str, case: Case, made: dict[str, torch.Tensor]) -> None:
    arguments: list[Any] = []
    for parameter in re.findall(r"\w+(?=[,)])", head):
        if parameter in made:
            arguments.append(ctypes.c_void_p(made[parameter].data_ptr()))
        else:
            arguments.append(ctypes.c_int(THREADS) if parameter == "threads" else ctypes.c_int64(case.sizes[parameter]))
    getattr(kernels, f"printed_{number}")(*arguments)


@pytest.mark.parametrize("number", range(len(RUNS)), ids=NAMES)
def test_printed_functions_compute_what_pytorch_does(library: Any, number: int) -> None:
    kernels, heads, sources = library
    assert max(map(len, sources[number].rpartition("}  // namespace")[2].splitlines())) <= 120
    case, _ = RUNS[number]
    made = {name: tensor.contiguous() for name, tensor in drawn(case).items()}
    wanted = expected(case, made)
    call(kernels, number, heads[number], case, made)
    assert fault_of(case, made, wanted) == ""
