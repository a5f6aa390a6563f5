"""Triton's interpreter (TRITON_INTERPRET=1) runs kernels on CPU tensors, but has no libdevice. This teaches it the functions that emitted
kernels call, computed in double precision and rounded once, so that kernels can be checked without a GPU."""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np
import torch


def _torch_unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: function(torch.from_numpy(np.ascontiguousarray(values))).numpy()


def _torch_binary(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def compute(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return function(
            torch.from_numpy(np.ascontiguousarray(left)), torch.from_numpy(np.ascontiguousarray(right))
        ).numpy()

    return compute


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "trunc": np.trunc,
    "rint": np.rint,
    "exp": np.exp,
    "expm1": np.expm1,
    "log10": np.log10,
    "log1p": np.log1p,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erfc": _torch_unary(torch.special.erfc),
    "pow": _torch_binary(torch.pow),
    "fmod": np.fmod,
}


def _interpreted(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*arguments: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, tl.tensor)]
        dtype = tensors[0].dtype
        values = [np.asarray(a.handle.data if isinstance(a, tl.tensor) else a, dtype=np.float64) for a in arguments]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*values)).astype(tensors[0].handle.data.dtype)
        block = any(tensor.type.is_block() for tensor in tensors)
        return tl.tensor(TensorHandle(result, dtype), tl.block_type(dtype, list(result.shape)) if block else dtype)

    return call


def _splat(builder: Any, block: Any, scalar: Any) -> Any:
    """The scalar everywhere, as it is stored: the result of a comparison says that it has its operands' type, and is boolean."""
    from triton.runtime.interpreter import TensorHandle

    values = np.asarray(scalar.data)
    return TensorHandle(np.full(block.shape, values.reshape(-1)[0], dtype=values.dtype), scalar.dtype.scalar)


def _fma(builder: Any, left: Any, right: Any, addend: Any) -> Any:
    """One rounding of a product and a sum, which the interpreter rounds twice: a product of two single floats is exact in double precision."""
    from triton.runtime.interpreter import TensorHandle

    if left.data.dtype != np.float32:
        return TensorHandle(left.data * right.data + addend.data, addend.dtype.scalar)
    with np.errstate(all="ignore"):
        exact = left.data.astype(np.float64) * right.data.astype(np.float64) + addend.data.astype(np.float64)
        return TensorHandle(exact.astype(np.float32), addend.dtype.scalar)


def _index(tensor: Any) -> int:
    """A scalar as the end of a range: NumPy converts no array of one element by itself."""
    return int(np.asarray(tensor.handle.data).reshape(()))


def _teach_index(patch: Callable[..., None]) -> Callable[..., None]:
    def patched(tensor: Any, *scope: Any) -> None:  # Triton before 3.5 has no scopes
        patch(tensor, *scope)
        (scope[0].set_attr if scope else setattr)(tensor, "__index__", _index)

    return patched


def _spoiled(masked_load: Callable[..., Any]) -> Callable[..., Any]:
    """A lane that is masked out holds anything on a GPU where the load does not say what: here NaN, or a large
    number."""

    def load(self: Any, pointers: Any, mask: Any, other: Any, *options: Any) -> Any:
        loaded = masked_load(self, pointers, mask, other, *options)
        if other is None:
            values = loaded.data
            kind = values.dtype
            spoil = np.nan if np.issubdtype(kind, np.floating) else True if kind == bool else np.iinfo(kind).max // 3
            loaded.data = np.where(mask.data, values, np.asarray(spoil, dtype=kind))
        return loaded

    return functools.wraps(masked_load)(load)


def install() -> None:
    """Make `libdevice` usable, scalars splat as they are and end loops, sums of products round once, maximum and minimum as particular about NaN as the compiler, and lanes that
    are masked out hold anything, under Triton's interpreter."""
    from triton.language.extra import libdevice
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder

    for name, function in _FUNCTIONS.items():
        setattr(libdevice, name, _interpreted(function))
    if not hasattr(interpreter._patch_lang_tensor, "__wrapped__"):
        interpreter._patch_lang_tensor = functools.wraps(interpreter._patch_lang_tensor)(
            _teach_index(interpreter._patch_lang_tensor)
        )
    if not hasattr(InterpreterBuilder.create_masked_load, "__wrapped__"):
        InterpreterBuilder.create_masked_load = _spoiled(InterpreterBuilder.create_masked_load)
    InterpreterBuilder.create_splat = _splat
    InterpreterBuilder.create_fma = _fma
    InterpreterBuilder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    InterpreterBuilder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
