"""Whether PyTorch may round what it multiplies in single precision on a GPU to TF32: as this process has it set, and as
a tolerance policy wants it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from typing import Any, Iterator

import torch

from .. import errors

_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


@dataclass(frozen=True)
class Tf32:
    products: bool
    convolutions: bool

    @classmethod
    def here(cls) -> Tf32:
        """What PyTorch does in this process."""
        if _is_switched_off():
            return cls(False, False)
        return cls(_allowed(torch.backends.cuda.matmul), _allowed(torch.backends.cudnn))

    @classmethod
    def under(cls, policy: str, on_gpu: bool = False) -> Tf32:
        """What it does under a tolerance policy: as the user set it up ("reference"), without ("ieee") or with
        ("relaxed") TF32. `on_gpu`: for a GPU, whether this machine has one or not.
        """
        if policy not in ("ieee", "relaxed"):
            return cls.here()
        if policy == "relaxed" and _is_switched_off() and (on_gpu or torch.cuda.is_available()):
            raise errors.user_error(
                "no-tf32",
                f"The policy relaxed lets PyTorch use TF32, and {_OVERRIDE}=0 keeps NVIDIA's libraries from it.",
                hint=f"Unset {_OVERRIDE}, or use the policy reference or ieee.",
            )
        return cls(policy == "relaxed", policy == "relaxed")

    def set(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.products
        torch.backends.cudnn.allow_tf32 = self.convolutions

    def to_json(self) -> dict[str, bool]:
        return asdict(self)


def _is_switched_off() -> bool:
    """Whatever PyTorch's flags say, NVIDIA's libraries then round nothing."""
    return os.environ.get(_OVERRIDE) == "0"


def _allowed(backend: Any) -> bool:
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:  # it was set by the newer name, which PyTorch does not read by the older one
        return backend.fp32_precision == "tf32"


@contextlib.contextmanager
def precision(policy: str) -> Iterator[None]:
    """How eager computes under a tolerance policy."""
    old, new = Tf32.here(), Tf32.under(policy)
    if new != old:
        new.set()
    try:
        yield
    finally:
        if new != old:
            old.set()
