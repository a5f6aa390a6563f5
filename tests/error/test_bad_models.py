"""Every way in which a model may be unusable: one message, its exit code, and a run that the same command continues."""

import json
import time

import pytest
from command_line import GOOD
from model_server import ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(300)]

PAGE = "<!doctype html><html><body>It works!</body></html>"


def hang(handler, body):
    time.sleep(20)


def half(handler, body):
    handler.begin_stream()
    handler.event("half an ans")
    handler.close_connection = True


def endless(handler, body):
    handler.begin_stream()
    try:
        while True:
            handler.event("and so on and so on\n")
    except OSError:
        handler.close_connection = True


def error(message: str) -> str:
    return json.dumps({"error": {"message": message}})


# name, answer, exit code, code of the error, what the message says
BAD = [
    ("wrong_key", {"status": 401, "body": error("bad key")}, 2, "wrong-key", "refuses the key"),
    ("no_such_model", {"status": 404, "body": error("unknown model")}, 2, "no-such-model", "unknown model"),
    ("web_page", {"status": 200, "body": PAGE, "type": "text/html"}, 2, "not-an-api", "a web page"),
    ("too_long", {"status": 400, "body": error("maximum context length is 10")}, 2, "context-too-long", "context"),
    ("server_error", {"status": 500, "body": error("cuda died")}, 3, "server-error", "cuda died"),
    (
        "rate_limit",
        {"status": 429, "body": error("slow down"), "headers": {"Retry_After": "0.1"}},
        3,
        "rate-limited",
        "slow down",
    ),
    ("half_a_stream", half, 3, "broken-answer", "in the middle"),
    ("hangs", hang, 3, "server-silent", "no answer within 1 s"),
]


def run(kw, model, *arguments, samples=1, silence=1):
    problem = kw.file("problem.py", GOOD)
    return kw(
        "generate",
        problem,
        "--model",
        model,
        "-k",
        samples,
        "--target",
        "cpu",
        "--budget",
        0,
        "--retries",
        2,
        "--silence",
        silence,
        "--json",
        "-",
        *arguments,
    )


@pytest.mark.parametrize("name, answer, code, slug, says", BAD, ids=[row[0] for row in BAD])
def test_one_message_and_a_run_that_goes_on(kw, name, answer, code, slug, says):
    with ModelServer([answer]) as server:
        result = run(kw, server.url)
        assert result.code == code, result.text
        report = json.loads(result.out)
        assert report["error"]["code"] == slug, report["error"]
        assert says in report["error"]["message"]
        assert result.err.count("error:") == 1, result.err
        assert "the same command goes on" in result.err
        if name == "half_a_stream":
            server.answers = ["no code here"]
            assert run(kw, server.url).code == 1


def test_endless_and_empty_answers_are_samples_that_fail(kw):
    with ModelServer([endless, ""]) as server:
        result = run(kw, server.url, "--concurrency", 1, samples=2, silence=20)
    assert result.code == 1, result.text
    assert [sample["turns"][0]["code"] for sample in result.json()["samples"]] == ["repetition", "empty"]


def test_no_server(kw):
    began = time.monotonic()
    result = run(kw, "http://127.0.0.1:9/v1")
    assert result.code == 3
    assert "There is no server at 127.0.0.1:9" in result.err
    assert time.monotonic() - began < 60


def test_prompt_longer_than_the_context_asks_nothing(kw):
    with ModelServer(["x"], context=600) as server:
        result = run(kw, server.url, "--max-tokens", 300)
        assert result.code == 2 and "tokens long" in result.err, result.text
        result = run(kw, server.url, "--max-tokens", 3000)
        assert result.code == 2 and "leaves nothing for the prompt" in result.err
        assert not server.requests


def test_model_files(kw):
    for text, says in (
        (b"", "is empty"),
        (b"not a model at all", "is no GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ):
        result = run(kw, kw.file("model.gguf", text))
        assert result.code == 2 and says in result.err, result.text
    assert run(kw, "nowhere.gguf").code == 2
    folder = kw.folder / "folder"
    folder.mkdir()
    result = run(kw, folder)
    assert result.code == 2 and "config.json" in result.err
    result = kw("generate", kw.file("problem.py", GOOD))
    assert result.code == 2 and "--model" in result.err


def test_a_problem_that_does_not_load_asks_nothing(kw):
    with ModelServer(["x"]) as server:
        result = kw(
            "generate", kw.file("broken.py", "import torch\nclass Model(torch.nn.Module:\n"), "--model", server.url
        )
        assert result.code == 2 and "not valid Python" in result.err
        assert not server.requests
