"""PyTorch is imported once for the judge and the nursery, which knows nothing of the judge all the same."""

from command_line import GOOD

SEED = 918273645546372819

# What stands in the process of a candidate that looks around; the seed is put together, so that this text has it not.
CANDIDATE = (
    GOOD
    + """
import gc
import os
import sys

found = ["variable " + name for name in os.environ if name.startswith("KW_") or "TOKEN" in name]
with open("/proc/self/environ", "rb") as file:
    found += [repr(entry) for entry in file.read().split(bytes(1)) if entry.startswith(b"KW_") or b"TOKEN" in entry]
found += ["module " + name for name in sys.modules if name.startswith("kernelwright")]
found += ["object " + repr(one)[:80] for one in gc.get_objects() if isinstance(one, dict) and "tolerance_policy" in one]
for number in os.listdir("/proc/self/fd"):
    try:
        found += ["file " + place for place in [os.readlink("/proc/self/fd/" + number)] if "memfd" in place]
    except OSError:
        pass
seed = b"9182736" + b"45546372819"
looked = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.read().splitlines():
        fields = line.split()
        first, last = (int(text, 16) for text in fields[0].split("-"))
        if "w" not in fields[1] or "/memfd" in line or last - first > 1 << 28:
            continue
        try:
            memory.seek(first)
            content = memory.read(last - first)
        except (OSError, ValueError, OverflowError):
            continue
        looked += len(content)
        place = content.find(seed)
        while place >= 0:
            # That of the comparison itself is an object of its own: the seed, a zero, and no digit or colon beside it.
            if content[max(0, place - 1) : place] in (b":", b'"', b" ", b"="):
                found.append("the seed at " + line)
            place = content.find(seed, place + 1)
if found or looked < 1 << 20:
    raise RuntimeError(f"found {found} in {looked} bytes")


class ModelNew(Model):
    pass
"""
)


SECRETS = {"KW_TEST_SOMETHING": "of ours", "SOME_TOKEN": "of the user's"}


def test_the_judges_memory_is_not_the_candidates(kw):
    problem, candidate = kw.file("good.py", GOOD), kw.file("looks.py", CANDIDATE)
    result = kw("verify", problem, candidate, "--target", "cpu", "--seed", SEED, env=SECRETS)
    assert result.code == 0, result.text


def test_what_the_problem_reads_of_the_environment_is_there(kw):
    problem = kw.file("reads.py", "import os\nassert os.environ['SOME_TOKEN'] == \"of the user's\"\n" + GOOD)
    candidate = kw.file("plain.py", GOOD + "\nclass ModelNew(Model):\n    pass\n")
    result = kw("verify", problem, candidate, "--target", "cpu", env=SECRETS)
    assert result.code == 0, result.text


def test_wrong_syntax_is_told_before_pytorch_is_imported(kw):
    problem = kw.file("wrong.py", "def forward(:\n")
    result = kw("verify", problem, kw.file("plain.py", GOOD), "--target", "cpu")
    assert result.code == 2 and "wrong.py:1" in result.text, result.text


def test_one_process_imports_it(kw, tmp_path):
    """Each import of PyTorch runs this file's sitecustomize hook, which leaves a line."""
    hooks, log = tmp_path / "hooks", tmp_path / "imports"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        f"            with open({str(log)!r}, 'a') as file:\n"
        "                file.write(' '.join(sys.orig_argv).replace('\\n', ' ') + '\\n')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    problem = kw.file("good.py", GOOD)
    candidate = kw.file("plain.py", GOOD + "\nclass ModelNew(Model):\n    pass\n")
    result = kw("verify", problem, candidate, "--target", "cpu", env={"PYTHONPATH": str(hooks)})
    assert result.code == 0, result.text
    # Another asks for PyTorch's version, and imports nothing.
    assert sum("find_spec" not in line for line in log.read_text().splitlines()) == 1, log.read_text()
