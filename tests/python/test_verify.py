"""Verification: right candidates come through with figures like eager's, and every known way to be wrong shows in the
figures.
"""

import pytest
import torch
from verification_problems import ELEMENTWISE, PROBLEM, check, failed_checks, wrong_outputs  # noqa: F401, F811

from kernelwright import errors


def test_equal_candidate_is_clean(check):
    result = check(PROBLEM, "class ModelNew(Model):\n    pass\n", draws=7)
    assert wrong_outputs(result) == []
    assert failed_checks(result) == set()
    assert [draw["kind"] for draw in result["draws"]] == [
        "generator",
        "signed",
        "wide",
        "constant",
        "special",
        "generator",
        "generator",
    ]
    names = {row["name"] for row in result["draws"][0]["outputs"]}
    assert names == {"output[0]", "buffer bn.running_mean", "buffer bn.running_var", "buffer bn.num_batches_tracked"}
    assert result["reference"] == "fp64"
    assert result["kernelbench_gate"] == {"ok": True, "atol": 1e-4, "rtol": 1e-4}
    assert result["vacuous"] == []
    row = result["draws"][0]["outputs"][0]
    assert 0 < row["eager"]["norm"] < 1e-5 and row["ours"] == row["eager"]


def test_every_seed_draws_afresh(check):
    candidate = "class ModelNew(Model):\n    pass\n"
    first, same, other = (
        check(ELEMENTWISE, candidate, seed=seed, draws=1)["draws"][0]["outputs"][0]["eager"] for seed in (1, 1, 2)
    )
    assert first == same != other


def test_stale_weights_show_after_a_redraw(check):
    result = check(
        PROBLEM,
        """
        class ModelNew(Model):
            folded = None
            def forward(self, x):
                if self.folded is None:
                    self.folded = self.fc.weight.detach().clone().t().contiguous()
                return torch.relu(self.bn(x @ self.folded + self.fc.bias))
        """,
    )
    assert {kind for kind, name in wrong_outputs(result)} >= {"signed", "wide"}
    assert ("generator", "output[0]") not in wrong_outputs(result)


def test_weights_packed_once_for_each_version_are_fine(check):
    result = check(
        PROBLEM,
        """
        class ModelNew(Model):
            def __init__(self, width, out):
                super().__init__(width, out)
                self.packed, self.version = torch.zeros(width, out), None
            def forward(self, x):
                if self.version != self.fc.weight._version:
                    self.packed.copy_(self.fc.weight.t())
                    self.version = self.fc.weight._version
                return torch.relu(self.bn(x @ self.packed + self.fc.bias))
        """,
    )
    assert wrong_outputs(result) == [] and failed_checks(result) == set()


EIGHT_BITS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.float() * 3

def get_inputs():
    return [torch.randn(24, 40).to(torch.DTYPE)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_are_drawn_and_compared(check, dtype):
    problem = EIGHT_BITS.replace("DTYPE", dtype)
    result = check(problem, "class ModelNew(Model):\n    pass\n")
    assert wrong_outputs(result) == [] and failed_checks(result) == set()
    assert not any("skipped" in draw for draw in result["draws"])
    off = check(problem, "class ModelNew(Model):\n    def forward(self, x):\n        return x.float() * 2.999\n")
    assert {draw for draw, _ in wrong_outputs(off)} == {"generator", "signed", "wide", "constant", "special"}


def test_running_statistics_left_alone_show(check):
    result = check(
        PROBLEM,
        """
        class ModelNew(Model):
            def forward(self, x):
                return torch.relu(torch.nn.functional.batch_norm(self.fc(x), None, None, self.bn.weight, self.bn.bias, True))
        """,
    )
    assert ("generator", "buffer bn.running_mean") in wrong_outputs(result)
    assert ("generator", "output[0]") not in wrong_outputs(result)


def test_returning_the_input_is_wrong_and_shares_memory(check):
    result = check(ELEMENTWISE, "class ModelNew(Model):\n    def forward(self, x):\n        return x\n")
    assert ("generator", "output[0]") in wrong_outputs(result)
    assert "fresh-outputs" in failed_checks(result)


def test_hidden_nans_show_on_special_values(check):
    result = check(
        ELEMENTWISE,
        "class ModelNew(Model):\n    def forward(self, x):\n        return torch.tanh(torch.nan_to_num(x)) * 2\n",
    )
    assert wrong_outputs(result) == [("special", "output[0]")]


def test_stray_nans_show(check):
    result = check(
        ELEMENTWISE,
        """
        class ModelNew(Model):
            def forward(self, x):
                out = torch.empty_like(x)
                out[:-1] = torch.tanh(x[:-1]) * 2
                return out
        """,
    )
    assert "poison" in failed_checks(result)
    assert ("generator", "output[0]") in wrong_outputs(result)


@pytest.mark.parametrize("element", [-1, 24 * 40])
def test_writes_out_of_bounds_show_in_the_guard_bands(check, element):
    result = check(
        ELEMENTWISE,
        f"""
        import ctypes
        class ModelNew(Model):
            def forward(self, x):
                out = torch.empty(24, 40)
                out.copy_(torch.tanh(x) * 2)
                ctypes.c_float.from_address(out.data_ptr() + {element} * 4).value = 1.0
                return out
        """,
        draws=1,
    )
    assert failed_checks(result) == {"guard-bands"}
    assert wrong_outputs(result) == []


def test_guarded_allocations_keep_shape_strides_and_values(check):
    result = check(
        ELEMENTWISE,
        """
        class ModelNew(Model):
            def forward(self, x):
                scratch = [torch.empty(5, dtype=torch.int64), torch.empty_strided((4, 3), (1, 4)), x.new_empty((2, 0)), torch.empty((2, 3, 4, 5), memory_format=torch.channels_last)]
                assert [part.stride() for part in scratch] == [(1,), (1, 4), (1, 1), (60, 1, 15, 3)]
                assert scratch[1].isnan().all() and scratch[0].dtype == torch.int64 and scratch[2].shape == (2, 0)
                assert scratch[1].data_ptr() % 64 == 0
                return torch.tanh(x) * 2
        """,
        draws=1,
    )
    assert failed_checks(result) == set()


def test_changed_input_shows(check):
    result = check(
        ELEMENTWISE, "class ModelNew(Model):\n    def forward(self, x):\n        return x.tanh_().clone() * 2\n"
    )
    assert "inputs-unchanged" in failed_checks(result)


def test_changed_weight_shows(check):
    result = check(
        PROBLEM,
        """
        class ModelNew(Model):
            def forward(self, x):
                out = super().forward(x)
                self.fc.bias += 1
                return out
        """,
    )
    assert "weights-unchanged" in failed_checks(result)


def test_wrong_strides_and_shape_and_dtype_show(check):
    for expression, field in (
        (".t().contiguous().t()", "strides_ok"),
        ("[:-1]", "shape_ok"),
        (".double()", "dtype_ok"),
    ):
        result = check(
            ELEMENTWISE,
            f"class ModelNew(Model):\n    def forward(self, x):\n        return (torch.tanh(x) * 2){expression}\n",
            draws=1,
        )
        assert not result["draws"][0]["outputs"][0][field]


def test_strides_may_be_those_that_eager_has_with_gradients(check):
    """PyTorch's self-attention in eval mode has other kernels, and strides, under no_grad."""
    problem = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

def get_inputs():
    return [torch.randn(2, 9, 16)]

def get_init_inputs():
    return []
"""
    with_gradients, neither = ".transpose(0, 1).contiguous().transpose(0, 1)", ".mT.contiguous().mT"
    for form, is_right in (("", True), (with_gradients, True), (neither, False)):
        candidate = f"class ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x){form}\n"
        result = check(problem, candidate)
        assert all(row["strides_ok"] for draw in result["draws"] for row in draw["outputs"]) == is_right, form


def test_looking_for_other_strides_changes_nothing_that_is_judged(check):
    """An input that a candidate should have changed is not what another run of eager's makes of it."""
    problem = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def forward(self, x):
        x.mul_(2.0)
        return self.attention(x, x, x, need_weights=False)[0]

def get_inputs():
    return [torch.randn(2, 9, 16)]

def get_init_inputs():
    return []
"""
    candidate = """
class ModelNew(Model):
    def forward(self, x):
        y = x * 2.0
        return self.attention(y, y, y, need_weights=False)[0].transpose(0, 1).contiguous().transpose(0, 1)
"""
    rows = {row["name"]: row for row in check(problem, candidate)["draws"][0]["outputs"]}
    assert rows["output[0]"]["strides_ok"]
    (changed,) = (row for name, row in rows.items() if name.startswith("input"))
    assert changed["ours"]["norm"] > 0.1


def test_half_precision_shows(check):
    result = check(
        PROBLEM,
        """
        class ModelNew(Model):
            def forward(self, x):
                return torch.relu(self.bn((x.half() @ self.fc.weight.half().t()).float() + self.fc.bias))
        """,
    )
    assert ("generator", "output[0]") in wrong_outputs(result) and ("signed", "output[0]") in wrong_outputs(result)


def test_hard_coded_output_shows(check):
    result = check(
        ELEMENTWISE,
        """
        class ModelNew(Model):
            kept = None
            def forward(self, x):
                if self.kept is None:
                    self.kept = torch.tanh(x) * 2
                return self.kept.clone()
        """,
    )
    assert ("generator", "output[0]") not in wrong_outputs(result)
    assert ("signed", "output[0]") in wrong_outputs(result)


def test_result_remembered_by_address_shows(check):
    result = check(
        ELEMENTWISE,
        """
        kept = {}
        class ModelNew(Model):
            def forward(self, x):
                if x.data_ptr() not in kept:
                    kept[x.data_ptr()] = torch.tanh(x) * 2
                return kept[x.data_ptr()].clone()
        """,
    )
    assert ("signed", "output[0]") in wrong_outputs(result)


def test_one_static_output_buffer_shows(check):
    result = check(
        ELEMENTWISE,
        """
        out = torch.zeros(24, 40)
        class ModelNew(Model):
            def forward(self, x):
                return torch.mul(torch.tanh(x), 2, out=out)
        """,
    )
    assert failed_checks(result) == {"fresh-outputs"}


def test_results_that_change_between_calls_show(check):
    result = check(
        ELEMENTWISE,
        """
        class ModelNew(Model):
            calls = 0
            def forward(self, x):
                self.calls += 1
                return torch.tanh(x) * (2 if self.calls != 2 else 2.001)
        """,
        draws=1,
    )
    assert failed_checks(result) == {"deterministic-recheck"}


def test_a_thread_left_behind_shows(check):
    result = check(
        ELEMENTWISE,
        """
        import threading, time
        class ModelNew(Model):
            def forward(self, x):
                threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
                return torch.tanh(x) * 2
        """,
        draws=1,
    )
    assert failed_checks(result) == {"no-leftover-work"}


def test_a_child_process_left_behind_shows(check):
    result = check(
        ELEMENTWISE,
        """
        import subprocess
        class ModelNew(Model):
            def forward(self, x):
                subprocess.Popen(["sleep", "2"])
                return torch.tanh(x) * 2
        """,
        draws=1,
    )
    assert failed_checks(result) == {"no-leftover-work"}


def test_changed_global_state_shows_and_is_put_back(check):
    before = torch.get_float32_matmul_precision()
    result = check(
        ELEMENTWISE,
        """
        class ModelNew(Model):
            def forward(self, x):
                torch.set_float32_matmul_precision("medium" if torch.get_float32_matmul_precision() != "medium" else "high")
                return torch.tanh(x) * 2
        """,
        draws=1,
    )
    assert failed_checks(result) == {"global-state"}
    assert torch.get_float32_matmul_precision() == before


def test_random_numbers_come_from_the_same_place_in_the_stream(check):
    problem = PROBLEM.replace("torch.relu(self.bn(self.fc(x)))", "torch.nn.functional.dropout(self.fc(x), 0.3)")
    result = check(problem, "class ModelNew(Model):\n    pass\n")
    assert wrong_outputs(result) == [] and failed_checks(result) == set()
    assert result["reference"] == "fp64"
    result = check(
        problem,
        "class ModelNew(Model):\n    def forward(self, x):\n        torch.rand(1)\n        return super().forward(x)\n",
    )
    assert "random-state" in failed_checks(result) and ("generator", "output[0]") in wrong_outputs(result)


def test_a_forward_that_insists_on_fp32_has_the_weaker_reference(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "(torch.tanh(x) * 2).view(torch.int32).view(torch.float32)")
    result = check(
        problem, "class ModelNew(Model):\n    def forward(self, x):\n        return torch.tanh(x) * 2\n", draws=2
    )
    assert result["reference"] == "fp32-eager" and "weaker" in result["reference_note"]
    row = result["draws"][0]["outputs"][0]
    assert row["eager"] == {"norm": 0.0, "max": 0.0} and row["sensitivity"]["norm"] > 0


def test_casts_inside_forward_stay_double_in_the_reference(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "torch.tanh(x.half().float()).to(torch.float32) * 2")
    result = check(problem, "class ModelNew(Model):\n    pass\n", draws=1)
    assert result["reference"] == "fp64"
    assert result["draws"][0]["outputs"][0]["eager"]["norm"] > 1e-5


def test_vacuous_answers_are_noted_draw_by_draw(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "torch.softmax(x.sum(1, keepdim=True), 1)")
    result = check(problem, "class ModelNew(Model):\n    pass\n", draws=5)
    near = {}
    for row in result["vacuous"]:
        if row["norm"] < 1e-6:
            near.setdefault(row["trivial"], []).append(row["draw"])
    everywhere = ["generator", "signed", "wide", "constant"]
    assert near == {
        "ones": everywhere,
        "a constant": everywhere[1:],
        "the output for other inputs and weights": everywhere[1:],
    }
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "torch.relu(x) * 1.0")
    result = check(problem, "class ModelNew(Model):\n    pass\n", draws=3)
    assert [(row["trivial"], row["draw"]) for row in result["vacuous"]] == [("input[0] itself", "generator")]
    result = check(ELEMENTWISE.replace("torch.tanh(x) * 2", "x.mean()"), "class ModelNew(Model):\n    pass\n", draws=4)
    assert "a constant" not in {row["trivial"] for row in result["vacuous"] if row["norm"] < 1e-6}


def test_integers_must_match_where_eager_does(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "x.argmax(1), x > 0.5")
    result = check(
        problem, "class ModelNew(Model):\n    def forward(self, x):\n        return x.argmin(1), x > 0.5\n", draws=1
    )
    assert wrong_outputs(result) == [("generator", "output[0]")]
    row = result["draws"][0]["outputs"][0]
    assert row["exact"] and row["mismatches"] > 0 and len(row["where"]) == 1
    assert row["ours_value"] != row["reference_value"]


def test_problem_that_changes_its_input_asks_the_same_of_the_candidate(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "x.tanh_() * 2")
    result = check(problem, "class ModelNew(Model):\n    pass\n")
    assert wrong_outputs(result) == [] and failed_checks(result) == set()
    result = check(problem, "class ModelNew(Model):\n    def forward(self, x):\n        return torch.tanh(x) * 2\n")
    assert ("generator", "input[0]") in wrong_outputs(result)


def test_expanded_and_strided_inputs_keep_their_form(check):
    problem = ELEMENTWISE.replace("[torch.rand(24, 40)]", "[torch.rand(24, 1).expand(24, 40)]")
    candidate = "class ModelNew(Model):\n    def forward(self, x):\n        assert x.stride() == (1, 0)\n        return torch.tanh(x) * 2\n"
    result = check(problem, candidate)
    assert wrong_outputs(result) == [] and failed_checks(result) == set()


def test_nested_results_keyword_values_and_empty_tensors(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "{'a': [x * 2, None], 'b': (x[:0], 3)}")
    result = check(problem, "class ModelNew(Model):\n    pass\n")
    assert wrong_outputs(result) == [] and failed_checks(result) == set()
    with pytest.raises(errors.Error) as caught:
        check(
            problem,
            "class ModelNew(Model):\n    def forward(self, x):\n        return {'a': [x * 2, None], 'b': [x[:0], 3]}\n",
        )
    assert caught.value.kind == "candidate" and caught.value.code == "output-structure"


@pytest.mark.parametrize(
    "body, code",
    [
        ("", "no-model-new"),
        ("ModelNew = 3\n", "model-new-not-module"),
        ("import nowhere.at.all\n", "missing-package"),
        ("class ModelNew(Model\n", "syntax-error"),
        ("1 / 0\n", "import-raised"),
        ("import sys\nsys.exit(0)\n", "exits"),
        ("class ModelNew(nn.Module):\n    def __init__(self, *sizes):\n        super().__init__()\n", "state-dict"),
        (
            "class ModelNew(Model):\n    def __init__(self, *args):\n        raise ValueError('no')\n",
            "constructor-raised",
        ),
        ("class ModelNew(Model):\n    def forward(self, x):\n        raise ValueError('no')\n", "forward-raised"),
        ("class ModelNew(Model):\n    def forward(self, x):\n        print('done')\n        exit()\n", "exits"),
        (
            "import subprocess\nsubprocess.run('echo k.cpp:3: error: no such type >&2; exit 1', shell=True, check=True, capture_output=True)\n",
            "compile-failed",
        ),
        ("class ModelNew(Model):\n    def forward(self, x):\n        return torch.empty(1 << 45)\n", "out-of-memory"),
    ],
)
def test_a_broken_candidate_is_explained(check, body, code):
    with pytest.raises(errors.Error) as caught:
        check(PROBLEM, body)
    assert caught.value.code == code
    assert caught.value.kind == ("missing" if code == "missing-package" else "candidate")
    if code == "compile-failed":
        assert "no such type" in caught.value.message and "k.cpp:3" in caught.value.detail
    if code == "forward-raised":
        assert caught.value.where == "candidate.py:16" and "raise ValueError" in caught.value.source


def test_a_problem_whose_forward_raises_is_the_users_fault(check):
    with pytest.raises(errors.Error) as caught:
        check(ELEMENTWISE.replace("torch.tanh(x) * 2", "x @ x"), "class ModelNew(Model):\n    pass\n")
    assert caught.value.kind == "user" and caught.value.where == "problem.py:7"


def test_a_draw_that_eager_cannot_take_is_skipped(check):
    problem = ELEMENTWISE.replace("torch.tanh(x) * 2", "torch.tanh(x) * 2 if x.min() >= 0 else 1 / 0")
    result = check(problem, "class ModelNew(Model):\n    pass\n")
    assert "skipped" in result["draws"][1] and "skipped" not in result["draws"][0]
