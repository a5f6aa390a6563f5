"""The lock of a device: who waits for whom, who is told, and what a dead owner leaves."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

from kernelwright import errors
from kernelwright.timing import device_lock, memory_turn

HOLDER = """
import os, sys, time
from kernelwright.timing import device_lock
with device_lock.hold("cpu", "timing", print, shared=%r):
    %s
    print("held", flush=True)
    sys.stdin.read(1)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setenv("KW_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.delenv("KW_ON_BEHALF", raising=False)
    return tmp_path / "locks"


@pytest.fixture
def holder():
    """Starts other processes that hold the lock until they are told, or killed."""
    running = []

    def start(shared=False, first="pass", **options):
        source = textwrap.dedent(HOLDER) % (shared, first)
        process = subprocess.Popen(
            [sys.executable, "-c", source, "model.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        running.append(process)
        assert process.stdout.readline().strip() == "held"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


class Taker(threading.Thread):
    """Takes the lock beside the test, and notes what it was told."""

    def __init__(self, shared=False):
        super().__init__(daemon=True)
        self.shared, self.told, self.waited, self.has, self.enough = (
            shared,
            [],
            0.0,
            threading.Event(),
            threading.Event(),
        )
        self.start()

    def run(self):
        with device_lock.hold("cpu", "verifying" if self.shared else "timing", self.tell, shared=self.shared):
            self.has.set()
            self.enough.wait(30)

    def tell(self, whom, fraction, waited):
        self.told.append(whom)
        self.waited += waited

    def end(self):
        self.enough.set()
        self.join(10)


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_who_waits_is_told_by_whom_and_how_long(holder):
    other = holder()
    began = time.monotonic()
    taker = Taker()
    assert until(lambda: taker.told) and not taker.has.is_set()
    user = device_lock._myself("")["user"]
    assert taker.told[0].startswith(
        f"waiting for the CPU: `-c model.py` (process {other.pid} of {user}, timing since "
    ) and taker.told[0].endswith(") has it")
    other.communicate("x")
    assert taker.has.wait(10) and abs(taker.waited - (time.monotonic() - began)) < 0.5
    assert taker.told[-1] == ""
    taker.end()
    assert device_lock.holders("cpu") == []


def test_a_command_does_not_tell_that_it_waits_for_itself(holder, monkeypatch):
    # Several problems of one `kw bench` take turns.
    monkeypatch.setenv("KW_ON_BEHALF", f"{os.getpid()} kw bench problems")
    other = holder()
    taker = Taker()
    assert until(lambda: taker.told) and not taker.has.is_set()
    other.communicate("x")
    assert taker.has.wait(10) and taker.waited > 0
    taker.end()
    assert set(taker.told) == {""}


def test_nobody_waits_for_a_dead_owner(holder):
    # Nor for the children that it left: they have the file too.
    other = holder(first="child = os.fork() or (os.close(0), os.close(1), time.sleep(30), os._exit(0))")
    taker = Taker()
    assert until(lambda: taker.told)
    died = time.monotonic()
    os.kill(other.pid, signal.SIGKILL)
    assert taker.has.wait(10) and time.monotonic() - died < 2
    taker.end()


def test_sharers_hold_it_together_and_who_times_waits_for_all(holder):
    first, second = holder(shared=True), holder(shared=True)
    taker = Taker()
    assert until(lambda: taker.told) and " and 1 more has it" in taker.told[0]
    first.communicate("x")
    time.sleep(0.2)
    assert not taker.has.is_set()
    second.communicate("x")
    assert taker.has.wait(10)
    taker.end()


def test_sharers_do_not_overtake_who_waits_to_time(holder):
    first = holder(shared=True)
    timer = Taker()
    assert until(lambda: timer.told)
    late = Taker(shared=True)
    assert until(lambda: late.told) and not late.has.is_set()
    with device_lock.share_if_free("cpu") as free:
        assert not free
    first.communicate("x")
    assert timer.has.wait(10) and not late.has.is_set()
    timer.end()
    assert late.has.wait(10)
    late.end()
    with device_lock.share_if_free("cpu") as free:
        assert free


def test_devices_do_not_wait_for_each_other(holder):
    holder()
    with device_lock.hold("gpu-0000", "timing", lambda *_, **__: pytest.fail("it waited")):
        pass


def test_a_cleared_folder_does_not_split_those_who_wait(holder, locks):
    other = holder()
    taker = Taker()
    assert until(lambda: taker.told)
    for path in locks.iterdir():
        path.unlink()
    other.communicate("x")
    assert taker.has.wait(10)
    late = Taker()
    assert until(lambda: late.told) and not late.has.is_set()
    taker.end()
    assert late.has.wait(10)
    late.end()


def test_all_users_share_it(locks):
    before = os.umask(0o077)
    try:
        with device_lock.hold("cpu", "timing", print):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o1777
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in locks.iterdir()} == {
        "cpu.lock": 0o666,
        "cpu.queue": 0o666,
    }


def test_a_folder_that_cannot_be_used_is_named(tmp_path, monkeypatch, locks):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KW_LOCK_DIR", str(tmp_path / "file"))
    with (
        pytest.raises(errors.Error, match="cannot be opened: Not a directory") as caught,
        device_lock.hold("cpu", "timing", print),
    ):
        pass
    assert caught.value.kind == "missing" and "KW_LOCK_DIR" in caught.value.hint


def test_what_a_lock_file_is_made_to_point_at_stays_as_it_is(tmp_path, locks):
    (tmp_path / "precious").write_text("kept")
    locks.mkdir()
    (locks / "cpu.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(errors.Error, match="cannot be opened"), device_lock.hold("cpu", "timing", print):
        pass
    (locks / "cpu.lock").unlink()
    os.link(tmp_path / "precious", locks / "cpu.lock")
    with device_lock.hold("cpu", "timing", print):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


class Turn(threading.Thread):
    """A problem of so many gigabytes that is in work on a GPU of 80 until it is told."""

    def __init__(self, gigabytes):
        super().__init__(daemon=True)
        self.params = {"device": "cuda", "input_bytes": int(gigabytes * 1e9)}
        self.has, self.enough = threading.Event(), threading.Event()
        self.start()

    def run(self):
        memory_turn.in_memory_turn(self.params, lambda *_, **__: None, self.work)

    def work(self, params, progress):
        self.has.set()
        self.enough.wait(20)

    def end(self):
        self.enough.set()
        self.join()


@pytest.fixture
def a_gpu(monkeypatch):
    monkeypatch.setattr(memory_turn.torch.cuda, "mem_get_info", lambda _: (0, int(80e9)))
    monkeypatch.setattr(memory_turn.torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(device_lock, "name_of", lambda _: "gpu-here")


def test_problems_take_turns_with_a_gpus_memory(a_gpu):
    small, other, filling = Turn(0.1), Turn(0.1), Turn(2)
    assert small.has.wait(5) and other.has.wait(5) and filling.has.wait(5)
    next_filling = Turn(2)
    assert not next_filling.has.wait(0.5)
    filling.end()
    assert next_filling.has.wait(5)
    huge = Turn(12)
    for one in (next_filling, small, other):
        assert not huge.has.wait(0.3)
        one.end()
    assert huge.has.wait(5)
    late = Turn(0.1)
    assert not late.has.wait(0.5)
    huge.end()
    assert late.has.wait(5)
    late.end()


class Held:
    """Stands for a tensor of a GPU."""


@pytest.mark.parametrize("raises", [False, True])
def test_memory_is_given_back_before_the_turn_ends(a_gpu, monkeypatch, raises):
    held, left = weakref.WeakSet(), []
    monkeypatch.setattr(memory_turn.torch.cuda, "empty_cache", lambda: left.append(len(held)))

    def deeper(tensor):
        other = Held()
        held.add(other)
        if raises:
            raise ValueError("no memory")

    def work(params, progress):
        tensor = Held()
        held.add(tensor)
        try:
            deeper(tensor)
        except ValueError as error:
            raise RuntimeError("this draw") from error

    for gigabytes in (0.1, 12):
        with pytest.raises(RuntimeError) if raises else contextlib.nullcontext():
            memory_turn.in_memory_turn({"device": "cuda", "input_bytes": int(gigabytes * 1e9)}, print, work)
    assert left == [0, 0]
