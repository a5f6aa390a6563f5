"""Random pooling modules for the property tests: recipes as in random_modules.py, and what they compute."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import assume
from hypothesis import strategies as st

CORES = [
    "max_pool",
    "max_pool",
    "max_pool_indices",
    "avg_pool",
    "avg_pool",
    "lp_pool",
    "adaptive_avg_pool",
    "adaptive_max_pool",
]


def _length(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Windows along one dimension, as PyTorch counts them: none starts in the padding behind the input."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


@st.composite
def pooling_recipes(draw) -> dict[str, Any]:
    """A pooling of one to three dimensions with any settings, with a pointwise prologue and epilogue."""
    core = draw(st.sampled_from(CORES))
    dims = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["float32", "float32", "float32", "float16", "bfloat16", "float64"]))
    sizes = [
        draw(st.sampled_from({1: [1, 3, 8, 33, 67, 128, 130], 2: [1, 2, 7, 16, 33, 64], 3: [1, 3, 6, 11]}[dims]))
        for _ in range(dims)
    ]
    kernels = [draw(st.sampled_from([1, 2, 3, 3, 4, 7] if dims < 3 else [1, 2, 3])) for _ in range(dims)]
    strides = [draw(st.sampled_from([1, 2, 2, 3, kernel, 6])) for kernel in kernels]
    largest = "max" in core
    dilations = [
        draw(st.sampled_from([1, 1, *(step for step in (2, 3) if step <= size)])) if largest else 1 for size in sizes
    ]
    paddings = [draw(st.integers(0, kernel // 2)) if core != "lp_pool" else 0 for kernel in kernels]
    ceil_mode = draw(st.booleans())
    if dims == 3 and not largest and dtype in ("float16", "bfloat16"):
        dtype = "float32"  # eager has no such average on the CPU
    adaptive = core.startswith("adaptive")
    if adaptive:
        kernels = [
            draw(
                st.one_of(
                    st.sampled_from([out for out in range(1, size + 1) if size % out == 0]), st.integers(1, size + 2)
                )
            )
            for size in sizes
        ]
    else:
        assume(all(_length(*one, ceil_mode) > 0 for one in zip(sizes, kernels, strides, paddings, dilations)))
        assume(
            largest or dims < 3 or all(kernel <= size for kernel, size in zip(kernels, sizes))
        )  # eager refuses these averages
    leading = draw(st.sampled_from([[3], [2, 3], [1, 5]]))
    return {
        "family": "pooling",
        "inputs": [
            {
                "shape": leading + sizes,
                "dtype": dtype,
                "layout": draw(st.sampled_from(["contiguous", "contiguous", "strided", "transposed", "offset"])),
            }
        ],
        "core": core,
        "kernel": kernels,
        "stride": strides,
        "padding": paddings,
        "dilation": dilations,
        "ceil_mode": ceil_mode,
        "count_include_pad": draw(st.booleans()),
        "divisor": draw(st.sampled_from([None, None, 5])) if dims > 1 else None,
        "prologue": draw(st.lists(st.sampled_from(["scale", "relu", "sigmoid"]), max_size=2)),
        "epilogue": draw(st.lists(st.sampled_from(["scale", "tanh", "abs"]), max_size=2)),
    }


def pooling(
    core: str,
    shape: list[int],
    kernel: list[int],
    stride: list[int] | None = None,
    dtype: str = "float32",
    **others: Any,
) -> dict[str, Any]:
    """One recipe of that family, written down."""
    dims = len(kernel)
    plain = {
        "padding": [0] * dims,
        "dilation": [1] * dims,
        "ceil_mode": False,
        "count_include_pad": True,
        "divisor": None,
        "prologue": [],
        "epilogue": [],
    }
    inputs = [{"shape": shape, "dtype": dtype, "layout": "contiguous"}]
    return (
        {"family": "pooling", "inputs": inputs, "core": core, "kernel": kernel, "stride": stride or kernel}
        | plain
        | others
    )


def pool(recipe: dict[str, Any], x: torch.Tensor) -> Any:
    """The recipe's pooling of `x`."""
    core, kernel, stride, padding, ceil_mode = (
        recipe[name] for name in ("core", "kernel", "stride", "padding", "ceil_mode")
    )
    dims = len(kernel)
    match core:
        case "max_pool" | "max_pool_indices":
            function = getattr(F, f"max_pool{dims}d")
            return function(
                x, kernel, stride, padding, recipe["dilation"], ceil_mode, return_indices=core.endswith("indices")
            )
        case "avg_pool" if dims == 1:
            return F.avg_pool1d(x, kernel, stride, padding, ceil_mode, recipe["count_include_pad"])
        case "avg_pool":
            return getattr(F, f"avg_pool{dims}d")(
                x, kernel, stride, padding, ceil_mode, recipe["count_include_pad"], recipe["divisor"]
            )
        case "lp_pool":
            return getattr(F, f"lp_pool{dims}d")(
                x, 2.0, kernel[0] if dims == 1 else kernel, stride[0] if dims == 1 else stride, ceil_mode
            )
        case "adaptive_avg_pool":
            return getattr(F, f"adaptive_avg_pool{dims}d")(x, kernel)
        case "adaptive_max_pool":
            return getattr(F, f"adaptive_max_pool{dims}d")(x, kernel, return_indices=True)
    raise AssertionError(core)
