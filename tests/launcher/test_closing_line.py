"""How `kw test` counts: the closing line is what people and machines read."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def runner(home: Path):
    spec = importlib.util.spec_from_file_location("kw_test_run", home / "tests" / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kw_test_run"] = module
    spec.loader.exec_module(module)
    return module


def suite_that(writes: str, status: int) -> list[str]:
    return ["bash", "-c", f"printf '%s' '{writes}' >junit.xml; exit {status}"]


CASES = "<testsuite><testcase/><testcase><failure/></testcase><testcase><skipped/></testcase><testcase/></testsuite>"


def count(runner, tmp_path: Path, monkeypatch, writes: str, status: int):
    monkeypatch.setattr(runner, "HOME", tmp_path)
    return runner.run_suite("suite", suite_that(writes, status), tmp_path / "junit.xml", nothing_selected=5)


def test_passed_failed_and_skipped_are_told_apart(runner, tmp_path: Path, monkeypatch) -> None:
    assert count(runner, tmp_path, monkeypatch, CASES, 1) == runner.Tally(passed=2, failed=1, skipped=1)


def test_a_suite_that_dies_without_a_report_is_a_failure(runner, tmp_path: Path, monkeypatch) -> None:
    assert count(runner, tmp_path, monkeypatch, "<testsuite><testca", 139) == runner.Tally(failed=1)


def test_a_suite_that_fails_outside_its_tests_is_a_failure(runner, tmp_path: Path, monkeypatch) -> None:
    assert count(runner, tmp_path, monkeypatch, "<testsuite><testcase/></testsuite>", 3) == runner.Tally(
        passed=1, failed=1
    )


def test_a_suite_with_nothing_selected_counts_nothing(runner, tmp_path: Path, monkeypatch) -> None:
    assert count(runner, tmp_path, monkeypatch, "<testsuite></testsuite>", 5) == runner.Tally()
