"""What may be missing or broken on the machine: exit code 3, what to do, and nothing lost."""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from command_line import GOOD

has_gpu = Path("/proc/driver/nvidia/version").exists()


def test_python_that_does_not_exist(kw):
    result = kw("optimize", kw.file("good.py", GOOD), env={"KW_PYTHON": "/nowhere/python"})
    assert result.code == 3
    assert "/nowhere/python" in result.err and "KW_PYTHON" in result.err


def test_python_without_pytorch(kw):
    # An interpreter that sees nothing but its standard library.
    bare = kw.file("bare-python", f'#!/bin/sh\nunset PYTHONPATH\nexec "{os.environ["KW_PYTHON"]}" -S -E "$@"\n')
    os.chmod(bare, 0o755)
    result = kw("optimize", kw.file("good.py", GOOD), env={"KW_PYTHON": bare})
    assert result.code == 3
    assert "has no PyTorch" in result.err and "pip install torch" in result.err


def test_pytorch_too_old(kw):
    kw.file("old/torch/__init__.py", "")
    kw.file("old/torch/version.py", "__version__ = '2.5.1'\ncuda = None\n")
    result = kw("optimize", kw.file("good.py", GOOD), env={"PYTHONPATH": str(kw.folder / "old")})
    assert result.code == 3
    assert "2.5.1" in result.err and "2.8" in result.err


def test_python_part_is_missing(kw):
    shutil.copy(kw.binary, kw.folder / "kw")
    environment = {key: value for key, value in kw.environment.items() if key not in ("KW_PYTHONPATH", "PYTHONPATH")}
    done = subprocess.run(
        [kw.folder / "kw", "optimize", kw.file("good.py", GOOD)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=kw.folder,
        check=False,
    )
    assert done.returncode == 3
    assert "KW_PYTHONPATH" in done.stderr


@pytest.mark.skipif(has_gpu, reason="there is a GPU")
def test_no_gpu_for_triton(kw):
    result = kw("optimize", kw.file("good.py", GOOD), "--target", "triton")
    assert result.code == 3
    assert "needs an NVIDIA GPU" in result.err and "--target cpu" in result.err


@pytest.mark.slow
def test_no_compiler(kw):
    kw.folder.joinpath("bin").mkdir()
    for name in ("sh", "env"):
        kw.folder.joinpath("bin", name).symlink_to(shutil.which(name))
    environment = {"PATH": str(kw.folder / "bin"), "CXX": "", "CC": "", "XDG_CACHE_HOME": str(kw.folder / "cache")}
    result = kw("optimize", kw.file("good.py", GOOD), "--target", "cpu", env=environment)
    assert result.code == 3, result.text
    assert "compiler" in result.err and "g++" in result.err
    doctor = kw("doctor", env=environment)
    assert doctor.code == 3
    assert "MISSING  C++ compiler" in doctor.out


def test_corrupt_archive_is_named_and_can_be_moved_aside(kw):
    kw.file("archive.db", b"not a database " * 1000)
    problem = kw.file("good.py", GOOD)
    result = kw("optimize", problem)
    assert result.code == 3
    assert "archive.db is damaged" in result.err and "kw archive move-aside" in result.err
    assert kw("archive", "move-aside").code == 0
    kept = [path for path in kw.folder.iterdir() if ".aside-" in path.name]
    assert len(kept) == 1 and kept[0].read_bytes().startswith(b"not a database")
    assert kw("archive", "list").code == 0


def test_another_programs_database_is_left_alone(kw):
    with sqlite3.connect(kw.folder / "archive.db") as other:
        other.execute("CREATE TABLE theirs(x)")
    result = kw("archive", "list")
    assert result.code == 2
    assert "another program" in result.err
    with sqlite3.connect(kw.folder / "archive.db") as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_archive_where_no_folder_can_be_made(kw):
    result = kw("archive", "list", env={"KW_ARCHIVE": "/proc/nowhere/archive.db"})
    assert result.code == 3
    assert "KW_ARCHIVE" in result.err


def test_inspect_needs_no_archive(kw):
    asked = "inspect", kw.file("good.py", GOOD), "--target", "cpu", "--stage", "schedule"
    with_one, without = kw(*asked), kw(*asked, env={"KW_ARCHIVE": "/proc/nowhere/archive.db"})
    assert without.code == 0 and without.out == with_one.out != ""
    assert "what was measured of this device is left out: the archive's folder" in without.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_archive(kw):
    assert kw("archive", "list").code == 0
    os.chmod(kw.folder / "archive.db", 0o444)
    os.chmod(kw.folder, 0o555)
    try:
        result = kw("archive", "list")
    finally:
        os.chmod(kw.folder, 0o755)
    assert result.code == 3
    assert "cannot be" in result.err and "KW_ARCHIVE" in result.err


def test_archive_on_a_full_disk(kw):
    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    result = kw("archive", "list", preexec_fn=no_room)
    assert result.code == 3
    assert "archive.db" in result.err and "space" in result.err


def test_json_to_a_full_disk(kw):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [kw.binary, "archive", "list", "--json", "-"],
            env=kw.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "No space left" in done.stderr


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("optimise",), "did you mean optimize"),
        (("optimize", "x.py", "--emit-onyl"), "did you mean --emit-only"),
        (("optimize", "x.py", "--target", "tpu"), "tpu"),
        (("optimize", "x.py", "--budget", "-1"), "budget"),
        (("optimize", "x.py", "--baseline", "jax"), "jax"),
        (("optimize",), "PROBLEM"),
        (("verify", "x.py"), "CANDIDATE"),
        (("inspect", "x.py", "--stage", "graf"), "graf"),
        (("bench", "x.py", "--jobs", "0"), "jobs"),
        (("optimize", "x.py", "--budget", "nan"), '--budget: "nan" is not a number'),
        (("optimize", "x.py", "--budget", "1e300"), "a billion"),
        (("optimize", "x.py", "--timeout", "0"), "above 0"),
        (("optimize", "x.py", "--timeout", "3s"), '--timeout: "3s"'),
        (("optimize", "x.py", "--seed", "abc"), '--seed: "abc" is not a whole number'),
        (("optimize", "x.py", "--seed", "-1"), "whole number"),
        (("optimize", "x.py", "--seed", ""), "whole number"),
        (("optimize", "x.py", "--seed", "99999999999999999999"), "whole number"),
        (("optimize", "x.py", "--seed", "1.5"), "whole number"),
        (("optimize", "x.py", "--disable-pass", "fusoin"), "did you mean fusion?"),
        (("inspect", "x.py", "--print-after", "nothing"), "there is no pass"),
        (("optimize", "x.py", "-o", ""), "empty"),
        (("optimize", "x.py", "--json", ""), "empty"),
        (("generate", "x.py", "--model", "smollm2", "--temperature", "nan"), "from 0 to 10"),
        (("generate", "x.py", "--model", "smollm2", "--top-p", "2"), "from 0 to 1"),
        (("generate", "x.py", "--model", "smollm2", "--silence", "inf"), "silence"),
        (("bench", "x.py", "--devices", "0,first"), '"first"'),
        (("bench", "x.py", "--out", ""), "empty"),
        (("archive", "list", "--limit", "none"), "kw archive list --help"),
        (("archive",), "`kw archive` needs one of its commands: list, show, export, move-aside"),
        (("archive", "lst"), "did you mean list"),
        (("archive", "list", "--limt", "3"), "for `kw archive list`.\n  hint: did you mean --limit?"),
        (("archive", "list", "--jsn", "-"), "did you mean --json"),
        (("optimize", "x.py", "--polcy=ieee"), "did you mean --policy"),
        (("bench", "x.py", "--modle", "m"), "there is no option --modle for `kw bench`.\n  `kw bench --help`"),
        (("device", "extra"), "extra"),
    ],
)
def test_wrong_arguments(kw, arguments, says):
    result = kw(*arguments)
    assert result.code == 2
    assert says in result.err
    assert result.err.startswith("error: ")
    assert "--help" in result.err


@pytest.mark.parametrize(
    "output, says",
    [("nowhere/out.py", "no folder"), (".", "is a folder"), ("good.py", "overwrite the problem")],
)
def test_output_that_cannot_be_written(kw, output, says):
    kw.file("good.py", GOOD)
    result = kw("optimize", "good.py", "-o", output)
    assert result.code == 2
    assert says in result.err
    assert (kw.folder / "good.py").read_text() == GOOD


def test_name_that_the_archive_does_not_hold(kw):
    assert kw("archive", "list").code == 0
    result = kw("archive", "list", "no_such_problem")
    assert result.code == 2 and "no_such_problem" in result.err and "kw archive list" in result.err


def test_file_of_the_users_is_not_overwritten(kw):
    kw.file("good.py", GOOD)
    kw.file("good_kw.py", "my own work")
    result = kw("optimize", "good.py")
    assert result.code == 2
    assert "-o" in result.err
    assert (kw.folder / "good_kw.py").read_text() == "my own work"
