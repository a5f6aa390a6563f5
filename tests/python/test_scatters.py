"""Ops that write where indices say, in our own kernels: on the CPU for real, in Triton's interpreter, and compiled for
Hopper.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_checks import check_in_triton, check_on_the_cpu, emit, emit_for_gpu, interpreter_of, load
from interpreter_process import InterpreterProcess
from movement_cases import Case, Wrapped, fault_of
from scatter_cases import CASES

from kernelwright import library
from kernelwright.capture import export


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu(name: str) -> None:
    check_on_the_cpu(CASES[name])


interpreter = interpreter_of("scatter_cases:interpreted")


@pytest.mark.parametrize("name", CASES)
def test_in_triton(name: str, interpreter: InterpreterProcess, tmp_path: Path) -> None:
    check_in_triton(name, lambda draw: emit_for_gpu(CASES[name](draw)), interpreter, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int16], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax"])
def test_folds_of_16_bits_compile_for_hopper(dtype: torch.dtype, reduce: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from kernelwright import compile_only

    arguments = (torch.ones(9, 20, dtype=dtype), torch.zeros(9, 20, dtype=torch.int64), torch.ones(9, 20, dtype=dtype))
    case = Case(lambda x, i, s: x.scatter_reduce(0, i, s, reduce), arguments, exact=False)
    path = tmp_path / "candidate.py"
    path.write_text(emit(case, "triton")["source"])
    rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
    assert rows and all(row["ok"] for row in rows), [row["error"] for row in rows]
    assert not fault_of(case, load(emit(case, "cpu")["source"]))


@pytest.mark.parametrize("shape", [(70000,), (70000, 3), (40, 3000), (3000, 40)], ids=str)
def test_threads_keep_the_order_of_points(shape: tuple[int, ...]) -> None:
    """The last of those that meet wins, and sums are taken in order, whatever number of threads shares them out."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 50, (shape[0],), generator=generator)
    x, source = torch.zeros(50, *shape[1:]), torch.randn(shape, generator=generator)

    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = i.view(-1, *[1] * (s.dim() - 1)).expand_as(s)
        return x.index_add(0, i, s), x.scatter(0, wide, s), x.scatter_reduce(0, wide, s, "amax")

    candidate = load(emit(Case(function, (x, index, source)), "cpu")["source"]).ModelNew(Wrapped(function))
    threads = torch.get_num_threads()
    first: torch.Tensor | None = None
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            with torch.no_grad():
                sums, put, largest = candidate(x, index, source)
            expected = x.clone()
            last = torch.zeros(50, dtype=torch.int64)
            for place, row in enumerate(index.tolist()):
                last[row] = place
            hit = torch.zeros(50, dtype=torch.bool).index_fill(0, index, True)
            assert torch.equal(put[hit], source[last][hit]) and torch.equal(put[~hit], x[~hit])
            assert torch.equal(largest, function(x, index, source)[2])
            torch.testing.assert_close(sums, expected.index_add(0, index, source), rtol=1e-5, atol=1e-4)
            first = sums if first is None else first
            assert torch.equal(sums, first)
    finally:
        torch.set_num_threads(threads)


class Cache(torch.nn.Module):
    """Keys written where they belong, and what attention makes of them all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(4, 50, 8))
        self.register_buffer("counts", torch.zeros(50, dtype=torch.int64))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.keys[:, at] = x * 2
        self.counts.index_add_(0, at, torch.ones_like(at))
        return self.keys.sum(1)


def test_a_buffer_that_a_call_updates_is_written_into_and_not_copied() -> None:
    x, at = torch.randn(4, 3, 8), torch.tensor([7, 1, 49])
    reference = Cache()
    emitted = library.compile_graph(export.export_module(Cache(), (x, at)), "cpu")
    # The warning of memory that is shared speaks of clone().
    assert emitted["library_ops"] == [] and ".clone(" not in emitted["source"] and "copy_(" not in emitted["source"], (
        emitted["source"]
    )
    with torch.no_grad():
        candidate = load(emitted["source"]).ModelNew(reference)
        places = candidate.module.keys.data_ptr(), candidate.module.counts.data_ptr()
        copy = Cache()
        copy.load_state_dict(reference.state_dict())
        for _ in range(2):
            torch.testing.assert_close(candidate(x, at), copy(x, at))
            assert torch.equal(candidate.module.keys, copy.keys) and torch.equal(candidate.module.counts, copy.counts)
        assert places == (candidate.module.keys.data_ptr(), candidate.module.counts.data_ptr())


def test_a_buffer_that_is_still_read_as_it_was_is_copied() -> None:
    class Both(Cache):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            before = self.keys * 1.5
            self.keys[:, at] = x
            return before + self.keys

    x, at = torch.randn(4, 3, 8), torch.tensor([7, 1, 49])
    reference, copy = Both(), Both()
    copy.load_state_dict(reference.state_dict())
    candidate = load(library.compile_graph(export.export_module(Both(), (x, at)), "cpu")["source"]).ModelNew(reference)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(candidate(x, at), copy(x, at))
            assert torch.equal(candidate.module.keys, copy.keys)


def test_a_refused_index_leaves_a_buffer_as_it_was() -> None:
    x, at = torch.randn(4, 3, 8), torch.tensor([7, 1, 49])
    candidate = load(library.compile_graph(export.export_module(Cache(), (x, at)), "cpu")["source"]).ModelNew(Cache())
    before = candidate.module.keys.clone()
    with torch.no_grad(), pytest.raises(IndexError, match="out of range"):
        candidate(x, torch.tensor([50, 50, 50]))
    assert torch.equal(candidate.module.keys, before) and not candidate.module.counts.any()
