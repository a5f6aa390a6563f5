"""Which modules' mode, training or evaluation, decides what forward computes."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Iterable, Iterator

import torch
from torch import nn

from .access import module_expressions

# What traces forward looks at the flag for its own ends.
_TRACERS = tuple(
    os.path.join(os.path.dirname(torch.__file__), folder, "")
    for folder in ("export", "_export", "fx", "_functorch", "_dynamo")
)
_PARTS = ("values", "inputs", "nodes", "outputs", "result")

Graph = dict[str, Any]


@contextlib.contextmanager
def watched(model: nn.Module) -> Iterator[list[nn.Module]]:
    """The modules of `model` whose `training` flag is read in the body, each once, in the order of their first reads."""
    known = {id(module) for module in model.modules()}
    found: dict[int, nn.Module] = {}

    def read(module: nn.Module) -> bool:
        if id(module) in known and not sys._getframe(1).f_code.co_filename.startswith(_TRACERS):
            found.setdefault(id(module), module)
        return vars(module)["training"]

    def write(module: nn.Module, value: bool) -> None:
        vars(module)["training"] = value

    for module in model.modules():
        if any("training" in vars(kind) for kind in type(module).__mro__ if kind is not nn.Module):
            found[id(module)] = module  # An attribute of its class hides the property from it.
    readers: list[nn.Module] = []
    nn.Module.training = property(read, write)  # type: ignore[assignment]
    try:
        yield readers
    finally:
        del nn.Module.training
        readers.extend(found.values())


def that_matter(
    model: nn.Module, readers: list[nn.Module], graph: Graph, trace: Callable[[], Graph]
) -> list[list[Any]]:
    """[Expression, mode] of every module among `readers` in whose other mode forward would compute something else than
    `graph`.

    `trace` traces forward once more, which is what it takes where code reads the flag that is not PyTorch's own.
    """
    unknown = [module for module in readers if _computes_otherwise(module) is None]
    matter = [module for module in readers if _computes_otherwise(module)]
    if unknown:
        same, others = _same_in_other_mode(model, unknown, graph, trace)
        matter += [] if same else unknown
        matter += [module for module in others if module not in readers and _computes_otherwise(module) is not False]
    expressions = module_expressions(model)
    return [[expressions[id(module)], vars(module)["training"]] for module in matter]


def _same_in_other_mode(
    model: nn.Module, flipped: Iterable[nn.Module], graph: Graph, trace: Callable[[], Graph]
) -> tuple[bool, list[nn.Module]]:
    """Whether forward is the same where `flipped` are in their other mode, and the modules that are asked for theirs
    then.
    """
    before = [(module, vars(module)["training"]) for module in model.modules()]
    for module in flipped:
        vars(module)["training"] = not vars(module)["training"]
    readers: list[nn.Module] = []
    try:
        with watched(model) as readers:
            other = trace()
    except Exception:
        return False, []
    finally:
        for module, mode in before:
            vars(module)["training"] = mode
    return all(_without_lines(graph[part]) == _without_lines(other[part]) for part in _PARTS), readers


def _without_lines(part: Any) -> Any:
    return (
        [{key: value for key, value in item.items() if key != "location"} for item in part]
        if isinstance(part, list)
        else part
    )


def _computes_otherwise(module: nn.Module) -> bool | None:
    """Whether a layer of PyTorch's own computes something else in its other mode; None where its forward is somebody
    else's.
    """
    if not type(module).forward.__module__.startswith("torch.nn.modules."):
        return None
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerEncoderLayer)):
        return False  # They ask only whether the fast path may be taken; their dropouts ask for themselves.
    if isinstance(module, nn.RReLU):
        return module.lower < module.upper
    return None
