"""A process that has imported PyTorch, has done nothing with it yet, and forks one for each candidate.

Asked over a Unix socket by one message {"confinement": …, "environment": {…}} with two descriptors: the channel to
the candidate's process, and where its process number and at last its exit status are to be told. Its children are
alone with what they were given; a keeper beside each of them waits for the end. Asked by {"compilers": true} with one
descriptor it forks another nursery, asked there, that has imported what torch.compile needs, too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from typing import Any

from . import confinement, resident, system_calls

LARGEST_REQUEST = 1 << 16

_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

_COMPILERS = (
    "torch._dynamo",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.compile_fx",
    "torch._inductor.scheduler",
    "torch._inductor.codegen.triton",
    "torch._inductor.codegen.cpp",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
)


def serve(descriptor: int) -> None:
    """Until the judge has closed its end."""
    confinement.die_with_parent()
    confinement.hide_memory()
    asked = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _claim_standard_streams()
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, LARGEST_REQUEST, 2)
        if not message:
            return
        request = json.loads(message)
        if os.fork() == 0:
            asked.close()
            if "compilers" in request:
                import_compilers()
                if not _spoils_children():
                    serve(*descriptors)
                os._exit(0)
            _keep(request, *descriptors)
        for given in descriptors:
            os.close(given)


def _claim_standard_streams() -> None:
    """Standard input is empty, and standard output is the log."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)


def import_libraries() -> None:
    """What every candidate needs."""
    import torch  # noqa: F401
    import torch.nn  # noqa: F401

    for name in ("numpy", "triton.language") if torch.backends.cuda.is_built() else ("numpy",):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _forbid_monitors()


def _forbid_monitors() -> None:
    """tqdm, whose bars torch.compile makes while it compiles, starts a thread that watches them: no work of a
    candidate's."""
    with contextlib.suppress(ImportError):
        importlib.import_module("tqdm").tqdm.monitor_interval = 0


def import_compilers() -> None:
    """What torch.compile imports at its first use."""
    gc.disable()
    # Asked in the usual way whether there is a GPU, PyTorch begins with it, and no child could.
    before = os.environ.get(_CHECK)
    os.environ[_CHECK] = "1"
    for name in _COMPILERS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if before is None:
        del os.environ[_CHECK]
    else:
        os.environ[_CHECK] = before
    gc.enable()


def _spoils_children() -> bool:
    """Whether something imported has begun with the GPU all the same."""
    import torch

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] != 0


def _keep(request: dict[str, Any], channel: int, report: int) -> None:
    """In a process of its own: start the candidate's, tell its number, wait for its end, tell its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    confinement.die_with_parent()
    confinement.adopt_orphans()
    given = request["confinement"]
    missing = []
    for path in given.get("groups", []):
        try:
            with open(path, "w") as file:
                file.write("0")
        except OSError as error:
            missing.append(f"bounded processes: {error.strerror}")
    is_apart = False
    if given["namespaces"]:
        confinement.hide_memory(False)  # or the files in /proc that map users belong to root
        why = confinement.enter_namespaces()
        confinement.hide_memory()
        is_apart = not why
        if why:
            missing += [
                f"{what}: namespaces are not permitted here ({why})"
                for what in ("no network", "a read-only file system", "processes of its own")
            ]
    child = os.fork()
    if child == 0:
        confinement.die_with_parent()
        _become_first(request, channel, report, missing) if is_apart else _become_resident(
            request, channel, report, missing
        )
    os.close(channel)
    _tell(report, {"pid": child, "apart": is_apart})
    _, status = os.waitpid(child, 0)
    if not is_apart:
        _end_descendants()
    _tell(report, {"status": status})
    os._exit(0)


def _tell(report: int, what: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(what).encode() + b"\n")


def _end_descendants() -> None:
    """Kill what the candidate has started and left; it has become this process's own."""
    while True:
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for number in file.read().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(number), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _become_first(request: dict[str, Any], channel: int, report: int, missing: list[str]) -> None:
    """The first process of a namespace: everything in it ends when this one does."""
    given = request["confinement"]
    missing = missing + confinement.confine_files(
        given["scratch"], given["overlaid"], given["hidden"], given["scratch_bytes"]
    )
    child = os.fork()
    if child == 0:
        _become_resident(request, channel, report, missing)
    os.close(channel)
    while True:
        ended, status = os.wait()
        if ended == child:
            _tell(report, {"status": status})
            os._exit(0)


def _become_resident(request: dict[str, Any], channel: int, report: int, missing: list[str]) -> None:
    os.close(report)
    given = request["confinement"]
    os.setsid()
    for name in [name for name in os.environ if name.startswith("KW_")] + given["unset"]:
        os.environ.pop(name, None)
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # or the place that was found before stays
    if given["namespaces"]:
        os.environ.update(confinement.places_to_compile(given["scratch"]))
    confinement.be_first_to_go()
    confinement.limit_resources(given["processes"], given["file_bytes"], given["memory_bytes"])
    if given["namespaces"]:
        confinement.drop_privileges()
        missing = missing + system_calls.deny()
    confinement.hide_memory(False)
    try:
        resident.Resident(channel, missing).serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        sys.stderr.flush()
        # Skips exit hooks and destructors of the candidate's.
        os._exit(0)
