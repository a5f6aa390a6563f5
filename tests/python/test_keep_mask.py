"""Dropout's masks on a GPU are PyTorch's own: Philox, the elements' places in the stream, and what a draw leaves of the
generator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from case_checks import compile_for_gpu, interpreter_of
from interpreter_process import InterpreterProcess
from keep_mask_cases import Dropped, philox
from movement_cases import Wrapped


@pytest.mark.parametrize(
    "counter, key, drawn",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter: Any, key: Any, drawn: Any) -> None:
    """Those published with Random123."""
    assert philox(counter, key) == drawn


interpreter = interpreter_of("keep_mask_cases:interpreted")


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((2, 3, 700), "float32"),   # vectors of 4, more of them than threads
        ((1, 1, 1), "float32"),     # one element
        ((3, 1, 999), "float32"),   # an odd number: four elements of a thread lie far apart
        ((5, 7, 98), "float32"),    # vectors of 2
        ((2, 5, 800), "bfloat16"),  # of 8
        ((1, 3, 4), "float16"),     # of 4
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed, offset", [(0, 0), (2**64 - 3, 4 * (2**32 - 1))])
def test_masks_are_the_streams(
    shape: tuple[int, ...], dtype: str, seed: int, offset: int, interpreter: InterpreterProcess, tmp_path: Path
) -> None:
    """The counter's lower half overflows on the way."""
    emitted = compile_for_gpu(Dropped(), torch.zeros(shape, dtype=getattr(torch, dtype)))
    assert emitted["library_ops"] == [] and "keep_mask_kernel" in emitted["kernels"]
    path = tmp_path / "candidate.py"
    path.write_text(emitted["source"])
    fault = interpreter.fault(candidate=str(path), shape=shape, dtype=dtype, seed=seed, offset=offset)
    assert not fault, fault


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masks_compile_for_hopper(dtype: torch.dtype, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from kernelwright import compile_only

    path = tmp_path / "candidate.py"
    path.write_text(compile_for_gpu(Dropped(), torch.zeros(2, 3, 800, dtype=dtype))["source"])
    rows = compile_only.run({"candidate": str(path)}, lambda stage, fraction: None)["kernels"]
    assert [row["name"] for row in rows].count("keep_mask_kernel") == 2
    assert all(row["ok"] for row in rows), [row["error"] for row in rows]


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.7, 1e-9, 1 - 1e-7, 1 / 3])
def test_draws_below_a_bound_are_numbers_below_a_probability(keep: float) -> None:
    namespace: dict[str, Any] = {}
    source = compile_for_gpu(Dropped(), torch.zeros(2, 3, 4))["source"]
    exec(
        "import functools\nimport torch\n"
        + source[source.index("@functools.cache\ndef least_beyond") : source.index("@functools.cache\ndef threads_of")],
        namespace,
    )
    bound = namespace["least_beyond"](keep)
    draws = torch.tensor(
        [one for one in (0, 1, bound - 200, bound - 1, bound, bound + 1, bound + 200, 2**32 - 1) if 0 <= one < 2**32]
    )
    below = draws.float() * 2.0**-32 + 2.0**-33 < torch.tensor(keep)
    assert torch.equal(draws < bound, below)


def test_the_address_of_what_the_caller_passes_is_looked_at() -> None:
    """It decides how many elements PyTorch's kernel takes side by side."""
    source = compile_for_gpu(Wrapped(lambda x: torch.nn.functional.dropout(x).relu()).train(), torch.zeros(65)[1:])[
        "source"
    ]
    assert "beside=" in source.split("def kernel_forward")[1]
    assert (
        "beside="
        not in compile_for_gpu(Wrapped(between).train(), torch.zeros(64))["source"].split("def kernel_forward")[1]
    )


def alone(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x)


def between(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x * 2.0).relu()


@pytest.mark.parametrize(
    "function, x, calls",
    [
        (between, torch.zeros(64, 9), []),
        (alone, torch.zeros(64, 9), ["aten.native_dropout"]),  # as fast in one pass of the library's
        (between, torch.zeros(64, 9, dtype=torch.float64), ["aten.native_dropout"]),
        (between, torch.zeros(9, 64).t(), ["aten.native_dropout"]),
    ],
)
def test_what_the_library_draws(function: Any, x: torch.Tensor, calls: list[str]) -> None:
    assert compile_for_gpu(Wrapped(function).train(), x)["library_ops"] == calls
    assert compile_for_gpu(Wrapped(function).train(), x, caution="library-random")["library_ops"] == [
        "aten.native_dropout"
    ]
