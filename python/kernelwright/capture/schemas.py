"""What serialisation asks of operators' schemas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload


@dataclass
class SchemaArgument:
    name: str
    has_default: bool
    default: Any
    is_tensor_list: bool


class Schema:
    """What serialisation asks of an op's schema, fetched once an op: the bindings build new objects at every access."""

    def __init__(self, op: OpOverload) -> None:
        self.arguments = [
            SchemaArgument(
                item.name,
                item.has_default_value(),
                item.default_value if item.has_default_value() else None,
                "Tensor" in str(item.type) and "[]" in _type_text(item),
            )
            for item in op._schema.arguments
        ]
        self.returns = [item.name or "" for item in op._schema.returns]

    def result_name(self, node: str, index: int) -> str:
        if index == 0:
            return node
        named = self.returns[index] if index < len(self.returns) else ""
        return f"{node}_{named or index}"


def _type_text(argument: Any) -> str:
    return "[]" if "List" in str(argument.type) or "[]" in str(argument.type) else ""


def is_default(value: Any, default: Any) -> bool:
    """Whether an argument is the schema's default; 1, 1.0 and True are three different arguments, a default list [0]
    stands for 0.
    """
    if value is default:
        return True
    if isinstance(value, torch.fx.Node):
        return False
    if isinstance(value, (list, tuple)):
        if not isinstance(default, (list, tuple)):
            return False
        return len(value) == len(default) and all(is_default(one, other) for one, other in zip(value, default))
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return False
    # Scalars of type `Scalar` have integer defaults (alpha=1) that also stand for the equal float.
    if type(value) in (int, float) and type(default) in (int, float):
        return value == default and math.copysign(1, value) == math.copysign(1, default)
    return type(value) is type(default) and value == default
