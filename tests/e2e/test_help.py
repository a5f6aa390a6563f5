"""`--help` teaches, fits the terminal, and is quick."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
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


INNER = ["list", "show", "export", "move-aside"]
SCREENS = [(), *((command,) for command in COMMANDS), *(("archive", inner) for inner in INNER)]
every_screen = pytest.mark.parametrize("command", SCREENS, ids=lambda command: "-".join(command) or "kw")


def sections(text):
    """The parts of a screen: title -> lines. What comes before the first title is under ""."""
    parts, title = {"": []}, ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]+:", line):
            title = line[:-1]
            assert title not in parts
            parts[title] = []
        else:
            parts[title].append(line)
    return parts


def options(text):
    """Label and text of each option and argument of a screen."""
    found = []
    for title, lines in sections(text).items():
        if title in ("", "Example", "Examples", "Commands"):
            continue
        for line in lines:
            if re.match(r"  \S", line):
                label, _, explanation = line[2:].partition("  ")
                found.append([title, label, explanation.strip()])
            elif re.match(r" {6,}\S", line):
                found[-1][2] = (found[-1][2] + " " + line.strip()).strip()
            else:
                break  # the paragraphs below the last group
    return found


@every_screen
def test_help_ends_with_an_example(kw, command):
    result = kw(*command, "--help")
    assert result.code == 0
    last = list(sections(result.out).items())[-1]
    assert last[0] in ("Example", "Examples")
    assert any(line.startswith("  " + " ".join(("kw", *command))) for line in last[1])


@every_screen
def test_every_option_is_explained_with_its_default(kw, command):
    for title, label, text in options(kw(*command, "--help").out):
        assert title != "Options", f"{label} stands in no group"
        assert len(text.split()) >= 3, f"{label} is not explained: {text}"
        if " " in label.replace(", ", ",") or title == "Arguments":
            assert "(default: " in text or "(required)" in text, f"{label} has no default: {text}"


@pytest.mark.parametrize("command", ["optimize", "generate", "repl", "bench"])
def test_options_of_language_models_stand_apart(kw, command):
    groups = {label.partition(" ")[0]: title for title, label, _ in options(kw(command, "--help").out)}
    titles = list(dict.fromkeys(groups.values()))
    assert groups["--api"] == "Language model" and groups["--temperature"] == "What the language model is asked"
    assert groups["--policy"] == "Verification" and groups["--budget"] == "Search and time"
    assert groups["--target"] == "Input and output"
    assert titles.index("Verification") < titles.index("Language model") < titles.index("General")


@every_screen
@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_asked(kw, command, width):
    lines = kw(*command, "--help", env={"COLUMNS": str(width)}).out.splitlines()
    # A command to copy is never broken.
    assert [line for line in lines if len(line) > width and not re.match(r"  (kw|printf) ", line)] == []
    assert max(map(len, lines)) <= max(width, 80)


def test_without_a_terminal_help_is_80_wide_and_with_columns_as_wide(kw):
    kw.environment.pop("COLUMNS", None)
    assert 70 < max(map(len, kw("optimize", "--help").out.splitlines())) <= 80
    assert 120 < max(map(len, kw("optimize", "--help", env={"COLUMNS": "160"}).out.splitlines())) <= 160


def test_on_a_terminal_help_is_as_wide_as_that(kw):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    environment = {name: value for name, value in kw.environment.items() if name != "COLUMNS"}
    with subprocess.Popen([kw.binary, "optimize", "--help"], env=environment, stdout=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how a terminal's end is told on Linux
                break
            if not piece:
                break
            text += piece
    os.close(ours)
    assert process.returncode == 0
    assert 100 < max(len(line.rstrip("\r")) for line in text.decode().split("\n")) <= 110


def test_usage_tells_arguments_and_commands(kw):
    assert "Usage: kw [OPTIONS] COMMAND\n" in kw("--help").out
    assert "Usage: kw measure [OPTIONS] PROBLEM [CANDIDATE]\n" in kw("measure", "--help").out
    assert "Usage: kw bench [OPTIONS] PATH...\n" in kw("bench", "--help").out
    assert "Usage: kw archive [OPTIONS] COMMAND\n" in kw("archive", "--help").out
    # An option of the outer command may follow the inner one.
    assert "--json FILE|-" in kw("archive", "list", "--help").out
    # The one that a proposer's name takes the place of.
    assert "--model " not in kw("bench", "--help").out


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
