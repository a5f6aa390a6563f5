"""Answers `llm_load` and `llm_generate`: a model in this process's memory. What is asked of it is decided in src/llm."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Callable, Iterator, Protocol

from ..errors import internal_error

if TYPE_CHECKING:
    from ..worker import Stream

# Kind → module with `load(params) -> Model`.
_KINDS = {"gguf": "gguf", "transformers": "huggingface"}


class Model(Protocol):
    name: str
    context: int

    def tokens(self, prompt: dict[str, Any]) -> list[int]:
        """What the model reads for a prompt: {"messages": [...]} through its chat template, or {"raw": text} as it
        stands.
        """

    def generate(self, tokens: list[int], params: dict[str, Any], counts: dict[str, Any]) -> Iterator[str]:
        """Pieces of text; `counts` gets "completion_tokens" and "finish"."""


_loaded: list[Model] = []


def run(params: dict[str, Any], progress: Callable[[str, float], None]) -> dict[str, Any]:
    """`llm_load`: loads the model, or with "count" says how many tokens a prompt is for the one that is loaded."""
    if "count" in params:
        return {"tokens": len(_model().tokens(params["count"]))}
    progress("loading the model", -1.0)
    module = importlib.import_module(f"{__package__}.{_KINDS[params['kind']]}")
    _loaded.clear()
    _loaded.append(module.load(params))
    return {"name": _model().name, "context": _model().context}


def _model() -> Model:
    if not _loaded:
        raise internal_error("no-model-loaded", "No model is loaded.")
    return _loaded[0]


def stream(params: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """`llm_generate`. Events: {"data": text}."""
    from ..errors import user_error

    model = _model()
    tokens = model.tokens(params["prompt"])
    room = model.context - len(tokens)
    if room < 1:
        raise user_error(
            "context-too-long",
            f"The prompt is {len(tokens)} tokens long, and the model reads at most {model.context}.",
            hint="Give fewer --shots or a shorter template (--prompt), or a longer --context where the model allows it.",
        )
    wanted = dict(params, max_tokens=min(params["max_tokens"], room))
    counts: dict[str, Any] = {"prompt_tokens": len(tokens), "completion_tokens": 0, "finish": "stop"}
    pieces = model.generate(tokens, wanted, counts)
    try:
        for piece in pieces:
            if piece:
                stream.send({"data": piece})
            if stream.cancelled():
                counts["finish"] = "cancelled"
                break
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()
    return counts
