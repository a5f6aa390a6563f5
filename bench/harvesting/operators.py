"""ATen operators that the planner knows, in every overload, called as their schemas say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator

import torch

from .problem import NoProblem, Problem, of_call, seed_all
from .samples import resized

_REGISTRY = Path(__file__).resolve().parents[2] / "src" / "ir" / "op_rows.cpp"
_SHAPES = ((4, 6), (2, 3, 6, 6), (6,), (2, 3, 8), (5, 5), (1, 2, 4, 6, 6), ())
_DTYPES = ("float32", "int64", "bool", "float16")
_FORMS = ("plain", "zero", "one", "prime", "noncontiguous")
# Uninitialised memory, and what reads a number out of a tensor.
_LEFT_OUT = re.compile(
    r"empty|item|_local_scalar_dense|is_nonzero|sym_|^_efficient|^_flash|cudnn|miopen|_overrideable|^_thnn|_scaled_mm"
)
_NUMBERS = {
    "eps": 1e-5,
    "p": 0.0,
    "dropout": 0.0,
    "dropout_p": 0.0,
    "momentum": 0.1,
    "N": 5,
    "n": 5,
    "steps": 5,
    "size": 6,
    "end": 6,
    "groups": 1,
    "num_classes": 8,
}


def known_names() -> list[str]:
    """The operators of the planner's registry, by their base names."""
    rows, _, families = _REGISTRY.read_text().partition("kPlanned[]")[2].partition("struct Family")
    names = re.findall(r'^    \{"([^"]*)"', rows, re.MULTILINE)
    synonyms = re.findall(r'",\s+[\w| ]+,\s+"([^"]*)"(?:,\s+"[^"]*")*\},', rows)
    names += " ".join(synonyms + re.findall(r'"([^"]*)"', families.partition("}  // namespace")[0])).split()
    return sorted({name.partition(".")[0] for name in names})


class Schemas:
    """Every overload of a known operator that writes to nothing, on the first shape of operands that eager takes."""

    source = "aten"

    def names(self, seed: int, share: int) -> Iterator[str]:
        for index, name in enumerate(known_names()):
            if _LEFT_OUT.search(name) or not hasattr(torch.ops.aten, name):
                continue
            for number, overload in enumerate(getattr(torch.ops.aten, name).overloads()):
                op = getattr(getattr(torch.ops.aten, name), overload)
                if (
                    overload.endswith("out")
                    or op._schema.is_mutable
                    or "Dimname" in str(op._schema)
                    or "Storage" in str(op._schema)
                ):
                    continue
                turn = index + number + seed
                yield f"aten/{name}.{overload}/{_DTYPES[0]}/{_FORMS[turn % len(_FORMS)]}"
                yield f"aten/{name}.{overload}/{_DTYPES[1 + turn % 3]}/{_FORMS[(turn + 1) % len(_FORMS)]}"

    def make(self, name: str) -> Problem:
        _, title, dtype, form = name.split("/")
        packet, _, overload = title.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        for shape in _SHAPES:

            def draw(seed: int, shape: tuple[int, ...] = shape) -> tuple[tuple[Any, ...], dict[str, Any]]:
                seed_all(seed)
                return _laid_out(arguments_of(op, shape, getattr(torch, dtype)), form), {}

            try:
                op(*draw(0)[0])
            except Exception:
                continue
            return of_call(name, op, draw)
        raise NoProblem("eager takes no guess at its arguments")


def arguments_of(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """The schema's positional arguments without those that have defaults; keywords are left at theirs."""
    given = [
        argument for argument in op._schema.arguments if not argument.has_default_value() and not argument.kwarg_only
    ]
    return tuple(_argument(argument, shape, dtype) for argument in given)


def _argument(argument: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    kind, name = str(argument.type), argument.name
    if kind.startswith("Optional"):
        return None
    if "Tensor" in kind:
        one = _tensor(name, shape, dtype)
        return [one, _tensor(name, shape, dtype)] if "List" in kind else one
    if name in _NUMBERS:
        return _NUMBERS[name]
    if "List[int]" in kind:
        return (
            list(shape)
            if name in ("size", "shape")
            else [1] * max(1, len(shape) - 2)
            if name in ("kernel_size", "stride")
            else [0]
        )
    if kind in ("int", "SymInt"):
        return 1 if shape else 0
    return {"number": 2, "Scalar": 2, "float": 0.5, "bool": True, "str": "mean"}.get(kind, 1)


def _tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if name in ("index", "indices", "target"):
        return torch.zeros(shape, dtype=torch.int64)
    if name in ("mask", "condition"):
        return torch.rand(shape) > 0.5
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    return (
        torch.randint(1, 9, shape).to(dtype) if not dtype.is_floating_point else (torch.rand(shape) * 2 - 0.5).to(dtype)
    )


def _laid_out(arguments: tuple[Any, ...], form: str) -> tuple[Any, ...]:
    if form == "plain":
        return arguments
    if form != "noncontiguous":
        return resized(arguments, form)

    def strided(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 1:
            return tensor
        return torch.stack([tensor, tensor], -1).select(-1, 1)

    return torch.utils._pytree.tree_map_only(torch.Tensor, strided, arguments)
