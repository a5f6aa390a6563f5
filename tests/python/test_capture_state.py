"""What a forward changes, and the random numbers that it draws."""

import pytest
import torch
from capture_check import compare, kinds, module_of, ops, x34
from torch import nn
from torch.nn import functional as F

from kernelwright.capture import export

# -- mutation


def test_batch_norm_in_training_returns_its_running_statistics():
    graph = compare(nn.BatchNorm2d(4), torch.randn(3, 4, 5, 5))
    mutated = [item["target"] for item in graph["outputs"] if item["kind"] == "buffer_mutation"]
    assert sorted(mutated) == ["num_batches_tracked", "running_mean", "running_var"]


def test_batch_norm_in_eval_changes_nothing():
    graph = compare(nn.BatchNorm2d(4).eval(), torch.randn(3, 4, 5, 5))
    assert [item["kind"] for item in graph["outputs"]] == ["user"] and graph["training"] is False


def test_instance_norm_updates_its_running_statistics():
    graph = compare(nn.InstanceNorm1d(4, track_running_stats=True), torch.randn(3, 4, 5))
    assert {"running_mean", "running_var"} <= {item["target"] for item in graph["outputs"]}


def test_buffer_written_by_forward_is_an_output():
    module = module_of(lambda self, x: x + self.count.add_(1))
    module.register_buffer("count", torch.zeros(4))
    graph = compare(module, x34)
    assert graph["outputs"][0] == {"value": graph["outputs"][0]["value"], "kind": "buffer_mutation", "target": "count"}


def test_state_may_have_the_names_of_a_graph_modules_own_attributes():
    module = module_of(lambda self, x: self.graph(x * self.code) + self.meta.add_(1) + self.code_of_model)
    module.register_buffer("code", torch.randn(4))
    module.register_buffer("code_of_model", torch.randn(4))
    module.register_buffer("meta", torch.zeros(4))
    module.graph = nn.Linear(4, 4)
    graph = compare(module, x34)
    assert {item["target"] for item in graph["inputs"]} == {
        "code",
        "code_of_model",
        "meta",
        "graph.weight",
        "graph.bias",
        "args.0",
    }
    assert [item["target"] for item in graph["outputs"] if item["kind"] == "buffer_mutation"] == ["meta"]


def test_input_written_by_forward_is_an_output():
    def forward(self, x, y):
        y[1:, ::2] = 7.0
        y.mul_(2)
        return x + y

    graph = compare(module_of(forward), x34, torch.randn(3, 4))
    assert [(item["kind"], item["target"]) for item in graph["outputs"]] == [("input_mutation", "args.1"), ("user", "")]


def test_in_place_ops_on_views_become_functional():
    def forward(self, x):
        y = x.clone()
        y[0].relu_()
        y.t()[1].add_(1)
        out = torch.zeros(3, 4, dtype=x.dtype)
        for row in range(3):
            out[row] = y[row] * row
        return out, F.relu(y, inplace=True)

    compare(module_of(forward), x34)


def test_tensor_attribute_that_forward_replaces_is_state():
    def forward(self, x):
        self.state = torch.tanh(x + self.state)
        return self.state * 2

    module = module_of(forward, state=torch.ones(3, 4))
    graph = export.export_module(module, (x34,))
    assert kinds(graph)["state"] == "constant"
    assert [(item["kind"], item["target"]) for item in graph["outputs"]] == [("buffer_mutation", "state"), ("user", "")]
    assert torch.equal(module.state, torch.ones(3, 4)), "the caller's module was changed"


# -- random numbers


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: F.dropout(x, 0.4) + F.dropout(x, 0.1),
        lambda self, x: x + torch.rand_like(x) * torch.randn(4),
        lambda self, x: torch.bernoulli(torch.sigmoid(x)) + torch.rand(3, 1),
        lambda self, x: F.dropout1d(x, 0.5) + torch.randint(0, 10, (4,)),
        lambda self, x: F.alpha_dropout(x, 0.5, training=True),
    ],
)
def test_random_ops_keep_their_place_in_the_stream(forward):
    compare(module_of(forward), x34)


def test_dropout_in_eval_and_with_probability_zero_draws_nothing():
    for layer in (nn.Dropout(0.5).eval(), nn.Dropout(0.0)):
        assert set(ops(compare(layer, x34))) <= {"clone.default"}
