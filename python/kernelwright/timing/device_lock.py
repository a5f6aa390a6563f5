"""One lock a device and machine: who times holds it alone, who loads the device without being timed shares it.

The lock is flock(2) on a file of a folder that all users of the machine share, so that a process that dies gives it
back at once. The file says who holds it: one line of JSON a holder, for people who wait, never for the lock itself.
PyTorch is not imported here: its import is work that a timing elsewhere should not see.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shlex
import stat
import sys
import threading
import time
from typing import Any, Callable, Iterator

from .. import errors

# Called now and then while waiting with who is waited for, -1 and waited=seconds since the last such call; at the end
# with "".
Progress = Callable[..., None]

# Of the processor: whatever computes much on it takes part, whichever device it works for.
CPU = "cpu"

_FOLDER = "/tmp/kernelwright-locks"  # src/judge/sandbox.cpp has it too
_REPORT_SECONDS = 0.5
_MOST_TEXT = 1 << 16
_PERMISSION_TRIES = 20

_open_files: set[int] = set()


def _close_in_child() -> None:
    # A forked child shares its parent's locks, and would keep them when the parent is gone.
    for number in _open_files:
        os.close(number)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


def folder() -> str:
    return os.environ.get("KW_LOCK_DIR") or _FOLDER


def name_of(device: Any) -> str:
    """The lock's name of a torch.device: that of the very GPU, however it is numbered in this process."""
    import torch

    device = torch.device(device)
    if device.type != "cuda":
        return CPU
    return f"gpu-{torch.cuda.get_device_properties(device).uuid}"


def _title(name: str) -> str:
    return "CPU" if name == CPU else "GPU's memory" if name.endswith("-memory") else "GPU"


def _create(path: str) -> None:
    """An empty file that every user may lock, complete at the moment when it gets its name."""
    if not os.path.isdir(os.path.dirname(path)):
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(path))
            os.chmod(os.path.dirname(path), 0o1777)
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.fchmod(number, 0o666)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.close(number)
        os.unlink(temporary)


def _open(path: str) -> int:
    for attempt in range(_PERMISSION_TRIES):
        try:
            # Without O_CREAT: in a sticky folder the kernel refuses that for another user's file.
            number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
            if stat.S_ISREG(os.fstat(number).st_mode):
                _open_files.add(number)
                return number
            os.close(number)
            raise OSError(f"{path} is not a plain file")
        except FileNotFoundError:
            _create_or_wait(path, attempt)
        except OSError as error:
            raise _unusable(path, error) from None
    raise _unusable(path, OSError("it does not stay where it was made"))


def _create_or_wait(path: str, attempt: int) -> None:
    try:
        _create(path)
    except PermissionError as error:
        # Another user may be about to open up the folder that it has just made.
        if attempt == _PERMISSION_TRIES - 1:
            raise _unusable(path, error) from None
        time.sleep(0.05)
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: str, error: OSError) -> errors.Error:
    return errors.missing_error(
        "no-lock",
        f"The lock file {path}, by which runs on this machine keep out of each other's timing, cannot be opened: {error.strerror or error}.",
        hint="Make that possible, or name a folder that all users may write to in KW_LOCK_DIR.",
    )


def _close(number: int) -> None:
    _open_files.discard(number)
    os.close(number)


# Who holds it


def _on_behalf_of() -> tuple[int, str]:
    """The command that this process works for, and its number: a worker is told as "PID COMMAND" which started it."""
    pid, _, command = os.environ.get("KW_ON_BEHALF", "").partition(" ")
    if pid.isdigit():
        return int(pid), command
    return os.getpid(), shlex.join([os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]])


def _myself(doing: str) -> dict[str, Any]:
    pid, command = _on_behalf_of()
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "id": f"{time.time_ns()}-{os.getpid()}",
        "pid": pid,
        "command": command[:200],
        "user": user,
        "doing": doing,
        "since": time.strftime("%H:%M:%S"),
    }


def _write_line(number: int, entry: dict[str, Any], *, first: bool) -> None:
    status = os.fstat(number)
    if status.st_nlink > 1:  # of another name, too: not ours to write to
        return
    # Only for people: a full disk must not keep anybody from timing.
    with contextlib.suppress(OSError):
        if first or status.st_size > _MOST_TEXT:
            os.ftruncate(number, 0)
        os.write(number, (json.dumps(entry) + "\n").encode())


def holders(name: str) -> list[dict[str, Any]]:
    """Who holds a device's lock, as its file tells; who died without a word is left out where that can be seen."""
    told: dict[str, dict[str, Any]] = {}
    with (
        contextlib.suppress(OSError),
        open(os.path.join(folder(), name + ".lock"), encoding="utf-8", errors="replace") as file,
    ):
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                told[entry["id"]] = {} if entry.get("ended") else entry
    entries = [entry for entry in told.values() if entry]
    return [entry for entry in entries if os.path.exists(f"/proc/{entry.get('pid')}")] or entries[-1:]


def _whom(name: str) -> str:
    """Whom the wait is for; nothing where that is the same command, several problems of which are in work."""
    found = holders(name)
    if not found:
        return f"waiting for the {_title(name)}: another process has it"
    found = [one for one in found if one.get("pid") != _on_behalf_of()[0]]
    if not found:
        return ""
    one = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"waiting for the {_title(name)}: `{one.get('command')}` (process {one.get('pid')} of {one.get('user')}, {one.get('doing')} since {one.get('since')}){more} has it"


class _Waiting:
    """Tells of a wait, now and then, from a thread of its own."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress = name, progress
        self.ended = threading.Event()
        self.last = time.monotonic()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Waiting:
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.ended.set()
        self.thread.join()
        self._tell("")

    def _run(self) -> None:
        while not self.ended.wait(_REPORT_SECONDS):
            self._tell(_whom(self.name))

    def _tell(self, whom: str) -> None:
        now = time.monotonic()
        waited, self.last = now - self.last, now
        with contextlib.suppress(OSError):
            self.progress(whom, -1.0, waited=waited)


# Taking it


def _try(number: int, kind: int) -> bool:
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _take(name: str, number: int, kind: int, progress: Progress) -> bool:
    if not _try(number, kind):
        with _Waiting(name, progress):
            fcntl.flock(number, kind)
    return True


def _is_current(path: str, number: int) -> bool:
    """Whether the file still has its name: somebody may have cleared the folder."""
    try:
        return os.stat(path).st_ino == os.fstat(number).st_ino
    except OSError:
        return False


@contextlib.contextmanager
def _flocked(path: str, take: Callable[[int], bool]) -> Iterator[int | None]:
    """The open file, locked by `take`, or None where that says no."""
    while True:
        number = _open(path)
        try:
            if not take(number):
                yield None
                return
            if _is_current(path, number):
                yield number
                return
        finally:
            # In so many words: a child that was started meanwhile may have the file too.
            fcntl.flock(number, fcntl.LOCK_UN)
            _close(number)


@contextlib.contextmanager
def hold(name: str, doing: str, progress: Progress, *, shared: bool = False) -> Iterator[None]:
    """Hold a device's lock, alone or `shared`, for as long as the block lasts; wait for it before, and tell `progress`
    for whom.

    Whoever wants it stands in a queue, which is a second lock: without one, sharers that overlap would keep out for
    ever who wants it alone.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path = os.path.join(folder(), name)

    def taking(which: int) -> Callable[[int], bool]:
        return lambda number: _take(name, number, which, progress)

    with contextlib.ExitStack() as queue:
        queue.enter_context(_flocked(path + ".queue", taking(fcntl.LOCK_EX)))
        with _flocked(path + ".lock", taking(kind)) as number:
            queue.close()
            assert number is not None
            with _told(number, doing, shared):
                yield


@contextlib.contextmanager
def _told(number: int, doing: str, shared: bool) -> Iterator[None]:
    entry = _myself(doing)
    _write_line(number, entry, first=not shared)
    try:
        yield
    finally:
        _write_line(number, {"id": entry["id"], "ended": True}, first=not shared)


@contextlib.contextmanager
def share_if_free(name: str) -> Iterator[bool]:
    """Share a device's lock where nobody has or wants it alone; False where somebody does."""
    path = os.path.join(folder(), name)
    with contextlib.ExitStack() as queue:
        if queue.enter_context(_flocked(path + ".queue", lambda number: _try(number, fcntl.LOCK_EX))) is None:
            yield False
            return
        with _flocked(path + ".lock", lambda number: _try(number, fcntl.LOCK_SH)) as number:
            queue.close()
            if number is None:
                yield False
                return
            with _told(number, "preparing", True):
                yield True


def share_beyond_exec(name: str, progress: Progress | None) -> dict[str, Any] | None:
    """Share a device's lock as `hold` does, from here until `end_sharing` gets what this returns, in whatever this
    process executes meanwhile. The file `number` is to be inherited. Without `progress` nothing is waited for: None
    where somebody has or wants the device alone.
    """
    path = os.path.join(folder(), name)

    def take(number: int, kind: int) -> bool:
        return _try(number, kind) if progress is None else _take(name, number, kind, progress)

    with _flocked(path + ".queue", lambda number: take(number, fcntl.LOCK_EX)) as queue:
        if queue is None:
            return None
        number = _open(path + ".lock")
        if not take(number, fcntl.LOCK_SH):
            _close(number)
            return None
    entry = _myself("preparing")
    _write_line(number, entry, first=False)
    return {"number": number, "id": entry["id"]}


def end_sharing(shared: dict[str, Any]) -> None:
    number = shared["number"]
    _write_line(number, {"id": shared["id"], "ended": True}, first=False)
    fcntl.flock(number, fcntl.LOCK_UN)
    _close(number)
