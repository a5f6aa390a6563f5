"""Every way in which a problem file may be wrong: one clear message, the user's line, what to do, exit code 2."""

from pathlib import Path

import pytest
from command_line import GOOD

WIDTH = "return [64]"

# name, file, code of the error, what the message or hint says, the user's line (or "" where there is none to show)
BAD = [
    ("empty", "", "empty-file", "is empty", ""),
    ("blank", " \n\n", "empty-file", "is empty", ""),
    ("binary", b"\x7fELF\0\0\1\2" * 50, "not-text", "not a text file", ""),
    ("not_utf8", b"x = '\xff\xfe'\n", "not-text", "not a text file", ""),
    (
        "syntax",
        GOOD.replace("def forward(self, x):", "def forward(self, x:"),
        "syntax-error",
        "",
        "def forward(self, x:",
    ),
    ("indentation", GOOD.replace("    def forward", "   def forward"), "syntax-error", "", "def forward"),
    ("no_model", GOOD.replace("class Model", "class Net"), "no-model", "Rename Net to Model", ""),
    (
        "model_is_a_function",
        GOOD.replace("class Model(nn.Module)", "class Other(nn.Module)") + "\ndef Model(): pass\n",
        "model-not-module",
        "",
        "def Model()",
    ),
    (
        "model_is_no_module",
        GOOD.replace("(nn.Module)", "").replace("super().__init__()", "pass"),
        "model-not-module",
        "torch.nn.Module",
        "class Model",
    ),
    ("no_get_inputs", GOOD.replace("def get_inputs", "def other"), "no-get-inputs", "get_inputs", ""),
    (
        "no_get_init_inputs",
        GOOD.replace("def get_init_inputs", "def other"),
        "no-get-init-inputs",
        "get_init_inputs",
        "",
    ),
    (
        "get_inputs_is_a_list",
        GOOD.replace("def get_inputs", "def other") + "\nget_inputs = [1]\n",
        "no-get-inputs",
        "not a function",
        "get_inputs = [1]",
    ),
    (
        "get_inputs_gives_a_tensor",
        GOOD.replace("[torch.randn(16, 64)]", "torch.randn(16, 64)"),
        "bad-inputs",
        "not a list",
        "def get_inputs",
    ),
    (
        "get_init_inputs_gives_a_number",
        GOOD.replace(WIDTH, "return 64"),
        "bad-init-inputs",
        "not a list",
        "def get_init_inputs",
    ),
    (
        "file_raises",
        GOOD + "\nraise ValueError('at the top')\n",
        "import-raised",
        "at the top",
        "raise ValueError('at the top')",
    ),
    ("file_exits", GOOD + "\nraise SystemExit(0)\n", "exits", "exit the process", "raise SystemExit(0)"),
    (
        "constructor_raises",
        GOOD.replace("super().__init__()", "super().__init__(); width.no_such"),
        "constructor-raised",
        "no_such",
        "width.no_such",
    ),
    ("constructor_arguments", GOOD.replace(WIDTH, "return [64, 65]"), "constructor-raised", "", ""),
    (
        "forward_raises",
        GOOD.replace("return torch.softmax", "x.no_such; return torch.softmax"),
        "forward-raised",
        "no_such",
        "x.no_such",
    ),
    ("forward_shapes", GOOD.replace(WIDTH, "return [63]"), "forward-raised", "64", "torch.tanh(x) * self.weight"),
    (
        "filter_larger_than_the_image",
        GOOD.replace(
            "return torch.softmax",
            "x = torch.nn.functional.conv1d(x[:, None], torch.ones(1, 1, 67), padding=1)[:, 0]; return torch.softmax",
        ),
        "forward-raised",
        "Kernel size can't be greater than actual input size",
        "torch.nn.functional.conv1d(x[:, None]",
    ),
    (
        "get_inputs_raises",
        GOOD.replace("return [torch.randn(16, 64)]", "return [undefined]"),
        "get-inputs-raised",
        "undefined",
        "return [undefined]",
    ),
    (
        "data_dependent_if",
        GOOD.replace("return torch.softmax", "if x.sum() > 0: x = -x\n        return torch.softmax"),
        "data-dependent",
        "",
        "if x.sum() > 0",
    ),
    (
        "data_dependent_item",
        GOOD.replace("return torch.softmax", "x = x * x.max().item()\n        return torch.softmax"),
        None,
        "",
        "",
    ),
    (
        "sparse",
        GOOD.replace("return torch.softmax(torch.tanh(x) * self.weight, dim=-1)", "return x.to_sparse()"),
        None,
        "",
        "",
    ),
    (
        "quantised",
        GOOD.replace(
            "return torch.softmax(torch.tanh(x) * self.weight, dim=-1)",
            "return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
        ),
        None,
        "",
        "",
    ),
    (
        "bf16_into_fp32",
        GOOD.replace("self.weight = nn.Parameter(torch.ones(width))", "self.layer = nn.Linear(width, width)").replace(
            "torch.tanh(x) * self.weight", "self.layer(x.bfloat16())"
        ),
        "forward-raised",
        "same dtype",
        "self.layer(x.bfloat16())",
    ),
    (
        "sparse_input",
        GOOD.replace("torch.randn(16, 64)", "torch.eye(64).to_sparse()"),
        "unsupported-layout",
        "sparse",
        "",
    ),
    (
        "csr_input",
        GOOD.replace("torch.randn(16, 64)", "torch.eye(64).to_sparse_csr()"),
        "unsupported-layout",
        "sparse",
        "",
    ),
    (
        "nested_input",
        GOOD.replace("torch.randn(16, 64)", "torch.nested.nested_tensor([torch.randn(2, 64), torch.randn(3, 64)])"),
        "unsupported-layout",
        "nested",
        "",
    ),
    (
        "jagged_input",
        GOOD.replace(
            "torch.randn(16, 64)",
            "torch.nested.nested_tensor([torch.randn(2, 64), torch.randn(3, 64)], layout=torch.jagged)",
        ),
        "unsupported-layout",
        "nested",
        "",
    ),
    (
        "keyword_without_default",
        GOOD.replace("def forward(self, x)", "def forward(self, x, *, scale)"),
        "forward-raised",
        "scale",
        "",
    ),
    ("sixteen_terabytes", GOOD.replace("torch.randn(16, 64)", "torch.randn(1 << 36, 64)"), None, "TB", ""),
]


@pytest.mark.parametrize("name, text, code, says, line", BAD, ids=[row[0] for row in BAD])
def test_message_names_what_is_wrong_and_where(emitter, name, text, code, says, line):
    answer = emitter(emitter.kw.file(f"{name}.py", text))
    assert answer["verdict"] == "error", answer
    error = answer["error"]
    assert answer["exit_code"] == 2, error
    assert error["kind"] == "user"
    assert error["message"] and error["code"], error
    if code:
        assert error["code"] == code, error
    assert says in error["message"] + error["hint"], error
    assert line in error["source"], error
    if line:
        assert error["where"].startswith(f"{name}.py:"), error
    assert answer["text"].startswith("error: "), answer["text"]


def test_package_that_is_not_installed(emitter):
    answer = emitter(emitter.kw.file("needs.py", "import a_module_that_is_not_there\n" + GOOD))
    assert answer["exit_code"] == 3
    assert "a_module_that_is_not_there" in answer["error"]["message"]
    assert answer["error"]["where"] == "needs.py:1"


@pytest.mark.slow
def test_a_good_file_after_all_the_bad_ones(emitter):
    assert emitter(emitter.kw.file("good.py", GOOD))["verdict"] == "emitted"


@pytest.mark.parametrize(
    "what, says",
    [
        ("import os; os.abort()", "crashed with signal 6"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "crashed with signal 11"),
    ],
)
@pytest.mark.slow
def test_forward_that_ends_the_process(emitter, what, says):
    answer = emitter(
        emitter.kw.file("ends.py", GOOD.replace("return torch.softmax", f"{what}\n        return torch.softmax"))
    )
    assert answer["exit_code"] == 2
    assert says in answer["error"]["message"]


FORMS = [
    ("keyword_with_default", "x, *, scale=2.0", "x * scale", "torch.randn(16, 64)"),
    ("default_left_out", "x, y=None, scale=2.0", "x * scale if y is None else x + y", "torch.randn(16, 64)"),
    (
        "none_and_number",
        "x, y, scale, flag",
        "x * scale if y is None and flag else x + y",
        "torch.randn(16, 64), None, 3, True",
    ),
    (
        "list_tuple_dict",
        "xs, pair, table",
        "xs[0] + pair[0] * pair[1] + table['k']",
        "[torch.randn(16, 64)], (torch.randn(16, 64), 2.0), {'k': torch.randn(16, 64)}",
    ),
    ("string", "x, mode", "x if mode == 'same' else -x", "torch.randn(16, 64), 'same'"),
    ("no_rows", "x", "x", "torch.randn(0, 64)"),
]


@pytest.mark.parametrize("name, parameters, value, inputs", FORMS, ids=[row[0] for row in FORMS])
def test_forms_of_arguments(emitter, name, parameters, value, inputs):
    text = GOOD.replace("def forward(self, x):", f"def forward(self, {parameters}):\n        x = {value}").replace(
        "[torch.randn(16, 64)]", f"[{inputs}]"
    )
    answer = emitter(emitter.kw.file(f"{name}.py", text))
    assert answer["verdict"] == "emitted", answer


@pytest.mark.slow
def test_forward_that_takes_long_says_what_ends_it(kw):
    problem = kw.file(
        "hangs.py", GOOD.replace("return torch.softmax", "while True: pass\n        return torch.softmax")
    )
    result = kw("optimize", problem, "--timeout", 20)
    assert result.code == 2
    assert (
        "still running after 15 s" in result.err and "given up after 20 s" in result.err and "--timeout" in result.err
    )


@pytest.mark.slow
def test_forward_that_hangs(kw):
    problem = kw.file(
        "hangs.py", GOOD.replace("return torch.softmax", "while True: pass\n        return torch.softmax")
    )
    result = kw("optimize", problem, "--timeout", 12)
    assert result.code == 2
    assert "within 12 s" in result.err
    assert "loop" in result.err


@pytest.mark.slow
def test_device_that_is_not_supported(kw):
    result = kw(
        "optimize", kw.file("elsewhere.py", GOOD.replace("torch.randn(16, 64)", "torch.randn(16, 64, device='mps')"))
    )
    assert result.code == 2, result.text
    assert "get_inputs" in result.err and "elsewhere.py:15" in result.err


def test_missing_file(kw):
    result = kw("optimize", "nowhere.py")
    assert (result.code, result.out) == (2, "")
    assert "there is no file nowhere.py" in result.err


def test_folder(kw):
    result = kw("optimize", kw.folder)
    assert result.code == 2
    assert "is a folder" in result.err and "kw bench" in result.err


def test_special_file(kw):
    assert kw("optimize", "/dev/zero").code == 2


def test_error_as_json_says_the_same(kw):
    result = kw("optimize", "nowhere.py", "--json", "-")
    document = result.json()
    assert document["exit_code"] == result.code == 2
    assert document["error"]["code"] == "no-such-file"
    assert document["error"]["message"] in result.err


def test_nothing_is_written_for_a_bad_file(kw):
    problem = kw.file("empty.py", "")
    before = set(Path(kw.folder).iterdir())
    kw("optimize", problem)
    assert set(Path(kw.folder).iterdir()) == before
