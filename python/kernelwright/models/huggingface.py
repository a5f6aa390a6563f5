"""Hugging Face folders through transformers (the extra `kernelwright[transformers]`), as facebook/KernelLLM itself is
loaded.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Iterator

from ..errors import missing_error, summary, user_error

_DEFAULT_CONTEXT = 8192


def load(params: dict[str, Any]) -> Folder:
    return Folder(params["path"], params)


class Folder:
    def __init__(self, path: str, params: dict[str, Any]) -> None:
        import torch
        import transformers

        name = os.path.basename(os.path.normpath(path))
        try:
            with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                json.load(file)
        except ValueError as error:
            raise user_error(
                "model-damaged",
                f"The config.json of {name} is no JSON ({error}).",
                where="config.json",
                hint="Download it again.",
            ) from None
        transformers.logging.set_verbosity_error()
        dtype = params.get("dtype") or "auto"
        device = params.get("device") or "auto"
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            options: dict[str, Any] = {
                "local_files_only": True,
                "dtype" if _takes_dtype(transformers) else "torch_dtype": dtype
                if dtype == "auto"
                else getattr(torch, dtype),
            }
            # A device map (several GPUs, or layers on the CPU) takes the package accelerate; one device does not.
            if device in ("cpu", "cuda") or device.startswith("cuda:"):
                self.model = transformers.AutoModelForCausalLM.from_pretrained(path, **options).to(device)
            else:
                self.model = transformers.AutoModelForCausalLM.from_pretrained(path, device_map=device, **options)
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise missing_error(
                "model-too-large",
                f"There is not enough memory for {name}: {summary(error)}.",
                hint="Take --dtype bfloat16, another --device, or a smaller model.",
            ) from None
        except Exception as error:
            raise _explain(name, error) from None
        self.model.eval()
        self.name = name
        trained = getattr(self.model.config, "max_position_embeddings", None) or _DEFAULT_CONTEXT
        self.context = params.get("context") or min(int(trained), _DEFAULT_CONTEXT)

    def tokens(self, prompt: dict[str, Any]) -> list[int]:
        if "raw" in prompt:
            return list(self.tokenizer(prompt["raw"])["input_ids"])
        if not getattr(self.tokenizer, "chat_template", None):
            return list(self.tokenizer("\n\n".join(message["content"] for message in prompt["messages"]))["input_ids"])
        text = self.tokenizer.apply_chat_template(prompt["messages"], add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(self, tokens: list[int], params: dict[str, Any], counts: dict[str, Any]) -> Iterator[str]:
        import torch
        import transformers

        if params.get("grammar"):
            raise user_error(
                "no-grammar",
                "A Hugging Face folder cannot be held to a grammar.",
                hint="Use a .gguf file or a server for --edit-schedule.",
            )
        if params.get("seed") is not None:
            transformers.set_seed(params["seed"])
        streamer = transformers.TextIteratorStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        stop = threading.Event()

        class Asked(transformers.StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
                counts["completion_tokens"] = input_ids.shape[1] - len(tokens)
                return torch.full((input_ids.shape[0],), stop.is_set(), device=input_ids.device)

        sampled = params["temperature"] > 0
        options: dict[str, Any] = {"do_sample": sampled, "max_new_tokens": params["max_tokens"]}
        if sampled:
            options.update(temperature=params["temperature"], top_p=params["top_p"], top_k=0)
        failure: list[BaseException] = []

        def work() -> None:
            try:
                inputs = torch.tensor([tokens], device=self.model.device)
                with torch.no_grad():
                    self.model.generate(
                        inputs,
                        attention_mask=torch.ones_like(inputs),
                        streamer=streamer,
                        stopping_criteria=transformers.StoppingCriteriaList([Asked()]),
                        **options,
                    )
            except BaseException as error:  # told by the thread that reads
                failure.append(error)
                streamer.end()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        text = ""
        try:
            for piece in streamer:
                text += piece
                cut = min((text.find(mark) for mark in params.get("stop") or [] if mark in text), default=-1)
                if cut >= 0:
                    yield piece[: max(0, len(piece) - (len(text) - cut))]
                    return
                yield piece
        finally:
            stop.set()
            thread.join()
        if failure:
            if isinstance(failure[0], torch.OutOfMemoryError):
                raise missing_error(
                    "model-too-large",
                    f"The memory did not suffice while {self.name} wrote: {summary(failure[0])}.",
                    hint="Give a smaller --max-tokens or --context.",
                ) from None
            raise failure[0]
        counts["finish"] = "length" if counts["completion_tokens"] >= params["max_tokens"] else "stop"


def _takes_dtype(transformers: Any) -> bool:
    """`torch_dtype` is called `dtype` since version 5."""
    return int(transformers.__version__.split(".")[0]) >= 5


def _explain(name: str, error: Exception) -> Exception:
    text = summary(error)
    if "model type" in text or "architecture" in text:
        return user_error(
            "unsupported-model", f"transformers cannot run {name}: {text}.", hint="A newer transformers may know it."
        )
    if isinstance(error, ModuleNotFoundError):
        return error
    if isinstance(error, ImportError):
        return missing_error("missing-package", f"Loading {name} needs another package: {text}.")
    return user_error(
        "model-damaged",
        f"{name} does not load: {text}.",
        hint="A file of the folder may be missing or incomplete; download it again.",
    )
