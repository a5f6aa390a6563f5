"""What a candidate's process answers is nothing that the judge must believe: forged, nonsense, or an error of its own."""

import pytest
from candidate_process import returning, starter
from verification_problems import ELEMENTWISE

from kernelwright import errors, protocol

resident = starter()

FORGED = """
class ModelNew(nn.Module):
    def forward(self, x):
        for number in range(3, 20):
            try:
                os.write(number, struct.pack("<I", len(REPLY)) + REPLY)
            except OSError:
                pass
        os._exit(0)
"""


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"ok": {}},
        {
            "ok": {
                "leaves": [
                    {
                        "dtype": "float32",
                        "shape": [1 << 40],
                        "stride": [1],
                        "offset": 0,
                        "at": 0,
                        "bytes": 4,
                        "device": "cpu",
                        "range": [0, 4],
                    }
                ],
                "exported": True,
            }
        },
        {
            "ok": {
                "leaves": [
                    {
                        "dtype": "float32",
                        "shape": [4],
                        "stride": [1],
                        "offset": 0,
                        "at": 1 << 40,
                        "bytes": 16,
                        "device": "cpu",
                        "range": [0, 4],
                    }
                ],
                "exported": True,
            }
        },
        {
            "ok": {
                "leaves": [
                    {
                        "dtype": "save",
                        "shape": [4],
                        "stride": [1],
                        "offset": 0,
                        "at": 0,
                        "bytes": 16,
                        "device": "cpu",
                        "range": [0, 4],
                    }
                ],
                "exported": True,
            }
        },
        {"ok": {"leaves": [], "exported": False, "total": 1 << 60}},
        {"ok": {"leaves": 7}},
    ],
)
def test_forged_answers_are_nothing_but_a_fault(resident, reply):
    text = protocol.encode(reply)[4:]
    remote, inputs = resident(f"import os, struct\nREPLY = {text!r}\n" + FORGED)
    with pytest.raises(errors.Error) as caught:
        remote.run(inputs, 5, "running forward")
    assert caught.value.kind == "candidate" and caught.value.code in ("broken-protocol", "exited"), caught.value


NONSENSE = (
    {},
    {"forms": 7},
    {"ms": "nan"},
    {"ms": -1},
    {"ms": []},
    {"parts": [1], "share": None},
    {"ready": 1},
    {"exported": True, "names": 3},
)


@pytest.mark.parametrize("reply", NONSENSE, ids=str)
@pytest.mark.parametrize("asked", ["state", "outputs", "sample", "wall", "profile", "peak"])
def test_nonsense_in_any_answer_is_the_candidates_fault(resident, monkeypatch, asked, reply):
    remote, inputs = resident(
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(40, 3)\n    def forward(self, x):\n        return self.fc(x)\n",
        ELEMENTWISE.replace(
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(40, 3)\n    def forward",
        ).replace("torch.tanh(x) * 2", "self.fc(x)"),
    )
    first = remote.run(inputs, 5, "running forward")
    remote.timer(inputs)
    real = remote.host.ask
    monkeypatch.setattr(
        remote.host, "ask", lambda message, *rest: reply if message["op"] == asked else real(message, *rest)
    )
    calls = {
        "state": lambda: remote.run(inputs, 5, "running forward"),
        "outputs": lambda: remote.altered(first),
        "sample": lambda: remote.sample(inputs),
        "wall": lambda: remote.wall(inputs, 1),
        "profile": lambda: remote.profile(inputs, []),
        "peak": lambda: remote.peak_memory(inputs),
    }
    with pytest.raises(errors.Error) as caught:
        calls[asked]()
    assert caught.value.kind == "candidate" and caught.value.code in ("broken-protocol", "state-dict")


def test_an_answer_nested_without_end_is_no_answer(resident):
    text = b"[" * 100_000
    remote, inputs = resident(f"import os, struct\nREPLY = b'[' * {len(text)}\n" + FORGED)
    with pytest.raises(errors.Error) as caught:
        remote.run(inputs, 5, "running forward")
    assert caught.value.code in ("broken-protocol", "exited")


def test_errors_of_ours_that_it_raises_are_still_its_own(resident):
    code = """
    import sys

    class ModelNew(nn.Module):
        def forward(self, x):
            ours = [module for name, module in sys.modules.items() if name == "_resident.errors"]
            error = ours[0].Error
            raise error("user", "no-model", "The problem has no Model.")
    """
    remote, inputs = resident(code)
    with pytest.raises(errors.Error) as caught:
        remote.run(inputs, 5, "running forward")
    assert caught.value.kind == "candidate" and caught.value.message == "The problem has no Model."


def test_an_exception_without_words_and_an_interrupt_are_the_candidates(resident):
    unspeakable = "class Unspeakable(Exception):\n    def __str__(self):\n        raise ValueError\n\n"
    for code in (
        unspeakable + returning("(_ for _ in ()).throw(Unspeakable())"),
        returning("(_ for _ in ()).throw(KeyboardInterrupt())"),
    ):
        remote, inputs = resident(code)
        with pytest.raises(errors.Error) as caught:
            remote.run(inputs, 5, "running forward")
        assert (caught.value.kind, caught.value.code) == ("candidate", "forward-raised")
