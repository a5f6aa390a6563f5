"""Every golden Triton kernel computes what PyTorch computes, NaN and infinities included, and compiles for sm_90 without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton")

from triton_golden_worker import load_module, split_golden  # noqa: E402

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "triton").glob("*.txt"))
Buffers = dict[str, torch.Tensor]


def statistics(b: Buffers) -> Buffers:
    x, count = b["x"].view(4, 180), b["count"].view(4, 180)
    return {
        "total": x.sum(1), "product": x.prod(1), "largest": x.amax(1), "smallest": x.amin(1), "any_positive": (x > 0).any(1),
        "all_positive": (x > 0).all(1), "counted": count.sum(1), "count_max": count.amax(1),
    }


def layer_norm(b: Buffers) -> Buffers:
    x = b["x"].view(60, 100)
    return {"out": F.layer_norm(x, (100,), b["weight"], b["bias"]), "mean_out": x.mean(1)}


REFERENCES: dict[str, Callable[[Buffers], Buffers]] = {
    "softmax_persistent": lambda b: {"out": torch.softmax(b["x"].view(8, 1000), 1)},
    "softmax_looped_bf16": lambda b: {"out": torch.softmax(b["x"].view(16, 1000).float(), 1).bfloat16()},
    "layer_norm": layer_norm,
    "layer_norm_looped": lambda b: {"out": F.layer_norm(b["x"].view(6, 1000).float(), (1000,))},
    "gelu": lambda b: {"out": F.gelu(b["x"].view(100, 10) + b["bias"], approximate="tanh")},
    "arg_max_columns": lambda b: {"out": b["x"].view(3, 70, 20).argmax(1), "at_least": b["x"].view(3, 70, 20).argmin(1)},
    "pad_guard": lambda b: {"out": F.pad(b["x"].view(10, 12), (2, 3), value=7.1).clamp_min(0.1)},
    "all_reductions": statistics,
}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Buffers]]:
    """What the interpreter computed, all kernels in one process, since TRITON_INTERPRET holds for a whole process."""
    out = tmp_path_factory.mktemp("triton") / "results.pt"
    worker = Path(__file__).parent / "triton_golden_worker.py"
    source = Path(__file__).parent.parent.parent / "python"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, str(worker), str(out), *map(str, GOLDEN)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return torch.load(out)


@pytest.mark.parametrize("draw", ["normal", "special"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_kernel_agrees_with_pytorch(path: Path, draw: str, interpreted: dict[str, dict[str, Buffers]]) -> None:
    buffers = interpreted[path.stem][draw]
    for name, expected in REFERENCES[path.stem](buffers).items():
        torch.testing.assert_close(buffers[name], expected.flatten(), equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


def signatures_of(path: Path) -> list[Any]:
    return [(path, entry) for entry in eval(split_golden(path)[1].rpartition("KERNEL_SIGNATURES = ")[2])]


@pytest.mark.parametrize(("path", "entry"), [pair for path in GOLDEN for pair in signatures_of(path)], ids=lambda value: getattr(value, "stem", ""))
def test_golden_kernel_compiles_for_hopper(path: Path, entry: dict[str, Any]) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(load_module(path), entry["kernel"])
    signature = {**entry["signature"], **dict.fromkeys(entry["constexprs"], "constexpr")}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in entry["divisible_by_16"]}
    source = ASTSource(kernel, signature=signature, constexprs=entry["constexprs"], attrs=attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": entry["num_warps"], "num_stages": entry["num_stages"]})
    assert compiled.asm["cubin"]
