"""The product's one job, through the program, on the CPU."""

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import GOOD, CommandLine

FIELDS = {
    "version", "command", "problem", "target", "verdict", "reason", "errors", "time_ms", "speedup", "roofline", "share_in_our_kernels",
    "kernels", "candidate", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def done(kw_binary, tmp_path_factory):
    """One whole run; the tests that follow look at what it left."""
    kw = CommandLine(kw_binary, tmp_path_factory.mktemp("optimize"))
    problem = kw.file("good.py", GOOD)
    return (
        kw,
        problem,
        kw("optimize", problem, "--budget", 0.5, "--baseline", "eager", "--min-speedup", 0, "--json", "report.json"),
    )


def test_verified_kernel_with_a_report(done):
    kw, problem, result = done
    assert result.code == 0, result.text
    assert "verified" in result.out and "eager" in result.out and "roofline" in result.out
    report = json.loads((kw.folder / "report.json").read_text())
    assert FIELDS <= report.keys()
    assert report["verdict"] == "pass"
    assert report["problem"] == problem
    assert Path(report["candidate"]) == kw.folder / "good_kw.py"
    assert len(report["kernels"]) >= 1 and report["library_calls"] == 0
    assert {row["draw"] for row in report["errors"]} >= {"generator", "signed", "wide"}
    for row in report["errors"]:
        assert row["ok"] and row["ours"]["norm"] <= row["bound"]["norm"]
    speedup = report["speedup"]["eager"]
    assert speedup["low"] <= speedup["value"] <= speedup["high"]
    assert report["time_ms"]["ours"] > 0 and report["time_ms"]["compile"] is None
    assert 0 < report["roofline"]["fraction"]
    assert report["seconds"]["total"] > 0


def test_progress_is_plain_lines_in_a_pipe(done):
    _, _, result = done
    assert "\r" not in result.text and "\033" not in result.text
    assert "capture" in result.err and "verify" in result.err
    assert "capture" not in result.out


def test_candidate_runs_alone(done):
    kw, _, _ = done
    alone = kw.folder / "alone"
    alone.mkdir(exist_ok=True)
    (alone / "made.py").write_text((kw.folder / "good_kw.py").read_text())
    script = "import torch, made\nm = made.ModelNew(*made.get_init_inputs())\nx, = made.get_inputs()\nwith torch.no_grad(): y = m(x)\nassert y.shape == x.shape"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KW_") and key != "PYTHONPATH"}
    finished = subprocess.run(
        [os.environ["KW_PYTHON"], "-c", script], cwd=alone, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "import kernelwright" not in (alone / "made.py").read_text()


def test_second_time_is_answered_from_the_archive(done):
    kw, problem, _ = done
    (kw.folder / "good_kw.py").unlink()
    began = time.monotonic()
    result = kw("optimize", problem, "--budget", 0.5, "--baseline", "eager", "--min-speedup", 0, "--json", "-")
    assert time.monotonic() - began < 5  # a second on a quiet machine
    assert result.code == 0
    assert result.json()["from_archive"] is True
    assert "archive's answer" in result.err and "--fresh" in result.err
    assert (kw.folder / "good_kw.py").exists()


@pytest.mark.time_limit(400)
@pytest.mark.parametrize("again", [(), ("--fresh",)], ids=["stored", "fresh"])
def test_what_is_not_fast_enough_is_not_written(done, again):
    kw, problem, _ = done
    output = kw.folder / "fast_kw.py"
    kw.file("fast_kw.py", "# what was there before")
    command = ("optimize", problem, "-o", output, "--force", "--budget", 0.5, "--baseline", "eager")
    result = kw(*command, "--min-speedup", 1000, "--json", "slow.json", *again)
    assert result.code == 1
    first, *rest = result.out.splitlines()
    assert first.endswith("verified, but not written") and any("--min-speedup 0" in line for line in rest[:2]), (
        result.out
    )
    report = json.loads((kw.folder / "slow.json").read_text())
    assert (
        report["verdict"] == "pass"
        and report["written"] is False
        and report["candidate"] is None
        and report["min_speedup"] == 1000
    )
    assert ("rescue" in report) == bool(again)
    assert output.read_text() == "# what was there before"
    # It is in the archive, and what the advice says writes it.
    advice = shlex.split(report["advice"][-1]["command"])
    assert advice[0] == "kw"
    written = kw(*advice[1:], "--json", "-")
    assert written.code == 0 and written.json()["from_archive"] and written.json()["written"]
    assert "class ModelNew(Model)" in output.read_text()


@pytest.mark.alone
def test_measure_says_first_that_a_candidate_is_slower(done):
    kw, problem, _ = done
    slow = kw.file(
        "slow.py",
        GOOD
        + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return [super(ModelNew, self).forward(x) for _ in range(100)][-1]\n",
    )
    result = kw("measure", problem, slow, "--baseline", "eager", "--budget", 0.5, "--json", "slow.json")
    assert result.out.startswith("slower ")
    assert json.loads((kw.folder / "slow.json").read_text())["slower_than_eager"] is True


def test_what_was_not_timed_is_said_to_be_untimed(done):
    kw, problem, _ = done
    result = kw("optimize", problem, "--policy", "relaxed", "--budget", 0, "--draws", 1, "--json", "untimed.json")
    assert result.code == 0 and "not timed beside eager" in result.out
    report = json.loads((kw.folder / "untimed.json").read_text())
    assert report["slower_than_eager"] is None and report["written"] is True
    assert "neither verified nor timed" in kw("optimize", problem, "--target", "cpu", "--emit-only").out


def test_a_policy_that_the_environment_keeps_a_gpu_from_is_refused_without_one(done):
    kw, problem, _ = done
    relaxed = ("optimize", problem, "--policy", "relaxed", "--emit-only", "--output", "relaxed_kw.py", "--target")
    refused = kw(*relaxed, "triton", env={"NVIDIA_TF32_OVERRIDE": "0"})
    assert refused.code == 2 and "NVIDIA_TF32_OVERRIDE=0 keeps NVIDIA's libraries from it" in refused.err
    assert kw(*relaxed, "triton", env={"NVIDIA_TF32_OVERRIDE": "1"}).code == 0
    assert kw(*relaxed, "cpu", env={"NVIDIA_TF32_OVERRIDE": "0"}).code == 0


def test_another_policy_is_another_question(done):
    kw, problem, _ = done
    result = kw("optimize", problem, "--policy", "ieee", "--budget", 0, "--draws", 1, "--json", "-")
    assert result.json()["from_archive"] is False
    assert result.json()["policy"] == "ieee"


def test_archive_lists_shows_and_exports_it(done):
    kw, _, _ = done
    rows = kw("archive", "list", "--json", "-").json()["results"]
    assert [row["problem"] for row in rows][-1] == "good"
    shown = kw("archive", "show", rows[-1]["id"], "--json", "-").json()
    assert shown["measurement"]["samples_ms"]["ours"]
    assert shown["verdict"]["draws"]
    assert shown["environment"]["torch"]
    assert kw("archive", "show", rows[-1]["id"], "--source").out.strip() == shown["candidate"]["source"].strip()
    assert kw("archive", "show", "nothing").code == 2
    exported = [json.loads(line) for line in kw("archive", "export").out.splitlines()]
    assert len(exported) == len(rows)


def test_no_bytecode_in_the_users_folder(done):
    kw, _, _ = done
    assert not list(kw.folder.glob("__pycache__"))


def test_no_scratch_is_left(done):
    kw, _, _ = done
    assert not list((kw.folder / "tmp").glob("kernelwright-*"))


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_emit_only_needs_no_device(emitter, target):
    answer = emitter(emitter.kw.file("good.py", GOOD), target)
    assert answer["verdict"] == "emitted"
    source = Path(answer["candidate"]).read_text()
    assert "class ModelNew(Model)" in source
    if target == "triton":
        assert "@triton.jit" in source
        assert answer["compiled"]["ok"] == answer["compiled"]["kernels"] == len(answer["kernels"])


@pytest.mark.parametrize(
    "stage, says",
    [
        ("graph", "aten.softmax"),
        ("passes", "fusion"),
        ("schedule", "normalisation"),
        ("kernels", 'schedule {"row"'),
        ("tiles", "fold max"),
        ("source", "class ModelNew"),
    ],
)
@pytest.mark.slow
def test_inspect_shows_every_stage(kw, stage, says):
    result = kw("inspect", kw.file("good.py", GOOD), "--stage", stage, "--target", "triton", "--json", "inspect.json")
    assert result.code == 0, result.text
    assert says in result.out
    assert json.loads((kw.folder / "inspect.json").read_text())["text"] == result.out


@pytest.mark.slow
def test_inspect_shows_tile_programs_after_a_step(kw):
    problem = kw.file("good.py", GOOD)
    first = kw("inspect", problem, "--stage", "tiles", "--target", "triton", "--after", "arrange", "--json", "-")
    whole = kw("inspect", problem, "--stage", "tiles", "--target", "triton", "--json", "-")
    assert first.code == 0 and whole.code == 0, first.text + whole.text
    steps = [[step["name"] for step in one["steps"]] for one in json.loads(whole.out)["tiles"]]
    assert any("cache-hints" in names for names in steps)
    assert all(
        [step["name"] for step in one["steps"]] == ["arrange"] and one["steps"][0]["instructions"] > 0
        for one in json.loads(first.out)["tiles"]
    )
    wrong = kw("inspect", problem, "--stage", "tiles", "--after", "arange")
    assert wrong.code == 2 and "arrange" in wrong.text and "steps-inside" in wrong.text


@pytest.mark.slow
def test_the_schedule_of_one_kernel_can_be_changed(kw):
    problem = kw.file("good.py", GOOD)
    assert kw("inspect", problem, "--stage", "schedule", "--target", "triton", "--json", "shown.json").code == 0
    schedule = json.loads((kw.folder / "shown.json").read_text())["schedule"]
    ((name, kernel),) = schedule["groups"][0]["kernels"].items()

    def inspected(changed: dict, *arguments):
        schedule["groups"][0]["kernels"] = {name: changed}
        given = kw.file("changed.json", json.dumps(schedule))
        return kw("inspect", problem, "--target", "triton", "--schedule", given, *arguments)

    warps = 2 if kernel.get("warps", 4) != 2 else 1
    shown = inspected({**kernel, "warps": warps}, "--stage", "kernels")
    assert shown.code == 0 and f'"warps":{warps}' in shown.out, shown.text
    assert f"num_warps={warps}" in inspected({**kernel, "warps": warps}).out
    misspelt = inspected({**kernel, "wraps": 2})
    assert misspelt.code == 2 and "group 0" in misspelt.text and name in misspelt.text and "'wraps'" in misspelt.text
    wrong = inspected({**kernel, "warps": 5})
    assert wrong.code == 2 and "warps is 5, but must be a power of two" in wrong.text
    broken = kw(
        "inspect", problem, "--target", "triton", "--schedule", kw.file("broken.json", '{"target": "triton",\n}')
    )
    assert broken.code == 2 and "broken.json" in broken.text and "line 2" in broken.text


def test_a_report_holds_the_schedule_of_each_kernel_and_gives_it_again(done):
    kw, problem, _ = done
    report = json.loads((kw.folder / "report.json").read_text())
    (group,) = report["schedule"]["groups"]
    assert set(group["kernels"]) == set(report["kernels"])
    again = kw(
        "optimize", problem, "--budget", 0, "--schedule", "report.json", "-o", "again.py", "--json", "again.json"
    )
    assert again.code == 0, again.text
    assert json.loads((kw.folder / "again.json").read_text())["schedule"] == report["schedule"]
    # Only what comments say of the device has been measured meanwhile.
    first, second = ((kw.folder / name).read_text().splitlines() for name in ("good_kw.py", "again.py"))
    assert [line for line in first if line[:1] != "#"] == [line for line in second if line[:1] != "#"]


@pytest.mark.slow
def test_inspect_shows_each_rewrite(kw):
    problem = kw.file("sums.py", GOOD.replace("torch.softmax(", "torch.relu(").replace(", dim=-1)", ").relu()"))
    plain = kw("inspect", problem, "--stage", "passes", "--target", "cpu")
    shown = kw("inspect", problem, "--stage", "passes", "--target", "cpu", "--rewrites", "--json", "inspect.json")
    assert plain.code == 0 and shown.code == 0, plain.text + shown.text
    assert "saves" not in plain.out
    report = json.loads((kw.folder / "inspect.json").read_text())
    (relu,) = [one for one in report["rewrites"] if one["pass"] == "identities"]
    assert relu["tag"] == "exact" and relu["nodes"] == ["relu_1"] and len(relu["before"]) == 1
    assert relu["before"][0].startswith("%relu_1 = aten.relu.default(self=%relu)")
    assert relu["after"] == ["%relu_1 is %relu"]
    assert relu["saves"]["flops"] == 16 * 64 and relu["saves"]["bytes"] == 2 * 4 * 16 * 64
    assert relu["saves"]["seconds"] > 0
    lines = shown.out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("identities %relu_1 (exact), saves "))
    assert lines[at + 1 : at + 3] == ["  - " + relu["before"][0], "  + " + relu["after"][0]]


@pytest.mark.slow
def test_measure_without_a_candidate(kw):
    result = kw("measure", kw.file("good.py", GOOD), "--baseline", "eager", "--budget", 0.5, "--json", "-")
    assert result.code == 0, result.text
    report = result.json()
    assert report["time_ms"]["eager"] > 0 and report["time_ms"]["ours"] is None and report["candidate"] is None


@pytest.mark.slow
def test_device_is_measured_once(kw):
    first = kw("device", "--target", "cpu", "--json", "-").json()
    assert first["copy_bytes_per_second"] > 1e8 and first["from_archive"] is False
    second = kw("device", "--target", "cpu", "--json", "-").json()
    assert second["from_archive"] is True and second["flops"] == first["flops"]


def wait_for(process: subprocess.Popen, word: str) -> str:
    seen = ""
    while word not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    return seen


def group_members(pid: int) -> list[int]:
    """Processes started by `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(status[1]) == pid and status[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "capture"])
def test_ctrl_c_ends_it_with_one_line(kw, moment):
    process = kw.start("optimize", kw.file("good.py", GOOD), "--budget", 0)
    if moment == "start":
        time.sleep(1.0)
    else:
        wait_for(process, "capture")
    children = group_members(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err and "KeyboardInterrupt" not in err
    assert [line for line in err.splitlines() if " s" not in line] == ["interrupted"]
    time.sleep(0.5)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert kw("archive", "list").code == 0


@pytest.mark.slow
def test_kill_9_takes_the_worker_along_and_leaves_a_sound_archive(kw):
    process = kw.start("optimize", kw.file("good.py", GOOD), "--budget", 0)
    wait_for(process, "capture")
    children = group_members(process.pid)
    assert children
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert kw("archive", "list").code == 0


@pytest.mark.slow
def test_two_at_once_lose_nothing(kw):
    problems = [kw.file(f"p{i}.py", GOOD.replace("64", str(64 + i))) for i in range(2)]
    running = [
        kw.start("optimize", problem, "--budget", 0, "--draws", 1, stderr=subprocess.DEVNULL) for problem in problems
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    for process in running:
        process.stdout.close()
    for problem in problems:
        assert kw("optimize", problem, "--budget", 0, "--json", "-").json()["verdict"] == "pass"


@pytest.mark.parametrize("graphs, made", [("on", True), ("off", False)])
def test_graphs_are_made_where_they_are_asked_for(done, graphs, made):
    kw, problem, _ = done
    pytest.importorskip("triton")
    result = kw(
        "optimize",
        problem,
        "--target",
        "triton",
        "--emit-only",
        "--graphs",
        graphs,
        "-o",
        "graphs_kw.py",
        "--json",
        "graphs.json",
    )
    report = json.loads((kw.folder / "graphs.json").read_text())
    assert (report["graphs"], report["cuda_graph"]) == (graphs, made)
    assert ("run as a CUDA graph" in result.out) == made
    source = Path(report["candidate"]).read_text()
    assert ("class ForwardGraphs" in source) == made
