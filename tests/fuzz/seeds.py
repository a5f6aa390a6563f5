"""Texts that the fuzzers start from: seeds.py FOLDER makes FOLDER/graph_text, graph_json, kernel_text, protocol and
schedule.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn

HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HOME / "python"))


class Counted(nn.Module):
    """A buffer that is updated, a constant, a library call and a nested result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> dict[str, object]:
        self.calls.add_(1)
        y = torch.softmax(self.layer(x) * scale + torch.tensor([1.0, 2.0, 3.0, 4.0]), -1)
        return {"y": y, "parts": (y.sum(0), list(y.split(2)))}


def captured() -> list[str]:
    from kernelwright.capture import export

    calls = [
        (Counted(), torch.randn(4, 8)),
        (nn.Conv2d(2, 3, 3), torch.randn(1, 2, 5, 5)),
        (nn.Embedding(5, 4), torch.tensor([1, 2])),
    ]
    return [json.dumps(export.export_module(module, (argument,))) for module, argument in calls]


def answers() -> list[str]:
    """What a worker may write, framed."""
    from kernelwright import protocol

    events = [{"stage": "draw 2 of 7", "fraction": 0.28}, {"stage": "waiting", "fraction": -1, "waited": 0.5}]
    messages = [{"id": 1, "event": event} for event in events] + [{"id": 1, "result": {"draws": [1.5, "nan", None]}}]
    error = {"kind": "user", "code": "no-model", "message": "m", "where": "f.py:1", "source": "", "hint": "do it"}
    messages += [{"id": 1, "error": error}, {"id": 0, "result": {}}, {"id": 1, "event": {"data": "text"}}]
    frames = [protocol.encode(message).decode() for message in messages]
    return [*frames, "".join(frames)]


def main(folder: Path) -> None:
    golden = HOME / "tests" / "golden"
    parts = [part for path in (golden / "passes").glob("*.txt") for part in path.read_text().split("----\n")]
    kernels = [*(golden / "triton").glob("*.txt"), *(golden / "cpu").glob("*.txt")]
    group = {"nodes": [0, 1], "scheduler": "reduction", "parameters": {"r_block": 1024, "num_warps": 4}}
    texts = {
        "graph_text": ["".join(part.partition("graph ")[1:]) for part in parts],
        "graph_json": captured(),
        "protocol": answers(),
        "kernel_text": [path.read_text().partition("----\n")[0] for path in kernels],
        "schedule": [json.dumps({"target": "triton", "groups": [group]})],
    }
    for name, seeds in texts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / name / f"{number}").write_text(seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
