"""Modules beside a problem file that have the name of a library's: `queue.py`, `utils.py`.

In `python problem.py` the problem's own folder comes first, for PyTorch's imports as well, which then break. Here it
comes last, and only what the problem itself imports is looked for beside it first: a module whose name a library has
too is loaded under a name of its own, so that the library's stays what it was.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any, Iterator

# What the worker itself stands on: a file beside the problem with one of these names is never taken for it.
_NEVER_LOCAL = {"torch", "triton", "numpy", "kernelwright"}

# Folders of the problems and candidates that were loaded, in that order. A candidate holds its problem's imports and
# may lie elsewhere.
_folders: list[str] = []

# Problems and candidates themselves: a problem random.py that imports random means the library's.
_running: set[str | None] = set()


def know(path: str) -> None:
    """Look for modules beside the problem or candidate `path`, after the places that are known already."""
    if (folder := os.path.dirname(path)) not in _folders:
        _folders.append(folder)
    _running.add(path)


def prepare(module: types.ModuleType, source: str, folder: str) -> None:
    """Let `module`, about to run, import from `folder` and from those that are known what a library's module would
    hide.
    """
    if any(_hidden(name) for name in _imported(source, folder)):
        module.__dict__["__builtins__"] = dict(vars(builtins), __import__=_import)


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    top, dot, rest = name.partition(".")
    if level == 0 and (path := _hidden(top)):
        private = "_kernelwright_local_" + hashlib.sha256(path.encode()).hexdigest()[:12]
        if private not in sys.modules:
            _load(private, path)
        name = private + dot + rest
    return builtins.__import__(name, globals, locals, fromlist, level)


def _load(name: str, path: str) -> None:
    is_package = os.path.basename(path) == "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[os.path.dirname(path)] if is_package else None
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__builtins__"] = dict(vars(builtins), __import__=_import)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _hidden(name: str) -> str:
    """The file of a local module `name` that a plain import would not find, or ""."""
    if name in _NEVER_LOCAL or name in sys.builtin_module_names:
        return ""
    path = next((path for folder in _folders if (path := _file(folder, name))), "")
    if not path or path in _running:
        return ""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    found = spec.origin if spec else None
    return "" if found and os.path.exists(found) and os.path.samefile(found, path) else path


def _file(folder: str, name: str) -> str:
    for path in (os.path.join(folder, name, "__init__.py"), os.path.join(folder, name + ".py")):
        if os.path.isfile(path):
            return path
    return ""


def _imported(source: str, folder: str) -> Iterator[str]:
    """Names of the top-level modules that a source imports, and those beside it that it imports."""
    waiting = [source]
    seen: set[str] = set()
    while waiting:
        try:
            tree = ast.parse(waiting.pop())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in {name.partition(".")[0] for name in names} - seen:
                seen.add(name)
                yield name
                if path := _file(folder, name):
                    with open(path, encoding="utf-8", errors="replace") as file:
                        waiting.append(file.read())
