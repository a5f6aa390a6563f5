"""The wheel that setup/wheel.sh makes of the checkout's build: portable, installed in seconds, whole in every
environment.
"""

import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(900)]

OLDEST_GLIBC = (2, 34)  # what a wheel that is built on Debian 12 may ask for

USE = """
import sys, kernelwright
from kernelwright import library
assert "torch" not in sys.modules
assert library.version() == kernelwright.__version__, library.version()
# All of the compiler's C++ that runs without PyTorch: a prompt is made from a file.
prompt = library.prompt(open(sys.argv[1]).read(), "cpu", "chat")["messages"][-1]["content"]
print(prompt.count("class Model"), kernelwright.__file__)
"""


def run(*command: object, seconds: float = 600, **settings: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KW_") and name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        env=kept | settings,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def other_pythons() -> dict[str, str]:
    """By version, the Pythons of this machine that the package is for, but for the one that runs the tests."""
    managed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    places = [*(Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder), *managed.glob("*/bin")]
    found = {}
    for place in places:
        for minor in range(10, 20):
            python = place / f"python3.{minor}"
            if minor != sys.version_info.minor and f"3.{minor}" not in found and os.access(python, os.X_OK):
                # A name may stand for a version manager's program that refuses to run; ensurepip may be missing on
                # Debian.
                if run(python, "-c", "import ensurepip, venv").returncode == 0:
                    found[f"3.{minor}"] = str(python)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    made = run(home / "setup" / "wheel.sh", folder, KW_PYTHON=sys.executable)
    if re.search(r"No matching distribution found for (auditwheel|scikit-build-core)", made.stderr):
        pytest.skip("no package index to take auditwheel and scikit-build-core from")
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = folder.glob("*.whl")
    return path


def installed(python: str, wheel: Path, folder: Path) -> tuple[Path, float]:
    """The bin folder of a fresh environment with the wheel in it, and the seconds that the installation took."""
    made = run(python, "-m", "venv", folder)
    assert made.returncode == 0, made.stderr
    began = time.monotonic()
    install = run(folder / "bin" / "python", "-m", "pip", "install", "--no-index", wheel)
    assert install.returncode == 0, install.stderr
    return folder / "bin", time.monotonic() - began


def test_the_name_says_how_old_a_glibc_may_be(wheel: Path):
    name = re.fullmatch(r"kernelwright-[0-9.]+-py3-none-manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl", wheel.name)
    assert name, wheel.name
    assert (int(name[1]), int(name[2])) <= OLDEST_GLIBC


def test_it_holds_the_program_the_library_and_the_backend(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {"kernelwright/bin/kw", "kernelwright/lib/libkernelwright.so", "kernelwright/worker.py"} <= set(names)
        assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "src"))]
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "kernelwright = kernelwright.backend:kernelwright" in archive.read(points).decode()


def use(bin: Path, home: Path) -> None:
    """What works without PyTorch, in an environment that has none."""
    assert "Usage: kw" in run(bin / "kw", "--help").stdout
    used = run(bin / "python", "-c", USE, home / "examples" / "transformer_mlp.py")
    assert used.returncode == 0, used.stderr
    count, place = used.stdout.split()
    assert int(count) >= 1 and place.startswith(str(bin.parent))
    doctor = run(bin / "kw", "doctor")
    assert str(bin) in doctor.stdout and doctor.returncode == 3


def test_it_is_installed_in_seconds_and_works_without_pytorch(wheel: Path, home: Path, tmp_path: Path):
    bin, seconds = installed(sys.executable, wheel, tmp_path / "env")
    assert seconds < 60
    use(bin, home)


def test_it_works_in_another_version_of_python(wheel: Path, home: Path, tmp_path: Path):
    pythons = other_pythons()
    if not pythons:
        pytest.skip("this machine has one version of Python from 3.10 alone")
    for version in sorted({min(pythons, key=lambda name: int(name[2:])), max(pythons, key=lambda name: int(name[2:]))}):
        bin, _ = installed(pythons[version], wheel, tmp_path / version)
        use(bin, home)


def test_beside_pytorch_it_makes_the_example_faster_and_is_the_backend(wheel: Path, home: Path, tmp_path: Path):
    bin, _ = installed(sys.executable, wheel, tmp_path / "env")
    # The packages of the tests' Python, as if PyTorch had been installed here.
    site = run(bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    import torch

    Path(site, "pytorch.pth").write_text(str(Path(torch.__file__).parent.parent) + "\n")
    places = {"KW_ARCHIVE": str(tmp_path / "archive.db"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    output = tmp_path / "faster.py"
    options = ("--target", "cpu", "--budget", 0, "-o", output)
    done = run(bin / "kw", "optimize", home / "examples" / "transformer_mlp.py", *options, **places)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "class ModelNew" in output.read_text()
    # An installed package is found without being imported.
    script = (
        "import torch; module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)\n"
        "compiled = torch.compile(module, backend='kernelwright', options={'draws': 1})\n"
        "with torch.no_grad(): torch.testing.assert_close(compiled(x), module(x))\n"
        "import kernelwright; print(kernelwright.__file__)\n"
    )
    compiled = run(bin / "python", "-c", script, **places)
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout.startswith(str(tmp_path))
