"""Checks candidates for movement_cases in Triton's interpreter, one line of JSON a request: {"case", "seed", "candidate"} → {"fault"}."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
import warnings

import numpy as np
import torch
from movement_cases import CASES, Draw, fault_of

from kernelwright import interpreter


def main() -> None:
    interpreter.install()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            spec = importlib.util.spec_from_file_location("candidate", request["candidate"])
            assert spec and spec.loader
            candidate = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(candidate)
            fault = fault_of(CASES[request["case"]](Draw(request["seed"])), candidate)
        except Exception:
            fault = traceback.format_exc(limit=-12)
        print(json.dumps({"fault": fault}), file=answers, flush=True)


if __name__ == "__main__":
    main()
