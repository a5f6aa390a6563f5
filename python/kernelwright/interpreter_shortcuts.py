"""Triton's interpreter computes with NumPy in a moment, and makes types of Python objects for the rest of the time.
Here these are made once.

What kernels compute stays the same: types are made of the same parts, and overflow of whole numbers, which the
interpreter computes and then does not assert (that takes its debug mode), is not computed.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What blocks of a shape have in common."""

    of_type: Any  # a tuple of Triton's of whole numbers
    of_tensor: Any  # the same of constants
    numel: int
    text: str


def _shapes_of(core: Any) -> Any:
    shapes: dict[tuple[int, ...], _Shape] = {}

    def shape_of(sizes: Any) -> _Shape:
        key = tuple(size if type(size) is int else core._unwrap_if_constexpr(size) for size in sizes)
        if (found := shapes.get(key)) is None:
            if not key:
                raise TypeError("0d block_type is forbidden")
            of_type = core.tuple(list(key))
            constants = core.tuple([core.constexpr(size) for size in key])
            found = shapes[key] = _Shape(of_type, constants, core.validate_block_shape(of_type), str(of_type))
        return found

    return shape_of


def _converter(convert: Any, towards_zero: Any) -> Any:
    """bfloat16 is the upper half of a float. The interpreter takes it apart, and rounds towards zero where the hardware
    takes the nearest.
    """

    def converted(numbers: Any, given: Any, wanted: Any, rounding: Any) -> Any:
        if given.name == "bf16" and wanted.name == "fp32":
            return numbers.astype(np.uint32) << 16
        if given.name == "fp32" and wanted.name == "bf16" and rounding != towards_zero:
            bits = np.ascontiguousarray(numbers).view(np.uint32)
            nearest = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
            return np.where(np.isnan(numbers), (bits >> 16) | 0x40, nearest).astype(np.uint16)
        return convert(numbers, given, wanted, rounding)

    return converted


def _patcher(patch_one: Any, is_builtin: Any) -> Any:
    """Each call of a function, from a kernel too, puts the interpreter's functions into the language's modules, where
    they mostly stand already. Which there are is looked up once for each module."""
    members: dict[int, list[tuple[str, Any]]] = {}

    def patch(module: Any, builder: Any, *scope: Any) -> None:
        if (found := members.get(id(module))) is None:
            found = members[id(module)] = [one for one in inspect.getmembers(module) if is_builtin(one[1])]
        if found and getattr(module, found[0][0]) is found[0][1]:
            for name, member in found:
                patch_one(module, name, member, builder, *scope)

    return patch


def install() -> None:
    """Blocks' types, tensors' shapes and NumPy's types are made once each."""
    import triton.language as tl
    from triton.language import core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    if interpreter._convert_float.__module__ == __name__:
        return  # done before

    shape_of = _shapes_of(core)
    scalar_shape, one = core.tuple([]), core.constexpr(1)

    def make_block_type(self: Any, element_ty: Any, shape: Any) -> None:
        found = shape_of(core._unwrap_if_constexpr(shape) if isinstance(shape, core.constexpr) else shape)
        self.element_ty = element_ty
        self.shape = found.of_type
        self.numel = found.numel
        self.name = f"<{found.text}, {element_ty}>"

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type = handle, type
        if type.is_block():
            found = shape_of(type.shape)
            self.shape, self.numel, self.dtype = found.of_tensor, core.constexpr(found.numel), type.element_ty
        else:
            self.shape, self.numel, self.dtype = scalar_shape, one, type.scalar

    broadcast, meet = TritonSemantic.broadcast_impl_value, TritonSemantic.binary_op_type_checking_impl

    def broadcast_unless_alike(self: Any, left: Any, right: Any) -> tuple[Any, Any]:
        return (left, right) if left.shape is right.shape else broadcast(self, left, right)

    constants: dict[tuple[int, str, int], Any] = {}

    def constant_like(self: Any, tensor: Any, value: int) -> Any:
        key = (value, tensor.dtype.name, id(tensor.shape))  # shapes are never dropped
        if (found := constants.get(key)) is None:
            found = constants[key] = broadcast(self, tensor, self.scalar_constant(value, dtype=tensor.dtype))[1]
        return found

    def meet_unless_alike(self: Any, left: Any, right: Any, *rules: bool, **named: bool) -> tuple[Any, Any]:
        if type(left) is tl.tensor and left.dtype.name in ("int32", "int64") and type(right) is int:
            if -(2**31) <= right < 2**31:
                return left, constant_like(self, left, right)
        elif type(left) is type(right) is tl.tensor and left.dtype is right.dtype and left.shape is right.shape:
            # Pointers and the division of narrow floats have rules of their own.
            if not left.dtype.is_ptr() and not named.get("div_or_mod") and len(rules) < 4:
                return left, right
        return meet(self, left, right, *rules, **named)

    numpy_types: dict[str, Any] = {}
    look_up = interpreter._get_np_dtype

    def numpy_type(dtype: Any) -> Any:
        scalar = dtype.scalar
        if (found := numpy_types.get(scalar.name)) is None:
            found = numpy_types[scalar.name] = look_up(scalar)
        return found

    tl.block_type.__init__ = make_block_type
    tl.tensor.__init__ = make_tensor
    TritonSemantic.broadcast_impl_value = broadcast_unless_alike
    TritonSemantic.binary_op_type_checking_impl = meet_unless_alike
    interpreter._get_np_dtype = numpy_type
    interpreter._convert_float = _converter(interpreter._convert_float, interpreter._ir.ROUNDING_MODE.RTZ)
    interpreter._patch_builtin = _patcher(interpreter._patch_attr, core.is_builtin)
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
