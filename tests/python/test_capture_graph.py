"""What capture makes of calls, results, types, names and places: every graph is run again with PyTorch's ops and
compared with the module itself.
"""

import copy
import json
import time

import pytest
import torch
import torch.utils.checkpoint
from capture_check import compare, module_of, ops, x34
from torch import nn
from torch.nn import functional as F

from kernelwright.capture import export

# -- calls and results


def test_nested_results_keep_their_shape():
    compare(module_of(lambda self, x: {"a": [x + 1, (x, None)], "b": {"c": 3, "d": "text", "e": 1.5}, "f": True}), x34)
    compare(module_of(lambda self, x: torch.max(x, 1)[1]), x34)
    compare(module_of(lambda self, x: [x * 2]), x34)
    graph = compare(module_of(lambda self, x: None), x34)
    assert graph["result"] == {"constant": None}


def test_numbers_among_the_inputs_become_constants():
    graph = compare(
        module_of(lambda self, x, scale, text=None, flag=False: x * scale + 1 if flag else x), x34, 2.5, flag=True
    )
    assert graph["user_inputs"] == [
        {"path": ["args", 0], "name": "x", "value": 0},
        {"path": ["args", 1], "name": "scale", "constant": 2.5},
        {"path": ["kwargs", "flag"], "name": "flag", "constant": True},
    ]
    assert [item["name"] for item in graph["signature"]] == ["x", "scale", "text", "flag"]
    assert graph["signature"][3] == {"name": "flag", "kind": "plain", "default": False}


def test_nested_and_keyword_inputs_have_paths():
    def forward(self, pair, *rest, mask=None, **others):
        return pair[0] + pair[1]["k"] + rest[0] + rest[1] + mask + others["extra"]

    tensors = list(torch.randn(6, 3, 4))
    graph = compare(
        module_of(forward), (tensors[0], {"k": tensors[1]}), tensors[2], tensors[3], mask=tensors[4], extra=tensors[5]
    )
    assert [(item["path"], item["name"]) for item in graph["user_inputs"]] == [
        (["args", 0, 0], "pair"),
        (["args", 0, 1, "k"], "pair"),
        (["args", 1], "rest_0"),
        (["args", 2], "rest_1"),
        (["kwargs", "mask"], "mask"),
        (["kwargs", "extra"], "extra"),
    ]


def test_forward_without_tensors():
    graph = compare(module_of(lambda self: torch.arange(5) * 2))
    assert graph["user_inputs"] == []
    compare(module_of(lambda self, n: torch.ones(n, 2)), 3)


def test_forward_that_returns_its_input_or_a_parameter():
    graph = compare(module_of(lambda self, x: (x, self.weight), weight=nn.Parameter(torch.ones(2))), x34)
    assert graph["nodes"] == []
    assert [item["value"] for item in graph["outputs"]] == [graph["inputs"][1]["value"], graph["inputs"][0]["value"]]


# -- dtypes, strides, sizes


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    ],
)
def test_dtypes(dtype):
    compare(
        module_of(lambda self, x: (x + x, x > 1, x.sum(), x.to(torch.float32))),
        torch.arange(12).reshape(3, 4).to(dtype),
    )


def test_booleans_and_complex_numbers():
    compare(module_of(lambda self, x: (x & ~x, x.any(1), x.all())), x34 > 0)
    compare(module_of(lambda self, x: ((x * x).abs(), torch.view_as_real(x))), torch.randn(3, dtype=torch.complex64))


def test_half_precision_modules():
    compare(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU()).half(), x34.half(), tolerance=1e-3)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 3).t(),
        torch.randn(3, 8)[:, ::2],
        torch.randn(1, 4).expand(3, 4),
        torch.randn(3, 1).expand(3, 4),
        torch.randn(10).as_strided((3, 4), (2, 1)),
    ],
    ids=["transposed", "strided", "expanded rows", "expanded columns", "overlapping"],
)
def test_strides_of_inputs_are_kept(tensor):
    graph = compare(module_of(lambda self, x: (x * 2, x.sum(0))), tensor)
    assert graph["values"][0]["strides"] == list(tensor.stride())


def test_channels_last_reaches_the_output():
    graph = compare(nn.ReLU(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert graph["values"][-1]["strides"] == [60, 1, 15, 3]


CONVOLUTIONS = [
    nn.Conv2d(8, 16, 3, padding=1),
    nn.Conv2d(8, 8, 3, groups=8),
    nn.ConvTranspose2d(8, 16, 3, stride=2, output_padding=1),
    nn.Conv3d(8, 16, 3, dilation=2),
    nn.Conv3d(8, 8, 3, groups=8),
    nn.ConvTranspose3d(8, 16, 3),
]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_convolutions_of_channels_last_are_channels_last(layer, device):
    """As oneDNN and cuDNN return them, the latter also where there is none to be asked."""
    shape = (2, 8, 6, 6) if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) else (2, 8, 6, 6, 6)
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x = torch.randn(shape)
    for argument in (x, x.to(memory_format=layout)):
        graph = export.export_module(layer, (argument,), device=device)
        assert graph["values"][-1]["strides"] == list(layer(argument).stride())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
def test_results_lie_as_the_library_of_a_small_convolution_lays_them(layer, dtype):
    """One sample, which oneDNN computes of some layers only, and other dtypes."""
    layer = copy.deepcopy(layer).to(dtype)
    is_plane = isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))
    x = torch.randn((1, 8, 6, 6) if is_plane else (1, 8, 6, 6, 6), dtype=dtype)
    argument = x.to(memory_format=torch.channels_last if is_plane else torch.channels_last_3d)
    graph = export.export_module(layer, (argument,), device="cpu")
    assert graph["values"][-1]["strides"] == list(layer(argument).stride())


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_empty_tensors(shape):
    compare(module_of(lambda self, x: (x + 1, x.sum())), torch.randn(shape))


def test_scalars_and_special_numbers():
    graph = compare(
        module_of(lambda self, x: torch.clamp(x, min=float("-inf"), max=2).nan_to_num(nan=float("inf")) + 1.0),
        torch.tensor(1.5),
    )
    assert graph["values"][0]["shape"] == []
    assert '"f": "-inf"' in json.dumps(graph["nodes"])


def test_integer_and_float_arguments_stay_apart():
    graph = compare(module_of(lambda self, x: (x * 2, x * 2.0)), torch.arange(4))
    assert [json.dumps(node["args"][1]) for node in graph["nodes"]] == ['["other", 2]', '["other", 2.0]']


# -- names and places


def test_access_expressions_are_as_one_would_write_them():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
            self.blocks = nn.ModuleDict({"a": nn.Linear(4, 4), "b.c".replace(".", "-"): nn.Linear(4, 4)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(4))])
            self.named = nn.ParameterDict({"key": nn.Parameter(torch.ones(4))})
            self.shift = torch.ones(4)
            self.cache = {"k": [torch.ones(4)]}
            self.tied = self.layers[0].weight

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            for block in self.blocks.values():
                x = block(x)
            return F.linear(x, self.tied) * self.scales[0] * self.named["key"] + self.shift + self.cache["k"][0]

    graph = compare(Inner(), x34)
    access = {item["access"] for item in graph["inputs"]}
    assert {
        "self.layers[0].weight",
        "self.layers[1][0].bias",
        'self.blocks["a"].weight',
        'self.blocks["b-c"].bias',
        "self.scales[0]",
        'self.named["key"]',
        "self.shift",
        "self.cache['k'][0]",
        "x",
    } <= access


def test_tensor_attribute_behind_a_class_attribute():
    Model = type(
        "Model", (nn.Module,), {"mask": None, "forward": lambda self, x: x if self.mask is None else x * self.mask}
    )
    module = Model()
    module.mask = torch.arange(4.0)
    graph = compare(module, x34)
    assert ops(graph) == ["mul.Tensor"] and graph["inputs"][0]["access"] == "self.mask"


def test_modules_that_cannot_be_copied():
    import threading

    def forward(self, x):
        with self.lock:
            return self.inner(x) * self.scale

    compare(module_of(forward, lock=threading.Lock(), inner=nn.Sequential(nn.Linear(4, 4)), scale=torch.ones(4)), x34)


def test_small_constants_travel_with_the_graph():
    table = torch.tensor([[1.0, float("inf")], [-2.5, float("nan")]])
    graph = compare(module_of(lambda self, x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + table.nansum()), x34)
    data = [item["data"] for item in graph["inputs"] if item["kind"] == "constant"]
    assert [1.0, 2.0, 3.0, 4.0] in data and [[1.0, {"f": "inf"}], [-2.5, {"f": "nan"}]] in data


def test_parameters_say_whether_they_are_trained():
    layer = nn.Linear(4, 5)
    layer.bias.requires_grad_(False)
    graph = compare(layer, x34)
    assert {item["target"]: item["requires_grad"] for item in graph["inputs"]} == {
        "weight": True,
        "bias": False,
        "args.0": False,
    }


def test_nodes_name_the_line_of_the_users_file():
    def forward(self, x):
        y = self.layer(x)
        return torch.relu(y)

    def helper(x):
        return torch.tanh(x)

    graph = compare(module_of(lambda self, x: helper(forward(self, x)), layer=nn.Linear(4, 4)), x34)
    first = forward.__code__.co_firstlineno
    assert [node["location"] for node in graph["nodes"]] == [
        f"test_capture_graph.py:{first + line}" for line in (1, 2, 5)
    ]


def test_weight_norm_and_parametrizations():
    compare(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), x34)
    compare(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)).eval(), x34)


def test_gradients_turned_on_within_forward():
    def forward(self, x):
        with torch.enable_grad():
            y = self.layer(x)
        return y * 2

    compare(module_of(forward, layer=nn.Linear(4, 4)), x34)


def test_scripted_checkpointed_and_custom_functions_are_seen_through():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def forward(self, x):
        x = torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.layer(x)
        return Doubled.apply(x), torch.vmap(lambda row: row.sum())(x)

    compare(module_of(forward, layer=nn.Linear(4, 4)), x34)


def test_attributes_that_forward_only_records_do_no_harm():
    def forward(self, x):
        self.calls += 1
        self.shapes.append(x.shape)
        return x + 1

    compare(module_of(forward, calls=0, shapes=[]), x34)


def test_one_module_used_twice_and_no_grad_blocks():
    def forward(self, x):
        with torch.no_grad():
            y = self.layer(x)
        return self.layer(y)

    compare(module_of(forward, layer=nn.Linear(4, 4)), x34)


# -- devices and sizes beyond this machine


def test_graphs_for_cuda_need_no_gpu():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.recurrent = nn.LSTM(4, 4)

        def forward(self, x):
            mask = torch.ones(3, 4, device=x.device) + torch.zeros(4).to("cuda") + torch.zeros(4).cuda()
            return F.dropout(self.recurrent(self.norm(x))[0] * mask, 0.5)

    graph = export.export_module(Model(), (x34,), device="cuda")
    assert {value["device"] for value in graph["values"] if value["name"] not in ("full_1", "full_2")} == {"cuda"}
    assert "lstm.input" in ops(graph)


def test_state_left_on_the_cpu_is_captured_where_it_settles():
    def forward(self, x):
        self.state = torch.tanh(self.layer(x + self.state.to(x.device)))
        return self.state

    graph = export.export_module(
        module_of(forward, layer=nn.Linear(4, 4), state=torch.zeros(3, 4)), (x34,), device="cuda"
    )
    assert {value["device"] for value in graph["values"]} == {"cuda"}


def test_huge_models_cost_nothing_to_capture():
    with torch.device("meta"):
        module = nn.Linear(1 << 17, 1 << 17)
    began = time.monotonic()
    graph = export.export_module(module, (torch.empty(16, 1 << 17, device="meta"),), device="cuda")
    assert graph["bytes"]["parameter"] == 4 * ((1 << 34) + (1 << 17)) and time.monotonic() - began < 20


@pytest.mark.alone
@pytest.mark.slow
def test_long_unrolled_loops_serialise_quickly():
    from kernelwright.capture import decompositions, fake, graph_json, tracing

    def forward(self, x):
        for _ in range(500):
            x = torch.sin(x) * 0.5 + x
        return x

    mode = fake.new_mode()
    module = module_of(forward)
    (x,) = fake.fake_values((x34,), mode, None)
    program = torch.export.export(module, (x,), strict=False).run_decompositions(decompositions.table())
    began = time.process_time()
    with tracing.collector_paused():
        graph = graph_json.serialise(program, graph_json.Origin("loop", "", module), (x,), {})
    assert len(graph["nodes"]) == 1500
    assert time.process_time() - began < 0.05 / 1000 * 1500, "5 s for 100,000 nodes"
