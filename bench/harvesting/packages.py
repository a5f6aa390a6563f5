"""Problems from torch.distributions and, as far as they are installed, einops, torchvision, timm and transformers."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from functools import partial
from typing import Any, Callable, Iterator

import torch

from .layers import Calls, Functions, Layers, functions_of, modules_of
from .problem import NoProblem, Problem, seed_all

_LIBRARIES: list[torch.library.Library] = []


def sources() -> tuple[list[Any], dict[str, str]]:
    """The sources of the packages that can be imported, and for each package its version or why it is missing."""
    found, versions = [], {}
    for name, make in (
        ("distributions", _distributions),
        ("einops", _einops),
        ("torchvision", _torchvision),
        ("timm", _timm),
        ("transformers", _transformers),
    ):
        try:
            with warnings.catch_warnings(), contextlib.redirect_stderr(None), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                found += make()
            versions[name] = getattr(sys.modules.get(name, torch), "__version__", "")
        except Exception as error:
            versions[name] = f"missing ({type(error).__name__}: {str(error).splitlines()[0][:100]})"
    return found, versions


def _distributions() -> list[Any]:
    from torch import distributions

    def positive() -> torch.Tensor:
        return torch.rand(5, 4) + 0.5

    def real() -> torch.Tensor:
        return torch.randn(5, 4)

    def unit() -> torch.Tensor:
        return torch.rand(5, 4) * 0.9 + 0.05

    def counts() -> torch.Tensor:
        return torch.randint(0, 6, (5, 4)).float()

    def bits() -> torch.Tensor:
        return torch.randint(0, 2, (5, 4)).float()

    forms: dict[str, tuple[tuple[Callable[[], torch.Tensor], ...], Callable[[], torch.Tensor]]] = {
        "Normal": ((real, positive), real), "Laplace": ((real, positive), real), "Cauchy": ((real, positive), real),
        "Gumbel": ((real, positive), real),
        "LogNormal": ((real, positive), positive), "Exponential": ((positive,), positive),
        "Gamma": ((positive, positive), positive),
        "Beta": ((positive, positive), unit), "Chi2": ((positive,), positive), "HalfNormal": ((positive,), positive),
        "HalfCauchy": ((positive,), positive),
        "StudentT": ((positive, real, positive), real), "Poisson": ((positive,), counts), "Geometric": ((unit,),
        counts), "Bernoulli": ((unit,), bits),
        "ContinuousBernoulli": ((unit,), unit), "Kumaraswamy": ((positive, positive), unit),
        "Weibull": ((positive, positive), positive),
        "Pareto": ((positive, positive), lambda: positive() + 2), "VonMises": ((real, positive), real),
        "InverseGamma": ((positive, positive), positive),
        "FisherSnedecor": ((positive, positive), positive), "Dirichlet": ((positive,),
        lambda: torch.softmax(real(), -1)),
        "Categorical": ((lambda: torch.softmax(real(), -1),), lambda: torch.randint(0, 4, (5,))),
        "Uniform": ((lambda: real() - 5, lambda: real() + 5), real),
    }  # fmt: skip
    calls: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {}
    for name, (parameters, value) in forms.items():
        made = getattr(distributions, name, None)
        if made is None:
            continue

        def density(value: torch.Tensor, *given: torch.Tensor, made: Any = made) -> torch.Tensor:
            return made(*given, validate_args=False).log_prob(value)

        def entropy(*given: torch.Tensor, made: Any = made) -> torch.Tensor:
            return made(*given, validate_args=False).entropy()

        def sample(*given: torch.Tensor, made: Any = made) -> torch.Tensor:
            return made(*given, validate_args=False).sample()

        def parts(parameters: Any = parameters) -> tuple[torch.Tensor, ...]:
            return tuple(one() for one in parameters)

        calls[f"{name}.log_prob"] = density, lambda value=value, parts=parts: (value(), *parts())
        calls[f"{name}.entropy"] = entropy, parts
        calls[f"{name}.sample"] = sample, parts
    return [Calls("distributions", calls)]


def _einops() -> list[Any]:
    import einops
    from einops.layers import torch as layers

    def x(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
        return lambda: (torch.randn(shape),)

    functions: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {}
    for pattern, sizes in (
        ("b c h w -> b h w c", {}), ("b (h p) (w q) c -> b (h w) (p q c)", {"p": 2, "q": 2}), ("b h w c -> (b h) w c",
        {}), ("b h w c -> h (b w) c", {}),
        ("b h w c -> b (c h w)", {}), ("(b1 b2) h w c -> b1 b2 h w c", {"b1": 2}), ("b (h p) w c -> b h p w c",
        {"p": 3}), ("b h w c -> b w h c 1", {}),
    ):  # fmt: skip
        functions[f"rearrange {pattern}"] = (
            (lambda value, pattern=pattern, sizes=sizes: einops.rearrange(value, pattern, **sizes)),
            x(4, 6, 6, 4),
        )
    for operation in ("mean", "max", "min", "sum", "prod", "logsumexp"):
        for pattern, sizes in (
            ("b h w c -> b c", {}),
            ("b (h p) (w q) c -> b h w c", {"p": 2, "q": 3}),
            ("b h w c -> b h 1 c", {}),
        ):
            call = partial(einops.reduce, pattern=pattern, reduction=operation, **sizes)
            functions[f"reduce {operation} {pattern}"] = call, x(4, 6, 6, 4)
    for pattern, sizes in (
        ("h w -> h w c", {"c": 3}),
        ("h w -> (r h) w", {"r": 2}),
        ("h w -> (h a) (w b)", {"a": 2, "b": 2}),
    ):
        functions[f"repeat {pattern}"] = (
            (lambda value, pattern=pattern, sizes=sizes: einops.repeat(value, pattern, **sizes)),
            x(5, 7),
        )
    functions["einsum"] = (
        (lambda a, b: einops.einsum(a, b, "b h i d, b h j d -> b h i j")),
        lambda: (torch.randn(2, 2, 5, 4), torch.randn(2, 2, 7, 4)),
    )
    functions["pack"] = (
        (lambda a, b: einops.pack([a, b], "h * c")[0]),
        lambda: (torch.randn(3, 4, 5), torch.randn(3, 2, 2, 5)),
    )
    functions["unpack"] = (lambda a: einops.unpack(a, [(2,), (3, 2)], "h * c")), x(3, 8, 5)
    functions["layer Rearrange"] = layers.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2), x(2, 3, 6, 6)
    functions["layer Reduce"] = layers.Reduce("b c (h p) (w q) -> b c h w", "max", p=2, q=2), x(2, 3, 6, 6)
    functions["layer EinMix"] = (
        layers.EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=8, d=6),
        x(2, 5, 8),
    )
    return [Calls("einops", functions)]


def _torchvision() -> list[Any]:
    """Its wheel has C++ operators for few builds of PyTorch: those that its Python names are declared, not called."""
    for _ in range(40):
        try:
            import torchvision.models
            import torchvision.ops
            import torchvision.transforms.v2.functional as transforms

            break
        except RuntimeError as error:
            missing = re.search(r"operator (\w+)::(\w+) does not exist", str(error))
            if missing is None:
                raise
            for name in [name for name in sys.modules if name.startswith("torchvision")]:
                del sys.modules[name]
            _LIBRARIES.append(torch.library.Library(missing[1], "FRAGMENT"))
            _LIBRARIES[-1].define(f"{missing[2]}(Tensor self) -> Tensor")
    from torchvision import models

    images = {
        name: function
        for name, function in functions_of(transforms).items()
        if not name.startswith(("get_", "register", "to_", "pil", "decode"))
    }
    parts = {}
    for part in (models.resnet, models.mobilenetv2, models.mobilenetv3, models.densenet, models.squeezenet,
    models.shufflenetv2, models.convnext, models.swin_transformer,
                 models.inception, models.googlenet, models.efficientnet, models.vision_transformer):  # fmt: skip
        parts |= {
            f"{part.__name__.rpartition('.')[2]}.{name}": value
            for name, value in modules_of(part).items()
            if value.__module__ == part.__name__
        }
    whole = {}
    for name in ("squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "mnasnet0_5", "resnet18", "mobilenet_v2"):
        whole[name] = (
            (lambda name=name: _seeded(lambda: getattr(models, name)(weights=None, num_classes=7))),
            lambda: (torch.randn(1, 3, 64, 64),),
        )
    return [Functions("torchvision.transforms", images), Functions("torchvision.ops.functions",
    functions_of(torchvision.ops)),
            Layers("torchvision.ops", modules_of(torchvision.ops)), Layers("torchvision.parts", parts),
            Models("torchvision.models", whole)]  # fmt: skip


def _seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    seed_all(0)
    return make()


def _timm() -> list[Any]:
    import timm
    import timm.layers

    names = [name for name in timm.list_models() if name.startswith("test_")]
    whole = {
        name: (
            (lambda name=name: _seeded(lambda: timm.create_model(name, num_classes=5))),
            lambda: (torch.randn(1, 3, 96, 96),),
        )
        for name in names
    }
    return [Layers("timm.layers", modules_of(timm.layers)), Models("timm.models", whole)]


class Models:
    """Whole models, made when they are asked for: name → (maker of the module, maker of its arguments)."""

    def __init__(
        self, source: str, makers: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], tuple[Any, ...]]]]
    ) -> None:
        self.source = source
        self.makers = makers

    def names(self, seed: int, share: int) -> Iterator[str]:
        for title in self.makers:
            yield f"{self.source}/{title}"

    def make(self, name: str) -> Problem:
        module, arguments = self.makers[name.split("/")[1]]

        def draw(seed: int) -> tuple[Any, ...]:
            seed_all(seed)
            return arguments()

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Problem(name, module().eval(), draw(0), {}, draw)
        except Exception as error:
            raise NoProblem(f"its constructor raises {type(error).__name__}: {str(error)[:200]}") from None


# What configurations call their sizes.
_TINY = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "head_dim": 8,
    "max_position_embeddings": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48,
    "d_model": 32, "d_ff": 48, "d_kv": 8,
    "num_layers": 2, "num_heads": 4, "num_decoder_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ffn_dim": 48, "dim": 32,
    "hidden_dim": 48, "n_layers": 2, "n_heads": 4,
    "embedding_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2,
    "state_size": 8, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "word_embed_proj_dim": 32,
    "rotary_dim": 8, "moe_intermediate_size": 24,
    "image_size": 32, "patch_size": 8, "num_channels": 3, "attention_head_size": 8, "time_step_rank": 4,
}  # fmt: skip
_TEXT = ("albert bert bloom codegen cohere convbert ctrl deberta deberta-v2 distilbert electra ernie falcon flaubert "
         "fnet funnel gemma gemma2 glm gpt2 gpt_bigcode "
         "gpt_neo gpt_neox gptj granite helium ibert jetmoe llama longformer mamba megatron-bert mistral mixtral "
         "mobilebert modernbert mpnet mpt nezha nystromformer "
         "olmo olmo2 openai-gpt opt persimmon phi phi3 qwen2 qwen3 rembert roberta roformer rwkv smollm3 splinter "
         "squeezebert stablelm starcoder2 xglm xlm "
         "xlm-roberta xlnet yoso").split()  # fmt: skip
_PICTURE = ("vit deit dinov2 beit convnext convnextv2 swin resnet mobilenet_v1 mobilenet_v2 poolformer regnet "
            "segformer pvt focalnet efficientnet bit").split()  # fmt: skip


class _First(torch.nn.Module):
    """The first tensor of a model's answer."""

    def __init__(self, model: torch.nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.argument: value}, return_dict=False)[0]


def _transformers() -> list[Any]:
    import transformers
    from transformers import activations, pytorch_utils
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    def model(kind: str, argument: str) -> torch.nn.Module:
        made = CONFIG_MAPPING[kind]
        config = made(**{name: value for name, value in _TINY.items() if hasattr(made(), name)})
        config.use_cache = False
        return _seeded(lambda: _First(transformers.AutoModel.from_config(config), argument))

    whole: dict[str, Any] = {}
    for kind in _TEXT:
        whole[kind] = (lambda kind=kind: model(kind, "input_ids")), lambda: (torch.randint(3, 61, (2, 7)),)
    for kind in _PICTURE:
        whole[kind] = (lambda kind=kind: model(kind, "pixel_values")), lambda: (torch.randn(1, 3, 32, 32),)
    rules = {}
    for name in sorted(activations.ACT2FN):
        rules[f"activation {name}"] = activations.ACT2FN[name], lambda: (torch.randn(3, 5, 7),)
    rules["Conv1D"] = pytorch_utils.Conv1D(8, 6), lambda: (torch.randn(2, 5, 6),)
    return [Calls("transformers.parts", rules), Models("transformers.models", whole)]
