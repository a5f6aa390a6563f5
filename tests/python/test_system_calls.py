"""The filter of system calls: what a candidate's process may not ask of the kernel, and what it still may."""

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys
import textwrap

import pytest

from kernelwright.host import system_calls
from kernelwright.judge import nursing
from kernelwright.judge.nursing import Confinement

COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())

pytestmark = pytest.mark.skipif(COLUMN is None, reason="the filter knows no numbers of this machine")

X86 = pytest.mark.skipif(COLUMN != 0, reason="is about x86-64")

# In a process that has given up its privileges and has the filter: `call` answers 0, or the number of the error.
HEAD = """
import ctypes, os, sys
sys.path.insert(0, PATH)
from kernelwright.host import confinement, system_calls
machine = system_calls._machine
library = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    ctypes.set_errno(0)
    return 0 if library.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) >= 0 else ctypes.get_errno()

confinement.drop_privileges()
assert system_calls.deny() == []
"""

PATH = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(system_calls.__file__))))


def filtered(code, **options):
    """What `code` prints in such a process."""
    text = HEAD.replace("PATH", repr(PATH)) + textwrap.dedent(code)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, **options)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_every_call_of_the_table_is_denied():
    told = filtered("""
    for name, numbers in system_calls._DENIED.items():
        number = numbers[machine.column]
        if number is not None and (error := call(number, -1, -1, -1, -1, -1)) != 1:
            print(name, error)
    """)
    assert told == []


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("machine.clone, 0x10000000 | 17, 0, 0, 0, 0", errno.EPERM),  # CLONE_NEWUSER | SIGCHLD
        ("machine.clone, 0x00020000 | 17, 0, 0, 0, 0", errno.EPERM),  # CLONE_NEWNS
        ("machine.clone, 0x02000000 | 17, 0, 0, 0, 0", errno.EPERM),  # CLONE_NEWCGROUP
        ("machine.clone3, 0, 0", errno.ENOSYS),
        ("machine.ioctl, 0, 0x5412, 0", errno.EPERM),  # TIOCSTI
        ("machine.ioctl, 0, 0x5412 | 1 << 32, 0", errno.EPERM),  # of which the kernel takes the low word
        ("machine.ioctl, 0, 0xAA00, 0", errno.EPERM),  # USERFAULTFD_IOC_NEW
        ("machine.ioctl, 0, 0x1234, 0", errno.ENOTTY),
        ("machine.personality, 0x0040000", errno.EPERM),  # ADDR_NO_RANDOMIZE
        ("machine.personality, 0xFFFFFFFF", 0),
        ("machine.socket, 38, 5, 0", errno.EPERM),  # AF_ALG
        ("machine.socket, 40, 1, 0", errno.EPERM),  # AF_VSOCK
        ("machine.socket, 17, 2, 0", errno.EPERM),  # AF_PACKET
        ("machine.socket, 17 | 1 << 32, 2, 0", errno.EPERM),
        ("machine.socketpair, 40, 1, 0, 0", errno.EPERM),
        ("machine.socket, 16, 3, 12", errno.EPERM),  # NETLINK_NETFILTER
        ("machine.socket, 16, 3, 0", 0),  # NETLINK_ROUTE
        ("machine.socket, 1, 1, 0", 0),
        ("machine.socket, 2, 1, 0", 0),
    ],
)
def test_calls_whose_arguments_matter(asked, error):
    assert filtered(f"print(call({asked}))", stdin=subprocess.DEVNULL) == [str(error)]


@X86
def test_calls_by_the_numbers_of_x32_are_denied():
    assert filtered("print(call(0x40000000 | 39), call(0x40000000 | 521))") == ["1", "1"]


@X86
def test_calls_of_i386_are_denied():
    """getpid by int 0x80, whose number is 20. Where the kernel has no such calls, the process ends."""
    told = filtered("""
    import mmap, subprocess
    code = bytes.fromhex("53 b8 14 00 00 00 cd 80 48 63 c0 5b c3".replace(" ", ""))
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    child = os.fork()
    if child == 0:
        os._exit(0 if function() == -1 else 1)
    status = os.waitpid(child, 0)[1]
    print(os.WIFSIGNALED(status) or status == 0)
    """)
    assert told == ["True"]


def test_what_it_starts_has_the_filter_too():
    told = filtered("""
    import subprocess
    child = os.fork()
    if child == 0:
        os._exit(call(system_calls._DENIED["unshare"][machine.column], 0x10000000))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("Seccomp:")))
    print(subprocess.run(["grep", "^Seccomp:", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1])
    """)
    assert told == ["1", "2", "2"]


def test_threads_processes_and_addresses_are_to_be_had():
    told = filtered("""
    import multiprocessing, socket, subprocess, threading
    thread = threading.Thread(target=lambda: print("thread"))
    thread.start()
    thread.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(abs, [-1, -2])))
    print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1]))
    print(subprocess.run("echo shell", shell=True, capture_output=True, text=True).stdout.strip())
    print(len(socket.if_nameindex()) > 0, len(socket.getaddrinfo("127.0.0.1", 80)) > 0)
    """)
    assert told == ["thread", "3", "0", "shell", "True", "True"]


def test_compilers_and_parallel_loops_work(tmp_path):
    (tmp_path / "sum.cpp").write_text("""
    #include <omp.h>
    extern "C" long sum(long n) {
      long total = 0;
      #pragma omp parallel for reduction(+ : total) num_threads(2)
      for (long i = 0; i < n; ++i) total += i;
      return total;
    }
    """)
    told = filtered(f"""
    import subprocess
    source, library = {str(tmp_path / "sum.cpp")!r}, {str(tmp_path / "sum.so")!r}
    subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", source, "-o", library], check=True)
    print(ctypes.CDLL(library).sum(1000))
    """)
    assert told == ["499500"]


def filters(process):
    with open(f"/proc/{process}/status") as status:
        return next((int(line.split()[1]) for line in status if line.startswith("Seccomp_filters:")), None)


def test_a_confined_process_has_it_and_a_trusted_one_has_not():
    around = filters("self")
    if around is None:
        pytest.skip("this kernel counts no filters")
    for confinement, more in ((Confinement(namespaces=True), 1), (Confinement(), 0)):
        host = nursing.Host(confinement)
        missing = host.ask({"op": "missing"})["missing"]
        assert filters(host.process()) == around + more
        host.close()
        assert not any("system calls" in what for what in missing)


def test_it_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(system_calls, "_machine", None)
    assert "are not known" in system_calls.deny()[0]


def test_a_kernel_that_refuses_is_named(monkeypatch):
    class Refusing:
        @staticmethod
        def syscall(*_):
            ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr(system_calls, "_libc", Refusing)
    assert system_calls.deny() == ["a filter of system calls: the kernel refuses it (Invalid argument)"]


@pytest.mark.parametrize("name", system_calls._MACHINES)
def test_every_way_through_the_filter_ends(name):
    """Every jump leads to an instruction that is there, and the last one answers."""
    program = system_calls._program(system_calls._MACHINES[name])
    instructions = list(struct.iter_unpack("=HBBI", program))
    jumps = (system_calls._IF_EQUAL, system_calls._IF_AT_LEAST, system_calls._IF_ANY_BIT)
    for place, (code, if_true, if_false, _) in enumerate(instructions):
        if code in jumps:
            assert place + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == system_calls._RETURN


def test_the_numbers_are_the_systems():
    """Of the headers, where they are installed."""
    path = f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h"
    if COLUMN != 0 or not os.path.exists(path):
        pytest.skip("no headers of x86-64")
    with open(path) as header:
        known = {
            words[1].removeprefix("__NR_"): int(words[2])
            for words in (line.split() for line in header)
            if len(words) == 3 and words[2].isdigit()
        }
    machine = system_calls._MACHINES["x86_64"]
    singles = ("clone", "clone3", "ioctl", "personality", "socket", "socketpair", "seccomp")
    table = {name: numbers[0] for name, numbers in system_calls._DENIED.items()}
    table |= {name: getattr(machine, name) for name in singles}
    # A header may be older than a call.
    assert {name: known.get(name, number) for name, number in table.items()} == table


def test_the_numbers_of_aarch64_are_the_systems():
    path = "/usr/include/asm-generic/unistd.h"
    if not os.path.exists(path):
        pytest.skip("no headers")
    with open(path) as header:
        known = {
            words[1].removeprefix("__NR_").removeprefix("__NR3264_"): int(words[2])
            for words in (line.split() for line in header)
            if len(words) == 3 and words[0] == "#define" and words[2].isdigit()
        }
    table = {name: numbers[1] for name, numbers in system_calls._DENIED.items() if numbers[1] is not None}
    assert {name: known.get(name, number) for name, number in table.items()} == table
