"""Whether the module emitted for a recipe computes what eager PyTorch computes: on ordinary numbers, and on numbers
strewn with NaN and infinities.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from random_modules import RecipeModule, build
from torch.utils import _pytree as pytree

Recipe = dict[str, Any]
Named = dict[str, torch.Tensor]

# Eager's inputs are moved by one rounding this often before an error is held to be ours and not the problem's.
_MOVES = 8


def examples(full: int, quick: int) -> int:
    """How many recipes to try: KW_EXAMPLES where it is set, few in quick mode, twice as many with --all."""
    usual = quick if os.environ.get("KW_TEST_QUICK") else 2 * full if os.environ.get("KW_TEST_ALL") else full
    return int(os.environ.get("KW_EXAMPLES") or usual)


def emit(recipe: Recipe, target: str, device: str = "cpu") -> dict[str, Any]:
    """The candidate for a recipe, as libkernelwright.so answers: "source", "kernels", "library_calls" …"""
    from kernelwright import library
    from kernelwright.capture import export

    module, inputs = build(recipe)
    return library.compile_graph(export.export_module(module, tuple(inputs), device=device), target)


def load(path: Path) -> ModuleType:
    """The candidate's file as a module; Triton reads its kernels' text from it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    candidate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(candidate)
    return candidate


def check(recipe: Recipe, candidate: ModuleType, device: str = "cpu") -> None:
    """Asserts that the candidate keeps the contract's bounds on the recipe, and does so in its own kernels."""
    module, inputs = build(recipe)
    module.to(device)
    inputs = [_moved_to(one, device) for one in inputs]
    ours = candidate.ModelNew(copy.deepcopy(module))
    for special in (False, True):
        if special:
            inputs = [_strewn(one) for one in inputs]
        _check_draw(module, ours, inputs, "special: " if special else "")


def _check_draw(module: RecipeModule, ours: Any, inputs: list[torch.Tensor], draw: str) -> None:
    state = copy.deepcopy(module.state_dict())
    ours.module.load_state_dict(state)
    kept = [one.clone() for one in inputs]
    eager = _run(module, inputs, state)
    reference = _exact(module, inputs, state)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to the original would warn
        actual = _named(ours(*inputs), ours.module)
    assert all(torch.equal(before.nan_to_num(7), after.nan_to_num(7)) for before, after in zip(kept, inputs)), (
        f"{draw}an input was changed"
    )
    assert actual.keys() == eager.keys()
    moved: list[Named] = []
    for name, mine in actual.items():
        where = f"{draw}{name}"
        theirs, exact = eager[name], reference[name]
        assert (mine.dtype, mine.shape, mine.device) == (theirs.dtype, theirs.shape, theirs.device), where
        assert _strides(mine) == _strides(theirs), f"{where}: strides {mine.stride()}, eager's {theirs.stride()}"
        complaint = _complaint(mine, [theirs], exact)
        if complaint:
            moved = moved or [_run(module, [_nudged(one, trial) for one in inputs], state) for trial in range(_MOVES)]
            complaint = _complaint(mine, [theirs, *(one[name] for one in moved)], exact)
        assert not complaint, f"{where}: {complaint}"


def _complaint(mine: torch.Tensor, eagers: list[torch.Tensor], exact: torch.Tensor) -> str:
    """What is wrong with `mine` by the measure of the worst of `eagers`, or nothing."""
    if not mine.dtype.is_floating_point:
        settled = torch.stack([one == exact for one in eagers]).all(0)
        wrong = int((settled & (mine != exact)).sum())
        return f"{wrong} of {mine.numel()} elements differ" if wrong else ""
    kinds = torch.stack([_kind(one) for one in (exact, *eagers)])
    wrong = int(((kinds == kinds[0]).all(0) & (_kind(mine) != kinds[0])).sum())
    if wrong:
        return f"{wrong} of {mine.numel()} elements are NaN or infinite where eager's are not, or the other way round"
    finite = (kinds == 0).all(0) & (_kind(mine) == 0)
    epsilon = torch.finfo(mine.dtype).eps
    if not finite.any():
        return ""
    errors = [_errors(one, exact, finite) for one in eagers]
    for index, sense in enumerate(("norm", "max")):
        found, bound = _errors(mine, exact, finite)[index], 2 * max(error[index] for error in errors) + 4 * epsilon
        if not found <= bound:
            return f"{sense}-relative error {found:.3g}, eager's {errors[0][index]:.3g}, bound {bound:.3g}"
    return ""


def _errors(value: torch.Tensor, exact: torch.Tensor, where: torch.Tensor) -> tuple[float, float]:
    difference, exact = (value.double() - exact)[where], exact[where]
    tiny = 1e-300
    return (difference.norm() / exact.norm().clamp_min(tiny)).item(), (
        difference.abs().max() / exact.abs().max().clamp_min(tiny)
    ).item()


def _kind(value: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 +∞, 2 −∞, 3 NaN."""
    return value.isposinf() * 1 + value.isneginf() * 2 + value.isnan() * 3


def _run(module: RecipeModule, inputs: list[torch.Tensor], state: dict[str, torch.Tensor]) -> Named:
    """Eager's outputs and buffers, starting from `state`, which it leaves in the module."""
    with torch.no_grad():
        left = _named(module(*inputs), module)
        left = {
            name: tensor.clone(memory_format=torch.preserve_format) if name.startswith("buffer") else tensor
            for name, tensor in left.items()
        }
        module.load_state_dict(state)
    return left


def _exact(module: RecipeModule, inputs: list[torch.Tensor], state: dict[str, torch.Tensor]) -> Named:
    wide = copy.deepcopy(module).double()
    with torch.no_grad():
        named = _named(wide(*(one.double() if one.is_floating_point() else one for one in inputs)), wide)
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in named.items()}


def _named(result: Any, module: torch.nn.Module) -> Named:
    outputs = {f"output {index}": leaf for index, leaf in enumerate(pytree.tree_leaves(result))}
    return outputs | {f"buffer {name}": buffer for name, buffer in module.named_buffers()}


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def _moved_to(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The same numbers with the same strides, which Tensor.to gives up."""
    moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return moved.copy_(tensor)


def _same_form(values: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=form.device).copy_(values)


def _strewn(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` with a few special values in its first half along the first axis, so that rows and columns without any
    are left.
    """
    generator = torch.Generator().manual_seed(3)
    values = tensor.detach().cpu().clone()
    if not values.dtype.is_floating_point:
        return _same_form(values, tensor)
    half = values[: max(1, values.shape[0] // 2)] if values.dim() else values
    for special in (0.0, -0.0, float("nan"), float("inf"), float("-inf")):
        half[torch.rand(half.shape, generator=generator) < 0.02] = special
    return _same_form(values, tensor)


def _nudged(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Every element moved by one unit of its rounding, up or down at random."""
    if not tensor.dtype.is_floating_point:
        return tensor
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2.0 - 1.0
    wide = tensor.double()
    return _same_form(
        torch.where(wide.isfinite(), wide * (1 + signs.double() * torch.finfo(tensor.dtype).eps), wide), tensor
    )


def interpreted(request: dict[str, Any]) -> None:
    """{"recipe", "candidate": path}, in Triton's interpreter."""
    check(request["recipe"], load(Path(request["candidate"])))
