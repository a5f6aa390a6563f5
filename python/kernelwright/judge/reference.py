"""The reference of the contract: the problem's own module in double precision, with the random numbers that eager drew.

What stands in when that cannot be had, in this order: double precision on the CPU, where the GPU's memory is too small;
eager in its own precision ("fp32-eager"), where the module insists on a narrower dtype or draws random numbers inside
an operator that hides them. The last is the weaker check, and the reply says so.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from typing import Any, Callable, Iterator

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from ..running.limits import free_memory
from ..running.problem import Problem
from ..running.seeding import seed_everything
from ..running.state import copy_state, to_double
from .work import keeps_signs_of_zeros, summands

_NARROW = {torch.float32, torch.float16, torch.bfloat16}
_NARROWING = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


class Unavailable(Exception):
    """There is no double-precision reference; the text says why."""


class StayDouble(TorchFunctionMode):
    """Turns a forward's own casts to narrower floats into casts to double."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _NARROWING:
            return args[0].double()
        if func is not torch.Tensor.view:
            args, kwargs = tuple(map(_widen, args)), {key: _widen(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)


def _widen(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def _draws_random_numbers(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> bool:
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    defaults = {
        argument.name: argument.default_value for argument in func._schema.arguments if argument.has_default_value()
    }
    given = {**defaults, **given}
    # Attention and recurrent operators carry the tag for a dropout that is mostly off.
    if any(name in given and given[name] == 0 for name in ("dropout_p", "dropout")):
        return False
    return given.get("train", True) is not False and given.get("training", True) is not False


def _numbers(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> set[float]:
    """Arguments that are numbers to compute with, not sizes or dimensions."""
    found = set()
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and any(word in str(argument.type) for word in ("number", "float", "Scalar"))
        ):
            found.add(float(value))
    return found


class Mode(TorchDispatchMode):
    """A mode that never meets torch.compile."""

    # The wrapper that hides a mode from torch.compile imports two seconds' worth of modules at its first use.
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Record(Mode):
    """Notes the operators that a forward calls and the numbers among their arguments, and keeps what its random
    operators drew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()
        self.calls: Counter[torch._ops.OpOverload] = Counter()
        self.summands = 1  # terms of the longest sum
        self.keeps_signs_of_zeros = True
        self.constants: set[float] = set()
        self.drawn: list[tuple[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.operators.add(func.name())
        self.calls[func] += 1
        self.summands = max(self.summands, summands(func, args, result))
        self.keeps_signs_of_zeros &= keeps_signs_of_zeros(func, args, kwargs)
        self.constants |= _numbers(func, args, kwargs)
        if _draws_random_numbers(func, args, kwargs):
            self.drawn.append((func._schema.name, tree_map_only(torch.Tensor, torch.clone, result)))
        return result


class Replay(Mode):
    """Answers a forward's random operators with what eager's drew, in order."""

    def __init__(self, drawn: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.drawn = list(drawn)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not _draws_random_numbers(func, args, kwargs):
            return func(*args, **kwargs)
        name = func._schema.name
        if not self.drawn or self.drawn[0][0] != name:
            raise Unavailable(f"{name} draws random numbers in another order in double precision")
        _, result = self.drawn.pop(0)
        if name == "aten::native_dropout":
            mask = result[1].to(args[0].device)
            keep = 1.0 - float(args[1])
            return args[0] * mask * (1.0 / keep if keep else 0.0), mask
        if isinstance(result, torch.Tensor) and func._schema.is_mutable and isinstance(args[0], torch.Tensor):
            return args[0].copy_(result)
        simple = isinstance(result, torch.Tensor) and any(
            word in name
            for word in ("rand", "normal", "bernoulli", "multinomial", "uniform", "exponential", "poisson", "binomial")
        )
        if not simple:
            raise Unavailable(f"{name} draws random numbers that cannot be replayed")
        return result.double() if result.is_floating_point() else result


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


def _copy_in_place(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A copy that begins as far into its memory as `tensor`, with what lies before it and between its elements, where
    as_strided may read."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.storage_offset()
    if tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg() or (begin == 0 and reach <= tensor.numel()):
        return tensor.to(device=device, dtype=dtype, copy=True)
    memory = tensor.as_strided((begin + reach,), (1,), 0).to(device=device, dtype=dtype, copy=True)
    return memory.as_strided(tensor.shape, tensor.stride(), begin)


def _widened(value: Any, device: torch.device) -> Any:
    """A copy of a call's arguments with floating tensors in double precision, on `device`."""
    copies: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        # One tensor given twice stays one tensor: an operation in place on the first shows in the second.
        if id(tensor) not in copies:
            dtype = (
                torch.float64
                if tensor.is_floating_point()
                else torch.complex128
                if tensor.is_complex()
                else tensor.dtype
            )
            copies[id(tensor)] = _copy_in_place(tensor, device, dtype)
        return copies[id(tensor)]

    return tree_map_only(torch.Tensor, copy, value)


class Reference:
    """Runs the reference of one problem; falls back for good at the first draw that needs it."""

    def __init__(self, problem: Problem, device: torch.device, seed: int) -> None:
        self.problem = problem
        self.home = device
        self.seed = seed
        self.device = device
        self.name = "fp64"
        self.note = ""
        self.module: torch.nn.Module | None = None

    @property
    def is_double(self) -> bool:
        return self.name != "fp32-eager"

    def run(
        self,
        model: torch.nn.Module,
        inputs: list[Any],
        seed: int,
        drawn: list[tuple[str, Any]],
        around: contextlib.AbstractContextManager | None = None,
    ) -> tuple[Any, list[Any], torch.nn.Module] | None:
        """The result, the inputs as the forward left them, and the module likewise; None where only eager can serve.
        `around`: a mode to run it in.
        """
        while self.is_double:
            try:
                return self._attempt(model, inputs, seed, drawn, around)
            except Exception as error:
                # The traceback's frames hold the tensors that filled the memory.
                reason = error.with_traceback(None)
            self._fall_back(reason, inputs)
        return None

    def _attempt(
        self,
        model: torch.nn.Module,
        inputs: list[Any],
        seed: int,
        drawn: list[tuple[str, Any]],
        around: contextlib.AbstractContextManager | None,
    ) -> tuple[Any, list[Any], torch.nn.Module]:
        if self.module is None:
            self.module = to_double(self.problem.construct(self.device, seed=self.seed))
        copy_state(model, self.module)
        arguments = _widened(inputs, self.device)
        seed_everything(seed)
        with torch.no_grad(), _default_dtype(torch.float64), StayDouble():
            with Replay(drawn) if drawn else contextlib.nullcontext(), around or contextlib.nullcontext():
                result = self.module(*arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return (
            tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, result),
            arguments,
            self.module,
        )

    def _fall_back(self, reason: Exception, inputs: list[Any]) -> None:
        self.module = None
        gc.collect()
        short_of_memory = isinstance(reason, (torch.OutOfMemoryError, MemoryError)) or "allocate memory" in str(reason)
        if short_of_memory and self.device.type == "cuda":
            torch.cuda.empty_cache()
            sizes: list[int] = []
            tree_map_only(torch.Tensor, lambda tensor: sizes.append(tensor.numel() * 8), inputs)
            if 6 * sum(sizes) < free_memory(torch.device("cpu")):
                self.device = torch.device("cpu")
                self.name = "fp64-on-cpu"
                self.note = "The double-precision run does not fit the GPU's memory, so it ran on the CPU."
                return
        self.give_up("it does not fit the memory" if short_of_memory else " ".join(str(reason).split())[:200])

    def give_up(self, why: str) -> None:
        """Let eager be the reference from now on."""
        self.module = None
        self.name = "fp32-eager"
        self.note = (
            f"There is no double-precision reference ({why}); eager's own result is the reference, a weaker check."
        )
