"""Folders for a while (running/scratch.py)."""

import subprocess
import time
from pathlib import Path

from kernelwright.running.scratch import Scratch

_WRITES = 'i=0; while cd "$0" 2>/dev/null; do i=$((i + 1)); : > "file$i"; done'


def test_a_folder_goes_though_a_process_that_is_ending_writes_there():
    scratch = Scratch()
    with subprocess.Popen(["timeout", "-s", "KILL", "0.3", "bash", "-c", _WRITES, scratch.path]) as writer:
        time.sleep(0.1)
        scratch.close()
        writer.wait()
    assert not Path(scratch.path).exists()
