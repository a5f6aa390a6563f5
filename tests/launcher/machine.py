"""A make-believe machine for the launcher: a checkout whose tools are scripts that note how they were called."""

import os
import shutil
import subprocess
from pathlib import Path

REAL_TOOLS = (
    "awk bash cat chmod cp cut date df dirname env find flock grep head ln mkdir mv nproc readlink rm sed sleep sort tac tail touch tr uname"
).split()

# Answers what the set-up asks of a Python; TORCH_HERE, LACKS, LACKS_MODELS and PIP_SAYS steer it.
PYTHON = r"""#!/bin/bash
echo "python $*" >>"$CALLS"
case "$*" in
  *'version("torch")) >='*|*'found = version("torch")'*) echo "${TORCH_HERE-ok 2.13.0+cpu}" ;;
  *cache_tag*) echo cpython-311 ;;
  *removesuffix*) for name in $LACKS_MODELS; do echo "$name"; done ;;
  *find_spec*) echo "$LACKS" ;;
  *'-m venv'*) target=${!#}; mkdir -p "$target/bin"; cp "$0" "$target/bin/python" ;;
  *'-m pip install'*) [[ -n $PIP_SAYS ]] && { echo "$PIP_SAYS"; exit 1; }; [[ -n $NO_CPU_WHEEL && "$*" == *+cpu && "$*" != *--index-url* ]] && exit 1; exit 0 ;;
  *nvidia-*) exit "${CUDA_INSTALLED:-0}" ;;
  *'sys.version_info < (3, 10)'*) exit "${TOO_OLD:-0}" ;;
  *run.py*) echo "tests ran: ${*:2}" ;;
  *) exit 0 ;;
esac
"""

# "Configures" and "builds" a program that prints how it was called.
CMAKE = r"""#!/bin/bash
echo "cmake $*" >>"$CALLS"
if [[ $1 == -S ]]; then
  mkdir -p "$4"; touch "$4/build.ninja"
  printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\nCMAKE_GENERATOR:INTERNAL=Ninja\n' "$2" >"$4/CMakeCache.txt"
  [[ "$*" == *KW_TESTS=ON* ]] && echo KW_TESTS:BOOL=ON >>"$4/CMakeCache.txt"
  exit 0
fi
[[ -n $BUILD_SAYS ]] && { echo "$BUILD_SAYS"; exit 1; }
[[ -n $BUILD_TAKES ]] && sleep "$BUILD_TAKES"
printf '#!/bin/bash\necho "program: $*"; echo "python=$KW_PYTHON path=$KW_PYTHONPATH home=$KW_HOME"; exit ${PROGRAM_EXIT:-0}\n' >"$2/kw"
chmod +x "$2/kw"
"""

DPKG_QUERY = r"""#!/bin/bash
for name in "${@:3}"; do [[ " $MISSING " == *" $name "* ]] || echo "$name installed"; done
"""

APT_GET = r"""#!/bin/bash
echo "apt-get $*" >>"$CALLS"
[[ -n $APT_SAYS ]] && { echo "$APT_SAYS"; exit 100; }
exit 0
"""


class Machine:
    """One checkout and one PATH in a folder of its own."""

    def __init__(self, folder: Path, home: Path):
        self.checkout = folder / "a checkout"
        self.tools = folder / "tools"
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        self.tools.mkdir()
        (self.checkout / "src").mkdir(parents=True)
        (self.checkout / "cmake").mkdir()
        (self.checkout / "CMakeLists.txt").touch()
        (self.checkout / "src" / "a.cpp").touch()
        shutil.copy(home / "kw", self.checkout / "kw")
        shutil.copytree(home / "setup", self.checkout / "setup")
        for name in REAL_TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))
        for name in ("c++", "ninja", "dpkg", "ccache"):
            self.add_tool(name, "#!/bin/bash\nexit 0\n")
        self.add_tool("cmake", CMAKE)
        self.add_tool("python3", PYTHON)
        self.add_tool("dpkg-query", DPKG_QUERY)
        self.add_tool("apt-get", APT_GET)

    def add_tool(self, name: str, script: str) -> Path:
        path = self.tools / name
        path.write_text(script)
        path.chmod(0o755)
        return path

    def remove_tool(self, name: str) -> None:
        (self.tools / name).unlink()

    def environment(self, **settings: str) -> dict[str, str]:
        return {"PATH": str(self.tools), "HOME": str(self.checkout), "CALLS": str(self.calls_file), **settings}

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen:
        """Starts `kw` in the background, in a session of its own."""
        return subprocess.Popen(
            [self.checkout / "kw", *arguments],
            env=self.environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kw(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess:
        """Runs `kw` to its end."""
        process = self.start(*arguments, **settings)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def calls(self, of: str = "") -> list[str]:
        """How the tools were called so far, one line a call."""
        return [line for line in self.calls_file.read_text().splitlines() if line.startswith(of)]

    def forget_calls(self) -> None:
        self.calls_file.write_text("")


def edited_later(path: Path) -> None:
    """Gives a file a time that no clock's grain can hide."""
    now = path.stat().st_mtime if path.exists() else 0
    os.utime(path, (now + 2, now + 2))
