"""No option overwrites what a command reads, what somebody edited, or another output; and that is told before the work."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
from command_line import GOOD

HELPED = GOOD.replace("import torch\n", "import torch\nfrom helper import scale\n", 1).replace(
    "torch.tanh(x)", "torch.tanh(x) * scale"
)


@pytest.fixture
def model(kw):
    kw.file("model.py", GOOD)
    kw.file("candidate.py", GOOD.replace("class Model", "class ModelNew"))
    kw.file("helper.py", "scale = 2.0\n")
    kw.file("helped.py", HELPED)
    os.symlink("model.py", kw.folder / "link.py")
    os.link(kw.folder / "model.py", kw.folder / "hard.py")
    return kw


@pytest.mark.parametrize(
    "arguments, kept",
    [
        (("optimize", "model.py", "--json", "model.py"), "model.py"),
        (("optimize", "model.py", "--json", "./nowhere/../model.py"), "model.py"),
        (("optimize", "model.py", "--json", "link.py"), "model.py"),
        (("optimize", "model.py", "--json", "hard.py"), "model.py"),
        (("optimize", "link.py", "--json", "model.py"), "model.py"),
        (("optimize", "model.py", "-o", "model.py", "--force"), "model.py"),
        (("optimize", "model.py", "-o", "link.py", "--force"), "model.py"),
        (("optimize", "model.py", "-o", "hard.py", "--force"), "model.py"),
        (("optimize", "helped.py", "-o", "helper.py", "--force"), "helper.py"),
        (("optimize", "helped.py", "--json", "helper.py"), "helper.py"),
        (("generate", "model.py", "--model", "smollm2", "--json", "model.py"), "model.py"),
        (("generate", "model.py", "--model", "smollm2", "-o", "model.py", "--force"), "model.py"),
        (("generate", "model.py", "--show-prompt", "--json", "model.py"), "model.py"),
        (("generate", "model.py", "--model", "smollm2", "--prompt", "helper.py", "--json", "helper.py"), "helper.py"),
        (("verify", "model.py", "candidate.py", "--json", "model.py"), "model.py"),
        (("verify", "model.py", "candidate.py", "--json", "candidate.py"), "candidate.py"),
        (("measure", "model.py", "candidate.py", "--json", "candidate.py"), "candidate.py"),
        (("inspect", "model.py", "--json", "model.py"), "model.py"),
        (("repl", "model.py", "--model", "smollm2", "--json", "model.py"), "model.py"),
        (("bench", "model.py", "--json", "model.py"), "model.py"),
        (("bench", "nowhere.py", "model.py", "--json", "model.py"), "model.py"),
        (("bench", ".", "--json", "model.py"), "model.py"),
        (("device", "--json", "archive.db"), "archive.db"),
        (("optimize", "model.py", "-o", "archive.db", "--force"), "archive.db"),
        (("archive", "export", "archive.db"), "archive.db"),
        (("archive", "export", "helper.py"), "helper.py"),
        (("archive", "list", "--json", "archive.db"), "archive.db"),
        (("archive", "list", "--json", "helper.py"), "helper.py"),
        (("doctor", "--json", "model.py"), "model.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_input_is_not_overwritten(model, arguments, kept):
    assert model("archive", "list").code == 0
    before = (model.folder / kept).read_bytes()
    result = model(*arguments)
    assert result.code == 2, result.text
    assert result.err.startswith("error: ") and kept.split(".")[0] in result.err, result.err
    assert (model.folder / kept).read_bytes() == before
    assert (model.folder / "link.py").is_symlink()


@pytest.mark.parametrize(
    "command", [("optimize", "model.py"), ("verify", "model.py", "candidate.py"), ("bench", "model.py")]
)
def test_archive_that_is_the_problem(model, command):
    result = model(*command, env={"KW_ARCHIVE": "model.py"})
    assert result.code == 2, result.text
    assert "KW_ARCHIVE" in result.err
    assert (model.folder / "model.py").read_text() == GOOD


def test_two_outputs_that_are_one_file(model):
    result = model("optimize", "model.py", "-o", "out.py", "--json", "./out.py")
    assert result.code == 2
    assert "the same file" in result.err
    assert not (model.folder / "out.py").exists()


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("optimize", "model.py", "--json", "nowhere/out.json"), "no folder nowhere"),
        (("optimize", "model.py", "--json", "."), "is a folder"),
        (("verify", "model.py", "candidate.py", "--json", "nowhere/out.json"), "no folder nowhere"),
        (("measure", "model.py", "--json", "nowhere/out.json"), "no folder nowhere"),
        (("bench", "model.py", "--out", "model.py"), "model.py"),
        (("archive", "export", "nowhere/all.jsonl"), "no folder nowhere"),
    ],
)
def test_output_is_tried_before_the_work(model, arguments, says):
    began = time.monotonic()
    result = model(*arguments)
    assert result.code == 2, result.text
    assert says in result.err
    assert "capture" not in result.err and time.monotonic() - began < 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_folder_without_permission(model):
    (model.folder / "closed").mkdir(mode=0o555)
    result = model("optimize", "model.py", "-o", "closed/out.py")
    assert result.code == 2 and "cannot be written" in result.err and "capture" not in result.err


def no_room(size):
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_full_disk_is_told_before_the_work(model):
    result = model("optimize", "model.py", "--emit-only", preexec_fn=no_room(8192))
    assert result.code == 3, result.text
    assert "no space for the output" in result.err and "capture" not in result.err
    assert sorted(path.name for path in model.folder.glob("model_kw*")) == []


def test_devices_and_pipes_are_written_and_stay(model):
    assert model("archive", "list", "--json", "/dev/null").code == 0
    assert not os.path.isfile("/dev/null")
    read, write = os.pipe()
    assert model("archive", "list", "--json", f"/dev/fd/{write}", pass_fds=(write,)).code == 0
    os.close(write)
    with os.fdopen(read) as pipe:
        assert json.load(pipe)["results"] == []


def test_file_on_a_disk_in_memory_is_replaced(model):
    path = f"/dev/shm/kw-test-{os.getpid()}.json"
    try:
        for _ in range(2):
            assert model("archive", "list", "--json", path).code == 0
            with open(path) as file:
                assert json.load(file)["results"] == []
    finally:
        os.path.exists(path) and os.remove(path)


def test_link_is_followed(model):
    os.symlink("behind.json", model.folder / "front.json")
    assert model("archive", "list", "--json", "front.json").code == 0
    assert (model.folder / "front.json").is_symlink() and json.loads((model.folder / "behind.json").read_text())[
        "results"
    ] == []


@pytest.mark.slow
def test_edited_output_is_kept_unless_forced(model):
    made = model.folder / "model_kw.py"
    emit = ("optimize", "model.py", "--target", "cpu", "--emit-only")
    assert model(*emit).code == 0
    first = made.read_text()
    assert model(*emit).code == 0  # what nobody edited is replaced
    made.write_text(first + "# mine\n")
    for arguments in (emit, (*emit, "-o", "model_kw.py")):
        result = model(*arguments)
        assert result.code == 2, result.text
        assert "edited" in result.err and "--force" in result.err
        assert made.read_text() == first + "# mine\n"
    assert model(*emit, "--force").code == 0
    assert made.read_text() == first


def test_file_of_somebody_elses_is_not_overwritten(model):
    for arguments in (("-o", "helper.py"), ()):
        shutil.copy(model.folder / "helper.py", model.folder / "model_kw.py")
        result = model("optimize", "model.py", *arguments)
        assert result.code == 2 and "did not write it" in result.err and "--force" in result.err
        assert (model.folder / "helper.py").read_text() == "scale = 2.0\n"


@pytest.mark.slow
def test_bench_keeps_an_edited_candidate(model):
    bench = ("bench", "model.py", "--target", "cpu", "--emit-only", "--fresh", "--out", "out")
    assert model(*bench).code == 0
    (made,) = (model.folder / "out/candidates").rglob("model_kw.py")
    made.write_text("mine")
    result = model(*bench)
    assert result.code == 2 and "--force" in result.err and made.read_text() == "mine"
    assert model(*bench, "--force").code == 0 and made.read_text() != "mine"


@pytest.mark.slow
def test_two_commands_on_one_archive_and_one_output(kw):
    problem = kw.file("good.py", GOOD)
    both = [
        kw.start("optimize", problem, "--target", "cpu", "--budget", "0", "--fresh", "--json", f"{name}.json")
        for name in "ab"
    ]
    for process in both:
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    reports = [json.loads((kw.folder / f"{name}.json").read_text()) for name in "ab"]
    assert [report["verdict"] for report in reports] == ["pass", "pass"]
    assert "class ModelNew" in (kw.folder / "good_kw.py").read_text()
    assert len(kw("archive", "list", "--json", "-").json()["results"]) == 2
    assert not [path for path in kw.folder.iterdir() if ".tmp" in path.name or "probe" in path.name]


@pytest.fixture
def small_disk(kw):
    disk = kw.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["output", "archive", "scratch"])
def test_disk_that_is_full(kw, small_disk, what):
    (small_disk / "filler").write_bytes(bytes(1000))
    with open(small_disk / "filler", "ab", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                filler.flush()
        except OSError:
            pass
    arguments = ["optimize", kw.file("good.py", GOOD), "--target", "cpu", "--budget", "0"]
    environment = {}
    if what == "output":
        arguments += ["-o", small_disk / "out.py"]
    elif what == "archive":
        environment["KW_ARCHIVE"] = str(small_disk / "archive.db")
    else:
        environment["TMPDIR"] = str(small_disk)
    result = kw(*arguments, env=environment)
    assert result.code == 3, result.text
    assert "space" in result.err or "full" in result.err, result.err
