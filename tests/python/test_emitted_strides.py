"""Strides that PyTorch's library chooses for itself: asked at every call, and copied only where a kernel was made for
others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_emitted_modes import load
from torch import nn

from kernelwright import library
from kernelwright.capture import export

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Convolved(nn.Module):
    """What a kernel reads, and what goes to the caller as the library made it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(self.first(x)) * 2.0, self.second(x)


def test_strides_that_the_library_chooses_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Convolved().eval()
    loaded = load(library.compile_graph(export.export_module(module, (X,)), "cpu")["source"], tmp_path)
    made = loaded.ModelNew(module)
    copied: list[bool] = []
    restore = loaded.restore_strides

    def watched(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        kept = restore(tensor, strides)
        copied.append(kept is not tensor)
        return kept

    def channels_last(*args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.ops.aten.conv2d.default(*args, **kwargs).to(memory_format=torch.channels_last)

    loaded.restore_strides = watched
    with torch.no_grad():
        for library_call, copies in ((torch.conv2d, [False]), (channels_last, [True])):
            monkeypatch.setattr(torch, "conv2d", library_call)  # nn.Conv2d has taken its own when it was imported
            copied.clear()
            ours, expected = made(X), module(X)
            torch.testing.assert_close(ours, expected)
            assert copied == copies  # only what the kernel reads, and only where it differs
            assert ours[0].stride() == expected[0].stride()
            assert ours[1].stride() == library_call(X, module.second.weight, bias=module.second.bias).stride()


def test_what_always_comes_as_captured_is_not_asked() -> None:
    source = library.compile_graph(export.export_module(TopShares(), (torch.zeros(2, 9000),)), "cpu")["source"]
    assert "aten.topk" in source and "restore_strides" not in source


class TopShares(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.topk(x, 100, -1)
        return F.softmax(values, -1), places + 1
