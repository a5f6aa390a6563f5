"""Problems: Python files with `Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`.

`load(path)` runs the file and checks that it has the right parts; a `Problem` then constructs the model and draws
inputs as often as asked, under any seed. Whatever is wrong with the file leaves as an `errors.Error` that names the
user's line.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import inspect
import io
import linecache
import os
import sys
import tokenize
import types
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from .. import errors
from ..errors import user_error
from . import local_imports

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Problem:
    """A loaded problem file. `path` is absolute and is the filename in tracebacks of its code."""

    path: str
    source: str
    module: types.ModuleType
    Model: type[torch.nn.Module]
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]

    @property
    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    def construct(
        self, device: str | torch.device | None = "cpu", dtype: torch.dtype | None = None, seed: int | None = None
    ) -> torch.nn.Module:
        """A fresh model in the mode its constructor leaves it in (training, unless it says otherwise), moved to
        `device` if given.

        `seed` is set before get_init_inputs() and again before the constructor, so equal seeds give equal weights.
        `dtype`, if given, is what floating-point parameters and buffers are cast to.
        """
        arguments, keywords = self.init_arguments(seed)
        _seed(seed)
        with errors.user_code(self.path, "constructing Model", "constructor-raised"):
            model = self.Model(*arguments, **keywords)
        if device is None and dtype is None:
            return model
        with errors.user_code(self.path, f"moving Model to {device}", "constructor-raised"):
            return model.to(device=device, dtype=dtype)

    def init_arguments(self, seed: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The constructor's positional and keyword arguments, from get_init_inputs()."""
        _seed(seed)
        with errors.user_code(self.path, "running get_init_inputs()", "get-init-inputs-raised"):
            given = self.get_init_inputs()
        if isinstance(given, dict):
            return (), dict(given)
        if not isinstance(given, (list, tuple)):
            raise user_error(
                "bad-init-inputs",
                f"get_init_inputs() returned {errors.plain(given)}, not a list.",
                **self.definition("get_init_inputs"),
                hint="Return the list of the constructor's arguments; [] if it takes none.",
            )
        if _is_args_and_kwargs(self.Model, given):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}

    def inputs(self, seed: int | None = None, device: str | torch.device = "cpu") -> list[Any]:
        """Fresh arguments of forward under `seed`, every tensor in them on `device`.

        Tensors are drawn on `device` itself (16 GB drawn on the CPU and copied would take a minute), so the numbers
        differ between devices. Where the file's own generator insists on the CPU they are drawn there and copied.
        """
        import torch

        device = torch.device(device)
        drawn = None
        if device.type != "cpu":
            _seed(seed)
            with contextlib.suppress(Exception), torch.device(device):
                drawn = self.get_inputs()
        if drawn is None:
            _seed(seed)
            with errors.user_code(self.path, "running get_inputs()", "get-inputs-raised"):
                drawn = self.get_inputs()
        return move(self.checked_inputs(drawn), device)

    def checked_inputs(self, drawn: Any) -> list[Any]:
        """The argument list that get_inputs() returned, or an error saying why it is none."""
        if not isinstance(drawn, (list, tuple)):
            what = errors.plain(drawn)
            raise user_error(
                "bad-inputs",
                f"get_inputs() returned {what}, not a list.",
                **self.definition("get_inputs"),
                hint="Return the list of forward's arguments, also when there is only one: return [x]",
            )
        return list(drawn)

    def definition(self, name: str) -> dict[str, str]:
        """`where` and `source` of the file's own definition of `name`, for an error about it."""
        for node in ast.parse(self.source).body:
            if getattr(node, "name", None) == name:
                where, source = errors.line_of(self.path, node.lineno)
                return {"where": where, "source": source}
        return {"where": os.path.basename(self.path), "source": ""}


def check_device(device: Any) -> str:
    """`device` if kernels can be made for it; an error otherwise."""
    if device not in DEVICES:
        raise user_error(
            "unsupported-device",
            f"Kernelwright does not support the device {device!r}.",
            hint=f"Use one of: {', '.join(DEVICES)}.",
        )
    return device


def load(file: str | os.PathLike[str], size: str | None = None) -> Problem:
    """Run the problem file and check its parts. Raises `errors.Error` for every way in which it may be wrong.

    `size` names one of the file's SIZES: get_inputs and get_init_inputs are then called with it, where they have a
    parameter `size`.
    """
    module, source = load_module(file)
    path = str(module.__file__)
    name = os.path.basename(path)
    model = _model_class(module, path)
    functions = {}
    for function, purpose in (
        ("get_inputs", "list of arguments for forward"),
        ("get_init_inputs", "list of arguments for Model's constructor"),
    ):
        slug = function.replace("_", "-")
        if not hasattr(module, function):
            raise user_error(
                f"no-{slug}",
                f"{name} defines no {function}().",
                where=name,
                hint=f"Add a function {function}() that returns the {purpose}"
                + (" ([] if it takes none)." if "init" in function else "."),
            )
        functions[function] = getattr(module, function)
        if not callable(functions[function]):
            raise user_error(
                f"no-{slug}",
                f"{function} in {name} is {errors.plain(functions[function])}, not a function.",
                **_assignment(path, source, function),
                hint=f"Define {function}() as a function that returns the {purpose}.",
            )
    if size is not None:
        _check_size(module, path, source, size)
        functions = {
            name: functools.partial(function, size=size) if _takes_size(function) else function
            for name, function in functions.items()
        }
    return Problem(path, source, module, model, functions["get_inputs"], functions["get_init_inputs"])


def load_module(path: str | os.PathLike[str], *, kind: str = "user") -> tuple[types.ModuleType, str]:
    """Run a user's (or, with kind="candidate", a candidate's) Python file as a module; the module and its source text."""
    path = os.path.abspath(os.fspath(path))
    code, source = compiled(path, kind=kind)
    digest = hashlib.sha256(f"{path}\0{source}".encode()).hexdigest()[:16]
    # A candidate's process has no name of ours in it.
    module = types.ModuleType(f"_kernelwright_user_{digest}" if kind == "user" else f"module_{digest}")
    module.__file__ = path
    # Dataclasses, pickle and inspect look a class's module up here.
    sys.modules[module.__name__] = module
    folder = os.path.dirname(path)
    look_beside(path)
    # Tracebacks and inspect.getsource show the text that ran, even if the file changes meanwhile.
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    local_imports.prepare(module, source, folder)
    try:
        with errors.user_code(path, "running the file", "import-raised", kind=kind):
            exec(code, module.__dict__)
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    return module, source


def look_beside(path: str) -> None:
    """Have files find the modules beside the problem or candidate `path`. A candidate holds its problem's imports and
    may lie elsewhere.
    """
    folder = os.path.dirname(path)
    if folder not in sys.path:
        # Last, so that a file beside the problem cannot stand in for a library that PyTorch imports later.
        sys.path.append(folder)
    local_imports.know(path)


def compiled(path: str, *, kind: str = "user") -> tuple[types.CodeType, str]:
    """The code of a Python file and its text; an error where it is not Python. Needs no PyTorch."""
    path = os.path.abspath(path)
    source = read_source(path, kind=kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # told once, when the file is run
            return compile(source, path, "exec", dont_inherit=True), source
    except SyntaxError as error:
        raise errors.syntax_error(error, kind=kind) from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise errors.Error(
            kind, "syntax-error", f"{os.path.basename(path)} cannot be compiled: {errors.summary(error)}"
        ) from None


def read_source(path: str, *, kind: str = "user") -> str:
    """The text of a Python file; an error if it is missing, a folder, unreadable, empty or not text."""
    name = os.path.basename(path)

    def wrong(code: str, message: str, hint: str) -> errors.Error:
        return errors.Error(kind, code, message, where=name, hint=hint)

    if os.path.isdir(path):
        raise wrong(
            "is-a-folder", f"{path} is a folder, not a Python file.", "Name one file in it; `kw bench` takes folders."
        )
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise wrong("no-such-file", f"There is no file {path}.", "Check the path.") from None
    except OSError as error:
        raise wrong(
            "unreadable", f"{path} cannot be read: {error.strerror}.", "Check the file's permissions."
        ) from None
    if not data.strip():
        raise wrong(
            "empty-file", f"{name} is empty.", "A problem file defines Model, get_inputs() and get_init_inputs()."
        )
    try:
        if b"\0" in data:
            raise UnicodeError
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (UnicodeError, SyntaxError):
        raise wrong(
            "not-text", f"{name} is not a text file, so it cannot be Python.", "Give a Python source file (UTF-8)."
        ) from None


def _check_size(module: types.ModuleType, path: str, source: str, size: str) -> None:
    sizes = getattr(module, "SIZES", None)
    if not isinstance(sizes, dict) or not sizes:
        raise user_error(
            "no-sizes",
            f"SIZES in {os.path.basename(path)} is {errors.plain(sizes)}, not a table of sizes.",
            **_assignment(path, source, "SIZES"),
            hint='Write SIZES = {"cpu": {...}, "full": {...}}.',
        )
    if size not in sizes:
        names = ", ".join(map(str, sizes))
        raise user_error(
            "no-such-size",
            f"SIZES has no {size!r}.",
            **_assignment(path, source, "SIZES"),
            hint=f"Choose with --size one of: {names}.",
        )


def _takes_size(function: Callable[..., Any]) -> bool:
    try:
        return "size" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _model_class(module: types.ModuleType, path: str) -> type[torch.nn.Module]:
    import torch

    name = os.path.basename(path)
    model = getattr(module, "Model", None)
    if model is None:
        others = [
            key
            for key, value in vars(module).items()
            if _is_module_class(value) and value.__module__ == module.__name__
        ]
        hint = f"Rename {others[-1]} to Model." if others else "Define class Model(torch.nn.Module)."
        raise user_error("no-model", f"{name} defines no class Model.", where=name, hint=hint)
    if not _is_module_class(model):
        if isinstance(model, type):
            message = f"Model in {name} is not a subclass of torch.nn.Module."
        else:
            message = f"Model in {name} is {errors.plain(model)}, not a class."
        source = linecache.getlines(path)
        raise user_error(
            "model-not-module",
            message,
            **_assignment(path, "".join(source), "Model"),
            hint="Define class Model(torch.nn.Module).",
        )
    if model.forward is torch.nn.Module.forward:
        raise user_error(
            "no-forward",
            f"Model in {name} has no forward method.",
            **_assignment(path, "".join(linecache.getlines(path)), "Model"),
            hint="Define forward.",
        )
    return model


def _is_module_class(value: Any) -> bool:
    import torch

    return isinstance(value, type) and issubclass(value, torch.nn.Module)


def _assignment(path: str, source: str, name: str) -> dict[str, str]:
    """`where` and `source` of the last top-level statement that binds `name`."""
    line = 0
    for node in ast.parse(source).body:
        targets = [node, *getattr(node, "targets", []), getattr(node, "target", None)]
        if any(name in (getattr(target, "name", None), getattr(target, "id", None)) for target in targets):
            line = node.lineno
    if not line:
        return {"where": os.path.basename(path), "source": ""}
    where, text = errors.line_of(path, line)
    return {"where": where, "source": text}


def _is_args_and_kwargs(model: type, given: list[Any] | tuple[Any, ...]) -> bool:
    """Whether get_init_inputs() returned `[[positional…], {keyword: …}]`, as some problem collections do, rather than
    plain arguments.
    """
    if len(given) != 2 or not isinstance(given[0], (list, tuple)) or not isinstance(given[1], dict):
        return False
    if not all(isinstance(key, str) for key in given[1]):
        return False
    try:
        inspect.signature(model).bind(*given[0], **given[1])
    except (TypeError, ValueError):
        return False
    return True


def move(value: Any, device: str | torch.device) -> Any:
    """`value` with every tensor in its lists, tuples and dicts moved to `device`."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), value)


def _seed(seed: int | None) -> None:
    import torch

    if seed is not None:
        import random

        torch.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
