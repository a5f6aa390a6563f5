"""Kernelwright: a PyTorch module in, a verified and measured faster module out.

    faster = kernelwright.optimize(model, x)        # a module with kernels of its own, verified against double precision
    kernelwright.verify(model, faster, x)           # the contract's verdict, with every figure
    kernelwright.measure(model, faster, x)          # beside eager and torch.compile
    torch.compile(model, backend="kernelwright")

PyTorch is imported at the first use of any of these.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import dynamo_entry

if TYPE_CHECKING:
    from . import errors
    from .api import UnverifiedKernelsWarning, VerificationError, measure, optimize, verify

# The version's one place: CMake and the wheel read this line.
__version__ = "0.1.0"

__all__ = ["UnverifiedKernelsWarning", "VerificationError", "__version__", "errors", "measure", "optimize", "verify"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name in __all__:
        return getattr(importlib.import_module(".api", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


dynamo_entry.register()
