"""The `kw` command of an installed package: becomes the packaged program, with this Python for its worker."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process by the packaged binary; exits with 3 where it cannot run."""
    package = Path(__file__).resolve().parent
    # An editable install leaves the package's Python in the checkout and its binary in site-packages.
    places = [package, *(Path(entry, "kernelwright") for entry in sys.path if entry)]
    binary = next((place / "bin" / "kw" for place in places if (place / "bin" / "kw").exists()), None)
    if binary is None:
        print(
            "kw: the package has no program in it; install it again: pip install --force-reinstall .", file=sys.stderr
        )
        sys.exit(3)
    os.environ.setdefault("KW_PYTHON", sys.executable)
    os.environ.setdefault("KW_PYTHONPATH", str(package.parent))
    os.execv(binary, [str(binary), *sys.argv[1:]])
