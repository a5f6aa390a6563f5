"""Candidates in Triton's interpreter: a process of its own, since TRITON_INTERPRET=1 holds for a whole process. It is
asked line by line, in JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
FOLDERS = [TESTS, TESTS / "python", TESTS / "e2e", TESTS / "property", TESTS.parent / "python"]


class InterpreterProcess:
    """Calls `function` ("module:name") with each request, a dictionary; it raises, or gives a text, where the candidate
    is at fault.
    """

    def __init__(self, folder: Path, function: str) -> None:
        path = os.pathsep.join([*map(str, FOLDERS), os.environ.get("PYTHONPATH", "")])
        self.log = open(folder / "interpreter.txt", "w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, function],
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def fault(self, **request: Any) -> str:
        """What is wrong with the candidate; empty where nothing is."""
        assert self.process.stdin and self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.log.seek(0)
            raise AssertionError("the interpreter's process died:\n" + self.log.read()[-2000:])
        return json.loads(answer)["fault"]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.log.close()


def main(function: str) -> None:
    import numpy as np
    import torch

    from kernelwright import interpreter

    interpreter.install()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # only what the candidate itself warns of is told
    module, name = function.split(":")
    check = getattr(importlib.import_module(module), name)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            fault = check(json.loads(line)) or ""
        except Exception:
            fault = traceback.format_exc(limit=-12)
        print(json.dumps({"fault": fault}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
