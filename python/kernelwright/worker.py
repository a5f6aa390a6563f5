"""The child process in which everything that needs PyTorch happens: `python -m kernelwright.worker`.

Requests come in on descriptor 0, replies leave on what was descriptor 1 (docs/worker-protocol.md). Anything that a problem or a
candidate prints goes to descriptor 2, the log; anything it reads from standard input is empty.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Callable

from . import errors, protocol

Progress = Callable[[str, float], None]
Handler = Callable[[dict[str, Any], Progress], dict[str, Any]]

# Method → module whose `run(params, progress)` answers it; imported at the first request, so that starting stays cheap.
METHODS = {
    "hello": "hello",
    "capture": "export",
    "verify": "verification",
    "measure": "measurement",
    "race": "race",
    "build": "build",
    "ceilings": "ceilings",
    "compile_only": "compile_only",
}


def handler(method: Any) -> Handler:
    if method not in METHODS:
        raise errors.internal_error(
            "unknown-method", f"The worker has no method {method!r}.", hint=f"It has {', '.join(METHODS)}; the two halves may be of different versions."
        )
    return importlib.import_module(f"{__package__}.{METHODS[method]}").run


def answer(channel: protocol.Channel, request: dict[str, Any]) -> None:
    """Run one request; whatever it raises becomes an error reply."""
    number = request.get("id")

    def progress(stage: str, fraction: float) -> None:
        channel.send({"id": number, "event": {"stage": stage, "fraction": fraction}})

    try:
        reply = {"result": handler(request.get("method"))(request.get("params") or {}, progress)}
    except ModuleNotFoundError as error:
        reply = {"error": _missing_module(error).to_json()}
    except BrokenPipeError:
        raise
    except BaseException as error:  # SystemExit too: a candidate must not end the worker by calling sys.exit
        reply = {"error": errors.from_exception(error).to_json()}
        # The traceback's frames would keep every tensor of the failed request alive.
        error.__traceback__ = None
    if "error" in reply and reply["error"]["detail"]:
        print(reply["error"]["detail"], file=sys.stderr, flush=True)
    try:
        channel.send({"id": number, **reply})
    except (TypeError, ValueError) as error:  # a result that is not JSON
        channel.send({"id": number, "error": errors.from_exception(error).to_json()})


def _missing_module(error: ModuleNotFoundError) -> errors.Error:
    if error.name in ("torch", "triton", "numpy"):
        return errors.missing_error(
            f"no-{error.name}",
            f"{sys.executable} cannot import {error.name}.",
            hint=f"Install it there (pip install {error.name}), or name another Python in KW_PYTHON.",
            detail=errors.trace(error),
        )
    return errors.from_exception(error)


def serve(channel: protocol.Channel) -> None:
    while (request := channel.receive()) is not None:
        answer(channel, request)


def _claim_standard_streams() -> protocol.Channel:
    """Keep descriptors 0 and 1 for the protocol alone: user code gets the log to print to and an empty standard input."""
    channel = protocol.Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return channel


def _exit_with_parent(read_fd: int, parent: int) -> None:
    """End this process when `kw` is gone, even in the middle of a request that would never finish."""
    watch = select.poll()
    watch.register(read_fd, 0)
    watch.poll()
    # A closed pipe alone may only mean that no more requests follow; the last one is still to be answered.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> int:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    parent = os.getppid()
    channel = _claim_standard_streams()
    faulthandler.enable(sys.stderr)
    threading.Thread(target=_exit_with_parent, args=(channel.read_fd, parent), daemon=True).start()
    try:
        serve(channel)
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Skips atexit hooks and destructors of user code, which could hang or print; nothing of ours is left to do.
    os._exit(status)
