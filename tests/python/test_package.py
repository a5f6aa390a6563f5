"""`import kernelwright`: light, telling, and found by torch.compile whichever is imported first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
COMPILES = """
module = torch.nn.Linear(4, 4)
compiled = torch.compile(module, backend="kernelwright", options={"draws": 1})
x = torch.randn(2, 4)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), module(x))
"""


def run(script: str, *options: str) -> str:
    """What a script prints in a fresh Python that finds the checkout's package."""
    environment = os.environ | {"PYTHONPATH": str(HOME / "python")}
    done = subprocess.run(
        [sys.executable, *options, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dir_shows_the_interface_without_pytorch():
    shown = run(
        "import sys, kernelwright; print(*dir(kernelwright)); print('torch' in sys.modules, kernelwright.errors.Error.__name__, 'torch' in sys.modules)"
    )
    names, torch_there = shown.splitlines()
    public = [name for name in names.split() if not name.startswith("__")]
    assert public == ["UnverifiedKernelsWarning", "VerificationError", "errors", "measure", "optimize", "verify"]
    assert {"__version__", "__doc__"} <= set(names.split())
    assert torch_there == "False Error False"


def test_every_name_that_dir_shows_is_there():
    import kernelwright

    for name in dir(kernelwright):
        getattr(kernelwright, name)
    with pytest.raises(AttributeError, match="optimise"):
        kernelwright.optimise


def test_program_library_and_package_are_of_one_version(kw_binary):
    import kernelwright

    assert (
        subprocess.run([kw_binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        == f"kw {kernelwright.__version__}"
    )
    assert kernelwright.library.version() == kernelwright.__version__


@pytest.mark.parametrize(
    "imports",
    [
        "import kernelwright, torch",
        "import torch, kernelwright",
        "import torch, torch._dynamo; assert 'kernelwright' not in torch._dynamo.list_backends(); import kernelwright",
        "import kernelwright, importlib, torch._dynamo; importlib.reload(kernelwright); torch._dynamo.list_backends(); importlib.reload(kernelwright)",
    ],
    ids=["kernelwright-first", "torch-first", "after-pytorch-looked", "imported-again"],
)
def test_torch_compile_finds_the_backend(imports):
    assert "kernelwright" in run(imports + COMPILES + "print(torch._dynamo.list_backends())")


def test_metadata_of_a_checkout_and_nothing_else_is_added():
    shown = run(
        "import importlib.metadata as metadata, kernelwright\n"
        "assert metadata.version('kernelwright') == kernelwright.__version__\n"
        "try: metadata.version('no-such-package')\n"
        "except metadata.PackageNotFoundError: print('none')"
    )
    assert shown.strip() == "none"
