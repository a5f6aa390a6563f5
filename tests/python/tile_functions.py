"""Printed C++ functions of tile programs, compiled into one library and called with tensors."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Mapping

import torch

HOME = Path(__file__).resolve().parent.parent.parent
LOADER = (HOME / "src" / "emit" / "runtime" / "cpu" / "loader.py").read_text()


def compiler_flags() -> list[str]:
    """Those of emitted kernels."""
    text = re.findall(r"COMPILER_FLAGS = \((.*?)\)\.split", LOADER, re.DOTALL)[0]
    return " ".join(re.findall(r'"(.*?)"', text)).split()


class Functions:
    """Of several sources, each of which has one function; its place among them names it."""

    def __init__(self, folder: Path, sources: list[str]) -> None:
        parts: list[str] = []
        self.heads: list[str] = []
        for number, source in enumerate(sources):
            head = re.findall(r'^extern "C" [^{]*', source, re.MULTILINE)[0]
            name = re.findall(r"(\w+)\(", head)[0]
            body = re.sub(r"^#include .*\n", "", source, flags=re.MULTILINE)
            body = body.replace(f" {name}(", f" printed_{number}(", 1)
            parts.append(f"namespace case_{number} {{\n{body}}}\n")
            self.heads.append(head)
        includes = sorted(set(re.findall(r"^#include .*\n", "".join(sources), re.MULTILINE)))
        file = folder / "printed.cpp"
        file.write_text("".join(includes) + "".join(parts))
        subprocess.run(["g++", *compiler_flags(), file, "-o", folder / "printed.so"], check=True)
        self._library = ctypes.CDLL(str(folder / "printed.so"))

    def call(
        self, number: int, tensors: Mapping[str, torch.Tensor], threads: int, sizes: Mapping[str, int] | None = None
    ) -> None:
        arguments: list[ctypes.c_void_p | ctypes.c_int | ctypes.c_int64] = []
        for parameter in re.findall(r"\w+(?=[,)])", self.heads[number]):
            if parameter in tensors:
                arguments.append(ctypes.c_void_p(tensors[parameter].data_ptr()))
            elif parameter == "threads":
                arguments.append(ctypes.c_int(threads))
            else:
                arguments.append(ctypes.c_int64((sizes or {})[parameter]))
        getattr(self._library, f"printed_{number}")(*arguments)
