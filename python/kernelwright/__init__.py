"""Kernelwright: a PyTorch module in, a verified and measured faster module out.

    faster = kernelwright.optimize(model, [x])      # a module with kernels of its own, verified against double precision
    kernelwright.verify(model, faster, [x])         # the contract's verdict, with every figure
    kernelwright.measure(model, faster, [x])        # beside eager and torch.compile
    torch.compile(model, backend="kernelwright")

PyTorch is imported at the first use of any of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import VerificationError, measure, optimize, verify

__all__ = ["VerificationError", "measure", "optimize", "verify"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
