COMPILER_FLAGS = (
    "-O3 -march=native -fopenmp -std=c++17 -shared -fPIC -fwrapv "
    # NaN, infinities and rounding stay as written; without errno and traps the loops still vectorise.
    "-fno-math-errno -fno-trapping-math -ffp-contract=off "
    # Both make conditions on conditions of what is a choice between two numbers, and such loops do not vectorise.
    "-fno-tree-pre -fno-thread-jumps"
).split()


def find_compiler() -> list[str]:
    """The C++ compiler: $CXX, else g++, clang++ or c++ from PATH."""
    for words in (shlex.split(os.environ.get("CXX", "")), ["g++"], ["clang++"], ["c++"]):
        path = shutil.which(words[0]) if words else None
        if path:
            return [path, *words[1:]]
    raise RuntimeError("These kernels need a C++ compiler: install g++ (Debian, Ubuntu: apt install g++) or set CXX to one.")


def openmp_runtime() -> list[str]:
    """PyTorch's own libgomp where it has loaded one, so that the kernels share its threads instead of starting a second set."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if re.search(r"/libgomp[^/]*\.so[^/]*$", line.rstrip())}
    except OSError:
        return []
    return sorted(paths)[:1]


def cache_folder() -> str:
    """A folder of the user's for compiled kernels; a temporary one where that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "kernelwright", "cpu")
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError:
        return tempfile.mkdtemp(prefix="kernels-")


def processor_features() -> str:
    """What -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as info:
            return next((line for line in info if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


@functools.cache
def load_kernels() -> ctypes.CDLL:
    """Compile CPP_SOURCE on first use on this machine, then load it; later processes find it in the cache."""
    compiler = find_compiler()
    version = os.stat(os.path.realpath(compiler[0]))
    libraries = ["-Wl,--as-needed", *openmp_runtime()]
    identity = [CPP_SOURCE, *compiler, *COMPILER_FLAGS, *libraries, str(version.st_size), str(version.st_mtime_ns), processor_features()]
    name = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:32]
    folder = cache_folder()
    library = os.path.join(folder, name + ".so")
    if not os.path.exists(library):
        source = os.path.join(folder, name + ".cpp")
        private = f"{os.path.join(folder, name)}.{os.getpid()}.{threading.get_ident()}"
        with open(private + ".cpp", "w") as file:
            file.write(CPP_SOURCE)
        os.replace(private + ".cpp", source)
        command = [*compiler, *COMPILER_FLAGS, source, *libraries, "-o", private + ".so"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{compiler[0]} could not compile the kernels of this file.\nSource: {source}\nCommand: {' '.join(command)}\n{done.stderr}")
        os.replace(private + ".so", library)
    kernels = ctypes.CDLL(library)
    for kernel, pointers, integers in KERNEL_PARAMETERS:
        function = getattr(kernels, kernel)
        function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int] * integers
        function.restype = None
    return kernels
