"""`pip install .` in an environment of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(2700)]


def run(*command: object, **settings: str) -> subprocess.CompletedProcess:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KW_") and name != "PYTHONPATH"
    }
    return subprocess.run(
        [str(part) for part in command],
        env=environment | settings,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2700,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    """The bin folder of a fresh environment with the package in it."""
    folder = tmp_path_factory.mktemp("installed")
    assert run(sys.executable, "-m", "venv", folder).returncode == 0
    # By the compiler that made the checkout's build, under its name: ccache knows every file then.
    known = home / "build" / "CMakeCache.txt"
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", known.read_text() if known.exists() else "", re.MULTILINE)
    settings = {"CXX": compiler[1]} if compiler else {}
    install = run(folder / "bin" / "python", "-m", "pip", "install", "--retries", "2", home, **settings)
    if install.returncode != 0 and "scikit-build-core" in install.stderr and "find" in install.stderr:
        pytest.skip("no package index to take scikit-build-core from")
    assert install.returncode == 0, install.stderr[-2000:]
    return folder / "bin"


def test_kw_on_the_path_is_the_program(installed: Path) -> None:
    answer = run(installed / "kw", "--help")
    assert answer.returncode == 0
    assert "Usage: kw" in answer.stdout


def test_the_command_uses_the_environments_python(installed: Path) -> None:
    answer = run(installed / "kw", "doctor")
    assert str(installed) in answer.stdout


def test_the_package_imports_from_the_environment(installed: Path) -> None:
    answer = run(installed / "python", "-c", "import kernelwright; print(kernelwright.__file__)")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(str(installed.parent / "lib"))


def test_torch_is_left_to_the_user(installed: Path) -> None:
    assert run(installed / "python", "-c", "import torch").returncode == 1
    answer = run(installed / "kw", "optimize", "nothing.py")
    assert answer.returncode in (2, 3)
    assert "Traceback" not in answer.stdout + answer.stderr
