"""Problems from the samples that PyTorch keeps of its operators and modules (torch.testing._internal).

An operator's problem is one of its samples in one dtype and one form: as it is, not contiguous, with neighbours to
fuse with, or with its sizes replaced by 0, by 1 or by primes.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import types
import warnings
from typing import Any, Iterator

import torch
from torch.utils import _pytree as pytree

from .problem import NoProblem, Problem, dtype_named, of_call, seed_all, short, stable_hash

FORMS = ("plain", "noncontiguous", "neighbours", "zero", "one", "prime")
# Results that no two runs share, devices other than the CPU, and layouts that are left to PyTorch.
_LEFT_OUT = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "empty_permuted",
    "new_empty_strided",
    "rand_like",
    "to_sparse",
}
_LEFT_OUT_STARTS = ("jiterator", "sparse.", "_refs.", "torch.ops.aten._safe", "nn.functional.scaled_mm")
_MOST_SAMPLES = 200


def _databases() -> tuple[list[Any], list[Any]]:
    try:
        import expecttest  # noqa: F401
    except ImportError:
        # PyTorch's test utilities import this base class of tests, which nothing here uses.
        module = types.ModuleType("expecttest")
        module.TestCase = type("TestCase", (), {})
        sys.modules["expecttest"] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations
        from torch.testing._internal.common_modules import module_db
    # The test utilities forbid what every verification does: to set flags of torch.backends.
    torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True
    # Ordinary code does not seed the generator in front of every dropout; the contract does that.
    common_methods_invocations.wrapper_set_seed = lambda op, *arguments, **keywords: op(*arguments, **keywords)
    return common_methods_invocations.op_db, module_db


class Operators:
    source = "op"

    def __init__(self) -> None:
        self.infos = {}
        for info in _databases()[0]:
            title = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
            if info.name not in _LEFT_OUT and not info.name.startswith(_LEFT_OUT_STARTS):
                self.infos[title] = info

    def names(self, seed: int, share: int) -> Iterator[str]:
        """`share` problems of each operator: the first in its first dtype, the others by `seed`."""
        for title, info in self.infos.items():
            dtypes = sorted(map(short, info.supported_dtypes("cpu")))
            dtypes = [name for name in dtypes if "complex32" not in name and not name.startswith("float8")]
            if not dtypes:
                continue
            first = "float32" if "float32" in dtypes else dtypes[0]
            chosen = random.Random(stable_hash(f"{title}/{seed}"))
            every = list(itertools.product(dtypes, range(4), FORMS))
            picks = [(first, chosen.randrange(4), chosen.choice(FORMS))] + chosen.sample(every, min(share, len(every)))
            for dtype, number, form in list(dict.fromkeys(picks))[:share]:
                yield f"op/{title}/{dtype}/{number}/{form}"

    def make(self, name: str) -> Problem:
        _, title, dtype, number, form = name.split("/")
        info = self.infos[title]

        def draw(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            sample = _sample(info, dtype_named(dtype), int(number))
            if form == "noncontiguous":
                sample = sample.noncontiguous()
            call = ((sample.input, *sample.args), dict(sample.kwargs))
            return resized(call, form) if form in _SIZES else call

        return of_call(name, info.op, draw, neighbours=form == "neighbours")


def _sample(info: Any, dtype: torch.dtype, number: int) -> Any:
    """One of four samples that lie evenly among the operator's first ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), _MOST_SAMPLES))
    if not samples:
        raise NoProblem("the operator has no samples of this dtype")
    return samples[number * (len(samples) - 1) // 3 if len(samples) > 3 else number % len(samples)]


_SIZES = {"zero": (0,), "one": (1,), "prime": (7, 13, 3, 11)}


def resized(value: Any, form: str) -> Any:
    """Every size above 2 replaced by one of the form's, equal ones by equal ones, around the same numbers."""
    sizes = sorted(
        {
            size
            for leaf in pytree.tree_leaves(value)
            if isinstance(leaf, torch.Tensor)
            for size in leaf.shape
            if size > 2
        }
    )
    if not sizes:
        raise NoProblem("no size can be replaced")
    # A tensor without elements needs one empty axis; sizes of 0 throughout would meet few operators' rules.
    replaced = {
        size: _SIZES[form][index % len(_SIZES[form])]
        for index, size in enumerate(sizes)
        if form != "zero" or index == 0
    }

    def other(tensor: torch.Tensor) -> torch.Tensor:
        shape = [replaced.get(size, size) for size in tensor.shape]
        if shape == list(tensor.shape) or not tensor.numel():
            return tensor
        flat = tensor.reshape(-1)
        count = torch.Size(shape).numel()
        values = flat[torch.arange(count) % flat.numel()].reshape(shape)
        if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool):
            # What may be an index must lie in the smaller tensor too.
            smallest = min([new for new in replaced.values() if new] or [1])
            values = values.remainder(smallest) if bool((values >= smallest).any()) else values
        return values.contiguous()

    return pytree.tree_map_only(torch.Tensor, other, value)


class Modules:
    """Every class of torch.nn, constructed and called as PyTorch's own tests do."""

    source = "module"

    def __init__(self) -> None:
        self.infos = {info.name: info for info in _databases()[1]}

    def names(self, seed: int, share: int) -> Iterator[str]:
        for title in self.infos:
            chosen = random.Random(stable_hash(f"{title}/{seed}"))
            dtypes = ("float32", "float64", "bfloat16", "float16")
            every = list(itertools.product(dtypes, ("train", "eval"), range(6)))
            for dtype, mode, number in chosen.sample(every, min(2 * share, len(every))):
                yield f"module/{title}/{dtype}/{mode}/{number}"

    def make(self, name: str) -> Problem:
        _, title, dtype, mode, number = name.split("/")
        info = self.infos[title]
        if dtype_named(dtype) not in info.dtypes and dtype.endswith("16") and torch.float32 not in info.dtypes:
            raise NoProblem("the module has no such dtype")

        def inputs(seed: int) -> Any:
            seed_all(seed)
            # Made in float32 where PyTorch's own tests keep no samples of 16 bits.
            made = info.module_inputs_func(
                info, device="cpu", dtype=dtype_named(dtype), requires_grad=False, training=mode == "train"
            )
            if int(number) >= len(made):
                raise NoProblem("the module has fewer samples")
            return made[int(number)]

        example = inputs(0)
        built = example.constructor_input
        with contextlib.suppress(TypeError):
            module = info.module_cls(*built.args, **{"dtype": dtype_named(dtype), **built.kwargs})
            return _held(name, module, mode, inputs)
        return _held(name, info.module_cls(*built.args, **built.kwargs).to(dtype_named(dtype)), mode, inputs)


def _held(name: str, module: torch.nn.Module, mode: str, inputs: Any) -> Problem:
    forward = inputs(0).forward_input
    keywords = dict(forward.kwargs)

    def redraw(seed: int) -> tuple[Any, ...]:
        again = inputs(seed).forward_input
        return (*again.args, *again.kwargs.values())

    return Problem(name, module.train(mode == "train"), tuple(forward.args), keywords, redraw)
