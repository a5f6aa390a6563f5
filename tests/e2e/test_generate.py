"""`kw generate` against a scripted server: real prompts, extraction, verification and archive, with answers that are
known beforehand.
"""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import GOOD
from model_server import RIGHT, WRONG, ModelServer, fenced, late

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(400)]

QUICKLY = ("--target", "cpu", "--budget", 0, "--draws", 1, "--json", "-")


def generate(kw, server, *arguments, **options):
    return kw("generate", kw.file("problem.py", GOOD), "--model", server.url, *QUICKLY, *arguments, **options)


def codes(report):
    return [sample["turns"][-1]["code"] for sample in report["samples"]]


def test_the_best_of_k_is_kept_and_every_sample_accounted_for(kw):
    cut_off = "```python\n" + RIGHT[:700]
    with ModelServer([fenced(RIGHT), fenced(WRONG), "I am sorry.", cut_off]) as server:
        result = generate(kw, server, "-k", 4, "--concurrency", 1)
    assert result.code == 0, result.text
    report = result.json()
    assert codes(report) == ["pass", "inaccurate", "no-code", "syntax-error"], report
    assert (report["judged"], report["passed"], report["ran"]) == (4, 1, 2)
    assert report["pass_at_k"]["1"] == 0.25 and report["pass_at_k"]["4"] == 1.0
    assert report["samples"][0]["turns"][0]["repairs"] == ["imports added: torch, nn"]
    assert report["tokens"]["completion"] > 0 and report["overhead_ms"]["median"] < 1000
    written = Path(report["candidate"])
    assert written.name == "problem_kw.py" and "Made by Kernelwright with scripted" in written.read_text()
    assert kw("verify", "problem.py", written, "--target", "cpu", "--draws", 5).code == 0
    # Messages carry the problem and the form; sampling parameters are those that were asked for.
    sent = server.requests[0]
    assert (
        "torch.softmax(torch.tanh(x)" in sent["messages"][-1]["content"]
        and "compile_cpp" in sent["messages"][-1]["content"]
    )
    assert (sent["temperature"], sent["top_p"]) == (1.0, 0.97)
    assert len({request["seed"] for request in server.requests}) == 4


def test_none_passed_is_exit_code_1_and_no_file(kw):
    with ModelServer([fenced(WRONG)]) as server:
        result = generate(kw, server, "-k", 2)
    assert result.code == 1, result.text
    assert not (kw.folder / "problem_kw.py").exists()
    report = result.json()
    assert report["verdict"] == "fail" and "of 2 samples" in report["reason"]
    # The same wrong source twice is one verification.
    assert report["ran"] == 1


def test_more_samples_go_on_from_the_archive(kw):
    with ModelServer(["nothing", "nothing at all"]) as server:
        generate(kw, server, "-k", 2, "--concurrency", 1)
        assert len(server.requests) == 2
        report = generate(kw, server, "-k", 5, "--concurrency", 1).json()
        assert len(server.requests) == 5
        assert report["judged"] == 5
        assert [sample["turns"][0].get("reused", False) for sample in report["samples"]] == [
            True,
            True,
            False,
            False,
            False,
        ]
        # Another seed, or --fresh, is another matter.
        generate(kw, server, "-k", 2, "--seed", 7)
        assert len(server.requests) == 7


def test_a_failure_is_the_next_turns_message(kw):
    with ModelServer([fenced(WRONG), fenced(RIGHT)]) as server:
        report = generate(kw, server, "-k", 1, "--repair", 2).json()
    assert report["verdict"] == "pass" and report["passed_at_first"] == 0
    assert report["pass_at_k"]["1"] == 1.0 and report["pass_at_k_without_repair"]["1"] == 0.0
    assert len(server.requests) == 2
    roles = [message["role"] for message in server.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    told = server.requests[1]["messages"][-1]["content"]
    assert "relative error" in told and "worst at" in told and "should be" in told, told


def test_a_compilers_words_reach_the_model(kw):
    broken = RIGHT.replace("double total = 0;", "double total = nonsense;")
    with ModelServer([fenced(broken), "```python\nclass ModelNew(:\n```", fenced(RIGHT)]) as server:
        report = generate(kw, server, "-k", 1, "--repair", 3).json()
    assert report["verdict"] == "pass"
    assert "nonsense" in server.requests[1]["messages"][-1]["content"]
    assert "class ModelNew(:" in server.requests[2]["messages"][-1]["content"]


def test_the_same_wrong_answer_ends_a_conversation(kw):
    with ModelServer([fenced(WRONG)]) as server:
        report = generate(kw, server, "-k", 1, "--repair", 5).json()
    assert report["verdict"] == "fail"
    assert len(server.requests) == 2


# The same kernel, many times over.
SLOW = RIGHT.replace(
    "for (int64_t row = 0; row < rows; ++row) {",
    "for (int repeat = 0; repeat < 60; ++repeat)\n  for (int64_t row = 0; row < rows; ++row) {",
)


def test_a_right_answer_that_is_slower_than_eager_is_not_written(kw):
    with ModelServer([fenced(SLOW)]) as server:
        timed = ("--target", "cpu", "--budget", 2, "--baseline", "eager", "--draws", 1)
        # With one thread, so that eager does not wait for a second where others keep the cores busy.
        result = kw(
            "generate",
            kw.file("problem.py", GOOD),
            "--model",
            server.url,
            *timed,
            "-k",
            1,
            "--json",
            "slow.json",
            env={"OMP_NUM_THREADS": "1"},
        )
    assert result.code == 1 and result.out.startswith("slower "), result.text
    report = json.loads((kw.folder / "slow.json").read_text())
    assert report["verdict"] == "pass" and report["written"] is False
    assert not (kw.folder / "problem_kw.py").exists()


def test_a_right_answer_is_told_its_times_and_may_be_improved(kw):
    with ModelServer([fenced(SLOW), fenced(RIGHT), fenced(WRONG)]) as server:
        timed = (
            "--target",
            "cpu",
            "--budget",
            2,
            "--baseline",
            "eager",
            "--min-speedup",
            0,
            "--draws",
            1,
            "--json",
            "-",
        )
        result = kw("generate", kw.file("problem.py", GOOD), "--model", server.url, *timed, "-k", 1, "--improve", 3)
        assert result.code == 0, result.text
        report = result.json()
        # The third answer is wrong, and --repair was not asked for.
        assert len(server.requests) == 3
        told = server.requests[1]["messages"][-1]["content"]
        assert (
            "ModelNew is right, and takes" in told
            and "times as long" in told
            and "outside PyTorch's operators" in told
            and "Make it faster" in told
        ), told
        # A problem of a thousand elements; and nobody has said which kernels are whose.
        assert "bound by the launch of a kernel" in told and "the library's" not in told, told
        assert server.requests[1]["messages"][-2]["content"] == fenced(SLOW)
        turns = report["samples"][0]["turns"]
        assert (
            [turn["code"] for turn in turns] == ["pass", "pass", "inaccurate"]
            and "times" in turns[1]
            and "times" not in turns[2]
        )
        assert report["passed"] == 1 and "repeat < 60" not in Path(report["candidate"]).read_text()
        assert report["best_at_k"]["1"] >= 1 and "best@1" in result.err
        # All of it is in the archive.
        assert generate(kw, server, "-k", 1, "--improve", 3).json()["passed"] == 1 and len(server.requests) == 3


def test_asking_ends_with_its_time(kw):
    with ModelServer([late(3, "nothing")]) as server:
        result = generate(kw, server, "-k", 50, "--concurrency", 1, "--ask-seconds", 7)
        assert result.code == 1, result.text
        report = result.json()
        assert 1 <= report["judged"] <= 3 and "--ask-seconds" in report["notes"][0] and "--ask-seconds" in result.err
        again = generate(kw, server, "-k", report["judged"], "--ask-seconds", 7).json()
        assert again["judged"] == report["judged"] and "notes" not in again


def test_search_and_model_share_what_the_budget_has_beyond_timing(kw):
    with ModelServer([late(1, "nothing")]) as server:
        command = (
            "optimize",
            kw.file("problem.py", GOOD),
            "--proposer",
            "auto",
            "--model",
            server.url,
            "-k",
            40,
            "--concurrency",
            1,
        )
        result = kw(
            *command,
            "--target",
            "cpu",
            "--budget",
            16,
            "--baseline",
            "eager",
            "--min-speedup",
            0,
            "--draws",
            1,
            "--json",
            "-",
        )
    assert result.code == 0, result.text
    report = result.json()
    assert report["winner"] == "scheduler" and report["search"]["budget_seconds"] == 3
    assert 1 <= report["proposers"][1]["judged"] <= 3


def test_ctrl_c_keeps_what_is_found_and_the_same_command_goes_on(kw):
    def hang(handler, body):
        handler.begin_stream()
        handler.event("I think")
        time.sleep(60)

    command = ("generate", kw.file("problem.py", GOOD), "--model")
    with ModelServer([fenced(RIGHT), hang]) as server:
        process = kw.start(*command, server.url, *QUICKLY, "-k", 3, "--concurrency", 1)
        deadline = time.monotonic() + 90
        while not (kw.folder / "problem_kw.py").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130, out + err
        assert "1 of 3 samples are in the archive" in err
        report = json.loads(out)
        assert report["interrupted"] is True and report["passed"] == 1
        server.answers = ["no"]
        again = kw(*command, server.url, *QUICKLY, "-k", 3)
        assert again.code == 0
        assert [sample["passed"] for sample in again.json()["samples"]] == [True, False, False]
        assert len(server.requests) == 4


def test_keys_are_sent_and_never_kept(kw):
    key = "sk-unmistakable-4711"
    refusal = {"status": 401, "body": json.dumps({"error": {"message": f"Incorrect API key provided: {key}."}})}
    with ModelServer(["nothing", refusal]) as server:
        result = generate(kw, server, "-k", 2, "--concurrency", 1, "--key-variable", "MY_KEY", env={"MY_KEY": key})
    assert set(server.keys) == {f"Bearer {key}"}
    assert result.code == 2 and "refuses the key" in result.err and "***" in result.err
    assert key not in result.text
    for path in kw.folder.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


def test_completions_are_exported_for_training(kw):
    with ModelServer([fenced(WRONG), fenced(RIGHT)]) as server:
        generate(kw, server, "-k", 1, "--repair", 1)
    lines = [json.loads(line) for line in kw("archive", "export", "--completions").out.splitlines()]
    assert [(line["turn"], line["reward"]["passed"], line["reward"]["ran"]) for line in lines] == [
        (0, False, True),
        (1, True, True),
    ]
    assert [message["role"] for message in lines[1]["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert "class ModelNew" in lines[0]["candidate"]
    assert lines[0]["verdict"]["code"] == "inaccurate"
    assert lines[0]["request"]["temperature"] == 1.0


def test_timing_chooses_among_those_that_passed(kw):
    slow = RIGHT.replace(
        "for (int64_t row = 0; row < rows; ++row) {",
        "for (int repeat = 0; repeat < 200; ++repeat)\n  for (int64_t row = 0; row < rows; ++row) {",
    )
    with ModelServer([fenced(slow), fenced(RIGHT)]) as server:
        result = kw(
            "generate",
            kw.file("problem.py", GOOD),
            "--model",
            server.url,
            "-k",
            2,
            "--concurrency",
            1,
            "--target",
            "cpu",
            "--draws",
            1,
            "--budget",
            3,
            "--baseline",
            "eager",
            "--min-speedup",
            0,
            "--json",
            "-",
        )
    report = result.json()
    assert report["passed"] == 2 and report["time_ms"]["ours"] > 0
    assert "repeat" not in Path(report["candidate"]).read_text()


HARM = """
import torch.hub


class ModelNew(Model):
    def forward(self, x):
        {what}
        return super().forward(x)
"""
KERNEL = RIGHT[: RIGHT.index("class ModelNew")]


def harmful(what: str) -> str:
    """Past the static checks: a kernel that is compiled and called, and beside it what a kernel has no business with."""
    used = "\n\ndef unused(x):\n    kernels.tanh_softmax(pointer(x))\n"
    return fenced(KERNEL + used + HARM.format(what=what))


def may_make_namespaces() -> bool:
    return (
        subprocess.run(["unshare", "--user", "--pid", "--net", "--fork", "true"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not may_make_namespaces(), reason="this system permits no user namespaces")
def test_harm_is_contained(kw):
    target = kw.folder / "precious.txt"
    target.write_text("precious")
    answers = [
        harmful(f"torch.hub.os.remove({str(target)!r})"),
        harmful(f"torch.hub.os.system('echo gone > {target}')"),
        harmful("torch.hub.urlopen('http://192.0.2.1/', timeout=5)"),
        harmful("torch.hub.os.kill(1, 9); torch.hub.os.kill(-1, 9)"),
        harmful("torch.hub.os.write(1, b'pass'); torch.hub.os.closerange(3, 64)"),
        harmful("torch.hub.os.ftruncate(torch.hub.os.open('large', 66), 1 << 45)"),
        harmful("self.kept = torch.ones(1 << 42, dtype=torch.uint8)"),
        harmful(
            "[torch.hub.os.fork() or torch.hub.os._exit(0) for _ in range(2000)]"
        ),  # nobody waits for them, so that they all count
        fenced(RIGHT),
    ]
    with ModelServer(answers) as server:
        report = generate(kw, server, "-k", len(answers), "--concurrency", 1).json()
    assert not any("namespaces" in line for line in report["sandbox"]["missing"]), report["sandbox"]
    assert target.read_text() == "precious"
    bounded = not any("bounded processes" in line for line in report["sandbox"]["missing"])
    # The shell's failure is its own; what is computed is right all the same. The others raise, or end their own
    # process.
    assert [sample["passed"] for sample in report["samples"]] == [
        False,
        True,
        False,
        False,
        False,
        False,
        False,
        not bounded,
        True,
    ], report["samples"]


@pytest.mark.skipif(
    not may_make_namespaces(), reason="this system permits no user namespaces, so that none can be forbidden"
)
def test_without_a_sandbox_the_report_says_what_is_missing(kw):
    """In a user namespace that allows no further ones."""
    wrapper = kw.file("forbid.sh", 'echo 0 > /proc/sys/user/max_user_namespaces\nexec "$@"\n')
    prefix = ["unshare", "--user", "--map-root-user", "sh", str(wrapper)]
    with ModelServer([fenced(RIGHT)]) as server:
        result = generate(kw, server, "-k", 1, prefix=prefix)
    assert result.code == 0, result.text
    missing = result.json()["sandbox"]["missing"]
    assert any("no network: namespaces are not permitted here" in line for line in missing), missing
    assert "unprotected no network" in result.err
    same = kw.file("same.py", GOOD.split("def get_inputs")[0] + "\n\nclass ModelNew(Model):\n    pass\n")
    for words, kind in ((prefix, "none"), ([], "namespaces")):
        run = kw("verify", kw.file("problem.py", GOOD), same, "--target", "cpu", "--json", "-", prefix=words)
        assert run.code == 0 and run.json()["sandbox"]["kind"] == kind, run.text


def test_prompts_can_be_seen_without_a_model(kw):
    problem = kw.file("problem.py", GOOD)
    shown = kw("generate", problem, "--show-prompt", "--target", "cpu")
    assert shown.code == 0
    for part in ("=== system", "=== user", "torch.softmax(torch.tanh(x)", "scale_add_relu", "tokens"):
        assert part in shown.out, part
    assert "scale_add_relu" not in kw("generate", problem, "--show-prompt", "--target", "cpu", "--shots", 0).out
    assert "=== raw" in kw("generate", problem, "--show-prompt", "--target", "cpu", "--prompt", "kernelllm").out
    own = kw.file("own.txt", "=== raw\nMake it fast:\n{{problem}}\n")
    assert "Make it fast:\nimport torch" in kw("generate", problem, "--show-prompt", "--prompt", own).out
    bad = kw("generate", problem, "--show-prompt", "--prompt", kw.file("bad.txt", "=== raw\n{{nonsense}}\n"))
    assert bad.code == 2 and "{{nonsense}}" in bad.err


def test_solved_problems_become_examples(kw):
    with ModelServer([fenced(RIGHT)]) as server:
        generate(kw, server, "-k", 1)
    like = kw.file("like.py", GOOD.replace("torch.tanh(x)", "torch.sigmoid(x)"))
    shown = kw("generate", like, "--show-prompt", "--target", "cpu", "--shots", 2).out
    assert "Examples, of other modules" in shown and "tanh_softmax" in shown
    assert "def compile_cpp" not in shown


def test_the_compilers_kernels_become_examples_that_would_pass(kw):
    """In the form that models are asked for: said back as an answer, an example is right."""
    scaled = GOOD.replace("torch.softmax(torch.tanh(x) * self.weight, dim=-1)", "torch.tanh(x) * self.weight + 1")
    assert kw("optimize", kw.file("solved.py", scaled), "--target", "cpu", "--budget", 0, "--draws", 1).code == 0
    shown = kw(
        "generate", kw.file("like.py", scaled.replace("+ 1", "+ 2")), "--show-prompt", "--target", "cpu", "--shots", 2
    ).out
    example = next((block.split("```")[0] for block in shown.split("```python\n") if "def kernel_forward" in block), "")
    assert "CPP_SOURCE" in example and "super().__init__()" in example and "def find_compiler" not in example, shown
    with ModelServer([fenced(example)]) as server:
        result = kw("generate", "solved.py", "--model", server.url, *QUICKLY, "-k", 1)
    assert result.code == 0, result.text + example


def test_a_suite_gives_pass_at_k_and_goes_on_per_sample(kw):
    kw.file("suite/one.py", GOOD)
    kw.file("suite/two.py", GOOD.replace("torch.tanh(x)", "torch.tanh(x) * 1.0"))
    bench = ("bench", "suite", "--target", "cpu", "--budget", 0, "--draws", 1, "--json", "-", "--concurrency", 1)
    with ModelServer([fenced(RIGHT), "no", "no", fenced(WRONG)]) as server:
        first = kw(*bench, "--proposer", f"llm:{server.url}", "-k", 2)
        assert first.code == 1, first.text
        group = first.json()["all"]
        assert group["correct"] == 1 and group["samples"] == 4 and group["pass_at_k"] == {"1": 0.25, "2": 0.5}
        assert len(server.requests) == 4
        more = kw(*bench, "--proposer", f"llm:{server.url}", "-k", 3)
        assert len(server.requests) == 6
        assert more.json()["all"]["pass_at_k"]["1"] == pytest.approx(1 / 6)
    for nobody in ("magic", "llm", "llm:", "all:smollm2"):
        assert kw(*bench, "--proposer", nobody).code == 2


def test_a_suites_compiler_is_the_floor_too(kw):
    kw.file("suite/one.py", GOOD)
    bench = (
        "bench",
        "suite",
        "--target",
        "cpu",
        "--budget",
        2,
        "--draws",
        1,
        "--baseline",
        "eager",
        "--json",
        "-",
        "-k",
        1,
        "--concurrency",
        1,
        "--price-read",
        3,
        "--price-written",
        15,
    )
    with ModelServer([fenced(WRONG)]) as server:
        result = kw(*bench, "--proposer", f"auto:{server.url}")
        assert result.code == 0, result.text
        group = result.json()["all"]
        model = group["proposers"][f"llm:{server.url}"]
        assert group["correct"] == 1 and group["proposers"]["scheduler"]["kept"] == 1 and model["passed"] == 0
        assert model["cost"] == pytest.approx((3 * model["tokens_read"] + 15 * model["tokens_written"]) / 1e6)
    # A server that is gone costs nothing but what it would have found.
    result = kw(*bench, "--proposer", "auto:http://127.0.0.1:9/v1", "--retries", 1)
    assert result.code == 0 and result.json()["all"]["correct"] == 1, result.text


def test_the_compilers_kernel_is_the_floor(kw):
    command = (
        "optimize",
        kw.file("problem.py", GOOD),
        "--target",
        "cpu",
        "--budget",
        2,
        "--draws",
        1,
        "--baseline",
        "eager",
        "--min-speedup",
        0,
        "--proposer",
        "auto",
        "--json",
        "-",
        "-k",
        2,
    )
    with ModelServer([fenced(SLOW), fenced(WRONG)]) as server:
        result = kw(*command, "--model", server.url, "--price-read", 3, "--price-written", 15)
    assert result.code == 0, result.text
    report = result.json()
    tokens = report["proposers"][1]["tokens"]
    assert report["proposers"][1]["cost"] == pytest.approx((3 * tokens["prompt"] + 15 * tokens["completion"]) / 1e6)
    assert f"tokens for {report['proposers'][1]['cost']:.4g}" in result.err, result.err
    assert report["winner"] == "scheduler"
    assert [one["proposer"].split(":")[0] for one in report["proposers"]] == ["scheduler", "llm"]
    assert report["proposers"][1]["passed"] == 1 and report["proposers"][1]["tokens"]["completion"] > 0
    assert "repeat" not in Path(report["candidate"]).read_text()
    # A server that is gone does not cost the compiler's answer.
    result = kw(*command, "--model", "http://127.0.0.1:9/v1")
    assert result.code == 0, result.text
    assert any("no server" in note for note in result.json()["notes"])
    assert kw("optimize", "problem.py", "--proposer", "auto").code == 2
