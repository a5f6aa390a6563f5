"""Texts that the fuzzers start from: seeds.py FOLDER makes FOLDER/graph_text and so on, a folder for each fuzzer."""

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


def answers() -> list[bytes]:
    """What a worker may write, framed."""
    from kernelwright import protocol

    events = [{"stage": "draw 2 of 7", "fraction": 0.28}, {"stage": "waiting", "fraction": -1, "waited": 0.5}]
    messages = [{"id": 1, "event": event} for event in events] + [{"id": 1, "result": {"draws": [1.5, "nan", None]}}]
    messages.append({"id": 1, "result": verified()})
    error = {"kind": "user", "code": "no-model", "message": "m", "where": "f.py:1", "source": "", "hint": "do it"}
    messages += [{"id": 1, "error": error}, {"id": 0, "result": {}}, {"id": 1, "event": {"data": "text"}}]
    frames = [protocol.encode(message) for message in messages]
    return [*frames, b"".join(frames)]


def verified() -> dict[str, object]:
    """What a worker answers to verify."""
    error, moved = {"norm": 1e-7, "max": "inf"}, {"rms": 0.1, "max": "nan"}
    output = {
        **dict.fromkeys(("dtype_ok", "shape_ok", "strides_ok", "device_ok", "nonfinite_ok"), True),
        "name": "output[0]", "dtype": "float32", "expected_dtype": "float32", "shape": [4], "expected_shape": [4],
        "strides": [1], "expected_strides": [1], "exact": False, "mismatches": 0, "ours": error, "eager": error,
        "sensitivity": error, "rounding": error, "epsilon": 1e-7, "compared": 4, "where": [1], "ours_value": 1.5,
        "reference_value": 1.0, "buckets": [{"low": 1.0, "count": 2, "ours": moved, "eager": moved, "moved": moved,
                                             "left_out": {"count": 2, "values": 2, "size": 1.5, "eager": 0.1}}],
    }  # fmt: skip
    trivial = {"output": "output[0]", "trivial": "zeros", "norm": 1.0, "max": 1.0, "eager": error, "epsilon": 1e-7}
    return {
        "reference": "fp64",
        "draws": [{"kind": "generator", "outputs": [output]}, {"kind": "special", "outputs": [], "skipped": "raises"}],
        "checks": [{"name": "guard-bands", "ok": True, "detail": ""}],
        "vacuous": [trivial],
        "kernelbench_gate": {"ok": True, "atol": 1e-4, "rtol": 1e-4},
    }


def main(folder: Path) -> None:
    golden = HOME / "tests" / "golden"
    parts = [part for path in (golden / "passes").glob("*.txt") for part in path.read_text().split("----\n")]
    group = {"nodes": [0, 1], "scheduler": "reduction", "parameters": {"r_block": 1024, "num_warps": 4}}
    lowered = [path.read_text() for path in (golden / "tile").glob("*.lowered")]
    programs = [text[text.index("program ") :] for text in lowered if "program " in text]
    texts = {
        "graph_text": ["".join(part.partition("graph ")[1:]) for part in parts],
        "graph_json": captured(),
        "kernel_text": [path.read_text() for path in (golden / "kernel").glob("*.kernel")],
        "protocol": answers(),
        "schedule": [json.dumps({"target": "triton", "groups": [group]})],
        "tile_text": [path.read_text() for path in (golden / "tile").glob("*.tile")] + programs,
    }
    for name, seeds in texts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / name / f"{number}").write_bytes(seed if isinstance(seed, bytes) else seed.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
