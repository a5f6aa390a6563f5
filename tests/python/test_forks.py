"""Forks of the worker, of which each serves one problem of a bench: what they share, and what they must not."""

import fcntl
import os
import signal
import time

import pytest
from test_capture_worker import Worker

PROBLEM = """
import torch
import torch.nn as nn
{extra}

class Model(nn.Module):
    def forward(self, x):
        {forward}
        return torch.relu(x) + 1

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""

# What another problem in the same process would meet.
SPOILS = "torch.set_default_dtype(torch.float64)\nnn.Module.spoilt = True\ntorch.relu = None"


@pytest.fixture
def worker():
    started = Worker()
    yield started
    started.process.stdin.close()
    started.process.kill()
    started.process.wait()


@pytest.fixture
def problem(tmp_path):
    def write(extra="", forward="pass"):
        path = tmp_path / f"problem_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(PROBLEM.format(extra=extra, forward=forward))
        return str(path)

    return write


def fork(worker, *methods):
    worker.send({"id": 0, "method": "fork", "params": {"methods": methods}})


def join(worker):
    return worker.ask("join")["result"]["forked"]


def capture(worker, path):
    return worker.ask("capture", problem=path, device="cpu")


def dtypes(reply):
    return {value["dtype"] for value in reply["result"]["graph"]["values"]}


def test_a_problem_leaves_nothing_for_the_next(worker, problem):
    fork(worker, "capture")
    assert "error" in capture(worker, problem(SPOILS))
    assert join(worker)
    fork(worker, "capture")
    assert dtypes(capture(worker, problem("assert not hasattr(nn.Module, 'spoilt')"))) == {"f32"}
    assert join(worker)


def test_the_second_problem_imports_nothing(worker, problem):
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        fork(worker, "capture")
        capture(worker, problem())
        seconds.append(time.monotonic() - began)
        assert join(worker)
    assert seconds[1] < seconds[0] / 2


def test_candidates_are_judged_in_forks(worker, problem, tmp_path):
    candidate = tmp_path / "candidate.py"
    candidate.write_text(
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0) + 1\n"
    )
    for _ in range(2):
        fork(worker, "verify", "measure")
        reply = worker.ask("verify", problem=problem(), candidate=str(candidate), device="cpu", seed=1)
        assert all(check["ok"] for check in reply["result"]["checks"])
        timed = worker.ask(
            "measure",
            problem=problem(),
            candidate=str(candidate),
            device="cpu",
            seed=1,
            baselines=["eager"],
            budget_seconds=0.2,
        )
        assert timed["result"]["samples_ms"]["eager"]
        assert join(worker)


@pytest.mark.parametrize(
    ("ends", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)]
)
def test_a_fork_takes_the_worker_along(worker, problem, ends, status):
    fork(worker, "capture")
    worker.send(
        {"id": 1, "method": "capture", "params": {"problem": problem(f"import os, signal\n{ends}"), "device": "cpu"}}
    )
    assert worker.process.wait(timeout=60) == status


def test_a_worker_that_is_killed_takes_its_fork_along(worker, problem):
    fork(worker, "capture")
    number = int(
        worker.ask("capture", problem=problem("import os\nraise ValueError(os.getpid())"), device="cpu")["error"][
            "message"
        ]
        .split()[-1]
        .strip(".")
    )
    assert number != worker.process.pid
    worker.process.kill()
    worker.process.wait()
    for _ in range(100):
        if not os.path.exists(f"/proc/{number}") or open(f"/proc/{number}/stat").read().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the fork goes on")


def test_a_worker_without_a_fork_says_so(worker, problem):
    assert not join(worker)
    assert dtypes(capture(worker, problem())) == {"f32"}


def test_a_fork_that_waits_for_the_processor_says_so(worker, problem):
    from kernelwright.timing import device_lock

    os.makedirs(device_lock.folder(), exist_ok=True)
    with open(os.path.join(device_lock.folder(), device_lock.CPU + ".lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fork(worker, "capture")
        worker.send({"id": 1, "method": "capture", "params": {"problem": problem(), "device": "cpu"}})
        assert worker.receive()["event"]["stage"].startswith("waiting")
        fcntl.flock(file, fcntl.LOCK_UN)
    while "event" in (reply := worker.receive()):
        pass
    assert dtypes(reply) == {"f32"}
    assert join(worker)
