"""A candidate's share of a GPU's memory, on a GPU that is told of and not there."""

import types

import pytest
import torch
from verification_problems import ELEMENTWISE

from kernelwright import errors
from kernelwright.host.resident import Resident
from kernelwright.judge import hoarding, measurement, remote, verification
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


# Memory that is given back


@pytest.fixture
def verified(tmp_path):
    (tmp_path / "problem.py").write_text(ELEMENTWISE)
    (tmp_path / "candidate.py").write_text(ELEMENTWISE.replace("Model(", "ModelNew("))
    given = {"problem": str(tmp_path / "problem.py"), "candidate": str(tmp_path / "candidate.py"), "seed": 1}
    one = verification.Verification(given, lambda stage, fraction: None)
    one.inputs.fill("generator", 3, False)
    yield one
    one.contestant.close()


def test_what_is_forgotten_goes_when_it_is_to_rest(verified, monkeypatch):
    contestant, inputs = verified.contestant, verified.inputs
    first, second = (contestant.run(inputs, 5, "running forward") for _ in range(2))
    number = contestant._numbers[id(first)]
    assert contestant.altered(first) == []
    contestant.release(first)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(remote, "is_scarce", lambda device: False)
        elsewhere.setattr(contestant, "device", GPU)
        contestant.rest()
    assert contestant._dropped == [] and contestant.altered(second) == []
    with pytest.raises(errors.Error, match="KeyError"):
        contestant._ask({"op": "outputs", "number": number, "outputs": "repeated"}, "giving what it has forgotten")


class Contestant:
    def __init__(self):
        self.rests, self.reserve = 0, None

    def rest(self):
        self.rests += 1

    def timer(self, inputs, reserve=None):
        self.reserve = reserve

    def sample(self, inputs, seed=0):
        return 1.0


@pytest.mark.parametrize("peak, turns", [(25, False), (40, True)])
def test_contestants_take_turns_where_there_is_no_room_for_all(card, peak, turns):
    card(others=10)
    timed = measurement.Measurement.__new__(measurement.Measurement)
    timed.device, timed.inputs, timed.timed, timed.takes_turns = GPU, None, None, False
    timed.contestants = {"ours": Contestant(), "eager": Contestant()}
    timed.samples, timed._renew = {"ours": [], "eager": []}, lambda name, new_weights: None
    timed._make_timers({"ours": peak * GIB, "eager": peak * GIB})
    assert [one.reserve for one in timed.contestants.values()] == [peak * GIB if turns else None] * 2
    timed._round(0, ["ours", "eager"], each_round=False)
    assert [one.rests for one in timed.contestants.values()] == [1 + turns] * 2  # once before, and after each sample
    assert timed.samples == {"ours": [1.0], "eager": [1.0]}


@pytest.mark.parametrize("scarce", [False, True])
def test_what_timed_calls_need_is_kept_until_it_is_to_rest(monkeypatch, scarce):
    resident, emptied = Resident.__new__(Resident), []
    resident.device, resident.kept, resident.result, resident.keeps_memory = GPU, {1: [], 2: []}, object(), False
    resident.answers = {"timer": resident.make_timer, "adopt": lambda message: {}, "rest": resident.rest}
    asked = iter([{"op": "adopt"}, {"op": "timer", "reserve": None}, {"op": "adopt"}, {"op": "rest", "drop": [1]}])
    resident.channel = types.SimpleNamespace(
        receive=lambda: next(asked, None), send=lambda reply: emptied.append(len(calls))
    )
    calls = []
    monkeypatch.setattr("kernelwright.host.resident.is_scarce", lambda device: scarce)
    monkeypatch.setattr("kernelwright.host.resident.Timer", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    resident.serve()
    # Before each answer: not for a timer, nor for what stands between timed calls.
    assert emptied == ([1, 1, 1, 2] if scarce else [0, 0, 0, 0])
    assert resident.kept == {2: []} and resident.result is None
