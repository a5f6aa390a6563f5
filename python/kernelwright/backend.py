"""The torch.compile backend: `torch.compile(model, backend="kernelwright")`; dynamo_entry.py says how PyTorch finds it."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Mapping, Sequence

import torch

from . import errors


def kernelwright(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo found. `options` are keyword arguments of kernelwright.optimize (api.SETTINGS).

    Each combination of shapes is compiled, and verified, at its first call. Where gradients are wanted, and where a
    graph cannot be compiled or no candidate passes, PyTorch runs it, with one warning.
    """
    from . import api

    settings = dict(options or {})
    api.check_settings(settings)
    made: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def run(*args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(value, torch.Tensor) and value.requires_grad for value in args):
            _warn_once("gradients are wanted; call it under torch.no_grad()")
            return graph_module(*args)
        key = tuple(_form(value) for value in args)
        if key not in made:
            made[key] = _compile(graph_module, args, settings)
        return made[key](*args)

    return run


def _compile(graph_module: torch.fx.GraphModule, args: tuple[Any, ...], settings: dict[str, Any]) -> Callable[..., Any]:
    from . import api

    try:
        with torch.no_grad():
            return torch._dynamo.disable(api.optimize(graph_module, args, **settings))
    except errors.Error as error:
        if error.kind in ("internal", "missing"):
            raise
        _warn_once(error.message)
    except api.VerificationError as error:
        _warn_once(str(error))
    return graph_module


def _form(value: Any) -> Any:
    """What kernels are made for: a tensor's form, anything else itself."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype, value.device)
    return value if isinstance(value, (int, float, bool, str, type(None))) else repr(value)


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"kernelwright runs a graph in PyTorch: {reason}", stacklevel=3)
