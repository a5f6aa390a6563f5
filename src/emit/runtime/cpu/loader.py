# --- The loader: compiles CPP_SOURCE on first use on this machine; later processes find the library in the user's cache ---

COMPILER_FLAGS = (
    "-O3 -march=native -fopenmp -std=c++17 -shared -fPIC -fwrapv "
    # NaN, infinities and rounding stay as written; without errno and traps the loops still vectorise.
    "-fno-math-errno -fno-trapping-math -ffp-contract=off "
    # Both make conditions on conditions of what is a choice between two numbers, and such loops do not vectorise.
    "-fno-tree-pre -fno-thread-jumps"
).split()


def find_compiler():
    """The C++ compiler: $CXX, else g++, clang++ or c++ from PATH."""
    for words in (shlex.split(os.environ.get("CXX", "")), ["g++"], ["clang++"], ["c++"]):
        path = shutil.which(words[0]) if words else None
        if path:
            return [path, *words[1:]]
    raise RuntimeError("These kernels need a C++ compiler: install g++ (Debian, Ubuntu: apt install g++) or set CXX to one.")


def writable(folder):
    """The folder; where it cannot be written, one that goes when the process ends."""
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = tempfile.mkdtemp(prefix="kernels-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def lines_of(path):
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().splitlines()
    return []


@functools.cache
def load_kernels():
    compiler = find_compiler()
    # PyTorch's own libgomp where it has loaded one, so that the kernels share its threads instead of starting a second set.
    runtime = sorted({line.split(maxsplit=5)[-1] for line in lines_of("/proc/self/maps") if "/libgomp" in line})[:1]
    libraries = ["-Wl,--as-needed", *runtime]
    # -march=native depends on the processor.
    processor = next((line for line in lines_of("/proc/cpuinfo") if line.startswith(("flags", "Features"))), "")
    version = os.stat(compiler[0])
    identity = [CPP_SOURCE, *compiler, *COMPILER_FLAGS, *libraries, f"{version.st_size} {version.st_mtime_ns}", processor]
    name = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:32]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernelwright", "cpu")
    path = os.path.join(cache, name)
    if not os.path.exists(path + ".so"):
        path = os.path.join(writable(cache), name)
        # Whole before it has its name: other threads and processes may be at the same.
        with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as drafts:
            draft = os.path.join(drafts, "draft")
            with open(draft, "w", encoding="utf-8") as file:
                file.write(CPP_SOURCE)
            os.replace(draft, path + ".cpp")
            command = [*compiler, *COMPILER_FLAGS, path + ".cpp", *libraries, "-o", draft]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                shown = f"Source: {path}.cpp\nCommand: {' '.join(command)}\n{done.stderr}"
                raise RuntimeError(f"{compiler[0]} could not compile the kernels of this file.\n{shown}")
            os.replace(draft, path + ".so")
    kernels = ctypes.CDLL(path + ".so")
    for name, pointers, integers in KERNEL_PARAMETERS:
        getattr(kernels, name).argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int] * integers
        getattr(kernels, name).restype = None
    return kernels
