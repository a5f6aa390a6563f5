"""`kw optimize --budget` beyond its ten seconds of timing: the search, on the CPU."""

import signal
import time

import pytest
from command_line import CommandLine

# Fused as the planner likes it, and in several other groupings.
BRANCHES = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        scaled = torch.tanh(x) * 0.5
        shares = torch.softmax(scaled, dim=-1)
        return shares * x, scaled.sum(dim=0)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def kw(kw_binary, tmp_path_factory):
    return CommandLine(kw_binary, tmp_path_factory.mktemp("search"))


def search(kw, *more):
    result = kw(
        "optimize",
        kw.file("branches.py", BRANCHES),
        "--target",
        "cpu",
        "--budget",
        18,
        "--baseline",
        "eager",
        "--min-speedup",
        0,
        "--json",
        "-",
        *more,
    )
    assert result.code == 0, result.text
    return result.json()


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_a_search_reports_what_it_tried_and_is_remembered(kw):
    first = search(kw)
    found = first["search"]
    assert first["verdict"] == "pass" and found["tried"] > 0
    assert found["speedup"] >= 1 and found["seconds"] > 0
    nodes = sorted({node for group in found["schedule"]["groups"] for node in group["nodes"]})
    assert nodes == list(range(len(nodes)))
    # Without a search that is wanted for longer, the answer is the stored one; with --fresh nothing is timed a second
    # time.
    assert search(kw)["from_archive"] is True
    again = search(kw, "--fresh")["search"]
    # What the archive knows may lead it elsewhere than the first went, though not far.
    assert again["reused"] >= min(again["tried"], found["tried"] - found["failed"]) * 3 / 4
    assert (
        kw(
            "optimize",
            kw.file("branches.py", BRANCHES),
            "--target",
            "cpu",
            "--baseline",
            "eager",
            "--min-speedup",
            0,
            "--json",
            "-",
        ).json()["search"]["tried"]
        == again["tried"]
    )


# One kernel, so that only its loops can be searched.
COLUMNS = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=0)


def get_inputs():
    return [torch.randn(96, 2048)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_the_loops_of_a_single_cpu_kernel_are_searched(kw):
    result = kw(
        "optimize",
        kw.file("columns.py", COLUMNS),
        "--target",
        "cpu",
        "--budget",
        18,
        "--baseline",
        "eager",
        "--min-speedup",
        0,
        "--json",
        "-",
    )
    assert result.code == 0, result.text
    report = result.json()
    assert report["verdict"] == "pass"
    assert report["search"]["tried"] >= 3 and report["search"]["failed"] == 0


@pytest.mark.slow
def test_no_search_without_the_time_for_it(kw):
    result = kw(
        "optimize",
        kw.file("plain.py", BRANCHES + "\n"),
        "--target",
        "cpu",
        "--budget",
        0.5,
        "--baseline",
        "eager",
        "--min-speedup",
        0,
        "--draws",
        1,
        "--json",
        "-",
    )
    assert result.code == 0 and "search" not in result.json()


@pytest.mark.slow
def test_ctrl_c_during_the_search_keeps_the_verified_candidate(kw):
    process = kw.start(
        "optimize", kw.file("stopped.py", BRANCHES + "# stopped\n"), "--target", "cpu", "--budget", 600, "--draws", 1
    )
    seen = ""
    while "verify" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    # The file is written when the search begins.
    for _ in range(600):
        if (kw.folder / "stopped_kw.py").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped_kw.py" in err and "Traceback" not in err
    assert "class ModelNew(Model)" in (kw.folder / "stopped_kw.py").read_text()
