"""What a process has set that outlives a call and changes what other code computes, or how fast: of PyTorch, of the
interpreter, of the processor; and functions that were replaced.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import locale
import math
import os
import random
import resource
import sys
import time
import warnings
import zlib
from typing import Any, Callable

import torch

_hooks = torch.nn.modules.module


def _keeps_subnormals() -> bool:
    return bool(torch.full((1,), 1e-39).mul_(0.5).item() > 0)


def _leave(_old: Any) -> None:
    """Nothing puts it back from here."""


_mathematics = ctypes.CDLL("libm.so.6")
_c_library = ctypes.CDLL(None)

# What PyTorch's own compilers note for their helpers on a first call.
_COMPILERS_OWN = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "TORCH_CUDA_ARCH_LIST", "CUDA_MODULE_LOADING")

ENVIRONMENT = "the environment"

_LIMITS = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


def _environment() -> dict[str, str]:
    """The C library's, which child processes and libraries read, whatever os.environ says."""
    entries, found = ctypes.POINTER(ctypes.c_char_p).in_dll(_c_library, "environ"), {}
    for index in range(_MOST_VARIABLES):
        if not entries or (entry := entries[index]) is None:
            break
        name, _, value = os.fsdecode(entry).partition("=")
        if not name.startswith(_COMPILERS_OWN):
            found[name] = value
    return found


_MOST_VARIABLES = 1 << 16


def _put_environment(old: dict[str, str]) -> None:
    now = _environment()
    for name in now.keys() - old.keys():
        os.environ.pop(name, None)
        os.unsetenv(name)
    os.environ.update({name: value for name, value in old.items() if now.get(name) != value})


def _filters_that_raise() -> list[tuple[Any, ...]]:
    """Filters by which a warning ends whatever it comes up in; what others say changes no result."""
    return [one for one in warnings.filters if one[0] == "error"]


def _drop_filters_that_raise(old: list[tuple[Any, ...]]) -> None:
    filters: Any = warnings.filters  # a list, which is declared as one that cannot be changed
    filters[:] = [one for one in filters if one[0] != "error" or one in old]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _of_the_gpu(read: Callable[[], Any]) -> Callable[[], Any]:
    """A setting that PyTorch knows once it uses a GPU, and not before."""
    return lambda: read() if torch.cuda.is_initialized() else 0


def _put_stream(old: int) -> None:
    """The default stream is the one whose address is 0; ExternalStream(0) would be a new one."""
    torch.cuda.set_stream(torch.cuda.ExternalStream(old) if old else torch.cuda.default_stream())


def _numpys_errors() -> Any:
    return sys.modules["numpy"].geterr() if "numpy" in sys.modules else None


def _put_numpys_errors(old: Any) -> None:
    if old is not None:
        sys.modules["numpy"].seterr(**old)


# How to read it, and how to put it back.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "the float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "autocast on the CPU": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda old: torch.set_autocast_enabled("cpu", old),
    ),
    "autocast on the GPU": (
        lambda: torch.is_autocast_enabled("cuda"),
        lambda old: torch.set_autocast_enabled("cuda", old),
    ),
    "the GPU's current stream": (_of_the_gpu(lambda: torch.cuda.current_stream().cuda_stream), _put_stream),
    "the current GPU": (_of_the_gpu(torch.cuda.current_device), torch.cuda.set_device),
    "what PyTorch does about waiting for the GPU": (
        _of_the_gpu(torch.cuda.get_sync_debug_mode),
        torch.cuda.set_sync_debug_mode,
    ),
    "inference mode": (torch.is_inference_mode_enabled, _leave),
    "the default device": (lambda: str(torch.get_default_device()), torch.set_default_device),
    "the number of modes that see every function": (torch._C._len_torch_function_stack, _leave),
    "the number of modes that see every operator": (torch._C._len_torch_dispatch_stack, _leave),
    "the locale": (lambda: locale.setlocale(locale.LC_ALL), lambda old: locale.setlocale(locale.LC_ALL, old)),
    "the direction of rounding": (_mathematics.fegetround, _mathematics.fesetround),
    "the priority of the process": (lambda: os.getpriority(os.PRIO_PROCESS, 0), _leave),
    "the use of oneDNN": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "the thresholds of the garbage collector": (gc.get_threshold, lambda old: gc.set_threshold(*old)),
    "whether the garbage collector runs": (gc.isenabled, lambda old: gc.enable() if old else gc.disable()),
    "whether subnormal numbers are kept": (_keeps_subnormals, lambda old: torch.set_flush_denormal(not old)),
    "the processors that it may use": (
        lambda: sorted(os.sched_getaffinity(0)),
        lambda old: os.sched_setaffinity(0, old),
    ),
    "the function that traces calls": (sys.gettrace, sys.settrace),
    "the function that profiles calls": (sys.getprofile, sys.setprofile),
    ENVIRONMENT: (_environment, _put_environment),
    "the filters that make errors of warnings": (_filters_that_raise, _drop_filters_that_raise),
    "what NumPy does about floating-point errors": (_numpys_errors, _put_numpys_errors),
    "the working directory": (os.getcwd, os.chdir),
    "the interval at which threads take turns": (sys.getswitchinterval, sys.setswitchinterval),
    "the limits on resources": (
        lambda: {name: resource.getrlimit(number) for name, number in _LIMITS.items()},
        _leave,
    ),
    "PyTorch's global forward hooks": (
        lambda: list(_hooks._global_forward_hooks),
        lambda old: _keep_only(_hooks._global_forward_hooks, old),
    ),
    "PyTorch's global forward pre-hooks": (
        lambda: list(_hooks._global_forward_pre_hooks),
        lambda old: _keep_only(_hooks._global_forward_pre_hooks, old),
    ),
}
for _owner, _label, _names in (
    (
        torch.backends.cuda.matmul,
        "torch.backends.cuda.matmul",
        (
            "allow_tf32",
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
            "allow_fp16_accumulation",
        ),
    ),
    (torch.backends.cudnn, "torch.backends.cudnn", ("allow_tf32", "benchmark", "deterministic", "enabled")),
):
    for _name in _names:
        _SETTINGS[f"{_label}.{_name}"] = (
            functools.partial(getattr, _owner, _name),
            functools.partial(setattr, _owner, _name),
        )

# Whose functions other code stands on.
_OWNERS: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.Module": torch.nn.Module,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.linalg": torch.linalg,
    "time": time,
    "builtins": builtins,
    "zlib": zlib,
    "random": random,
    "math": math,
    "os": os,
}


def _keep_only(hooks: dict[int, Any], wanted: list[int]) -> None:
    for key in [key for key in hooks if key not in wanted]:
        del hooks[key]


class GlobalState:
    """The settings at one moment."""

    def __init__(self) -> None:
        self.values = {name: _read(read) for name, (read, _) in _SETTINGS.items()}

    def undo(self, doing: str = "forward", but: tuple[str, ...] = ()) -> list[str]:
        """Put back every setting that changed since, `but` those; one sentence for each."""
        found = []
        for name, old in self.values.items():
            read, write = _SETTINGS[name]
            if name not in but and (new := _read(read)) != old:
                write(old)
                found.append(f"{doing} changed {name} from {_short(*_differing(old, new))}.")
        return found


class Functions:
    """The functions of PyTorch and of the standard library that a process has at one moment."""

    def __init__(self) -> None:
        self._kept = {
            owner: {name: value for name, value in vars(held).items() if callable(value)}
            for owner, held in _OWNERS.items()
        }

    def replaced(self) -> list[str]:
        """One sentence for each that is another one now."""
        found = []
        for owner, kept in self._kept.items():
            now = vars(_OWNERS[owner])
            found += [
                f"{owner}.{name} was replaced."
                for name, value in kept.items()
                if now.get(name) is not value and not _is_pytorchs(now.get(name))
            ]
        return found


# What outputs are taken with: whoever overrides one of these can put work off until then.
_TAKING = (
    "detach",
    "alias",
    "copy_",
    "_to_copy",
    "clone",
    "view",
    "view.dtype",
    "as_strided",
    "slice.Tensor",
    "resolve_conj",
    "resolve_neg",
    "empty.memory_format",
    "empty_strided",
    "frombuffer",
)


class Operators:
    """The kernels that PyTorch's operators have at one moment: of those that outputs are taken with, and of whatever
    torch.library is told later.
    """

    def __init__(self) -> None:
        self._taking = self._dumps()
        self._known = set(torch.library._impls)

    def _dumps(self) -> dict[str, str]:
        names = (f"aten::{name}" for name in _TAKING)
        return {name: torch._C._dispatch_dump(name) for name in names if torch._C._dispatch_has_kernel(name)}

    def overridden(self) -> list[str]:
        """One sentence for each operator of PyTorch's own that has got a kernel from elsewhere. Kernels for tensors
        without memory (Meta) compute nothing.
        """
        new = [key.split("/") for key in set(torch.library._impls) - self._known]
        names = {f"{space}::{name}" for space, name, key in new if space in ("aten", "prims") and key != "Meta"}
        names |= {name for name, dump in self._dumps().items() if self._taking.get(name) != dump}
        return [f"The operator {name} was overridden." for name in sorted(names) if _has_foreign_kernel(name)]


def _has_foreign_kernel(name: str) -> bool:
    """Whether the dispatcher says of a kernel that it was registered in a file that is none of PyTorch's."""
    lines = [line for line in torch._C._dispatch_dump(name).splitlines() if ": registered at " in line]
    places = [line.partition(": registered at ")[2] for line in lines]
    own = ("/__w/pytorch/", "/pytorch/", os.path.join(os.path.dirname(torch.__file__), ""))
    return any(not place.startswith(own) for place in places)


def _is_pytorchs(function: Any) -> bool:
    """torch.compile puts some of its own functions into the place of others when it is imported."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(os.path.join(os.path.dirname(torch.__file__), ""))


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError as error:
        # PyTorch refuses to read a setting that was made in two ways which contradict one another.
        return f"unreadable ({str(error).splitlines()[0]})"


def _differing(old: Any, new: Any) -> tuple[Any, Any]:
    """Of dictionaries only what differs."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return old, new
    names = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    was, now = ({name: one[name] for name in sorted(names) if name in one} for one in (old, new))
    return was, now


def _short(old: Any, new: Any) -> str:
    texts = [text if len(text) <= 80 else text[:77] + "..." for text in (str(old), str(new))]
    return " to ".join(texts)
