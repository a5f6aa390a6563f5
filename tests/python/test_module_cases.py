"""Which modules of torch.nn take a library call, on either target: a list that may only become shorter."""

from __future__ import annotations

import pytest
from module_cases import CASES

from kernelwright import library
from kernelwright.capture import export

# What stays the library's, by the beginnings of the cases' names. Random numbers are PyTorch's stream; what is computed
# from them is ours. These graphs are captured on the CPU: on a GPU dropout's masks are ours too (test_keep_mask.py).
LIBRARY = {
    "FractionalMaxPool": {"aten.rand"},
    "Dropout train": {"aten.native_dropout"},
    "Dropout1d train": {"aten.empty", "aten.bernoulli"},
    "Dropout2d train": {"aten.empty", "aten.bernoulli"},
    "Dropout3d train": {"aten.empty", "aten.bernoulli"},
    "AlphaDropout train": {"aten.empty_permuted", "aten.bernoulli"},
    "FeatureAlphaDropout train": {"aten.empty", "aten.bernoulli"},
    "RReLU train": {"aten.empty", "aten.rrelu_with_noise_functional"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_library_calls(name: str) -> None:
    allowed = next((calls for start, calls in LIBRARY.items() if name.startswith(start)), set())
    module, arguments = CASES[name]()
    graph = export.export_module(module, arguments)
    for target in ("triton", "cpu"):
        assert set(library.compile_graph(graph, target)["library_ops"]) <= allowed, target
