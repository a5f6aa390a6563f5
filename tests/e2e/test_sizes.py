"""A problem with several sizes: --size chooses, the target does where it is left out, and each size is a problem of its
own.
"""

import json
import re
from pathlib import Path

import pytest
from command_line import GOOD, CommandLine

SIZED = GOOD.replace(
    "def get_inputs():\n    return [torch.randn(16, 64)]",
    "def get_inputs(size='full'):\n    return [torch.randn(SIZES[size]['rows'], 64)]",
).replace("class Model", "SIZES = {'cpu': {'rows': 3}, 'full': {'rows': 7}, 'tiny': {'rows': 1}}\n\n\nclass Model")


def rows(kw: CommandLine, problem: str, *arguments: str) -> int:
    """How many rows the captured input has."""
    result = kw("inspect", problem, "--stage", "graph", *arguments)
    assert result.code == 0, result.text
    found = re.search(r"f32\[(\d+), *64\]", result.out)
    assert found, result.out
    return int(found[1])


def test_the_target_chooses(kw: CommandLine) -> None:
    problem = kw.file("sized.py", SIZED)
    assert rows(kw, problem, "--target", "cpu") == 3
    assert rows(kw, problem, "--target", "triton") == 7


def test_the_option_chooses(kw: CommandLine) -> None:
    problem = kw.file("sized.py", SIZED)
    assert rows(kw, problem, "--target", "cpu", "--size", "full") == 7
    assert rows(kw, problem, "--target", "triton", "--size", "tiny") == 1


def test_a_parameter_size_without_a_table_is_the_files_own(kw: CommandLine) -> None:
    problem = kw.file(
        "own.py",
        GOOD.replace(
            "def get_inputs():\n    return [torch.randn(16, 64)]",
            "def get_inputs(size=5):\n    return [torch.randn(size, 64)]",
        ),
    )
    assert rows(kw, problem, "--target", "cpu") == 5


@pytest.mark.parametrize(
    "text, code, says",
    [
        (GOOD, "no-sizes", "one size only"),
        (SIZED, "no-such-size", "cpu, full, tiny"),
        (re.sub(r"SIZES = \{.*\}", "SIZES = [1, 2]", SIZED), "no-sizes", "not a table"),
    ],
    ids=["no_sizes", "unknown_name", "no_table"],
)
def test_wrong_sizes_are_explained(kw: CommandLine, text: str, code: str, says: str) -> None:
    result = kw("inspect", kw.file("problem.py", text), "--size", "huge", "--target", "cpu", "--json", "-")
    assert result.code == 2
    error = result.json()["error"]
    assert error["code"] == code
    assert says in error["message"] + error["hint"]


def test_each_size_is_verified_and_kept_by_itself(kw: CommandLine) -> None:
    problem = kw.file("sized.py", SIZED)
    run = ("optimize", problem, "--target", "cpu", "--budget", 0, "--json", "report.json")
    reports = []
    for arguments in ((), ("--size", "tiny"), ("--size", "cpu")):
        result = kw(*run, *arguments)
        assert result.code == 0, result.text
        reports.append(json.loads((kw.folder / "report.json").read_text()))
    assert [report["size"] for report in reports] == ["cpu", "tiny", "cpu"]
    assert reports[0]["problem_hash"] == reports[2]["problem_hash"] != reports[1]["problem_hash"]
    assert [report["from_archive"] for report in reports] == [False, False, True]
    assert "size cpu" in Path(reports[2]["candidate"]).read_text().splitlines()[0]
    again = kw("verify", problem, reports[2]["candidate"], "--target", "cpu", "--size", "cpu")
    assert again.code == 0, again.text


def test_bench_runs_a_size(kw: CommandLine) -> None:
    problem = kw.file("suite/sized.py", SIZED)
    result = kw("bench", problem, "--target", "cpu", "--size", "tiny", "--budget", 0, "--draws", 1, "--out", "out")
    assert result.code == 0, result.text
    (line,) = map(json.loads, (kw.folder / "out" / "results.jsonl").read_text().splitlines())
    assert line["verdict"] == "pass" and line["size"] == "tiny"


def test_bench_runs_a_size_where_problems_have_sizes(kw: CommandLine) -> None:
    paths = [kw.file("sized.py", SIZED), kw.file("plain.py", GOOD)]
    result = kw("bench", *paths, "--target", "cpu", "--size", "tiny", "--budget", 0, "--draws", 1, "--out", "out")
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in (kw.folder / "out" / "results.jsonl").read_text().splitlines()]
    assert {line["name"]: line["size"] for line in lines} == {"sized": "tiny", "plain": None}
    alone = kw("bench", paths[1], "--target", "cpu", "--size", "tiny", "--budget", 0, "--out", "alone")
    assert "one size only" in alone.out + alone.err
