"""The call of forward in Graph JSON: paths and names of its inputs, literals, the shape of its result."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import errors

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b1",
    torch.complex64: "c64",
    torch.complex128: "c128",
}

# Constants of at most this many elements travel with the graph when no expression over `self` yields them.
LARGEST_CONSTANT = 65536


def number(value: float) -> Any:
    """A float as Graph JSON has it: NaN and the infinities as {"f": "nan"}, {"f": "inf"}, {"f": "-inf"}."""
    return value if math.isfinite(value) else {"f": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def literal(value: Any) -> Any:
    """A constant of the call or the result: JSON's own kinds, {"f": "inf"}, {"dtype": …}, {"device": …}, else {"repr":
    text}.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, torch.dtype) and value in DTYPES:
        return {"dtype": DTYPES[value]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [literal(item) for item in value]}
    return {"repr": repr(value)}


def constant_data(tensor: torch.Tensor, target: str) -> Any:
    """The elements of a small constant as nested lists; complex ones as [real, imaginary]."""
    from torch._subclasses.fake_tensor import FakeTensor

    hint = "Register it in __init__: self.register_buffer(name, tensor)"
    if isinstance(tensor, FakeTensor):
        raise errors.user_error(
            "unreachable-constant",
            f"forward uses a tensor that the module does not hold, or one that no operation was seen to compute ({target}).",
            hint=hint + ". Gradients taken in forward (torch.autograd.grad) cannot be captured.",
        )
    if tensor.numel() > LARGEST_CONSTANT:
        raise errors.user_error(
            "constant-too-large",
            f"forward uses a tensor of {tensor.numel()} elements that the module does not hold ({target}).",
            hint=hint,
        )
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)

    def plain(item: Any) -> Any:
        return (
            [plain(each) for each in item]
            if isinstance(item, list)
            else number(item)
            if isinstance(item, float)
            else item
        )

    return plain(tensor.detach().cpu().tolist())


def call_path(keys: tuple[Any, ...]) -> list[Any]:
    """["args", 0, "key"] for a pytree key path into (args, kwargs)."""
    path: list[Any] = ["args" if keys[0].idx == 0 else "kwargs"]
    for key in keys[1:]:
        if isinstance(key, pytree.SequenceKey):
            path.append(key.idx)
        elif isinstance(key, pytree.MappingKey):
            path.append(key.key)
        else:
            path.append(key.name)
    return path


def call_names(model: torch.nn.Module, args: tuple[Any, ...]) -> dict[tuple[str, Any], str]:
    """("args", position) → parameter name in forward's signature; those of *xs are xs_0, xs_1, …"""
    names: dict[tuple[str, Any], str] = {}
    rest = ""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return {("args", position): f"arg_{position}" for position in range(len(args))}
    positional = [item.name for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    rest = next((item.name for item in parameters if item.kind is item.VAR_POSITIONAL), "arg")
    for position in range(len(args)):
        names["args", position] = (
            positional[position] if position < len(positional) else f"{rest}_{position - len(positional)}"
        )
    return names


def forward_signature(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Forward's parameters: {"name", "kind", "default" if it has one}."""
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain",
        inspect.Parameter.VAR_POSITIONAL: "varargs",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_KEYWORD: "varkw",
    }
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return [{"name": "args", "kind": "varargs"}, {"name": "kwargs", "kind": "varkw"}]
    described = []
    for item in parameters:
        described.append({"name": item.name, "kind": kinds[item.kind]})
        if item.default is not item.empty:
            described[-1]["default"] = literal(item.default)
    return described


def result_shape(spec: Any, leaves: list[dict[str, Any]]) -> dict[str, Any]:
    """RESULT of the protocol: the structure of forward's return value over the outputs and constants in `leaves`."""

    class Leaf:
        def __init__(self, described: dict[str, Any]) -> None:
            self.described = described

    def shape(value: Any, spec: Any) -> dict[str, Any]:
        if isinstance(value, Leaf):
            return value.described
        if isinstance(value, dict):
            parts = zip(value.items(), spec.children())
            return {"dict": [[literal(key), shape(item, part)] for (key, item), part in parts]}
        if isinstance(value, list):
            return {"list": [shape(item, part) for item, part in zip(value, spec.children())]}
        if isinstance(value, tuple):
            # A torch.Size holds numbers alone, so that what is unflattened is a tuple.
            is_named = spec.type is torch.Size or type(value).__module__ == "torch.return_types"
            named = {"named": spec.type.__name__} if is_named else {}
            return {"tuple": [shape(item, part) for item, part in zip(value, spec.children())]} | named
        raise errors.user_error(
            "unsupported-output",
            f"forward returns {errors.plain(value)}, which cannot be rebuilt.",
            hint="Return tensors in tuples, lists or dicts.",
        )

    try:
        return shape(pytree.tree_unflatten([Leaf(leaf) for leaf in leaves], spec), spec)
    except (TypeError, AttributeError, AssertionError) as error:
        raise errors.user_error(
            "unsupported-output",
            f"forward returns an object that cannot be rebuilt: {errors.summary(error)}",
            hint="Return tuples, lists or dicts.",
        ) from error
