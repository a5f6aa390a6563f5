"""libkernelwright.so through ctypes: Graph JSON in, candidate JSON out (src/capi/kernelwright.h)."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import errors


def compile_graph(
    graph: dict[str, Any],
    target: str,
    caution: str = "fused",
    problem_source: str = "",
    schedule: dict[str, Any] | None = None,
    graphs: str = "off",
    card: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The candidate for a graph: {"source", "kernels", "library_calls", …}. Raises errors.Error.

    With `problem_source`, the text of a problem file, ModelNew is a subclass of its Model; without, it wraps a module.
    `schedule`: in place of the planner's own, in the form in which an answer has it. `graphs`: "off", "on" or "auto",
    of CUDA graphs. `card`: the GPU that the candidate will run on (hello.card), where it is here.
    """
    request = {"graph": graph, "target": target, "caution": caution, "problem_source": problem_source, "graphs": graphs}
    request |= {} if card is None else {"card": card}
    return _call("kw_compile", request | ({} if schedule is None else {"schedule": schedule}))


def judge(figures: dict[str, Any], policy: str) -> dict[str, Any]:
    """The contract's verdict on the figures of a verification."""
    return _call("kw_judge", {"figures": figures, "policy": policy})


def summarise(reply: dict[str, Any]) -> dict[str, Any]:
    """Medians, intervals and speed-ups of the samples of a measurement."""
    return _call("kw_summarise", reply)


def prompt(problem: str, target: str, template: str, shots: int = 1) -> dict[str, Any]:
    """What a language model is asked for a problem: {"messages": [...]} or {"raw": text}."""
    return _call("kw_prompt", {"problem": problem, "target": target, "template": template, "shots": shots})


def version() -> str:
    """The version that the library was built from."""
    return ctypes.string_at(_library().kw_version()).decode()


def _call(name: str, request: dict[str, Any]) -> dict[str, Any]:
    from .protocol import encode

    # The protocol's own encoding, which turns NaN and the infinities into strings, without its length.
    text = getattr(_library(), name)(encode(request)[4:])
    if not text:
        raise MemoryError(f"{name} ran out of memory")
    try:
        answer = json.loads(ctypes.string_at(text))
    finally:
        _library().kw_free(text)
    if "error" in answer:
        error = answer["error"]
        raise errors.Error(
            error["kind"],
            error["code"],
            error["message"],
            where=error["where"],
            source=error["source"],
            hint=error["hint"],
            detail=error["detail"],
        )
    return answer


@functools.cache
def _library() -> ctypes.CDLL:
    package = Path(__file__).resolve().parent
    places = [package / "lib", package.parent.parent / "build"]
    # An editable install leaves the package's Python in the checkout and its library in site-packages.
    places += [Path(entry, "kernelwright", "lib") for entry in sys.path if entry]
    if given := os.environ.get("KW_LIBRARY"):
        paths = [Path(given)]
    else:
        paths = [place / "libkernelwright.so" for place in places]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise errors.missing_error(
            "no-library",
            "libkernelwright.so is not beside the Python package.",
            hint="Build it (./kw doctor in a checkout, or pip install .), or set KW_LIBRARY to its path.",
        )
    library = ctypes.CDLL(str(path))
    for name in ("kw_compile", "kw_judge", "kw_prompt", "kw_summarise"):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_void_p
    library.kw_version.argtypes, library.kw_version.restype = [], ctypes.c_void_p
    library.kw_free.argtypes, library.kw_free.restype = [ctypes.c_void_p], None
    return library
