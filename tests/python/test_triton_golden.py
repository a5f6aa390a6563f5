"""Every golden Triton kernel computes what PyTorch computes, NaN and infinities included, and compiles for sm_90
without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from golden_references import Buffers, looked_up

triton = pytest.importorskip("triton")

from triton_golden_worker import load_module, split_golden  # noqa: E402

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "triton").glob("*.txt"))


def statistics(b: Buffers) -> Buffers:
    x, count = b["x"].view(4, 180), b["count"].view(4, 180)
    return {
        "total": x.sum(1),
        "product": x.prod(1),
        "largest": x.amax(1),
        "smallest": x.amin(1),
        "any_positive": (x > 0).any(1),
        "all_positive": (x > 0).all(1),
        "counted": count.sum(1),
        "count_max": count.amax(1),
    }


def layer_norm(b: Buffers) -> Buffers:
    x = b["x"].view(60, 100)
    return {"out": F.layer_norm(x, (100,), b["weight"], b["bias"]), "mean_out": x.mean(1)}


def moments_of_shares(b: Buffers) -> Buffers:
    share = torch.softmax(b["x"].view(6, 1000), 1)
    return {"mean": share.mean(1), "spread": ((share - share.mean(1, keepdim=True)) ** 2).sum(1)}


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sigmoid": torch.sigmoid,
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "bit_not": torch.bitwise_not,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_div": torch.floor_divide,
    "trunc_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
}


def unary(b: Buffers) -> Buffers:
    return {name: UNARY[name.removesuffix("_out")](b["x"]) for name in b if name != "x"}


def binary(b: Buffers) -> Buffers:
    return {name: BINARY[name.removesuffix("_out")](b["x"], b["y"]) for name in b if name not in ("x", "y")}


def casts(b: Buffers) -> Buffers:
    x, flag = b["x"], b["flag"]
    row, column = torch.arange(8)[:, None], torch.arange(12)[None, :]
    expected = {
        "to_f16": x.half(),
        "to_bf16": x.bfloat16(),
        "to_f64": x.double(),
        "to_b1": x.bool(),
        "from_b1": flag.float(),
        "from_half": b["half"].float(),
        "logic": ((x > 0.5) & ~flag) ^ flag,
        "chosen": torch.where(x > 0.5, 9000000000, -1),
        "position": torch.arange(3, 99),
        "triangle": torch.where(row >= column, x.view(8, 12), 0.0),
        "shifted": (column << 2).int().expand(8, 12),
        "constant": torch.full((96,), 0.1, dtype=torch.float64),
    }
    if x.isfinite().all():
        expected |= {"to_i64": x.long(), "to_u8": x.abs().byte()}
    return expected


def planes(b: Buffers) -> Buffers:
    x = b["x"].view(3, 2520)
    return {"total": x.sum(1), "largest": x.amax(1), "largest_at": x.argmax(1), "centred": x - x.amax(1, keepdim=True)}


def combined(b: Buffers) -> Buffers:
    largest, mean = b["maximum"].view(6, -1).double(), b["mean"].view(6, -1).double()
    count, squares = b["weight"].view(6, -1).double().abs() + 1, b["squares"].view(6, -1).double().abs()
    total = (mean * count).sum(1, keepdim=True) / count.sum(1, keepdim=True)
    expected = {
        "total_max": largest.amax(1),
        "total_sum": (count * (largest - largest.amax(1, keepdim=True)).exp()).sum(1),
        "total_mean": total,
        "total_squares": (squares + count * (mean - total) ** 2).sum(1),
    }
    return {name: value.float() for name, value in expected.items()}


def finished_rows(b: Buffers) -> Buffers:
    x, means, squares = b["x"].view(6, 600), b["partial_mean"].view(6, 10), b["partial_squares"].view(6, 10)
    mean = means.mean(1, keepdim=True)
    total = (squares + 60.0 * (means - mean) ** 2).sum(1, keepdim=True)
    return {"y": ((x - mean) * b["weight"] - total / 600.0).flatten()}


def combined_equally(b: Buffers) -> Buffers:
    mean, squares = b["mean"].view(6, -1), b["squares"].view(6, -1)
    total = mean.mean(1, keepdim=True)
    return {"total_mean": total, "total_squares": (squares + 32 * (mean - total) ** 2).sum(1)}


def broadcast_sums(b: Buffers) -> Buffers:
    return {"repeated": b["x"] * 10, "ones": torch.full((6,), 10.0), "mixed": (b["x"][:, None] * b["y"] + 1).sum(1)}


def powers(b: Buffers) -> Buffers:
    x, y = b["x"], b["y"]
    # In double precision, from what single precision makes of the operands.
    bases = {
        "of_magnitude": x.abs(),
        "of_wide": (x * 40.0).double().exp().float(),
        "of_clamped": x.clamp_min(0.5),
        "of_rectified": x.clamp_min(0.0),
    }
    return {
        name: base.double().pow((x * 40.0 if name == "of_magnitude" else y).double()).float()
        for name, base in bases.items()
    }


REFERENCES: dict[str, Callable[[Buffers], Buffers]] = {
    "softmax_persistent": lambda b: {"out": torch.softmax(b["x"].view(8, 1000), 1)},
    "softmax_looped_bf16": lambda b: {"out": torch.softmax(b["x"].view(16, 1000).float(), 1).bfloat16()},
    "layer_norm": layer_norm,
    "layer_norm_looped": lambda b: {"out": F.layer_norm(b["x"].view(6, 1000).float(), (1000,))},
    "layer_norm_looped_whole_blocks": lambda b: {"out": F.layer_norm(b["x"].view(6, 896).float(), (896,))},
    "group_norm_looped_slices": lambda b: {"out": F.layer_norm(b["x"].view(6, 600), (600,))},
    "moments_of_shares_looped": moments_of_shares,
    "gelu": lambda b: {"out": F.gelu(b["x"].view(100, 10) + b["bias"], approximate="tanh")},
    "arg_max_columns": lambda b: {
        "out": b["x"].view(3, 70, 20).argmax(1),
        "at_least": b["x"].view(3, 70, 20).argmin(1),
    },
    "pad_guard": lambda b: {"out": F.pad(b["x"].view(10, 12), (2, 3), value=7.1).clamp_min(0.1)},
    "all_reductions": statistics,
    "gather_rows": looked_up,
    **{f"unary_{dtype}": unary for dtype in ("f32", "f64", "i32")},
    **{f"binary_{dtype}": binary for dtype in ("f32", "f64", "i64", "i32", "i16", "u8")},
    "casts": casts,
    "powers": powers,
    "four_axes_flattened": lambda b: {"out": b["x"].view(4, 6, 5, 6).permute(3, 0, 1, 2).flatten()},
    "matrix_sum_two_loops": planes,
    "combine_equal_moments": combined_equally,
    "combine_equal_moments_looped": combined_equally,
    "combine_counted_moments_looped": combined,
    "finish_rows_from_parts": finished_rows,
    "log_sum_exp_combine": combined,
    "log_sum_exp_combine_looped": combined,
    "empty_rows": lambda b: {"total": torch.zeros(6), "product": torch.ones(6)},
    "broadcast_sum": broadcast_sums,
}


@pytest.fixture(scope="module")
def interpreted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Buffers]]:
    """What the interpreter computed, all kernels in one process, since TRITON_INTERPRET holds for a whole process."""
    asking = [
        item
        for item in request.session.items
        if item.module is request.module and "interpreted" in getattr(item, "fixturenames", ())
    ]
    wanted = sorted({f"{item.callspec.params.get('draw', 'equal')}:{item.callspec.params['path']}" for item in asking})
    out = tmp_path_factory.mktemp("triton") / "results.pt"
    worker = Path(__file__).parent / "triton_golden_worker.py"
    source = Path(__file__).parent.parent.parent / "python"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, str(worker), str(out), *wanted],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(out)


def test_no_line_is_longer_than_140_columns() -> None:
    emitted = {
        path.stem: split_golden(path)[1].partition("\ndef run(")[0] for path in GOLDEN
    }  # what follows is the test's
    longest = {stem: max(map(len, source.splitlines())) for stem, source in emitted.items()}
    assert {stem: columns for stem, columns in longest.items() if columns > 140} == {}


@pytest.mark.parametrize("draw", ["normal", "special"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_kernel_agrees_with_pytorch(path: Path, draw: str, interpreted: dict[str, dict[str, Buffers]]) -> None:
    buffers = interpreted[path.stem][draw]
    for name, expected in REFERENCES[path.stem](buffers).items():
        torch.testing.assert_close(
            buffers[name], expected.flatten(), equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


# Points whose shares of one are mostly no sums of powers of two: six hundred, a thousand, ten.
EXACT = (
    "combine_equal_moments",
    "combine_equal_moments_looped",
    "finish_rows_from_parts",
    "group_norm_looped_slices",
    "layer_norm",
    "layer_norm_looped",
    "layer_norm_looped_whole_blocks",
)


@pytest.mark.parametrize("path", [path for path in GOLDEN if path.stem in EXACT], ids=lambda path: path.stem)
def test_equal_values_deviate_by_nothing_from_their_mean(
    path: Path, interpreted: dict[str, dict[str, Buffers]]
) -> None:
    buffers = interpreted[path.stem]["equal"]
    for name, expected in REFERENCES[path.stem](buffers).items():
        torch.testing.assert_close(
            buffers[name], expected.flatten(), rtol=2e-7, atol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def signatures_of(path: Path) -> list[Any]:
    return [(path, entry) for entry in eval(split_golden(path)[1].rpartition("KERNEL_SIGNATURES = ")[2])]


@pytest.mark.parametrize(
    ("path", "entry"),
    [pair for path in GOLDEN for pair in signatures_of(path)],
    ids=lambda value: getattr(value, "stem", ""),
)
def test_golden_kernel_compiles_for_hopper(path: Path, entry: dict[str, Any]) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(load_module(path), entry["kernel"])
    signature = {**entry["signature"], **dict.fromkeys(entry["constexprs"], "constexpr")}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in entry["divisible_by_16"]}
    source = ASTSource(kernel, signature=signature, constexprs=entry["constexprs"], attrs=attributes)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", 90, 32),
        options={key: entry[key] for key in ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion") if key in entry},
    )
    assert compiled.asm["cubin"]
