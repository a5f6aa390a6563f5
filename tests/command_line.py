"""Running `kw` from tests: one call, or a line-by-line child that keeps its worker, so that a hundred bad files cost
one import of PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

GOOD = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.softmax(torch.tanh(x) * self.weight, dim=-1)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
"""


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """`kw` with an archive and a current folder of its own."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        self.environment = dict(os.environ, KW_ARCHIVE=str(folder / "archive.db"), TMPDIR=str(self._made("tmp")))

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def file(self, name: str, text: str | bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def start(
        self, *arguments: object, env: dict[str, str] | None = None, prefix: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[str]:
        """`prefix`: words before the command."""
        return subprocess.Popen(
            [*prefix, str(self.binary), *map(str, arguments)],
            cwd=self.folder,
            env=self.environment | (env or {}),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            **options,
        )

    def __call__(self, *arguments: object, env: dict[str, str] | None = None, **options: Any) -> Result:
        process = self.start(*arguments, env=env, **options)
        out, err = process.communicate(timeout=600)
        # The JSON document may hold one, as the detail of a candidate that raised.
        assert "Traceback" not in (err if "--json" in arguments else out + err), out + err
        return Result(process.returncode, out, err)


class Emitter:
    """Answers for one problem file after another from one process."""

    def __init__(self, kw: CommandLine) -> None:
        self.kw = kw
        self.process = kw.start("bench-worker", stdin=subprocess.PIPE, stderr=None)

    def __call__(self, problem: str, target: str = "cpu", timeout: float = 120, size: str = "") -> dict[str, Any]:
        request = {
            "problem": problem,
            "output": str(self.kw.folder / "out_kw.py"),
            "target": target,
            "size": size,
            "policy": "reference",
            "budget": 0,
            "emit_only": True,
            "baselines": [],
            "draws": 0,
            "timeout": timeout,
        }
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = {"waiting": ""}
        while "waiting" in answer:
            answer = json.loads(self.process.stdout.readline())
        assert "Traceback" not in answer.get("text", "")
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)
