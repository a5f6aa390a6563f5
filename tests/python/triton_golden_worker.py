"""Runs golden Triton modules in Triton's interpreter: `triton_golden_worker.py OUT DRAW:FILE…`, with
TRITON_INTERPRET=1.

OUT receives {file stem: {draw: {buffer name: tensor}}}: inputs as drawn, outputs as the kernel left them, all flat.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from dtype_names import DTYPES

BUFFER = re.compile(r"^\s*buffer (\w+) : (\w+)\[(\d+)\] (\w+)", re.MULTILINE)


def split_golden(path: Path) -> tuple[str, str]:
    """The kernel's text and the module printed from it."""
    kernel, _, source = path.read_text().partition("----\n")
    return kernel, source


def load_module(path: Path) -> ModuleType:
    """The printed module, imported from a file because Triton reads its kernels' source."""
    file = Path(tempfile.mkdtemp()) / f"{path.stem}.py"
    file.write_text(split_golden(path)[1])
    spec = importlib.util.spec_from_file_location(path.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw_buffer(name: str, dtype: torch.dtype, elements: int, draw: str, generator: torch.Generator) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(elements, generator=generator) < 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -100
        values = torch.randint(low, 100, (elements,), generator=generator)
        # An integer divided by zero has no answer to agree on.
        return (torch.where(values == 0, 7, values) if name == "y" else values).to(dtype)
    if draw == "equal":
        return torch.full((elements,), 2.0, dtype=dtype)
    values = torch.randn(elements, generator=generator, dtype=torch.float64)
    if draw == "special" and elements >= 96:
        for special in (0.0, 1.0, -0.0, 2.0):
            values[torch.rand(elements, generator=generator) < 0.05] = special
        for special in (float("nan"), float("inf"), float("-inf")):
            values[torch.randint(0, elements, (1 + elements // 2000,), generator=generator)] = special
        values[: elements // 8] = float("-inf")
    return values.to(dtype)


def run(path: Path, draw: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    buffers: dict[str, torch.Tensor] = {}
    for name, dtype, elements, role in BUFFER.findall(split_golden(path)[0]):
        kind = DTYPES[dtype]
        if role == "input":
            buffers[name] = draw_buffer(name, kind, int(elements), draw, generator)
        else:
            buffers[name] = torch.full((int(elements),), 99, dtype=torch.int64).to(kind)
    module = load_module(path)
    module.launch = lambda kernel, grid, *tensors, **options: kernel[grid](*tensors, **options)
    module.run(**buffers)
    return buffers


def main() -> None:
    from kernelwright import interpreter

    interpreter.install()
    np.seterr(all="ignore")
    out, *wanted = sys.argv[1:]
    results: dict[str, dict[str, dict[str, torch.Tensor]]] = {}
    for draw, path in ((draw, Path(file)) for draw, _, file in (one.partition(":") for one in wanted)):
        results.setdefault(path.stem, {})[draw] = run(path, draw)
    torch.save(results, out)


if __name__ == "__main__":
    main()
