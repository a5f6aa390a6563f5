"""Files in the current folder or beside the problem that have the names of modules."""

import pytest
from command_line import GOOD

SHADOWS = ("queue", "random", "json", "typing", "torch", "re", "types", "abc", "numpy")


@pytest.mark.slow
def test_files_with_the_names_of_modules(kw):
    for name in SHADOWS:
        kw.file(f"{name}.py", "raise RuntimeError('the wrong module was imported')\n")
    kw.file("model.py", "import abc\n" + GOOD.replace("import torch\n", "import torch\n", 1))
    kw.file("random.py", "raise RuntimeError('my own random was imported')\n")
    assert kw("optimize", kw.file("good.py", GOOD), "--target", "cpu", "--emit-only").code == 0
    # Its own import means the file beside it, as in `python model.py`; and the error is its own.
    result = kw("optimize", kw.file("drawn.py", "import random\n" + GOOD), "--target", "cpu", "--emit-only")
    assert result.code == 2 and "my own random" in result.err, result.text


@pytest.mark.slow
def test_module_beside_the_problem_that_hides_a_library(kw):
    kw.file("queue.py", "import statistics\nscale = statistics.scale\n")
    kw.file("statistics.py", "scale = 3.0\n")
    own = GOOD.replace("import torch\n", "import torch\nimport queue\nfrom queue import scale\n", 1).replace(
        "torch.tanh(x)", "torch.tanh(x) * scale * queue.scale"
    )
    result = kw("optimize", kw.file("owns.py", own), "--target", "cpu", "--budget", "0", "--json", "-")
    assert result.code == 0, result.text
    assert result.json()["verdict"] == "pass"


@pytest.mark.slow
def test_problem_with_the_name_of_a_module(kw):
    result = kw(
        "optimize",
        kw.file("random.py", "import random\nassert random.random\n" + GOOD),
        "--target",
        "cpu",
        "--emit-only",
    )
    assert result.code == 0, result.text


def test_syntax_error_is_told_before_pytorch_is_imported(kw):
    bad = kw.file("syntax.py", GOOD.replace("def forward(self, x):", "def forward(self, x:"))
    # A PyTorch that cannot be imported would be told instead.
    kw.file("other/torch/__init__.py", "raise ImportError('torch was imported')\n")
    kw.file("other/torch/version.py", "__version__ = '2.9.0'\ncuda = None\n")
    for command in ("optimize", "inspect"):
        result = kw(command, bad, env={"PYTHONPATH": str(kw.folder / "other")})
        assert result.code == 2, result.text
        assert "not valid Python" in result.err and "syntax.py:10" in result.err
