"""Runs golden modules beside the problems they were written for, in Triton's interpreter: `module_golden_worker.py
FILE…`, TRITON_INTERPRET=1.

Prints {file stem: [fault, …]} as JSON.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import torch

Call = tuple[tuple[Any, ...], dict[str, Any]]


def load(path: Path) -> ModuleType:
    file = Path(tempfile.mkdtemp()) / f"{path.stem}.py"
    file.write_text(path.read_text().split("----\n", 3)[3])
    spec = importlib.util.spec_from_file_location(path.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pairs(shift: torch.Tensor, kind: str = "sum") -> dict[str, Any]:
    return {"shift": [shift], "kind": kind}


# The call that the module was made for, and calls that must run in the original.
CALLS: dict[str, tuple[Callable[[], Call], list[Callable[[], Call]]]] = {
    "batch_norm_calls": (
        lambda: ((torch.randn(4, 3, 8, 8),), {}),
        [
            lambda: ((torch.randn(4, 3, 8, 8), 3.0), {}),
            lambda: ((torch.randn(2, 3, 8, 8),), {}),
            lambda: ((torch.randn(4, 3, 8, 8).transpose(2, 3),), {"scale": 2.0}),
        ],
    ),
    "statistics_in_place": (
        lambda: ((torch.randn(4, 8),), {}),
        [lambda: ((torch.randn(3, 8),), {}), lambda: ((torch.randn(8, 4).t(),), {})],
    ),
    "graphed_statistics": (
        lambda: ((torch.randn(4, 8),), {}),
        [lambda: ((torch.randn(3, 8),), {}), lambda: ((torch.randn(8, 4).t(),), {})],
    ),
    "moments_in_place": (lambda: ((torch.randn(128),), {}), [lambda: ((torch.randn(128, dtype=torch.float64),), {})]),
    "norm_mm": (
        lambda: ((torch.randn(16, 64),), {"pairs": pairs(torch.randn(2))}),
        [
            lambda: ((torch.randn(16, 64),), {"pairs": pairs(torch.randn(2), "other")}),
            lambda: ((torch.randn(16, 64),), {"pairs": pairs(torch.randn(1))}),
            lambda: ((torch.randn(8, 64),), {"pairs": pairs(torch.randn(2))}),
        ],
    ),
}


def compare(faults: list[str], what: str, ours: Any, theirs: Any) -> None:
    try:
        torch.testing.assert_close(ours, theirs)
    except AssertionError as error:
        faults.append(f"{what}: {error}")


def check(path: Path) -> list[str]:
    faults: list[str] = []
    module = load(path)
    reference, ours = module.Model(), module.ModelNew()
    ours.load_state_dict(reference.state_dict())
    made_for, others = CALLS[path.stem]

    def both(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> list[warnings.WarningMessage]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            given = copy.deepcopy((args, kwargs))
            result = ours(*args, **kwargs)
        expected = reference(*given[0], **given[1])
        compare(faults, f"{what}, arguments", args, given[0])
        leaves, structure = torch.utils._pytree.tree_flatten(result)
        expected_leaves, expected_structure = torch.utils._pytree.tree_flatten(expected)
        if structure != expected_structure:
            faults.append(f"{what}: {structure} instead of {expected_structure}")
        for ours_leaf, theirs in zip(leaves, expected_leaves):
            compare(faults, what, ours_leaf, theirs)
            if isinstance(theirs, torch.Tensor) and ours_leaf.stride() != theirs.stride():
                faults.append(f"{what}: strides {ours_leaf.stride()} instead of {theirs.stride()}")
            if any(theirs is one for one in given[0]) and not any(ours_leaf is one for one in args):
                faults.append(f"{what}: an input that forward returns is not that input")
        for name, value in reference.state_dict().items():
            compare(faults, f"{what}, {name}", ours.state_dict()[name], value)
        return caught

    with torch.no_grad():
        for repeat in range(2):
            for warning in both(*made_for(), f"call {repeat}"):
                faults.append(f"the call that it was made for warns: {warning.message}")
        for index, call in enumerate(others):
            drawn = call()
            if index == 0 and not both(*drawn, "other call"):
                faults.append("a fall-back does not warn")
            if both(*drawn, f"other call {index}") and index == 0:
                faults.append("a fall-back warns twice")
        reference.train(not reference.training)
        ours.train(reference.training)
        both(*made_for(), "other mode")
        reference.train(not reference.training)
        ours.train(reference.training)
    args, kwargs = made_for()
    leaves = torch.utils._pytree.tree_leaves(ours(*args, **kwargs))
    if any(True for _ in ours.parameters()) and not any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves
    ):
        faults.append("outside no_grad the result has no gradient")
    return faults


def main() -> None:
    from kernelwright import interpreter

    interpreter.install()
    print(json.dumps({Path(file).stem: check(Path(file)) for file in sys.argv[1:]}))


if __name__ == "__main__":
    main()
