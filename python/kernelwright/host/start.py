"""The nursery's first file: `python start.py DESCRIPTOR`, with a Unix socket to the judge.

What is imported here a candidate finds in its process. So there is nothing in it that judges: our few modules stand
under another name than the package's (where torch.compile finds them, too), and the environment and the module search
path have nothing of ours.
"""

import importlib
import os
import sys
import types


def nursery() -> types.ModuleType:
    """The module `nursery`, imported without the package that judges."""
    alias = types.ModuleType("_resident")
    alias.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules[alias.__name__] = alias
    return importlib.import_module("_resident.host.nursery")


if __name__ == "__main__":
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder and os.path.abspath(folder) != own]
    serve, descriptor = nursery().serve, int(sys.argv[1])
    sys.argv[:] = [""]
    del __file__, own, nursery, importlib, types
    serve(descriptor)
    os._exit(0)
