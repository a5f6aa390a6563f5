"""Two runs on one machine: one is timed at a time, the other says for whom it waits, and both figures are what one
alone has.
"""

import json
import os
import signal
import time

import pytest

from kernelwright.timing import device_lock

pytestmark = pytest.mark.alone

PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.tanh(x) * 2, dim=-1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def locks(kw, tmp_path, monkeypatch):
    monkeypatch.setenv("KW_LOCK_DIR", str(tmp_path / "locks"))
    kw.environment["KW_LOCK_DIR"] = str(tmp_path / "locks")


@pytest.mark.time_limit(300)
@pytest.mark.parametrize("command", ["measure", "optimize"])
def test_two_at_once_are_timed_one_after_the_other(kw, command):
    problem = kw.file("tiny.py", PROBLEM)
    arguments = [command, problem, "--target", "cpu", "--budget", "4", "--baseline", "eager"]
    running = []
    for number in range(2):
        extra = (
            ["--output", kw.folder / f"{number}_kw.py", "--fresh", "--min-speedup", "0"]
            if command == "optimize"
            else []
        )
        running.append(kw.start(*arguments, *extra, "--json", kw.folder / f"{number}.json"))
    said = [process.communicate(timeout=280) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    reports = [json.loads((kw.folder / f"{number}.json").read_text()) for number in range(2)]
    # Whoever came second has waited for as long as the other was timed, and said so.
    waits = [report["seconds"].get("waiting", 0.0) for report in reports]
    assert max(waits) > 0.5
    late = waits.index(max(waits))
    assert (
        f"waiting for the CPU: `kw {command} {problem} --target cpu" in said[late][1]
        and f"(process {running[1 - late].pid} of " in said[late][1]
    )
    medians = [report["time_ms"]["eager"] for report in reports]
    noisy = [reason for report in reports for reason in report["noise"]["reasons"]]
    assert max(medians) < 2 * min(medians), (medians, noisy)


@pytest.mark.time_limit(300)
def test_interrupted_while_it_waits(kw):
    with device_lock.hold("cpu", "timing", print):
        process = kw.start("measure", kw.file("tiny.py", PROBLEM), "--target", "cpu")
        line = process.stderr.readline()
        assert line.startswith("waiting for the CPU: `") and f"(process {os.getpid()} of " in line
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130 and "interrupted" in err and time.monotonic() - began < 5


@pytest.mark.time_limit(300)
def test_a_wait_is_not_counted_against_a_problem_of_a_bench(kw):
    problem = kw.file("suite/tiny.py", PROBLEM)
    with device_lock.hold("cpu", "timing", print):
        process = kw.start(
            "bench",
            problem,
            "--target",
            "cpu",
            "--budget",
            "1",
            "--baseline",
            "eager",
            "--timeout",
            "20",
            "--out",
            kw.folder / "out",
        )
        assert "waiting for the CPU: `" in process.stderr.readline()
        time.sleep(21)
    out, err = process.communicate(timeout=80)
    assert process.returncode == 0, out + err
