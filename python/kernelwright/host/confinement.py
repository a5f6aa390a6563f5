"""What the kernel of the system keeps a candidate from: namespaces, read-only mounts, no capabilities, limits.

Done by hand and not by bubblewrap, because the process that is confined has imported PyTorch already: starting a
program anew would cost a second for each candidate. Each step is taken where it is permitted; what is not is named in
words.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
from typing import Any

_MOUNT_TRIES = 3

# Where in the scratch folder the layers lie that take what is written elsewhere.
WRITTEN = ".written"

_libc = ctypes.CDLL(None, use_errno=True)

_NEW_USER, _NEW_MOUNTS, _NEW_PROCESSES, _NEW_NETWORK, _NEW_IPC, _NEW_NAMES = (
    0x10000000,
    0x00020000,
    0x20000000,
    0x40000000,
    0x08000000,
    0x04000000,
)
_MS_READ_ONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_READ_ONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
_LAST_CAPABILITY = 63
_CAPABILITY_VERSION = 0x20080522


def _call(name: str, *arguments: Any) -> None:
    ctypes.set_errno(0)
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def be_first_to_go() -> None:
    """Where memory runs out, the kernel is to end this process, not the judge's."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def hide_memory(hidden: bool = True) -> None:
    """No process of the same user may look into this one's memory (root's may, where it has its capabilities)."""
    _libc.prctl(_PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def enter_namespaces() -> str:
    """New namespaces for this process (which must have one thread), its children first of all; what stands against
    it, or "".
    """
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEW_USER | _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC | _NEW_NAMES)
        for path, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{path}", "w") as file:
                file.write(text)
    except OSError as error:
        return error.strerror or str(error)
    return ""


class _MountAttributes(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def confine_files(scratch: str, overlaid: list[str], hidden: list[str], scratch_bytes: int) -> list[str]:
    """Everything read-only but `scratch`, which is memory, and `overlaid` folders. What is written into those leaves no
    trace but in `scratch`/.written, where the judge sees it and the candidate cannot change it. No disks are left.
    Returns what is missing, in words.
    """
    missing = []
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    attributes = _MountAttributes(attr_set=_ATTR_READ_ONLY)
    try:
        _call(
            "syscall",
            _MOUNT_SETATTR,
            _AT_FDCWD,
            b"/",
            _AT_RECURSIVE,
            ctypes.byref(attributes),
            ctypes.sizeof(attributes),
        )
    except OSError as error:
        missing.append(f"a read-only file system: {error.strerror}")
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError as error:
        missing.append(f"a /proc of its own: {error.strerror}")
    _mount("tmpfs", scratch, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={scratch_bytes},mode=700")
    with contextlib.suppress(OSError):
        _mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={scratch_bytes},mode=1777")
    written = os.path.join(scratch, WRITTEN)
    os.mkdir(written)
    layers = os.open(written, os.O_PATH | os.O_DIRECTORY)
    for number, folder in enumerate(overlaid):
        if not os.path.isdir(folder) or os.access(folder, os.W_OK):
            continue  # or it lies within one that is done
        upper, work = (f"/proc/self/fd/{layers}/{number}{part}" for part in ("u", "w"))
        os.makedirs(upper)
        os.makedirs(work)
        options = f"lowerdir={folder},upperdir={upper},workdir={work},userxattr"
        for _ in range(_MOUNT_TRIES):  # beside other candidates' mounts one was seen to fail, and not again
            with contextlib.suppress(OSError):
                _mount("overlay", folder, "overlay", _MS_NOSUID | _MS_NODEV, options)
                break
    with contextlib.suppress(OSError):  # an overlay may lie over the scratch folder itself
        os.makedirs(written, exist_ok=True)
        _mount(f"/proc/self/fd/{layers}", written, None, _MS_BIND)
        _mount(None, written, None, _MS_BIND | _MS_REMOUNT | _MS_READ_ONLY | _MS_NOSUID | _MS_NODEV)
    os.close(layers)
    for path in _block_devices():
        try:
            _mount("/dev/null", path, None, _MS_BIND)
        except OSError as error:
            missing.append(f"no disk {path}: {error.strerror}")
    for path in hidden:
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=4k,mode=500")
            elif os.path.exists(path):
                _mount("/dev/null", path, None, _MS_BIND)
    return missing


def _block_devices() -> list[str]:
    """Disks and swap space, which a read-only file system lets their owner write."""
    found = []
    for folder, _, names in os.walk("/dev"):
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if stat.S_ISBLK(os.lstat(path).st_mode):
                    found.append(path)
    return found


def places_to_compile(scratch: str) -> dict[str, str]:
    """Variables for compilers' caches where those that they have by default cannot be written."""
    found = {}
    for name, usual in (
        ("XDG_CACHE_HOME", "~/.cache"),
        ("TRITON_CACHE_DIR", "~/.triton"),
        ("TORCH_EXTENSIONS_DIR", "~/.cache"),
        ("TORCHINDUCTOR_CACHE_DIR", ""),
        ("CUDA_CACHE_PATH", "~/.nv"),
    ):
        folder = os.environ.get(name) or os.path.expanduser(usual)
        while folder and not os.path.exists(folder):
            folder = os.path.dirname(folder)
        if folder and not os.access(folder, os.W_OK):
            found[name] = os.path.join(scratch, name.lower())
    return found


def drop_privileges() -> None:
    """No capability, and none to be had from any program."""
    for number in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _libc.capset(header, nothing)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def limit_resources(processes: int, file_bytes: int, memory_bytes: int) -> None:
    """0: no limit. The number of processes counts all of the user's."""
    if processes:
        user = os.getuid()
        running = 0
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                    running += len(os.listdir(f"/proc/{name}/task"))
        _lower(resource.RLIMIT_NPROC, running + processes)
    if file_bytes:
        _lower(resource.RLIMIT_FSIZE, file_bytes)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    if memory_bytes:
        with open("/proc/self/status") as status:
            used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
        _lower(resource.RLIMIT_DATA, used + memory_bytes)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(what: int, wanted: int) -> None:
    _, hard = resource.getrlimit(what)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(what, (limit, limit))
