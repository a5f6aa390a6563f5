"""`kw bench`: one line a problem whatever the problem does, resumable, with a summary."""

import json
import signal

import pytest
from command_line import GOOD


def lines_of(kw, out="out"):
    return [json.loads(line) for line in (kw.folder / out / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def suite(kw):
    kw.file("suite/first/2_softmax.py", GOOD)
    kw.file("suite/first/10_narrow.py", GOOD.replace("64", "48"))
    kw.file("suite/second/broken.py", GOOD.replace("return torch.softmax", "1 / 0\n        return torch.softmax"))
    kw.file("suite/second/helper.py", "def not_a_problem(): pass\n")
    return kw


@pytest.mark.slow
def test_every_problem_has_a_line_and_a_second_run_skips_them(suite):
    result = suite(
        "bench", "suite", "--emit-only", "--target", "triton", "--out", "out", "--jobs", 1, "--json", "summary.json"
    )
    assert result.code == 1  # one problem has no module
    lines = lines_of(suite)
    assert [line["name"] for line in lines] == ["2_softmax", "10_narrow", "broken"]
    assert [line["verdict"] for line in lines] == ["emitted", "emitted", "error"]
    assert lines[2]["error"]["where"] == "broken.py:11"
    assert "broken.py" in result.out and "division by zero" in result.out
    summary = json.loads((suite.folder / "summary.json").read_text())
    assert summary["all"]["problems"] == 3 and summary["categories"]["first"]["emitted"] == 2
    assert summary["all"]["kernels_compiled"]["ok"] == summary["all"]["kernels_compiled"]["of"] > 0
    assert (suite.folder / "out/candidates/first/2_softmax_kw.py").exists()

    again = suite("bench", "suite", "--emit-only", "--target", "triton", "--out", "out")
    assert "3 of 3 were there already" in again.out
    assert lines_of(suite) == lines

    suite.file("suite/first/10_narrow.py", GOOD.replace("64", "49"))
    with open(suite.folder / "out/results.jsonl", "a") as file:
        file.write('{"half a li')  # what a kill in the middle of a write leaves
    changed = suite("bench", "suite", "--emit-only", "--target", "triton", "--out", "out")
    assert "2 of 3 were there already" in changed.out


@pytest.mark.slow
def test_crash_and_hang_of_one_problem_do_not_stop_the_run(kw):
    kw.file(
        "suite/a_crash.py", GOOD.replace("return torch.softmax", "import os; os.abort()\n        return torch.softmax")
    )
    kw.file("suite/b_hang.py", GOOD.replace("return torch.softmax", "while True: pass\n        return torch.softmax"))
    kw.file("suite/c_good.py", GOOD)
    result = kw("bench", "suite", "--target", "cpu", "--out", "out", "--budget", 0, "--draws", 1, "--timeout", 20)
    assert result.code == 1
    lines = lines_of(kw)
    assert [line["verdict"] for line in lines] == ["error", "timeout", "pass"]
    assert "signal 6" in lines[0]["reason"]
    assert "b_hang.py" in result.out and "20 s" in result.out


LACKS_MEMORY_ONCE = GOOD.replace(
    "return torch.softmax",
    """import os
        if not os.path.exists(MARK):
            open(MARK, "w").close()
            raise MemoryError("no room beside the others")
        return torch.softmax""",
)


@pytest.mark.slow
@pytest.mark.parametrize("jobs, verdict", [(2, "emitted"), (1, "error")])
def test_what_lacks_memory_beside_others_runs_again_alone(kw, jobs, verdict):
    mark = kw.folder / "it_ran"
    kw.file("suite/a_large.py", f"MARK = {str(mark)!r}\n" + LACKS_MEMORY_ONCE)
    kw.file("suite/b_good.py", GOOD)
    kw("bench", "suite", "--emit-only", "--target", "cpu", "--out", "out", "--jobs", jobs)
    lines = {line["name"]: line for line in lines_of(kw)}
    assert {name: line["verdict"] for name, line in lines.items()} == {"a_large": verdict, "b_good": "emitted"}
    if verdict == "error":
        assert lines["a_large"]["error"]["code"] == "out-of-memory"


@pytest.mark.slow
def test_ctrl_c_leaves_a_state_to_go_on_from(suite):
    process = suite.start("bench", "suite", "--emit-only", "--target", "triton", "--out", "out", "--jobs", 1)
    while "2_softmax" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "goes on from here" in err and "problems" in out
    done = len(lines_of(suite))
    assert 1 <= done < 3
    rest = suite("bench", "suite", "--emit-only", "--target", "triton", "--out", "out", "--jobs", 1)
    assert f"{done} of 3 were there already" in rest.out
    assert len(lines_of(suite)) == 3


def test_folder_without_problems(kw):
    kw.file("nothing/readme.txt", "no")
    result = kw("bench", "nothing")
    assert result.code == 2 and "holds no problem" in result.err
    assert kw("bench", "nowhere").code == 2


@pytest.mark.slow
def test_what_killed_processes_left_is_gone_at_the_end(kw):
    """The folder comes while the bench's child is there already, as that of a process which is killed meanwhile."""
    left = kw.folder / "tmp" / "kernelwright-run-killed"
    kw.file("suite/good.py", f"import os\nos.makedirs({str(left)!r}, exist_ok=True)\n{GOOD}")
    result = kw("bench", "suite", "--target", "cpu", "--emit-only", "--out", "out")
    assert [line["verdict"] for line in lines_of(kw)] == ["emitted"], result.text
    assert not left.exists()
