"""Every way in which a candidate may be wrong: a verdict with the reason, exit code 1, and the candidate's file kept."""

from pathlib import Path

import pytest
from command_line import GOOD

SAME = """\
import torch, os, sys, time
import problem as p

class ModelNew(p.Model):
    def forward(self, x):
        return super().forward(x)
"""

# name, candidate, code of the verdict, what the reason says
BAD = [
    ("no_model_new", "x = 1\n", "no-model-new", "no class ModelNew"),
    ("syntax", "class ModelNew(:\n", "syntax-error", ""),
    ("import_raises", "raise RuntimeError('at import')\n" + SAME, "import-raised", "at import"),
    (
        "constructor",
        SAME.replace("    def forward", "    def __init__(self): pass\n\n    def forward"),
        "constructor-raised",
        "",
    ),
    (
        "raises",
        SAME.replace("return super", "raise ValueError('mine')\n        return super"),
        "forward-raised",
        "mine",
    ),
    ("exits", SAME.replace("return super", "sys.exit(0)\n        return super"), "exits", "exit the process"),
    ("wrong", SAME.replace("return super().forward(x)", "return super().forward(x) * 1.001"), "inaccurate", ""),
    ("shape", SAME.replace("return super().forward(x)", "return super().forward(x)[:8]"), "shape", ""),
    ("dtype", SAME.replace("return super().forward(x)", "return super().forward(x).double()"), "dtype", ""),
    ("nan", SAME.replace("return super().forward(x)", "return super().forward(x) * float('nan')"), "", ""),
    (
        "changes_input",
        SAME.replace("return super().forward(x)", "y = super().forward(x); x.zero_(); return y"),
        "inputs-unchanged",
        "",
    ),
    ("returns_input", SAME.replace("return super().forward(x)", "y = super().forward(x); return x.copy_(y)"), "", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, text, code, says", BAD, ids=[row[0] for row in BAD])
def test_verdict_says_why(kw, name, text, code, says):
    problem, candidate = kw.file("problem.py", GOOD), kw.file(f"{name}.py", text)
    result = kw("verify", problem, candidate, "--draws", 2, "--json", "-")
    assert result.code == 1, result.text
    report = result.json()
    assert report["verdict"] == "fail"
    if code:
        assert report["code"] == code, report
    assert says in report["reason"] + report.get("detail", ""), report
    assert report["reason"] in result.err
    assert Path(candidate).read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, says",
    [
        ("os.abort()", "crashed with signal 6"),
        ("os._exit(0)", "ended the process with exit code 0"),
        ("import ctypes; ctypes.string_at(0)", "crashed with signal 11"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
def test_candidate_that_ends_the_process(kw, what, says):
    problem, candidate = (
        kw.file("problem.py", GOOD),
        kw.file("ends.py", SAME.replace("return super", f"{what}\n        return super")),
    )
    result = kw("verify", problem, candidate, "--draws", 1)
    assert result.code == 1, result.text
    assert says in result.out


@pytest.mark.slow
def test_candidate_that_hangs(kw):
    problem, candidate = (
        kw.file("problem.py", GOOD),
        kw.file("hangs.py", SAME.replace("return super", "time.sleep(1000)\n        return super")),
    )
    result = kw("verify", problem, candidate, "--draws", 1, "--timeout", 15)
    assert result.code == 1, result.text
    assert "no answer within 15 s" in result.out


@pytest.mark.slow
def test_candidate_that_prints_and_reads_is_not_disturbed(kw):
    noisy = SAME.replace(
        "return super", "print('chatter' * 10000); os.write(1, b'chatter'); sys.stdin.read()\n        return super"
    )
    result = kw("verify", kw.file("problem.py", GOOD), kw.file("noisy.py", noisy), "--draws", 1)
    assert result.code == 0, result.text
    assert "chatter" not in result.text


def test_missing_candidate(kw):
    result = kw("verify", kw.file("problem.py", GOOD), "nowhere.py")
    assert result.code == 2
    assert "nowhere.py" in result.err


@pytest.mark.slow
def test_compilers_message_is_shown_and_the_source_kept(kw):
    problem = kw.file("problem.py", GOOD)
    assert kw("optimize", problem, "--target", "cpu", "--emit-only", "-o", "broken.py").code == 0
    path = kw.folder / "broken.py"
    text = path.read_text()
    assert 'extern "C"' in text
    path.write_text(text.replace('extern "C"', 'this_is_no_type x; extern "C"', 1))
    result = kw("verify", problem, path)
    assert result.code == 1
    assert "this_is_no_type" in result.out
    assert "this_is_no_type" in path.read_text()
