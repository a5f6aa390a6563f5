"""A candidate's share of a GPU's memory, on a GPU that is told of and not there."""

import types

import pytest
import torch
from verification_problems import ELEMENTWISE

from kernelwright import errors
from kernelwright.host.resident import Resident
from kernelwright.judge import hoarding, remote, verification
from kernelwright.running import limits

GIB = 1 << 30
GPU = torch.device("cuda", 0)


class Card:
    """80 GiB, of which others hold `others`, this process `ours` and a candidate's `held`."""

    def __init__(self, others=0, ours=0, held=0):
        self.others, self.ours, self.held, self.ended = others, ours, held, False
        self.device, self.memory_share, self.host = GPU, 20 * GIB, types.SimpleNamespace(close=self.end)

    def end(self):
        self.held, self.ended = 0, True

    def answer(self, monkeypatch):
        taken = lambda *_: self.ours  # noqa: E731
        for name in ("memory_reserved", "memory_allocated", "max_memory_allocated"):
            monkeypatch.setattr(torch.cuda, name, taken)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda *_: (80 * GIB - self.others - self.ours - self.held, 80 * GIB)
        )
        return self


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(hoarding, "_SECONDS_TO_FREE", 0.05)
    return lambda **what: Card(**{name: size * GIB for name, size in what.items()}).answer(monkeypatch)


@pytest.mark.parametrize(
    "what, share",
    [
        ({}, 70),
        ({"ours": 10}, 60),
        ({"others": 70}, 20),  # who else is there leaves it a quarter
        ({"others": 50, "ours": 12}, 48),  # four times what the problem has taken
        ({"ours": 30}, 80),
    ],
)
def test_a_share_is_what_is_free_or_several_times_what_the_problem_takes(card, what, share):
    card(**what)
    assert limits.share_of_candidate(GPU) == share * GIB


def test_on_a_cpu_there_is_no_share():
    assert limits.share_of_candidate(torch.device("cpu")) is None


def failing(message="CUDA out of memory"):
    try:
        raise torch.OutOfMemoryError(message)
    except torch.OutOfMemoryError as error:
        return error


def test_who_holds_more_than_its_share_fails_where_the_judge_manages_without_it(card):
    held, tried = card(held=40, ours=30), []
    with pytest.raises(errors.Error) as raised:
        hoarding.answer_for_memory(held, failing(), lambda: tried.append(held.ended))
    assert (raised.value.kind, raised.value.code) == ("candidate", "memory-held") and tried == [True]
    assert "held 40.0 GiB" in raised.value.message and "20.0 GiB were its share" in raised.value.message


def test_who_keeps_to_its_share_is_not_to_blame(card):
    within = card(held=21, ours=50)
    hoarding.answer_for_memory(within, failing(), lambda: pytest.fail("asked again"))
    assert not within.ended


def test_what_others_hold_is_not_the_candidates(card):
    beside = card(held=10, others=60)
    with pytest.raises(torch.OutOfMemoryError):
        hoarding.answer_for_memory(beside, failing(), lambda: pytest.fail("asked again"))


def test_a_problem_too_large_for_the_device_is_nobodys_fault(card):
    def again():
        raise failing("still")

    with pytest.raises(torch.OutOfMemoryError, match="CUDA"):
        hoarding.answer_for_memory(card(held=40), failing(), again)


def test_the_judge_that_runs_out_of_memory_looks_for_who_holds_it(card, monkeypatch, tmp_path):
    """As it does on every draw: neither a draw that is left out nor a fault of the problem's."""
    (tmp_path / "problem.py").write_text(ELEMENTWISE)
    (tmp_path / "candidate.py").write_text(ELEMENTWISE.replace("Model(", "ModelNew("))
    monkeypatch.setattr(remote.Remote, "memory_share", property(lambda self: 20 * GIB, lambda self, share: None), False)
    given = {"problem": str(tmp_path / "problem.py"), "candidate": str(tmp_path / "candidate.py"), "seed": 1}
    one = verification.Verification(given, lambda stage, fraction: None)
    held, run_eager, runs = card(held=60), one.yardstick.run_eager, []

    def run_out(*args, **how):
        runs.append(args)
        if not held.ended:
            raise failing()
        return run_eager(*args, **how)

    monkeypatch.setattr(one.yardstick, "run_eager", run_out)
    one.contestant.device, end = GPU, one.contestant.host.close
    one.contestant.host.close = lambda: (held.end(), end())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    with pytest.raises(errors.Error) as raised:
        one.run()
    assert raised.value.code == "memory-held" and len(runs) == 2


def test_out_of_memory_says_what_was_its_share():
    resident = Resident.__new__(Resident)
    resident.path, resident.share = "candidate.py", 20 * GIB
    told = resident._explained(
        failing("CUDA out of memory. Tried to allocate 64.00 GiB."), {"doing": "running forward", "code": "x"}
    )
    assert told.code == "out-of-memory"
    assert "Tried to allocate 64.00 GiB" in told.message and "20.0 GiB of this GPU's memory" in told.message
