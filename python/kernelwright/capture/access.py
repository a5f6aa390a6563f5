"""Python expressions over `self` for the tensors that a module holds: `self.layers[0].weight`,
`self.blocks["a"].scale`.
"""

from __future__ import annotations

import keyword
from typing import Any

import torch

_NUMBERED = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)
_KEYED = (torch.nn.ModuleDict, torch.nn.ParameterDict)


def is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def member(owner: torch.nn.Module, expression: str, name: str) -> str:
    """The expression for what `owner`, itself reached by `expression`, registers under `name`."""
    if isinstance(owner, _NUMBERED) and name.isdigit():
        return f"{expression}[{name}]"
    if isinstance(owner, _KEYED):
        return f'{expression}["{name}"]' if '"' not in name and "\\" not in name else f"{expression}[{name!r}]"
    return f"{expression}.{name}" if is_name(name) else f"getattr({expression}, {name!r})"


def tensor_expressions(module: torch.nn.Module) -> dict[str, str]:
    """Dotted name → expression, for every parameter and buffer, tied ones under each of their names."""
    found: dict[str, str] = {}
    for prefix, expression, owner in _modules(module, "", "self", set()):
        for name in (*owner._parameters, *owner._buffers):
            found[f"{prefix}{name}"] = member(owner, expression, name)
    return found


def module_expressions(module: torch.nn.Module) -> dict[int, str]:
    """id of a module → expression, for `module` itself ("self") and every module in it, each under the first of its
    names.
    """
    found: dict[int, str] = {}
    for _, expression, owner in _modules(module, "", "self", set()):
        found.setdefault(id(owner), expression)
    return found


def contained_tensors(module: torch.nn.Module) -> dict[int, str]:
    """id of a tensor → expression, for tensors in lists, tuples and dicts that are attributes of a module."""
    found: dict[int, str] = {}

    def search(value: Any, expression: str) -> None:
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), expression)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                search(item, f"{expression}[{index}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, (str, int, bool)):
                    search(item, f"{expression}[{key!r}]")

    state = vars(torch.nn.Module())
    for _, expression, owner in _modules(module, "", "self", set()):
        for name, value in vars(owner).items():
            if name not in state:
                search(value, member(owner, expression, name) if is_name(name) else f"getattr({expression}, {name!r})")
    return found


def _modules(module: torch.nn.Module, prefix: str, expression: str, seen: set[int]) -> Any:
    if id(module) in seen:
        return
    yield prefix, expression, module
    # Only ancestors count as seen: a module registered twice is reached under both names.
    seen = seen | {id(module)}
    for name, child in module._modules.items():
        if child is not None:
            yield from _modules(child, f"{prefix}{name}.", member(module, expression, name), seen)
