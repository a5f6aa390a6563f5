"""Set-up on machines where something is missing: one clear message, exit code 3, the log named."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, home: Path) -> Machine:
    return Machine(tmp_path, home)


def test_missing_packages_without_apt_are_named(machine: Machine) -> None:
    machine.remove_tool("apt-get")
    run = machine.kw(MISSING="libfmt-dev libsqlite3-dev")
    assert run.returncode == 3
    assert "no apt-get to install them: libfmt-dev libsqlite3-dev" in run.stderr


def test_no_compiler_asks_for_one(machine: Machine) -> None:
    machine.remove_tool("apt-get")
    machine.remove_tool("c++")
    run = machine.kw()
    assert run.returncode == 3
    assert "g++" in run.stderr


def test_without_root_the_exact_command_is_printed(machine: Machine, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        run = machine.kw(MISSING="libfmt-dev libgtest-dev")
    else:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv is missing")
        # Another user must be able to reach the checkout.
        for folder in [tmp_path, *tmp_path.parents]:
            if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        for path in [tmp_path, *tmp_path.rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        run = subprocess.run(
            [shutil.which("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", machine.checkout / "kw"],
            env=machine.environment(MISSING="libfmt-dev libgtest-dev"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 3
    assert (
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends libfmt-dev libgtest-dev" in run.stderr
    )


def test_missing_packages_are_installed_as_root(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root")
    assert machine.kw(MISSING="libfmt-dev").returncode == 0
    assert machine.calls("apt-get")[0] == "apt-get update"
    assert machine.calls("apt-get")[1].endswith("install -y --no-install-recommends libfmt-dev")


def test_nothing_missing_leaves_apt_alone(machine: Machine) -> None:
    assert machine.kw().returncode == 0
    assert machine.calls("apt-get") == []


@pytest.mark.parametrize(
    "settings",
    [
        {
            "TORCH_HERE": "none",
            "PIP_SAYS": "NewConnectionError: Failed to establish a new connection: [Errno -2] Name or service not known",
        },
        {"TORCH_HERE": "none", "PIP_SAYS": "Temporary failure in name resolution"},
    ],
)
def test_no_network_is_said(machine: Machine, settings: dict[str, str]) -> None:
    run = machine.kw(**settings)
    assert run.returncode == 3
    assert "no network" in run.stderr
    assert "setup.log" in run.stderr


def test_a_full_disk_is_said(machine: Machine) -> None:
    run = machine.kw(BUILD_SAYS="fatal error: error writing to /tmp/x.s: No space left on device")
    assert run.returncode == 3
    assert "the disk is full" in run.stderr


def test_a_failing_build_shows_the_compilers_message_and_the_log(machine: Machine) -> None:
    run = machine.kw(BUILD_SAYS="a.cpp:3:1: error: expected ';'")
    assert run.returncode == 4
    assert "a.cpp:3:1: error: expected ';'" in run.stderr
    assert str(machine.checkout / ".kw" / "setup.log") in run.stderr


def test_a_python_that_is_too_old_is_said(machine: Machine) -> None:
    run = machine.kw(TORCH_HERE="python 3.8", TOO_OLD="1")
    assert run.returncode == 3
    assert "Python 3.10 or later is needed" in run.stderr
    assert machine.calls("apt-get") == []


def test_a_read_only_checkout_is_said(machine: Machine) -> None:
    # A file where the state folder should be fails for root as well.
    (machine.checkout / ".kw").write_text("")
    run = machine.kw()
    assert run.returncode == 3
    assert "cannot write in" in run.stderr
