"""`--help` teaches, and is quick."""

import time

import pytest

COMMANDS = ["optimize", "generate", "repl", "verify", "measure", "inspect", "bench", "archive", "device", "doctor"]


def test_help_names_every_command_and_is_quick(kw):
    times = []
    for _ in range(5):
        began = time.monotonic()
        result = kw("--help")
        times.append(time.monotonic() - began)
    assert result.code == 0
    for command in COMMANDS:
        assert command in result.out
    assert "bench-worker" not in result.out
    assert min(times) < 0.05


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(kw, command):
    result = kw(command, "--help")
    assert result.code == 0
    assert f"Example:\n  kw {command}" in result.out
    assert "--json" in result.out


def test_no_arguments_shows_help(kw):
    result = kw()
    assert result.code == 2 and "optimize" in result.out


def test_version(kw):
    assert kw("--version").out.startswith("kw ")


def test_doctor_finds_everything_here(kw):
    result = kw("doctor", "--json", "-")
    assert result.code == 0, result.text
    checks = {check["name"]: check for check in result.json()["checks"]}
    assert checks["PyTorch"]["found"] and checks["C++ compiler"]["found"]
