"""A machine that is too noisy to time is named, in words that say what to do about it."""

import os
import subprocess
import sys
import time

import pytest

from kernelwright import library
from kernelwright.timing import noise

SPIN = "import sys; print('spins', flush=True)\nwhile True: pass"


@pytest.fixture
def counters(monkeypatch):
    """Set what the machine counts, as (busy, stolen, own, throttled) seconds."""

    def after(*differences, threads, cores=2, elapsed=1.0):
        now = [0.0]
        values = iter(
            [(10.0, 5.0, 2.0, 1.0), tuple(start + more for start, more in zip((10.0, 5.0, 2.0, 1.0), differences))]
        )
        monkeypatch.setattr(noise.Noise, "_counters", lambda self: next(values))
        monkeypatch.setattr(noise.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(noise.os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.setattr(noise, "_processor_seconds_by_process", dict)
        made = noise.Noise(threads)
        now[0] = elapsed
        return made.figures()

    return after


def test_a_quiet_machine_has_no_reasons(counters):
    assert counters(2.0, 0.0, 1.9, 0.0, threads=2) == {
        "reasons": [],
        "cores": 2,
        "others_cores": 0.1,
        "stolen_cores": 0.0,
        "throttled_seconds": 0.0,
        "seconds": 1.0,
    }


def test_others_on_the_cores_that_are_timed_are_named(counters):
    assert counters(2.0, 0.0, 0.7, 0.0, threads=2)["reasons"] == [
        "other processes used 1.3 of 2 cores while this was timed"
    ]


def test_others_on_cores_that_nobody_needs_are_no_noise(counters):
    assert counters(3.0, 0.0, 2.0, 0.0, threads=2, cores=8)["reasons"] == []
    assert counters(8.0, 0.0, 1.0, 0.0, threads=2, cores=8)["reasons"] == [
        "other processes used 7.0 of 8 cores while this was timed"
    ]


def test_a_hypervisor_and_a_limit_that_take_the_processor_away_are_named(counters):
    assert counters(2.0, 0.4, 2.0, 0.0, threads=2)["reasons"] == [
        "the hypervisor gave 0.4 of 2 cores to others while this was timed"
    ]
    assert counters(4.0, 0.0, 4.0, 0.5, threads=2, elapsed=2.0)["reasons"] == [
        "the control group's limit on processor time held this process up for 0.5 of 2.0 s while this was timed"
    ]


def test_ticks_of_a_short_time_say_nothing(counters):
    assert counters(0.05, 0.01, 0.02, 0.0, threads=2, elapsed=0.03)["reasons"] == []


def test_a_process_that_computes_beside_is_seen_and_named():
    cores = len(os.sched_getaffinity(0))
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    try:
        assert all(spinner.stdout.readline() for spinner in spinners)
        made = noise.Noise(cores)
        time.sleep(1.0)
        figures = made.figures()
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert figures["others_cores"] > 0.5 * cores and f"of {cores} cores while this was timed" in figures["reasons"][0]


def test_the_largest_process_is_named(monkeypatch):
    made = noise.Noise(1)
    made.processes = {(7, "ninja"): 1.0, (8, "cc1plus"): 1.0}
    monkeypatch.setattr(
        noise, "_processor_seconds_by_process", lambda: {(7, "ninja"): 1.1, (8, "cc1plus"): 2.2, (9, "new"): 0.1}
    )
    assert made._largest(1.3) == "another process (cc1plus, process 8)"
    assert made._largest(2.0) == "another process (cc1plus, process 8) and others"
    assert made._largest(3.0) == "other processes"


@pytest.mark.parametrize("eager, noisy", [([1.0, 1.01, 0.99] * 10, []), ([1.0, 2.0, 3.0] * 5, ["eager"])])
def test_intervals_too_wide_to_say_anything_are_noise(eager, noisy):
    report = library.summarise(
        {"samples_ms": {"ours": [1.0] * len(eager), "eager": eager}, "noise": {"reasons": [], "cores": 2}}
    )
    assert report["noise"]["noisy"] == bool(noisy) and report["noise"]["cores"] == 2
    assert [
        reason.startswith(f"the 95 % interval of {name}'s median reaches ")
        for reason, name in zip(report["noise"]["reasons"], noisy, strict=True)
    ] == [True] * len(noisy)


def test_reasons_of_the_worker_mark_the_figures():
    report = library.summarise({"samples_ms": {"ours": [1.0] * 20}, "noise": {"reasons": ["it was loud"]}})
    assert report["noise"] == {"reasons": ["it was loud"], "noisy": True}


def test_a_turn_begins_when_the_last_one_s_threads_sleep():
    spinning = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nprint(1, flush=True)\nuntil = time.monotonic() + 0.03\n"
            "while time.monotonic() < until: pass\ntime.sleep(30)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        spinning.stdout.readline()
        assert noise._runs(spinning.pid, "")
        noise.wait_until_idle(spinning.pid)
        assert not noise._runs(spinning.pid, "")
    finally:
        spinning.kill()
        spinning.wait()


def test_nobody_waits_for_long_for_threads_that_never_sleep_nor_for_a_process_that_has_ended():
    spinning = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    try:
        spinning.stdout.readline()
        began = time.monotonic()
        noise.wait_until_idle(spinning.pid)
        assert 0.9 * noise._LONGEST_WAIT_SECONDS <= time.monotonic() - began < 1.0
    finally:
        spinning.kill()
        spinning.wait()
    began = time.monotonic()
    noise.wait_until_idle(spinning.pid)
    noise.wait_until_idle(os.getpid())  # whose only running thread is this one
    assert time.monotonic() - began < 0.04
