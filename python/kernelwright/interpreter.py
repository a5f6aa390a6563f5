"""Triton's interpreter (TRITON_INTERPRET=1) runs kernels on CPU tensors, but has no libdevice. This teaches it the
functions that emitted kernels call, computed in double precision and rounded once, so that kernels can be checked
without a GPU.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np
import torch

from . import interpreter_shortcuts


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
    "fast_dividef": np.divide,
    "copysign": np.copysign,
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
    """The scalar everywhere, as it is stored: the result of a comparison says that it has its operands' type, and is
    boolean.
    """
    from triton.runtime.interpreter import TensorHandle

    values = np.asarray(scalar.data)
    return TensorHandle(np.full(block.shape, values.reshape(-1)[0], dtype=values.dtype), scalar.dtype.scalar)


def _fma(builder: Any, left: Any, right: Any, addend: Any) -> Any:
    """One rounding of a product and a sum, which the interpreter rounds twice: a product of two single floats is exact
    in double precision.
    """
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

    def load(self: Any, pointers: Any, mask: Any, other: Any, *options: Any, **named: Any) -> Any:
        loaded = masked_load(self, pointers, mask, other, *options, **named)
        # Triton hands on no `other` of a single element's load where it is zero.
        if other is None and np.size(loaded.data) > 1:
            values = loaded.data
            kind = values.dtype
            spoil = (
                np.nan
                if np.issubdtype(kind, np.floating)
                else True
                if kind == np.dtype(bool)
                else np.iinfo(kind).max // 3
            )
            loaded.data = np.where(mask.data, values, np.asarray(spoil, dtype=kind))
        return loaded

    return functools.wraps(masked_load)(load)


def _combined(operation: Any, inputs: Any, left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
    """The operation's function on whole blocks, as data of the inputs' types."""
    tensors = [operation.to_tensor(data, one.dtype) for half in (left, right) for data, one in zip(half, inputs)]
    result = operation.combine_fn.fn(*tensors)
    results = result if isinstance(result, tuple) else (result,)
    return [
        np.broadcast_to(np.asarray(getattr(getattr(one, "handle", one), "data", one)).astype(data.dtype), data.shape)
        for one, data in zip(results, left)
    ]


def _reduced(self: Any, inputs: Any) -> list[Any]:
    """Neighbours first, as a warp does, each step on all pairs at once: Triton's own takes one element at a time."""
    whole = self.axis is None
    shape = inputs[0].handle.data.shape
    values = [one.handle.data.reshape(-1) if whole else np.moveaxis(one.handle.data, self.axis, -1) for one in inputs]
    while values[0].shape[-1] > 1:
        values = _combined(self, inputs, [one[..., ::2] for one in values], [one[..., 1::2] for one in values])
    values = [one[..., 0] for one in values]
    if self.keep_dims:
        values = [one.reshape([1] * len(shape)) if whole else np.expand_dims(one, self.axis) for one in values]
    return [self.to_tensor(one if one.shape else one.item(), given.dtype) for one, given in zip(values, inputs)]


def _scanned(self: Any, inputs: Any) -> list[Any]:
    """A Sklansky network: the last result of each left half goes into the whole right half."""
    values = [np.moveaxis(one.handle.data, self.axis, -1).copy() for one in inputs]
    length, half = values[0].shape[-1], 1
    while half < length:
        pairs = [one.reshape(*one.shape[:-1], length // (2 * half), 2, half) for one in values]
        right = [one[..., 1, :] for one in pairs]
        last = [np.broadcast_to(one[..., 0, -1:], to.shape) for one, to in zip(pairs, right)]
        for to, result in zip(right, _combined(self, inputs, last, right)):
            to[...] = result
        half *= 2
    return [self.to_tensor(np.moveaxis(one, -1, self.axis), given.dtype) for one, given in zip(values, inputs)]


def _dot(builder: Any, left: Any, right: Any, total: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    """Numbers are multiplied: the interpreter keeps bfloat16 as whole numbers, and takes these for the values."""
    from triton.runtime.interpreter import TensorHandle, _convert_float

    import triton.language as tl

    def numbers(operand: Any) -> np.ndarray:
        dtype = operand.dtype.scalar
        if dtype == tl.bfloat16:
            return (operand.data.astype(np.uint32) << 16).view(np.float32)
        if dtype.is_floating() and dtype.primitive_bitwidth == 8:
            return _convert_float(operand.data, dtype, tl.float16, None).view(np.float16)
        return operand.data

    product = np.matmul(numbers(left), numbers(right), dtype=total.data.dtype)
    return TensorHandle(product + total.data, total.dtype.scalar)


def install() -> None:
    """Under Triton's interpreter, make `libdevice` usable, scalars splat as they are and end loops, sums of products
    round once, maximum and minimum as particular about NaN as the compiler, lanes that are masked out hold anything,
    and reductions and scans by a kernel's own functions quick.
    """
    from triton.language.extra import libdevice
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps

    interpreter_shortcuts.install()
    for name, function in _FUNCTIONS.items():
        setattr(libdevice, name, _interpreted(function))
    if not hasattr(interpreter._patch_lang_tensor, "__wrapped__"):
        interpreter._patch_lang_tensor = functools.wraps(interpreter._patch_lang_tensor)(
            _teach_index(interpreter._patch_lang_tensor)
        )
    if not hasattr(InterpreterBuilder.create_masked_load, "__wrapped__"):
        InterpreterBuilder.create_masked_load = _spoiled(InterpreterBuilder.create_masked_load)
    ReduceOps.generic_reduce = _reduced
    ScanOps.generic_scan = _scanned
    InterpreterBuilder.create_splat = _splat
    InterpreterBuilder.create_fma = _fma
    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    InterpreterBuilder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
