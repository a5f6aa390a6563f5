"""System calls that a candidate's process may not make: a seccomp filter, which what it starts has as well.

The filter is a table and forty lines that make a program for the kernel (classic BPF) of it. libseccomp would do the
same, but its bindings for Python need a library of the system's, which a user's machine may lack.

What is not named here is permitted: a list of what is permitted would break on the next version of a driver or a
compiler. Denied is what no kernel needs and much of the system's attack surface lies behind: other processes' memory,
namespaces and mounts, programs run by the kernel, and families of sockets beside Unix and IP.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

# Numbers on x86-64 and on AArch64 (None: there is no such call).
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # namespaces, mounts, and files past them
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # what runs in the kernel, or for it: programs, rings, page faults, keys
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    # old ones, of which only faults were heard in years
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
}


@dataclass(frozen=True)
class _Machine:
    column: int  # of the table
    audit: int  # what the kernel calls it (linux/audit.h)
    clone: int
    clone3: int
    ioctl: int
    personality: int
    socket: int
    socketpair: int
    seccomp: int
    foreign: int | None  # calls from this number on are of another ABI


_MACHINES = {
    "x86_64": _Machine(0, 0xC000003E, 56, 435, 16, 135, 41, 53, 317, 0x40000000),
    "aarch64": _Machine(1, 0xC00000B7, 220, 435, 29, 92, 198, 199, 277, None),
}

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES = 0x7E020000

# Requests that put text into a terminal (TIOCSTI, TIOCLINUX), and that do by a device what is denied as a call
# (USERFAULTFD_IOC_NEW), or make a virtual machine (KVM_CREATE_VM). Any other is a driver's.
_REQUESTS = (0x5412, 0x541C, 0xAA00, 0xAE01)

_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _ROUTE = 16, 0  # getifaddrs() asks for addresses by NETLINK_ROUTE, and gloo calls that
_ASKING = 0xFFFFFFFF  # personality() of it changes nothing

# Classic BPF's instructions that are used (linux/bpf_common.h), and offsets in seccomp_data.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000

_SET_FILTER, _KEEP_SPECULATION = 1, 4  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _instruction(_RETURN, _FAIL | number)


def _program(machine: _Machine) -> bytes:
    """The filter. Of an argument its low word is looked at: the kernel takes no more of any that is."""
    denied = _fail(errno.EPERM)
    allowed = _instruction(_RETURN, _ALLOW)

    def rule(number: int, body: bytes) -> bytes:
        return _instruction(_IF_EQUAL, number, 0, len(body) // 8) + body

    def argument(place: int) -> bytes:
        return _instruction(_LOAD, _ARGUMENTS + 8 * place)

    def only(*values: int) -> bytes:
        return b"".join(_instruction(_IF_EQUAL, value, 0, 1) + allowed for value in values) + denied

    parts = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_IF_EQUAL, machine.audit, 1, 0),
        denied,
        _instruction(_LOAD, _NUMBER),
    ]
    if machine.foreign is not None:
        parts += [_instruction(_IF_AT_LEAST, machine.foreign, 0, 1), denied]
    # The kernel keeps the answer for calls whose arguments do not matter. The others come first: a driver calls ioctl()
    # often.
    requests = b"".join(_instruction(_IF_EQUAL, request, 0, 1) + denied for request in _REQUESTS)
    flags = _instruction(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1) + denied
    route = argument(2) + only(_ROUTE)
    families = rule(_NETLINK, route) + only(*_FAMILIES)
    parts += [
        rule(machine.ioctl, argument(1) + requests + allowed),
        rule(machine.clone, argument(0) + flags + allowed),
        rule(machine.personality, argument(0) + only(_ASKING)),
        rule(machine.socket, argument(0) + families),
        rule(machine.socketpair, argument(0) + families),
    ]
    # Its flags lie in memory, where no filter sees them; the C library takes clone() where the system has no clone3().
    parts.append(rule(machine.clone3, _fail(errno.ENOSYS)))
    numbers = [one[machine.column] for one in _DENIED.values()]
    parts += [rule(number, denied) for number in numbers if number is not None]
    return b"".join(parts) + allowed


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


_name = platform.machine()
_machine = _MACHINES.get(_name) if ctypes.sizeof(ctypes.c_void_p) == 8 else None
_instructions = b"" if _machine is None else _program(_machine)  # made once, before candidates' processes are forked
_libc = ctypes.CDLL(None, use_errno=True)


def deny() -> list[str]:
    """From now on, for this process (which must have one thread, and given up new privileges) and for what it starts.
    Returns what is missing, in words.
    """
    if _machine is None:
        return [f"a filter of system calls: their numbers on {_name} are not known"]
    program = _Program(len(_instructions) // 8, _instructions)
    # Kernels before 5.16 would make the processor guess less in a filtered process: a candidate would be timed slower.
    for options in (_KEEP_SPECULATION, 0):  # the option is of kernel 4.17
        ctypes.set_errno(0)
        if _libc.syscall(_machine.seccomp, _SET_FILTER, options, ctypes.byref(program)) == 0:
            return []
    return [f"a filter of system calls: the kernel refuses it ({os.strerror(ctypes.get_errno())})"]
