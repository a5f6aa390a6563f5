import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile


def compile_cpp(source):
    """Compiles C++ with OpenMP into a library, once per source, and loads it."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "c++"
    flags = ["-O3", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off"]
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "kernelwright", "cpu")
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(folder, hashlib.sha256("\0".join([source, compiler, *flags]).encode()).hexdigest()[:32] + ".so")
    if not os.path.exists(library):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            path = os.path.join(scratch, "kernels.cpp")
            with open(path, "w") as file:
                file.write(source)
            command = [*compiler.split(), *flags, path, "-o", path + ".so"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{compiler} could not compile the kernels of this file.\n{done.stderr.replace(path, 'kernels.cpp')}")
            os.replace(path + ".so", library)
    return ctypes.CDLL(library)


def pointer(tensor):
    assert tensor.is_contiguous() and tensor.device.type == "cpu", "kernels take contiguous tensors of the CPU"
    return ctypes.c_void_p(tensor.data_ptr())


integer, real = ctypes.c_int64, ctypes.c_float
