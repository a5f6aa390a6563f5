"""A Hugging Face folder, made here with random weights: loading, streaming, stopping. Runs where transformers is
installed, and is skipped where not.
"""

import pytest

from kernelwright import errors

transformers = pytest.importorskip("transformers", reason="NOT TESTED: pip install transformers")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = str(tmp_path_factory.mktemp("tiny"))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    from kernelwright.llm import KernelLLM

    return KernelLLM(folder, device="cpu", torch_dtype="float32")


def test_the_same_seed_gives_the_same_answer(model):
    first = model.generate_raw("def f", max_new_tokens=12, seed=1)
    assert first == model.generate_raw("def f", max_new_tokens=12, seed=1)
    assert first != model.generate_raw("def f", max_new_tokens=12, seed=2)


def test_an_answer_can_be_left_in_the_middle(model):
    pieces = model.stream("def f", max_new_tokens=200)
    next(pieces)
    pieces.close()
    assert model.generate_raw([{"role": "user", "content": "hi"}], max_new_tokens=5, do_sample=False)


def test_a_prompt_longer_than_the_context_is_told(model):
    with pytest.raises(errors.Error) as caught:
        model.generate_raw("x" * 300)
    assert caught.value.code == "context-too-long"


def test_folders_that_do_not_load(tmp_path):
    from kernelwright.llm import KernelLLM

    (tmp_path / "config.json").write_text("{ this is no JSON")
    with pytest.raises(errors.Error) as caught:
        KernelLLM(str(tmp_path), device="cpu")
    assert caught.value.code == "model-damaged"
    (tmp_path / "config.json").write_text('{"model_type": "no_such_architecture"}')
    with pytest.raises(errors.Error) as caught:
        KernelLLM(str(tmp_path), device="cpu")
    assert caught.value.code in ("unsupported-model", "model-damaged")
