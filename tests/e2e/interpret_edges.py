"""Checks candidates for edge cases in Triton's interpreter, one line of JSON a request, since TRITON_INTERPRET=1 holds for a whole process:
{"edge": name, "candidate": path} → {"fault": text, empty where it passed}."""

from __future__ import annotations

import json
import sys
import traceback
import warnings

import numpy as np
import torch
from edge_cases import EDGES, check

from kernelwright import interpreter, problem


def main() -> None:
    interpreter.install()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        fault = ""
        try:
            check(EDGES[request["edge"]], problem.load_module(request["candidate"], kind="candidate")[0], on_gpu=True)
        except Exception:
            fault = traceback.format_exc(limit=-12)
        print(json.dumps({"fault": fault}), file=answers, flush=True)


if __name__ == "__main__":
    main()
