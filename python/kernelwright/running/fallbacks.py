"""Whether a file that the compiler wrote has run the original module instead of its kernels, and why."""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch

# The functions of such a file that say whether its kernels can run, and that warn where they cannot; the second has
# another name beside an argument of forward that is called like it.
_DECIDES, _WARNS = "why_not", ("warn_once", "kw_warn_once")


@contextlib.contextmanager
def noted(module: torch.nn.Module, reasons: list[str]) -> Iterator[None]:
    """Appends to `reasons` instead of warning, each time that `module` or a part of it runs the original."""
    changed = []
    try:
        for part in module.modules():
            names = getattr(type(part).forward, "__globals__", {})
            if _DECIDES in names:
                for name in _WARNS:
                    if name in names:
                        changed.append((names, name, names[name]))
                        names[name] = lambda reason: reasons.append(str(reason))
        yield
    finally:
        for names, name, function in reversed(changed):
            names[name] = function
