from pathlib import Path

import pytest

from launcher.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, home: Path) -> Machine:
    """A machine on which everything is installed and the user's Python has PyTorch."""
    return Machine(tmp_path, home)
