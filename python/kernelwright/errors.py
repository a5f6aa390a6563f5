"""Errors that reach the user, in the form the worker protocol sends them.

An `Error` says what was wrong, where, and what to do; `to_json` is the protocol's error object. `blame` turns any
exception that the user's code raised into one, pointing at the innermost line of the user's own file.
"""

from __future__ import annotations

import errno
import linecache
import os
import traceback
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Iterator


class Error(Exception):
    """One failure with a clear message. `kind` is "user", "candidate", "missing" or "internal"; `code` is a stable
    slug.
    """

    def __init__(
        self, kind: str, code: str, message: str, *, where: str = "", source: str = "", hint: str = "", detail: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.where = where
        self.source = source
        self.hint = hint
        self.detail = detail

    def to_json(self) -> dict[str, str]:
        return {
            "kind": self.kind,
            "code": self.code,
            "message": self.message,
            "where": self.where,
            "source": self.source,
            "hint": self.hint,
            "detail": self.detail,
        }

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.source:
            lines.append("    " + self.source.replace("\n", "\n    "))
        if self.hint:
            lines.append(self.hint)
        return "\n".join(lines)


def user_error(code: str, message: str, **fields: str) -> Error:
    return Error("user", code, message, **fields)


def candidate_error(code: str, message: str, **fields: str) -> Error:
    return Error("candidate", code, message, **fields)


def missing_error(code: str, message: str, **fields: str) -> Error:
    return Error("missing", code, message, **fields)


def internal_error(code: str, message: str, **fields: str) -> Error:
    return Error("internal", code, message, **fields)


def from_exception(error: BaseException) -> Error:
    """What the worker sends for an exception that nobody explained: our own fault."""
    if isinstance(error, Error):
        return error
    if is_disk_full(error):
        return disk_full(error)
    if _is_out_of_memory(error):
        return missing_error(
            "out-of-memory",
            f"There was not enough memory to judge the candidate: {summary(error)}",
            hint="Make the problem smaller, end what else uses the device's memory, or use a device that has more.",
            detail=trace(error),
        )
    return internal_error(
        "unexpected",
        f"Kernelwright failed unexpectedly: {summary(error)}",
        hint="This is a fault of Kernelwright, not of your file; please report it with the log.",
        detail=trace(error),
    )


def line_of(path: str, number: int) -> tuple[str, str]:
    """`("file.py:12", text of line 12)`."""
    return f"{os.path.basename(path)}:{number}", linecache.getline(path, number).strip()


def innermost_line(tb: TracebackType | None, path: str) -> tuple[str, str]:
    """Where in `path` a traceback last passed, as `line_of` gives it; two empty strings if it never did."""
    found = 0
    for frame, number in traceback.walk_tb(tb):
        if frame.f_code.co_filename == path:
            found = number
    return line_of(path, found) if found else ("", "")


def trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def summary(error: BaseException) -> str:
    """`ValueError: text`, on one line and of bearable length, as the middle of a sentence."""
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:297] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# Import name → name on the package index, where they differ.
_DISTRIBUTIONS = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}


def blame(error: BaseException, path: str, doing: str, code: str, *, kind: str = "user") -> Error:
    """Explain an exception that code in the file `path` raised while `doing` ("constructing Model", "importing the
    file", …).
    """
    if isinstance(error, Error):
        return error
    if is_disk_full(error):
        return disk_full(error)
    where, source = innermost_line(error.__traceback__, path)
    place = {"where": where, "source": source, "detail": trace(error)}
    name = os.path.basename(path)
    if isinstance(error, SyntaxError) and error.filename == path:
        return syntax_error(error, kind=kind)
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if not _importable(top):
            package = _DISTRIBUTIONS.get(top, top)
            return missing_error(
                "missing-package",
                f"{name} needs the Python package {top}, which is not installed.",
                hint=f"Install it into the environment that Kernelwright uses: pip install {package}",
                **place,
            )
    if isinstance(error, ImportError):
        return Error(
            kind,
            "import-failed",
            f"An import in {name} failed: {summary(error)}",
            hint="Correct the import, then try again.",
            **place,
        )
    if isinstance(error, SystemExit):
        return Error(
            kind,
            "exits",
            f"{name} tried to exit the process (status {error.code}) while {doing}.",
            hint='Remove the call of exit(), or put it behind `if __name__ == "__main__":`.',
            **place,
        )
    if isinstance(error, RecursionError):
        return Error(
            kind,
            "recursion",
            f"{name} recursed without end while {doing}.",
            hint="Look for a call that leads back to itself.",
            **place,
        )
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return Error(
            kind,
            "out-of-memory",
            f"There was not enough memory while {doing}: {summary(error)}",
            hint="Use smaller shapes.",
            **place,
        )
    return Error(
        kind,
        code,
        f"{name} raised an exception while {doing}: {summary(error)}",
        hint="Correct the line shown, then try again.",
        **place,
    )


def syntax_error(error: SyntaxError, *, kind: str = "user") -> Error:
    """The message for a file that does not parse; `source` is the line with a caret under the fault."""
    path = error.filename or "?"
    text = (error.text or "").rstrip("\n")
    stripped = text.lstrip()
    source = stripped
    if stripped and error.offset:
        source += "\n" + " " * max(0, error.offset - 1 - (len(text) - len(stripped))) + "^"
    return Error(
        kind,
        "syntax-error",
        f"{os.path.basename(path)} is not valid Python: {error.msg}.",
        where=f"{os.path.basename(path)}:{error.lineno or 1}",
        source=source,
        hint="Correct the line shown, then try again.",
    )


@contextmanager
def user_code(path: str, doing: str, code: str, *, kind: str = "user") -> Iterator[None]:
    """Run code of the file `path`; whatever it raises leaves as an `Error`, KeyboardInterrupt excepted."""
    try:
        yield
    except (Error, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise blame(error, path, doing, code, kind=kind) from error


def _importable(top: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an exception, or what led to it, is that a disk or a quota was used up; a compiler says so in its output."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full(error: BaseException) -> Error:
    return missing_error(
        "disk-full",
        f"A disk is full: {summary(error)}",
        hint="Free some space, or set TMPDIR (scratch files) and XDG_CACHE_HOME (compiled kernels) to folders on another disk.",
        detail=trace(error),
    )


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    words = ("can't allocate memory", "not enough memory", "CUDA error: out of memory")
    return type(error).__name__ == "OutOfMemoryError" or any(one in text for one in words)


def plain(value: Any) -> str:
    """The type of a value as an error message names it."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
