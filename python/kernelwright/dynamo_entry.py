"""Makes `torch.compile(model, backend="kernelwright")` work after `import kernelwright`, without importing PyTorch.

An installed package names the backend in its entry points, which PyTorch reads when it first looks for a backend it
does not know. In a checkout nothing is installed; there `_Checkout` tells importlib.metadata, which PyTorch asks, what
the package's metadata would say.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

_NAME = "kernelwright"
_ENTRY_POINTS = f"[torch_dynamo_backends]\n{_NAME} = kernelwright.backend:kernelwright\n"


class _Checkout:
    """A finder on sys.meta_path that finds no modules and one distribution: this package, where it is not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        return None

    @staticmethod
    def find_distributions(context: DistributionFinder.Context) -> Iterator[Distribution]:
        if context.name in (None, _NAME):
            yield _distribution()


def register() -> None:
    """Called once by the package. Whichever of PyTorch and Kernelwright is imported first, the backend is found."""
    # Last on the list: the metadata of an installed package comes before it, and names are taken once.
    if not any(
        type(finder).__name__ == _Checkout.__name__ and type(finder).__module__ == __name__ for finder in sys.meta_path
    ):
        sys.meta_path.append(_Checkout())
    registry = sys.modules.get("torch._dynamo.backends.registry")
    # PyTorch reads the entry points once; it may have done so before this package was imported.
    if registry is not None and _NAME not in registry.list_backends(exclude_tags=()):
        from .backend import kernelwright

        registry.register_backend(kernelwright, name=_NAME)


def _distribution() -> Distribution:
    from importlib.metadata import Distribution

    class CheckoutDistribution(Distribution):
        def read_text(self, filename: str) -> str | None:
            from . import __version__

            metadata = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {__version__}\n"
            return {"METADATA": metadata, "entry_points.txt": _ENTRY_POINTS}.get(filename)

        def locate_file(self, path: Any) -> Any:
            from pathlib import Path

            return Path(__file__).resolve().parent.parent / path

    return CheckoutDistribution()
