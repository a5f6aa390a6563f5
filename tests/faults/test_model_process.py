"""`kw generate` where its Python processes are killed while a server writes the first answer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import GOOD
from model_server import RIGHT, ModelServer, fenced

sys.path.insert(0, str(Path(__file__).resolve().parent))

import processes  # noqa: E402


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_a_server_is_asked_once_more_where_the_process_that_asked_was_killed(kw_binary, tmp_path):
    started, killed = [], []

    def kill(handler, body):
        for process, kind in processes.kinds(started[0].pid).items():
            if kind == "worker":
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    (tmp_path / "problem.py").write_text(GOOD)
    with ModelServer([kill, fenced(RIGHT)]) as server:
        command = [kw_binary, "generate", "problem.py", "--model", server.url, "-k", "1", "--target", "cpu"]
        options = ["--draws", "2", "--baseline", "eager", "--budget", "0.3", "--min-speedup", "0", "--json", "-"]
        environment = os.environ | {
            "KW_ARCHIVE": str(tmp_path / "archive.db"),
            "KW_PYTHON": os.environ.get("KW_PYTHON", sys.executable),
        }
        with subprocess.Popen(
            [*command, *options], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as run:
            started.append(run)
            out, log = run.communicate(timeout=180)
    assert killed and run.returncode == 0, log.decode()
    assert [sample["turns"][-1]["code"] for sample in json.loads(out)["samples"]] == ["pass"]
