"""The child process in which everything that needs PyTorch happens: `python -m kernelwright.worker`.

Requests come in on descriptor 0, replies leave on what was descriptor 1 (docs/worker-protocol.md). Anything that a
problem or a candidate prints goes to descriptor 2, the log; anything it reads from standard input is empty.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
from typing import Any, Callable, Iterator

from . import errors, protocol
from .host import confinement
from .judge import nursing
from .timing import device_lock

Progress = Callable[..., None]
Handler = Callable[[dict[str, Any], Progress], dict[str, Any]]

# Method → module whose `run(params, progress)` answers it; they are imported at the first request, so that starting
# stays cheap.
METHODS = {
    "hello": "hello",
    "capture": "capture.export",
    "verify": "judge.verification",
    "measure": "judge.measurement",
    "race": "judge.race",
    "build": "build",
    "protections": "judge.nursing",
    "ceilings": "timing.ceilings",
    "calibrate": "timing.calibration",
    "compile_only": "compile_only",
    "source_facts": "source_facts",
    "llm_load": "models.local",
}

# Methods that load the processor while they work, and are not timed; the others that compute take the lock of the
# device themselves.
_LOADING = {"capture", "build", "compile_only"}
# Methods that never import PyTorch, or are asked where nobody wants to wait for them.
_LIGHT = {"hello", "source_facts", "llm_load", "protections"}
# Methods that run candidates and baselines in processes of their own.
_NURSING = {"verify", "measure", "prepare"}
# From the one to the other a fork of the process serves, so that the next problem finds what it found: no modules,
# settings, tensors or GPU context of the last.
FORK, JOIN = "fork", "join"

# Method → module whose `run(params, stream)` answers it: it sends events of its own, and may be told to stop in the
# middle.
STREAMED = {
    "llm_http": "models.http_api",
    "llm_generate": "models.local",
}


# Method → module whose `work(params)` is done step by step after the reply, while no other request waits. What goes
# wrong in it does so again, and is told, when the request comes for which it was done.
IN_SPARE_TIME = {"prepare": "judge.preparation"}
_SPARE_TIME_PAUSE = 0.1
_ATTEMPTS = 10  # to share a lock that others take for a moment


def handler(method: Any) -> Handler:
    if method not in METHODS:
        raise errors.internal_error(
            "unknown-method",
            f"The worker has no method {method!r}.",
            hint=f"It has {', '.join(METHODS)}; the two halves may be of different versions.",
        )
    return _module(METHODS[method]).run


def _run(method: Any, params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    with contextlib.ExitStack() as lock:
        # PyTorch's import alone keeps a core busy for seconds.
        if method not in _LIGHT and (method in _LOADING or "torch" not in sys.modules):
            lock.enter_context(device_lock.hold(device_lock.CPU, "preparing", progress, shared=True))
        run = handler(method)
        if method not in _LOADING:
            lock.close()
        return run(params, progress)


def _module(name: str) -> Any:
    """One of ours. The garbage collector would walk PyTorch's million objects again and again while they are imported,
    a fifth of the time that takes, and once more at its next turn.
    """
    gc.disable()
    try:
        module = importlib.import_module(f"{__package__}.{name}")
        if not gc.get_freeze_count():
            gc.freeze()
        return module
    finally:
        gc.enable()


class Stream:
    """What a streamed method sees of the protocol."""

    def __init__(self, channel: protocol.Channel, number: Any) -> None:
        self._channel = channel
        self._number = number
        self._cancelled = False

    def send(self, event: dict[str, Any]) -> None:
        self._channel.send({"id": self._number, "event": event})

    def cancelled(self) -> bool:
        """Whether the other side has asked for an end. Looks without waiting."""
        while not self._cancelled and self._channel.is_waiting():
            message = self._channel.receive()
            self._cancelled = message is None or message.get("cancel") == self._number
        return self._cancelled


def answer(channel: protocol.Channel, request: dict[str, Any]) -> None:
    """Run one request; whatever it raises becomes an error reply."""
    number = request.get("id")

    def progress(stage: str, fraction: float, waited: float | None = None) -> None:
        event = {"stage": stage, "fraction": fraction}
        channel.send({"id": number, "event": event if waited is None else {**event, "waited": waited}})

    try:
        if (method := request.get("method")) in STREAMED:
            reply = {"result": _module(STREAMED[method]).stream(request.get("params") or {}, Stream(channel, number))}
        else:
            params = request.get("params") or {}
            _check_syntax(params)
            _fork_nursery(channel, request, progress)
            reply = {"result": _run(method, params, progress)}
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


def _fork_nursery(channel: protocol.Channel, request: dict[str, Any], progress: Progress | None) -> bool:
    """Before PyTorch is imported for a request that needs the nursery: import it in a process that forks one, and
    go on there with this request. That process has this one's number and descriptors, and nothing of its memory.

    Returns where there is nothing to do, or False where the processor is not free and nobody wants to wait.
    """
    params = request.get("params") or {}
    wanted = {request.get("method"), *(params.get("methods") or [])}
    if not wanted & _NURSING or "torch" in sys.modules or not _syntax_is_right(request):
        return True
    if (shared := device_lock.share_beyond_exec(device_lock.CPU, progress)) is None:
        return False
    left = {"request": request, "read": channel.read_fd, "write": channel.write_fd, "shared": shared, "parent": _parent}
    nursing.begin_again(left, [channel.read_fd, channel.write_fd, shared["number"]])
    device_lock.end_sharing(shared)
    return True


def go_on(file: int, number: int, control: socket.socket) -> None:
    """What host/start.py calls in the judge's process, when the nursery, process `number`, is asked over `control`."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    left = nursing.left_before(file)
    nursing.adopt(nursing.Nursery(number, control))
    device_lock.end_sharing(left["shared"])
    channel = protocol.Channel(left["read"], left["write"])
    os.set_inheritable(channel.read_fd, False)
    os.set_inheritable(channel.write_fd, False)
    _end(_serve_with_parent(channel, left["parent"], left["request"]))


def _check_syntax(params: dict[str, Any]) -> None:
    """Tell what is wrong with a problem's text before the seconds that importing PyTorch takes."""
    if "torch" not in sys.modules and isinstance(path := params.get("problem"), str):
        from .running import problem

        problem.compiled(path)


def _syntax_is_right(request: dict[str, Any]) -> bool:
    try:
        _check_syntax(request.get("params") or {})
        return True
    except errors.Error:
        return False


def _missing_module(error: ModuleNotFoundError) -> errors.Error:
    if error.name in ("llama_cpp", "transformers"):
        package, extra = {"llama_cpp": ("llama-cpp-python", "llama"), "transformers": ("transformers", "transformers")}[
            error.name
        ]
        return errors.missing_error(
            f"no-{package}",
            f"{sys.executable} cannot import {error.name}, which runs this kind of model.",
            hint=f"Install it there: pip install {package} (or kernelwright[{extra}]), or name a server's URL with --model.",
            detail=errors.trace(error),
        )
    if error.name in ("torch", "triton", "numpy"):
        return errors.missing_error(
            f"no-{error.name}",
            f"{sys.executable} cannot import {error.name}.",
            hint=f"Install it there (pip install {error.name}), or name another Python in KW_PYTHON.",
            detail=errors.trace(error),
        )
    return errors.from_exception(error)


def serve(channel: protocol.Channel, begun: dict[str, Any] | None = None) -> None:
    """Until the other side has closed. `begun`: a request that had come before this process forked its nursery."""
    work: Iterator[None] | None = None
    if begun is not None:
        if begun.get("method") in IN_SPARE_TIME:
            work = _spare_work(begun)
        else:
            _take(channel, begun)
    while True:
        while work is not None and not channel.is_waiting():
            with device_lock.share_if_free(device_lock.CPU) as free:
                work = _one_step(work) if free else work
            if not free:
                time.sleep(_SPARE_TIME_PAUSE)
        if (request := channel.receive()) is None:
            return
        if "cancel" in request:
            continue  # it crossed the reply on its way
        if request.get("method") in IN_SPARE_TIME:
            channel.send({"id": request.get("id"), "result": {}})
            while not channel.is_waiting() and not _fork_nursery(channel, request, None):
                time.sleep(_SPARE_TIME_PAUSE)
            work = _spare_work(request)
        else:
            _take(channel, request)


def _take(channel: protocol.Channel, request: dict[str, Any]) -> None:
    if request.get("method") == FORK:
        _within_a_moment(lambda: _fork_nursery(channel, request, None))
        _let_a_fork_serve(channel, request.get("params") or {})
    elif request.get("method") == JOIN:
        channel.send({"id": request.get("id"), "result": {"forked": _is_fork}})
        if _is_fork:
            _end(0)
    else:
        answer(channel, request)


def _let_a_fork_serve(channel: protocol.Channel, params: dict[str, Any]) -> None:
    """Import what `methods` need, then return in a fork of this process, which serves until it is told to end. This one
    waits for that and then returns, too; where the fork came to another end, so does this process.
    """
    global _is_fork, _parent
    _within_a_moment(lambda: _import(params))
    sys.stderr.flush()
    this = os.getpid()
    with warnings.catch_warnings():
        # This process's other thread only waits for a parent's end, in a system call.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        confinement.die_with_parent()
        if os.getppid() != this:
            _end(1)
        _is_fork, _parent = True, this
        nursing.inherit()
        _watch_parent(channel)
        return
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        faulthandler.disable()  # the fork has told its own
        if (number := os.WTERMSIG(status)) != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(this, number)
    if code := os.waitstatus_to_exitcode(status):
        _end(code)


def _import(params: dict[str, Any]) -> bool:
    """What the fork and later ones need; False where somebody has or wants the processor alone. Then the fork imports
    it, and tells for whom it waits.
    """
    methods = params.get("methods") or []
    with device_lock.share_if_free(device_lock.CPU) as free:
        if free and ("torch" in sys.modules or not set(methods) & _NURSING):
            for method in methods:
                handler(method)
            if params.get("compilers"):
                nursing.start_compilers()
        return free


def _within_a_moment(done: Callable[[], bool]) -> None:
    for _ in range(_ATTEMPTS):
        if done():
            return
        time.sleep(_SPARE_TIME_PAUSE)


def _spare_work(request: dict[str, Any]) -> Iterator[None]:
    yield from _module(IN_SPARE_TIME[request["method"]]).work(request.get("params") or {})


def _one_step(work: Iterator[None]) -> Iterator[None] | None:
    with contextlib.suppress(BaseException):
        next(work)
        return work
    return None


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


def _watch_parent(channel: protocol.Channel) -> None:
    threading.Thread(target=_exit_with_parent, args=(channel.read_fd, _parent), daemon=True).start()


_parent = 0  # the process that has started this one
_is_fork = False  # of a process that waits to serve the next problem


def main() -> int:
    parent = os.getppid()
    return _serve_with_parent(_claim_standard_streams(), parent)


def _serve_with_parent(channel: protocol.Channel, parent: int, begun: dict[str, Any] | None = None) -> int:
    global _parent
    _parent = parent
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    faulthandler.enable(sys.stderr)
    _watch_parent(channel)
    with contextlib.suppress(BrokenPipeError):
        serve(channel, begun)
    return 0


def start() -> None:
    """What `kw` calls, and `python -m kernelwright.worker`."""
    _end(main())


def _end(status: int) -> None:
    sys.stderr.flush()
    # Skips atexit hooks and destructors of user code, which could hang or print; nothing of ours is left to do.
    os._exit(status)


if __name__ == "__main__":
    start()
