"""Slices of what a call updates, caches of keys and values above all: they are written where they lie, and the rest of
the tensor is neither read nor written.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from case_checks import compile_for_gpu
from interpreter_process import InterpreterProcess
from test_emitted_modes import load
from torch import Tensor

from kernelwright import library
from kernelwright.capture import export

Forward = Callable[[Any, Tensor], Any]


def appended(self: Any, x: Tensor) -> Tensor:
    self.cache[:, 5:7] = x * 2
    return self.cache[:, :7].sum(1)


def one_place(self: Any, x: Tensor) -> Tensor:
    self.cache[:, -1] = x[:, 0]
    return x + 1


def both_ways(self: Any, x: Tensor) -> Tensor:
    self.cache[:, 30:] = x
    self.small[..., 3:5] = x.amax(-1, keepdim=True).half()
    return self.cache[:, 20:] @ x.mT + self.small[:, :2].float().sum()


def all_of_it(self: Any, x: Tensor) -> Tensor:
    self.cache[:, :] = x.mean(1, keepdim=True).expand(-1, 32, -1)
    return self.cache * 3


# Something needs what was there before: the new contents are a tensor of their own.
def moved(self: Any, x: Tensor) -> Tensor:
    self.cache[:, :-2] = self.cache[:, 2:].clone()
    return self.cache[:, 0] + x[:, 0]


def read_before(self: Any, x: Tensor) -> Tensor:
    before = self.cache[:, 4:6] + 1
    self.cache[:, 5:7] = x
    return before


def read_behind(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    kept = self.cache[:, 5:7].clone()
    self.cache[:, 5:7] = x
    return kept, self.cache[:, 4:6] - kept


def twice(self: Any, x: Tensor) -> Tensor:
    self.cache[:, 5:7] = x
    self.cache[:, 6:8] = x + 1
    return self.cache.sum(1)


IN_PLACE: dict[str, Forward] = {one.__name__: one for one in (appended, one_place, both_ways)}
NEW: dict[str, Forward] = {one.__name__: one for one in (moved, read_before, read_behind)}
RIGHT: dict[str, Forward] = IN_PLACE | NEW | {one.__name__: one for one in (all_of_it, twice)}


class Cached(torch.nn.Module):
    """4 sequences of up to 32 places."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.register_buffer("cache", torch.randn(4, 32, 24, generator=generator))
        self.register_buffer("small", torch.randn(4, 2, 8, generator=generator).half())
        self.function = forward

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def steps() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 2, 24, generator=generator) for _ in range(3)]


def fault_of(name: str, path: Path) -> str:
    """Of calls in turn: the first result or buffer that is not eager's, and nothing if there is none."""
    eager = Cached(RIGHT[name])
    ours = load(path.read_text(), path.parent, "candidate").ModelNew(copy.deepcopy(eager))
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        for step, x in enumerate(steps()):
            expected, actual = leaves(eager(x)), leaves(ours(x))
            for one, other in zip(actual + list(ours.buffers()), expected + list(eager.buffers()), strict=True):
                if not torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                    return f"call {step}: {one} for {other}"
    return ""


def interpreted(request: dict[str, Any]) -> str:
    return fault_of(request["name"], Path(request["path"]))


def forward_of(source: str) -> str:
    return source.partition("def kernel_forward(")[2].partition("\n\n\n")[0]


@pytest.mark.parametrize("name", RIGHT)
def test_calls_are_eagers_on_a_cpu(name: str, tmp_path: Path) -> None:
    made = library.compile_graph(export.export_module(Cached(RIGHT[name]), (steps()[0],)), "cpu")
    path = tmp_path / "made.py"
    path.write_text(made["source"])
    assert fault_of(name, path) == ""
    forward = forward_of(made["source"])
    if name in IN_PLACE:  # kernels that take the slice and the buffer, and nothing else as large
        writes = re.findall(r"scatter_kernel\w*\(([^()]*\(\)(?:[^()]|\(\))*)\)", forward)
        assert writes and all(write.count("data_ptr()") == 2 for write in writes), forward
        assert "empty((4, 32, 24)" not in forward and "copy_" not in made["source"]
    elif name in NEW:
        assert "empty((4, 32, 24)" in forward


@pytest.mark.parametrize("name", RIGHT)
def test_calls_are_eagers_in_triton(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "made.py"
    path.write_text(compile_for_gpu(Cached(RIGHT[name]), steps()[0])["source"])
    process = InterpreterProcess(tmp_path, "test_slice_writes:interpreted")
    assert process.fault(path=str(path), name=name) == ""
    process.close()
