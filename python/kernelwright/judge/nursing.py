"""The judge's side of the processes that candidates live in: starting the nursery, asking for a process, talking with
it, ending it.

One nursery serves a process for as long as that lives; it costs PyTorch's import once (host/nursery.py).
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import protocol
from ..errors import Error, candidate_error, internal_error
from ..host.confinement import WRITTEN
from ..running.scratch import Scratch
from .memory_kills import memory_kills

_LARGEST_REPLY = 8 << 20
_START_SECONDS = 180.0
_END_SECONDS = 10.0

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)

# Where what candidates compile is kept between runs, beside the home folder: inside, they may write there without a
# trace.
_CACHES = (
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "TMPDIR",
)


@dataclass
class Confinement:
    """What a candidate's process may do. By default it is a process like any other."""

    namespaces: bool = False
    processes: int = 0
    file_bytes: int = 0
    memory_bytes: int = 0
    scratch_bytes: int = 1 << 30
    groups: list[str] = field(default_factory=list)  # files "cgroup.procs" of control groups that it joins
    hidden: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, given: dict[str, Any] | None) -> Confinement:
        return cls(**(given or {}))


class Ended(Exception):
    """The candidate's process has ended, hangs, or answers what is no answer. `code` is a slug, `what` continues "The
    candidate …".
    """

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what


def _script() -> int:
    """A file without a name that holds host/start.py and where it lies."""
    path = os.path.join(_PACKAGE, "host", "start.py")
    file = os.memfd_create("script", os.MFD_CLOEXEC)
    with open(path, encoding="utf-8") as source, open(file, "w", closefd=False, encoding="utf-8") as text:
        text.write(f"__file__ = {path!r}\n{source.read()}")
    os.lseek(file, 0, os.SEEK_SET)
    return file


class Nursery:
    """The process `number`, a child of this one, asked over `control`."""

    def __init__(self, number: int, control: socket.socket) -> None:
        self.number = number
        self.control = control

    @classmethod
    def start(cls) -> Nursery:
        control, other = socket.socketpair()
        with other:
            other.set_inheritable(True)
            script = _script()
            number = os.posix_spawn(
                sys.executable,
                [sys.executable, "-", str(other.fileno())],
                _environment(),
                file_actions=[(os.POSIX_SPAWN_DUP2, script, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
            )
            os.close(script)
        return cls(number, control)

    def is_alive(self) -> bool:
        """As far as this process can tell: the end of another's child shows when it is asked."""
        try:
            return os.waitpid(self.number, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return _is_inherited

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> None:
        socket.send_fds(self.control, [json.dumps(request).encode()], descriptors)

    def with_compilers(self) -> Nursery:
        """Another, forked by this one and asked apart, in which torch.compile needs to import nothing. It may be asked
        at once, and answers when it is ready.
        """
        control, other = socket.socketpair()
        with other:
            self.ask({"compilers": True}, [other.fileno()])
        return Nursery(self.number, control)


def _environment() -> dict[str, str]:
    """This process's, without what is ours, so that a candidate finds what it would find in any script, and without
    what looks like a secret.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("KW_") and not _SECRET.search(name)
    }
    home = os.path.dirname(_PACKAGE)
    folders = [
        folder for folder in kept.get("PYTHONPATH", "").split(os.pathsep) if folder and os.path.abspath(folder) != home
    ]
    kept.pop("PYTHONPATH", None)
    kept.pop("PYTHONSAFEPATH", None)
    return kept | ({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})


# With fewer, importing what torch.compile needs would keep the others from their work.
_CORES_TO_SPARE = 4

_nursery: Nursery | None = None
_compilers: Nursery | None = None
_owner = 0
_is_inherited = False  # the nursery is a child of this process's parent
_lock = threading.Lock()


def nursery(anew: bool = False, compilers: bool = False) -> Nursery:
    """This process's, started where there is none, or `anew` in any case; or that for `compilers`, which it forks."""
    global _compilers
    with _lock:
        if _nursery is None or not _nursery.is_alive() or _owner != os.getpid() or (anew and not compilers):
            start()
        assert _nursery is not None
        if not compilers:
            return _nursery
        if anew or _compilers is None:
            _compilers = _nursery.with_compilers()
        return _compilers


def start() -> None:
    adopt(Nursery.start())


def adopt(one: Nursery) -> None:
    """Have this process's candidates come from that nursery."""
    global _nursery, _compilers, _owner, _is_inherited
    _nursery, _compilers, _owner, _is_inherited = one, None, os.getpid(), False


def inherit() -> None:
    """In a fork: ask the parent's nurseries, which waits meanwhile."""
    global _owner, _is_inherited
    _owner, _is_inherited = os.getpid(), True


def start_compilers() -> None:
    """Begin to import what torch.compile needs, where there are cores to spare."""
    if (os.cpu_count() or 1) >= _CORES_TO_SPARE:
        nursery(compilers=True)


def begin_again(left: dict[str, Any], descriptors: list[int]) -> None:
    """Become host/start.py, which forks the nursery and then goes on as this process with what is `left` (JSON) and
    with these `descriptors` open. Nothing that this process holds is in the nursery's memory: that of a process that
    begins anew. Returns only where that is not possible.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    try:
        file = os.memfd_create("kernelwright", 0)
        with open(file, "w", closefd=False) as text:
            json.dump({**left, "environment": dict(os.environ)}, text)
        os.lseek(file, 0, os.SEEK_SET)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        sys.stderr.flush()
        os.dup2(_script(), 0)
        os.execve(sys.executable, [sys.executable, *flags, "-", str(file)], _environment())
    except OSError:
        return


def left_before(file: int) -> dict[str, Any]:
    """What begin_again() had left there; the environment is as it was."""
    with open(file) as text:
        left = json.load(text)
    environment = left.pop("environment")
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    return left


class Host:
    """One candidate's process, asked one thing after the other. `deadline`: in seconds of the monotonic clock, or
    None; `limit_seconds`: the time that it stands for, as it is told. `compilers`: what torch.compile needs is there.
    """

    def __init__(
        self,
        confinement: Confinement,
        deadline: float | None = None,
        limit_seconds: float | None = None,
        compilers: bool = False,
    ) -> None:
        self.deadline = deadline
        self.limit_seconds = limit_seconds or (None if deadline is None else deadline - time.monotonic())
        self.status: int | None = None
        self.is_closed = False
        self._scratch = Scratch()
        self.scratch = self._scratch.path
        # What it leaves there goes with it, however it ends.
        environment = {"TMPDIR": self.scratch}
        overlaid = []
        if confinement.namespaces:
            overlaid = [os.path.expanduser("~"), tempfile.gettempdir(), *(os.environ.get(name, "") for name in _CACHES)]
        elif not os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
            environment["TORCHINDUCTOR_CACHE_DIR"] = _inductor_cache()  # what is compiled for it is kept
        self.overlaid = list(dict.fromkeys(filter(None, overlaid)))
        request = {
            "confinement": asdict(confinement) | {"scratch": self.scratch, "overlaid": self.overlaid},
            "environment": environment,
        }
        started = self._start(request, compilers)
        if started is None:
            # The nursery may be killed at any moment; another takes its place. Instead of the one for compilers the
            # other will do: torch.compile imports what it needs.
            self._close_channels()
            started = self._start(request, anew=not compilers)
        if started is None and compilers:
            # That one has ended, too, which a fork of its owner cannot see before it asks.
            self._close_channels()
            started = self._start(request, anew=True)
        if started is None or "pid" not in started:
            self._close_descriptors()
            raise internal_error(
                "nursery",
                "The process from which candidates' processes are made did not make one.",
                hint="The log says why; `kw doctor` looks at what is there.",
            )
        self.first = int(started["pid"])
        self.is_apart = bool(started["apart"])
        self._memory_kills = memory_kills()

    def _start(self, request: dict[str, Any], compilers: bool = False, anew: bool = False) -> dict[str, Any] | None:
        """What the keeper tells of the process that it has started; None where it came to nothing."""
        self.socket, theirs = socket.socketpair()
        self.report, report = os.pipe()
        self._lines = b""
        try:
            with theirs:
                nursery(anew, compilers).ask(request, [theirs.fileno(), report])
        except OSError:  # it has ended
            return None
        finally:
            os.close(report)
        try:
            return self._reported(time.monotonic() + _START_SECONDS)
        except TimeoutError:
            return {"late": True}

    # Talking

    def ask(self, message: dict[str, Any], descriptor: int | None = None) -> Any:
        """The answer. Raises Ended, and candidate errors that the process tells of."""
        try:
            self.socket.settimeout(self._left())
            self.socket.sendall(protocol.encode(message))
            if descriptor is not None:
                socket.send_fds(self.socket, [b"\0"], [descriptor])
        except TimeoutError:
            raise self._hung() from None
        except OSError:
            raise self._ended() from None
        return self._answer()

    def _left(self) -> float | None:
        """Seconds until the deadline; a moment where it has passed."""
        return None if self.deadline is None else max(1e-3, self.deadline - time.monotonic())

    def _hung(self) -> Ended:
        return Ended("hung", f"gave no answer within {self.limit_seconds:.0f} s")

    def go(self) -> dict[str, Any]:
        """Let a process that has said that it is ready go on; its next answer. Raises Ended."""
        try:
            self.socket.send(b"g")
        except OSError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        length = int.from_bytes(self._read(4), "little")
        if length > _LARGEST_REPLY:
            raise Ended("broken-protocol", "wrote something else than an answer")
        try:
            reply = json.loads(self._read(length))
        except (ValueError, RecursionError):
            reply = None
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict):
            raise _its_error(reply["error"])
        if not isinstance(reply, dict) or not isinstance(reply.get("ok"), dict):
            raise Ended("broken-protocol", "wrote something else than an answer")
        return reply["ok"]

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            ready, _, _ = select.select([self.socket], [], [], self._left())
            if not ready:
                raise self._hung()
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except OSError:
                part = b""
            if not part:
                raise self._ended()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    # Its end

    def _reported(self, deadline: float) -> dict[str, Any] | None:
        """The next line of the keeper's, or None at the end."""
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self.report], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(self.report, 4096)
            if not part:
                return None
            self._lines += part
        line, _, self._lines = self._lines.partition(b"\n")
        try:
            told = json.loads(line)
        except ValueError:
            return None
        return told if isinstance(told, dict) else None

    def _ended(self) -> Ended:
        try:
            last = self._reported(time.monotonic() + 5)
        except TimeoutError:
            return Ended("hung", "closed its channel and went on running")
        if last is None:
            return Ended("killed", "was killed together with what watches it")
        self.status = status = int(last["status"])
        if not os.WIFSIGNALED(status):
            return Ended("exited", f"ended the process with exit code {os.WEXITSTATUS(status)}")
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            return Ended("killed", self._why_killed())
        return Ended("crashed", f"crashed with signal {number} ({signal.strsignal(number)})")

    def _why_killed(self) -> str:
        if self._memory_kills is None or self._memory_kills != memory_kills():
            return "was killed by the system, which does that when memory runs out"
        return "was killed by SIGKILL (memory had not run out)"

    def close(self) -> None:
        """End the process and whatever it started. Once more does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.first, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            while self._reported(time.monotonic() + _END_SECONDS) is not None:
                pass
        self._close_descriptors()

    def _close_channels(self) -> None:
        self.socket.close()
        os.close(self.report)

    def _close_descriptors(self) -> None:
        self._close_channels()
        self._scratch.close()

    # Seen from outside

    def process(self) -> int:
        """The number of the process that the candidate runs in."""
        if not self.is_apart:
            return self.first
        children = _numbers(f"/proc/{self.first}/task/{self.first}/children")
        return children[0] if children else self.first

    def descendants(self) -> set[int]:
        """What its process has started and what of that still stands in the table of processes."""
        found: set[int] = set()
        waiting = [self.process()]
        while waiting:
            number = waiting.pop()
            for task in _listed(f"/proc/{number}/task"):
                children = set(_numbers(f"/proc/{number}/task/{task}/children")) - found
                found |= children
                waiting += children
        if self.is_apart:
            found |= set(_numbers(f"/proc/{self.first}/task/{self.first}/children")) - {self.process()}
        return found

    def locked_bytes(self) -> int:
        """Memory of its that may not be moved."""
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{self.process()}/status") as status:
                return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmLck:")), 0)
        return 0

    def written(self) -> dict[str, tuple[int, int]]:
        """What it has written beside its scratch folder, where all of that goes to layers that are thrown away: when
        last, and how large it is, by path.
        """
        found: dict[str, tuple[int, int]] = {}
        if not self.is_apart:
            return found
        for number, folder in enumerate(self.overlaid):
            top = f"/proc/{self.process()}/root{self.scratch}/{WRITTEN}/{number}u"
            for path, folders, files in os.walk(top):
                inside = os.path.join(folder, path[len(top) + 1 :])
                folders[:] = [name for name in folders if os.path.join(inside, name) != self.scratch]
                for name in ["", *files]:
                    with contextlib.suppress(OSError):
                        seen = os.lstat(os.path.join(path, name))
                        found[os.path.join(inside, name)] = seen.st_mtime_ns, seen.st_size
        return found

    def open_files(self) -> int:
        return len(_listed(f"/proc/{self.process()}/fd"))

    def processor_seconds(self) -> float:
        """What all threads of its process have used."""
        number = self.process()
        total = 0
        for task in _listed(f"/proc/{number}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{number}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        return total / 1e9


def _inductor_cache() -> str:
    """Where PyTorch has it by default."""
    try:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):
        user = str(os.getuid())
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + user)


def _its_error(told: dict[str, Any]) -> Error:
    """What a candidate's process says went wrong: always the candidate's own fault, but where something is missing on
    the machine.
    """
    fields = {name: str(told.get(name, ""))[:100_000] for name in ("message", "where", "source", "hint", "detail")}
    code = str(told.get("code", ""))[:100]
    if told.get("kind") == "missing" and code in ("missing-package", "disk-full"):
        return Error("missing", code, fields.pop("message"), **fields)
    return candidate_error(code, fields.pop("message"), **fields)


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _numbers(path: str) -> list[int]:
    try:
        with open(path) as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def run(params: dict[str, Any], progress: Any) -> dict[str, Any]:
    """The worker's method "protections" (docs/worker-protocol.md)."""
    try:
        return _protections(Confinement.of(params["confinement"]))
    except Ended as end:
        if end.code != "killed":
            raise internal_error("nursery", f"A process for candidates {end.what}.") from None
    try:  # by somebody, who may not do it again
        return _protections(Confinement.of(params["confinement"]))
    except Ended as end:
        raise internal_error("nursery", f"A process for candidates {end.what}, and so did the one before it.") from None


def _protections(confinement: Confinement) -> dict[str, Any]:
    host = Host(confinement, time.monotonic() + _START_SECONDS)
    try:
        return {"missing": [str(one) for one in host.ask({"op": "missing"})["missing"]]}
    finally:
        host.close()
