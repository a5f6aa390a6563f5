"""The worker process: framing, dispatch, and what user code cannot do to it."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

from kernelwright import protocol

PACKAGE = os.path.join(os.path.dirname(__file__), "..", "..", "python")


class Worker:
    """A worker child spoken to by hand, so that the framing is tested against the document and not against itself."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelwright.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": PACKAGE},
        )

    def send(self, message):
        body = json.dumps(message).encode()
        self.process.stdin.write(struct.pack("<I", len(body)) + body)
        self.process.stdin.flush()

    def receive(self):
        (length,) = struct.unpack("<I", self.process.stdout.read(4))
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, **params):
        self.send({"id": 1, "method": method, "params": params})
        while "event" in (reply := self.receive()):
            pass
        assert reply["id"] == 1
        return reply


@pytest.fixture(scope="module")
def shared_worker():
    worker = Worker()
    yield worker
    worker.process.stdin.close()
    assert worker.process.wait(timeout=30) == 0


@pytest.fixture
def problem(tmp_path):
    def write(source):
        path = tmp_path / "problem.py"
        path.write_text(source)
        return str(path)

    return write


PARTS = """
def get_inputs():
    return [torch.ones(2)]
def get_init_inputs():
    return []
"""
MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


def test_hello_describes_the_machine(shared_worker):
    import torch

    result = shared_worker.ask("hello")["result"]
    assert result["torch"] == torch.__version__
    assert result["cpu"]["threads"] >= 1 and result["cpu"]["isa"]
    assert (result["cuda"] is None) == (not torch.cuda.is_available())


def test_unknown_method_is_an_internal_error(shared_worker):
    error = shared_worker.ask("conjure")["error"]
    assert (error["kind"], error["code"]) == ("internal", "unknown-method")


def test_prints_and_reads_of_user_code_stay_out_of_the_protocol(shared_worker, problem):
    noisy = "import os, sys\nprint('to stdout')\nos.write(1, b'raw')\nos.system('echo from a child')\nassert sys.stdin.read() == ''\n"
    reply = shared_worker.ask("capture", problem=problem(noisy + MODEL + PARTS), device="cpu")
    assert [node["op"] for node in reply["result"]["graph"]["nodes"]] == ["aten.add.Tensor"]


def test_sys_exit_in_user_code_is_an_error_with_its_line(shared_worker, problem):
    error = shared_worker.ask("capture", problem=problem(MODEL + PARTS + "import sys\nsys.exit(4)\n"), device="cpu")[
        "error"
    ]
    assert (error["kind"], error["code"], error["source"]) == ("user", "exits", "sys.exit(4)")


def test_hard_exit_of_user_code_ends_the_worker_without_a_reply(problem):
    worker = Worker()
    worker.send(
        {"id": 1, "method": "capture", "params": {"problem": problem("import os\nos._exit(9)"), "device": "cpu"}}
    )
    assert "event" in worker.receive()
    assert worker.process.stdout.read() == b""
    assert worker.process.wait(timeout=30) == 9


def test_interrupt_is_quiet(problem):
    worker = Worker()
    path = problem("import time\nprint('started', flush=True)\ntime.sleep(60)")
    worker.send({"id": 1, "method": "capture", "params": {"problem": path, "device": "cpu"}})
    assert worker.process.stderr.readline() == b"started\n"
    assert "event" in worker.receive()
    worker.process.send_signal(signal.SIGINT)
    assert worker.process.wait(timeout=10) == 130
    assert worker.process.stderr.read() == b"" and worker.process.stdout.read() == b""


def test_a_worker_whose_parent_died_ends_itself(problem, tmp_path):
    path = problem(f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    body = json.dumps({"id": 1, "method": "capture", "params": {"problem": path, "device": "cpu"}}).encode()
    parent = f"""
import os, struct, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "kernelwright.worker"], stdin=subprocess.PIPE)
child.stdin.write(struct.pack("<I", {len(body)}) + {body!r})
child.stdin.flush()
while not os.path.exists({str(tmp_path / "pid")!r}):
    time.sleep(0.05)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", parent], env={**os.environ, "PYTHONPATH": PACKAGE}, check=True, timeout=60)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}") or " Z " in open(f"/proc/{pid}/stat").read():
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the orphaned worker was still running")


def test_nonfinite_numbers_travel_as_strings():
    frame = protocol.encode({"values": [float("nan"), float("inf"), float("-inf"), 1.0]})
    assert json.loads(frame[4:]) == {"values": ["nan", "inf", "-inf", 1.0]}


def test_undecodable_text_is_still_utf8():
    assert json.loads(protocol.encode({"path": "bad\udcff", "name": "π"})[4:].decode()) == {"path": "bad?", "name": "π"}


def test_a_result_that_is_not_json_becomes_an_error(monkeypatch):
    from kernelwright import worker

    sent = []
    monkeypatch.setattr(worker, "handler", lambda method: lambda params, progress: {"value": object()})
    monkeypatch.setattr(
        protocol.Channel, "send", lambda self, message: sent.append(json.loads(protocol.encode(message)[4:]))
    )
    worker.answer(protocol.Channel(-1, -1), {"id": 3, "method": "odd"})
    assert [message["error"]["kind"] for message in sent] == ["internal"] and sent[0]["id"] == 3


def test_large_messages_cross_in_pieces():
    read, write = os.pipe()
    message = {"text": "é" * 300_000}
    if os.fork() == 0:
        protocol.Channel(read, write).send(message)
        os._exit(0)
    os.close(write)
    channel = protocol.Channel(read, -1)
    assert channel.receive() == message
    assert channel.receive() is None
    os.wait()


def test_preparing_is_answered_at_once_and_gives_way_to_requests(problem):
    path = problem(
        """
import os, time, torch
class Model(torch.nn.Module):
    def forward(self, x):
        with open(os.environ["KW_TEST_MARKS"], "a") as file:
            file.write("run\\n")
        time.sleep(0.2)
        return x + 1
"""
        + PARTS
    )
    marks = path + ".marks"
    open(marks, "w").close()
    os.environ["KW_TEST_MARKS"] = marks
    worker = Worker()
    try:
        given = {"problem": path, "device": "cpu", "seed": 5, "draws": 7}
        worker.send({"id": 1, "method": "prepare", "params": given})
        assert worker.receive() == {"id": 1, "result": {}}
        deadline = time.monotonic() + 60
        while not os.path.getsize(marks):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "result" in worker.ask("hello")
        # Eager and the reference on each of seven draws.
        while len(open(marks).readlines()) < 14:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with open(path) as source:
            text = source.read()
        with open(path + ".candidate.py", "w") as candidate:
            candidate.write(
                text.split("def get_inputs")[0].replace("time.sleep(0.2)", "pass")
                + "\nclass ModelNew(Model):\n    def forward(self, x):\n        return x + 1\n"
            )
        answer = worker.ask("verify", candidate=path + ".candidate.py", **given)
        assert len(answer["result"]["draws"]) == 7
        assert len(open(marks).readlines()) == 14
    finally:
        del os.environ["KW_TEST_MARKS"]
        worker.process.kill()
        worker.process.wait()
