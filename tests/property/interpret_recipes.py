"""Checks candidates for recipes in Triton's interpreter, one line of JSON a request, since TRITON_INTERPRET=1 holds for a whole process:
{"recipe", "candidate": path} → {"fault": text, empty where it passed}."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from recipe_check import check, load

from kernelwright import interpreter


def main() -> None:
    interpreter.install()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    # Only what the candidate itself warns of is told.
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        fault = ""
        try:
            check(request["recipe"], load(Path(request["candidate"])))
        except Exception:
            fault = traceback.format_exc(limit=-12)
        print(json.dumps({"fault": fault}), file=answers, flush=True)


if __name__ == "__main__":
    main()
