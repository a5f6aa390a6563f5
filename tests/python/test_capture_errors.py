"""Every way in which a problem file may be wrong has one clear error that names the user's line."""

import os

import pytest
import torch

from kernelwright import errors
from kernelwright.capture import export
from kernelwright.running import problem

MODEL = """import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(size, size)
    def forward(self, x):
        return self.layer(x)
"""
INPUTS = """
def get_inputs():
    return [torch.randn(2, 4)]
"""
PACKS = "from torch.nn.utils.rnn import pack_padded_sequence as pack, pack_sequence as packed"
INIT = """
def get_init_inputs():
    return [4]
"""


@pytest.fixture
def write(tmp_path):
    def write(source):
        path = tmp_path / "problem.py"
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        return path

    return write


def failure(path, device="cpu"):
    with pytest.raises(errors.Error) as caught:
        export.run({"problem": str(path), "device": device}, lambda stage, fraction: None)
    error = caught.value
    assert error.message.endswith((".", "?", "...")) or ": " in error.message
    return error


def with_forward(body, inputs=INPUTS, extra=""):
    """A problem whose forward has the given body."""
    lines = "\n".join("        " + line for line in body.splitlines())
    return f"import torch\n{extra}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{lines}\n{inputs}\ndef get_init_inputs():\n    return []\n"


@pytest.mark.parametrize(
    "source, kind, code, where, line",
    [
        ("", "user", "empty-file", "problem.py", ""),
        (" \n\n", "user", "empty-file", "problem.py", ""),
        (b"\x7fELF\x00\x01\x02", "user", "not-text", "problem.py", ""),
        (b"caf\xe9 = 1", "user", "not-text", "problem.py", ""),
        ("x = 1\ny = (2\nz = 3", "user", "syntax-error", "problem.py:2", "y = (2\n    ^"),
        ("def f():\n\treturn 1\n        return 2", "user", "syntax-error", "problem.py:3", None),
        (
            "import no_such_package_anywhere",
            "missing",
            "missing-package",
            "problem.py:1",
            "import no_such_package_anywhere",
        ),
        ("from torch import no_such_name", "user", "import-failed", "problem.py:1", "from torch import no_such_name"),
        ("import torch.no_such_part", "user", "import-failed", "problem.py:1", "import torch.no_such_part"),
        ("x = 1\n1 / 0", "user", "import-raised", "problem.py:2", "1 / 0"),
        ("import sys\nsys.exit()", "user", "exits", "problem.py:2", "sys.exit()"),
        (MODEL.replace("Model(", "Net(") + INPUTS + INIT, "user", "no-model", "problem.py", ""),
        ("class Model:\n    pass" + INPUTS + INIT, "user", "model-not-module", "problem.py:1", "class Model:"),
        ("Model = 3" + INPUTS + INIT, "user", "model-not-module", "problem.py:1", "Model = 3"),
        (
            "import torch\nclass Model(torch.nn.Module):\n    pass" + INPUTS + INIT,
            "user",
            "no-forward",
            "problem.py:2",
            "class Model(torch.nn.Module):",
        ),
        (MODEL + INIT, "user", "no-get-inputs", "problem.py", ""),
        (MODEL + INPUTS, "user", "no-get-init-inputs", "problem.py", ""),
        (MODEL + INIT + "get_inputs = [1]", "user", "no-get-inputs", "problem.py:11", "get_inputs = [1]"),
        (
            MODEL + INIT + "def get_inputs():\n    return torch.ones(2)",
            "user",
            "bad-inputs",
            "problem.py:11",
            "def get_inputs():",
        ),
        (
            MODEL + INIT + "def get_inputs():\n    return [unknown]",
            "user",
            "get-inputs-raised",
            "problem.py:12",
            "return [unknown]",
        ),
        (
            MODEL + INPUTS + "def get_init_inputs():\n    return 4",
            "user",
            "bad-init-inputs",
            "problem.py:11",
            "def get_init_inputs():",
        ),
        (
            MODEL + INPUTS + "def get_init_inputs():\n    raise OSError('no')",
            "user",
            "get-init-inputs-raised",
            "problem.py:12",
            "raise OSError('no')",
        ),
        (
            MODEL.replace("(size, size)", "('a')") + INPUTS + INIT,
            "user",
            "constructor-raised",
            "problem.py:5",
            "self.layer = torch.nn.Linear('a')",
        ),
        (MODEL + INPUTS + "def get_init_inputs():\n    return []", "user", "constructor-raised", None, None),
        (
            MODEL + INPUTS + "def get_init_inputs():\n    return [5]",
            "user",
            "forward-raised",
            "problem.py:7",
            "return self.layer(x)",
        ),
        (with_forward("raise KeyError('gone')"), "user", "forward-raised", "problem.py:5", "raise KeyError('gone')"),
        (
            with_forward("return pack(x[None], x[0].long(), batch_first=True).data", extra=PACKS),
            "user",
            "packed-sequence",
            "problem.py:5",
            "return pack(x[None], x[0].long(), batch_first=True).data",
        ),
        (
            with_forward(
                "layer = torch.nn.LSTM(4, 4, 2, dropout=0.5)\nreturn layer(packed([x, x[:1]]))[0].data", extra=PACKS
            ),
            "user",
            "packed-sequence",
            "problem.py:6",
            "return layer(packed([x, x[:1]]))[0].data",
        ),
        (
            MODEL.replace("Linear", "GRU")
            + PACKS
            + "\ndef get_inputs():\n    return [packed([torch.ones(2, 4)])]"
            + INIT,
            "user",
            "data-dependent",
            "problem.py:7",
            "return self.layer(x)",
        ),
        (
            with_forward("return helper(x)", extra="def helper(x):\n    return x @ x"),
            "user",
            "forward-raised",
            "problem.py:3",
            "return x @ x",
        ),
    ],
)
def test_wrong_files(write, source, kind, code, where, line):
    error = failure(write(source))
    assert (error.kind, error.code) == (kind, code), str(error)
    if where is not None:
        assert (error.where, error.source) == (where, error.source if line is None else line)
    assert error.hint


def test_missing_file_and_folder(tmp_path):
    assert failure(tmp_path / "none.py").code == "no-such-file"
    assert failure(tmp_path).code == "is-a-folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(write):
    path = write(MODEL)
    path.chmod(0)
    assert failure(path).code == "unreadable"


def test_a_missing_package_is_named_with_the_command_that_installs_it(write):
    assert "pip install opencv-python" in failure(write("import cv2")).hint


def test_unsupported_device(write):
    error = failure(write(MODEL + INPUTS + INIT), "tpu")
    assert (error.code, error.kind) == ("unsupported-device", "user")


@pytest.mark.parametrize(
    "body, line",
    [
        ("if x.sum() > 0:\n    return x\nreturn -x", "problem.py:5"),
        ("n = x.abs().sum().item()\nreturn torch.ones(int(n))", None),
        ("scale = float(x.max())\nreturn x * 2 if scale > 1 else x", None),
        ("y = x + 1\nreturn y[y > 0]", "problem.py:6"),
        ("y = x + 1\nreturn torch.nonzero(y)", "problem.py:6"),
        ("return torch.tensor(x.tolist())", "problem.py:5"),
        ("return torch.from_numpy(x.numpy() * 2)", "problem.py:5"),
        ("while x.norm() > 1:\n    x = x / 2\nreturn x", "problem.py:5"),
        ("for _ in range(int(x.sum())):\n    x = x + 1\nreturn x", None),
    ],
)
def test_forward_that_depends_on_its_data(write, body, line):
    error = failure(write(with_forward(body)))
    assert (error.kind, error.code) == ("user", "data-dependent"), str(error) + error.detail
    assert error.where.startswith("problem.py:") and error.source
    if line:
        assert error.where == line
    assert error.hint


def test_enormous_shapes_are_refused_before_they_are_allocated(write):
    error = failure(
        write(with_forward("return x + 1", "def get_inputs():\n    return [torch.rand(1 << 21, 1 << 21)]")), "cuda"
    )
    assert error.code == "too-large" and "17.59 TB" in error.message
    error = failure(
        write(with_forward("return x[:, None] * x", "def get_inputs():\n    return [torch.rand(1 << 21)]")), "cuda"
    )
    assert (error.code, error.where) == ("too-large", "problem.py:5")
    error = failure(write((MODEL + INPUTS + INIT).replace("return [4]", "return [1 << 22]")), "cpu")
    assert error.code == "too-large" and "layer.weight" in error.message


def test_layers_without_a_shape_yet_are_named(write):
    error = failure(write(MODEL.replace("Linear(size, size)", "LazyLinear(size)") + INPUTS + INIT))
    assert error.code == "uninitialised" and "Call the module once" in error.hint


def test_unsupported_dtypes_and_layouts(write):
    error = failure(write(with_forward("return x.to(torch.uint16)")))
    assert (error.code, error.where) == ("unsupported-dtype", "problem.py:5")
    assert (
        failure(write(with_forward("return x", "def get_inputs():\n    return [torch.eye(3).to_sparse()]"))).code
        == "unsupported-layout"
    )


@pytest.mark.parametrize(
    "body, code, line",
    [
        ("self.calls = getattr(self, 'calls', 0) + 1\nreturn x * self.calls", "stateful", None),
        ("import random\nreturn x * random.random()", "foreign-random", None),
        ("import numpy\nreturn x * numpy.random.rand()", "foreign-random", None),
        ("torch.manual_seed(0)\nreturn x + torch.rand(4)", "seeds-generator", "problem.py:5"),
        ("return x + torch.rand(4, generator=torch.Generator().manual_seed(1))", "unsupported-constant", None),
        (
            "y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))\nreturn y",
            "higher-order",
            "problem.py:5",
        ),
        ("return x * 2j", "unsupported-constant", "problem.py:5"),
    ],
)
def test_forwards_that_kernels_could_not_repeat(write, body, code, line):
    error = failure(write(with_forward(body)))
    assert (error.kind, error.code) == ("user", code), str(error) + error.detail
    assert error.where == (line or error.where) and error.hint


def test_results_that_cannot_be_rebuilt(write):
    error = failure(write(with_forward("return Thing()", extra="class Thing: pass")))
    assert error.kind == "user" and error.code in ("unsupported-output", "forward-raised")


def test_messages_hide_tracebacks_but_keep_them_for_the_log(write):
    error = failure(write(with_forward("return x @ x")))
    assert "Traceback" not in str(error) and "Traceback" in error.detail


# -- what is unusual but right


def test_constructor_arguments_in_all_their_forms(write):
    for returned in ("[4]", "(4,)", "[[4], {}]", "[[], {'size': 4}]", "{'size': 4}"):
        loaded = problem.load(write(MODEL + INPUTS + f"def get_init_inputs():\n    return {returned}"))
        assert loaded.construct().layer.in_features == 4, returned


def test_a_list_and_a_dict_that_are_plain_arguments(write):
    source = MODEL.replace("size)", "sizes, options)", 1).replace("size, size", "*sizes, **options")
    loaded = problem.load(write(source + INPUTS + "def get_init_inputs():\n    return [[4, 5], {'bias': False}]"))
    assert loaded.construct().layer.out_features == 5


def test_seeds_decide_weights_and_inputs(write):
    loaded = problem.load(write(MODEL + INPUTS + INIT))
    assert torch.equal(loaded.construct(seed=1).layer.weight, loaded.construct(seed=1).layer.weight)
    assert not torch.equal(loaded.construct(seed=1).layer.weight, loaded.construct(seed=2).layer.weight)
    assert torch.equal(loaded.inputs(3)[0], loaded.inputs(3)[0])
    assert loaded.construct(dtype=torch.float64).layer.weight.dtype is torch.float64


def test_dataclasses_pickle_and_neighbouring_files_work(write, tmp_path):
    (tmp_path / "beside_the_problem.py").write_text("WIDTH = 4")
    extra = "import dataclasses, pickle\nfrom beside_the_problem import WIDTH\n@dataclasses.dataclass\nclass Config:\n    width: int = WIDTH\n"
    source = MODEL.replace("import torch\n", "import torch\n" + extra).replace(
        "Linear(size, size)", "Linear(pickle.loads(pickle.dumps(Config())).width, 4)"
    )
    assert problem.load(write(source + INPUTS + INIT)).construct().layer.in_features == 4


def test_constructors_and_inputs_that_need_real_numbers(write):
    source = MODEL.replace(
        "super().__init__()",
        "super().__init__()\n        self.rates = [value.item() for value in torch.linspace(0, 1, 3)]",
    )
    source = source.replace("self.layer(x)", "self.layer(x) * self.rates[1]")
    inputs = "def get_inputs():\n    n = int(torch.randint(2, 3, ()).item())\n    return [torch.randn(n, 4)]"
    graph = export.run({"problem": str(write(source + inputs + INIT)), "device": "cuda"}, lambda stage, fraction: None)[
        "graph"
    ]
    assert [node["op"] for node in graph["nodes"]] == ["aten.linear.default", "aten.mul.Tensor"]
    assert graph["nodes"][1]["args"][1] == ["other", 0.5]
    assert {value["device"] for value in graph["values"]} == {"cuda"}


def capture_for_cuda(path):
    return export.run({"problem": str(path), "device": "cuda"}, lambda stage, fraction: None)["graph"]


def test_tensors_made_from_numbers_on_the_inputs_device(write):
    source = with_forward(
        "return torch.minimum(x, torch.tensor(0.5, device=x.device)) + torch.as_tensor([1.0, 2, 3, 4], device='cuda')"
    )
    graph = capture_for_cuda(write(source))
    assert [node["op"] for node in graph["nodes"]] == ["aten.full.default", "aten.minimum.default", "aten.add.Tensor"]
    assert [item["data"] for item in graph["inputs"] if item["kind"] == "constant"] == [[1.0, 2.0, 3.0, 4.0]]
    assert {value["device"] for value in graph["values"]} == {"cuda"}


def test_one_number_made_on_the_cpu_and_moved(write):
    graph = capture_for_cuda(write(with_forward("return x * torch.tensor(0.5).to(x.device)")))
    assert [item["data"] for item in graph["inputs"] if item["kind"] == "constant"] == [0.5]
    assert (
        graph["nodes"][-1]["op"] == "aten.mul.Tensor"
        and graph["values"][graph["outputs"][0]["value"]]["device"] == "cuda"
    )


def test_files_that_name_cuda_themselves(write):
    source = with_forward(
        "return x.cuda() + self.table",
        "def get_inputs():\n    return [torch.rand(2, 4).cuda(), torch.rand(4).to('cuda')][:1]",
    )
    source = source.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.table = torch.ones(4).cuda(0)\n    def forward",
    )
    graph = capture_for_cuda(write(source))
    assert [node["op"] for node in graph["nodes"]] == ["aten.add.Tensor"]
    assert {value["device"] for value in graph["values"]} == {"cuda"}
