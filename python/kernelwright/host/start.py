"""The nursery's first file, given by standard input after a line that says where it lies, so that the command line of
candidates' processes names nobody: `python - DESCRIPTOR`.

The descriptor is a Unix socket to the judge, or a file that the judge has left for itself: then this process imports
PyTorch, forks the nursery, and is the judge again, so that PyTorch is imported once for both.

What is imported here a candidate finds in its process. So there is nothing in it that judges: our few modules stand
under another name than the package's (where torch.compile finds them, too), and the environment and the module search
path have nothing of ours. The judge's file is read after the fork, by the judge alone.
"""

import gc
import importlib
import os
import socket
import stat
import sys
import types

_LARGEST_DESCRIPTOR = 1 << 16


def nursery() -> types.ModuleType:
    """The module `nursery`, imported without the package that judges, and with it PyTorch."""
    alias = types.ModuleType("_resident")
    alias.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules[alias.__name__] = alias
    module = importlib.import_module("_resident.host.nursery")
    module.import_libraries()
    return module


def _fork(left: int) -> int:
    """In the nursery: its socket. The judge goes on from what it has `left` and does not return."""
    control, other = socket.socketpair()
    number = os.fork()
    if number == 0:
        return other.detach()
    other.close()
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, home)
    importlib.import_module("kernelwright.worker").go_on(left, number, control)
    os._exit(0)


if __name__ == "__main__":
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder and os.path.abspath(folder) != own]
    # The garbage collector would walk PyTorch's million objects again and again while they are imported.
    gc.disable()
    serve, descriptor = nursery().serve, int(sys.argv[1])
    gc.enable()
    sys.argv[:] = [""]
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        gc.freeze()
        descriptor = _fork(descriptor)
    # Whatever was left open by what started this process, or is the judge's.
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, _LARGEST_DESCRIPTOR)
    del __file__, own, nursery, _fork, gc, importlib, socket, stat, types
    serve(descriptor)
    os._exit(0)
