"""What Hugging Face's config.json says of a network, as arguments of ours, and back.

In: the object of a config.json. Out: the function that builds the network, its arguments, and how many numbers it has at least; or a
FileFormatError, also for settings that would make it another network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tengen.base.errors import FileFormatError
from tengen.models.bert import BERT, BERTAnswers, BERTClassifier, BERTMaskedLM, BERTTagger
from tengen.models.gpt import GPT
from tengen.models.llama import Llama, OffsetRMSNorm
from tengen.models.resnet import BasicBlock, Bottleneck, ResNet
from tengen.models.vit import ViT
from tengen.module import Module

MOST = 1 << 31  # of a count
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
NAMES = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}


def fail(message: str) -> NoReturn:
    """FileFormatError."""
    raise FileFormatError(message)


class Fields:
    """The settings of a config.json, read with their types."""

    def __init__(self, table: Mapping[str, Any], where: str):
        self.table, self.where = table, where

    def _wrong(self, name: str, want: str) -> NoReturn:
        fail(f"{self.where}: {name} is {str(self.table.get(name))[:60]!r}, which is not {want}")

    def count(self, name: str, default: int | None = None) -> int:
        x = self.table.get(name)
        if x is None and default is not None:
            return default
        if type(x) is not int or not 0 < x <= MOST:
            self._wrong(name, f"a number of 1 to {MOST}")
        return x

    def number(self, name: str, default: float) -> float:
        x = self.table.get(name, default)
        if type(x) not in (int, float) or not 0 <= x < 1e30:
            self._wrong(name, "a number of at least 0")
        return float(x)

    def flag(self, name: str, default: bool) -> bool:
        x = self.table.get(name, default)
        if type(x) is not bool:
            self._wrong(name, "true or false")
        return x

    def counts(self, name: str, default: list[int] | None = None) -> list[int]:
        x = self.table.get(name, default)
        if not isinstance(x, list) or not 0 < len(x) <= 1000 or any(type(n) is not int or not 0 < n <= MOST for n in x):
            self._wrong(name, "a list of numbers above 0")
        return x

    def choice(self, name: str, among: Mapping[str, Any], default: str) -> Any:
        x = self.table.get(name, default)
        if not isinstance(x, str) or x not in among:
            self._wrong(name, f"one of {', '.join(among)}")
        return among[x]

    def needs(self, **settings: Any) -> None:
        """FileFormatError unless each is what it is said to be, or not there."""
        for name, want in settings.items():
            if name in self.table and self.table[name] != want:
                fail(f"{self.where}: {name} is {str(self.table[name])[:60]!r}; Tengen's network computes what {want!r} says, and nothing else")

    def below(self, name: str) -> Fields:
        x = self.table.get(name)
        if x is not None and not isinstance(x, dict):
            self._wrong(name, "an object")
        return Fields(x or {}, f"{self.where}: {name}")

    def classes(self) -> int:
        labels = self.table.get("id2label")
        if labels is None:
            return self.count("num_labels", 2)
        if not isinstance(labels, dict) or not labels:
            self._wrong("id2label", "a table of labels")
        return len(labels)


@dataclass(frozen=True)
class Kind:
    """A family of Hugging Face's. read: a config's fields -> arguments. write: a network -> the settings of a config. least: arguments ->
    how many numbers a network of them has at least. architecture: the class that transformers loads it with."""

    build: Callable[..., Module]
    read: Callable[[Fields], dict[str, Any]]
    write: Callable[[Any], dict[str, Any]]
    least: Callable[[dict[str, Any]], int]
    architecture: str


def _read_gpt2(f: Fields) -> dict[str, Any]:
    f.needs(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = f.count("n_embd", 768)
    return {
        "vocabulary": f.count("vocab_size", 50257), "layers": f.count("n_layer", 12), "width": width, "heads": f.count("n_head", 12),
        "context": f.count("n_positions", 1024), "tied": f.flag("tie_word_embeddings", True),
        "eps": f.number("layer_norm_epsilon", 1e-5), "hidden": f.count("n_inner", 4 * width),
        "activation": f.choice("activation_function", ACTIVATIONS, "gelu_new"),
    }  # fmt: skip


def _write_gpt2(net: GPT) -> dict[str, Any]:
    return {
        "vocab_size": net.vocabulary, "n_layer": len(net.blocks), "n_embd": net.positions.weight.shape[1], "n_head": net.blocks[0].attn.heads,
        "n_positions": net.context, "tie_word_embeddings": net.head is None, "layer_norm_epsilon": net.norm.eps,
        "n_inner": net.blocks[0].fc1.weight.shape[0], "activation_function": NAMES[net.activation],
    }  # fmt: skip


def _read_llama(f: Fields) -> dict[str, Any]:
    f.needs(partial_rotary_factor=1.0)
    kind, layers, heads = f.table["model_type"], f.count("num_hidden_layers", 32), f.count("num_attention_heads", 32)
    width, bias = f.count("hidden_size", 4096), f.flag("attention_bias", False)
    base, scaling = _read_turns(f)
    features = f.table.get("head_dim")
    if features is None and kind not in FEATURES and width % heads:
        fail(f"{f.where}: {width} features cannot be shared out to {heads} heads")
    features = f.count("head_dim", FEATURES.get(kind, width // heads))
    groups = f.count("num_key_value_heads", heads)
    if heads % groups or features % 2:
        fail(f"{f.where}: {heads} heads of {features} features and {groups} of keys and values do not fit")
    return {
        "vocabulary": f.count("vocab_size", 32000), "layers": layers, "width": width, "heads": heads, "groups": groups,
        "features": features, "hidden": f.count("intermediate_size", 11008), "context": f.count("max_position_embeddings", 2048),
        "base": base, "scaling": scaling, "eps": f.number("rms_norm_eps", 1e-5 if kind == "phi3" else 1e-6),
        "tied": f.flag("tie_word_embeddings", kind == "gemma"), "qkv_bias": kind == "qwen2" or bias, "bias": kind != "qwen2" and bias,
        "mlp_bias": f.flag("mlp_bias", False), "window": _read_window(f, kind, layers), "qk_norm": kind == "qwen3", **_read_gates(f, kind),
    }  # fmt: skip


FEATURES = {"qwen3": 128, "gemma": 256}  # of a head, of configs that do not say it, where the width has no say
WINDOWED = ("mistral", "phi3")  # kinds whose windows are on unless something else is said


def _read_gates(f: Fields, kind: str) -> dict[str, Any]:
    """The activation, and what else of Gemma's is its own. Its "gelu" means the approximation by tanh."""
    if kind != "gemma":
        f.needs(hidden_act="silu")
        return {}
    for name in ("hidden_act", "hidden_activation"):
        if f.table.get(name) is not None:
            f.choice(name, {"gelu": 0, "gelu_pytorch_tanh": 0}, "gelu")
    if f.table.get("use_bidirectional_attention"):
        fail(f"{f.where}: use_bidirectional_attention is set; Tengen's network sees what stands before")
    return {"activation": "gelu_tanh", "norm_offset": True, "scale": f.count("hidden_size", 4096) ** 0.5}


def _read_turns(f: Fields) -> tuple[float, dict[str, float] | None]:
    """Base and scaling of the positions, of both spellings: rope_parameters, and rope_theta with rope_scaling."""
    said = [name for name in ("rope_parameters", "rope_scaling") if f.table.get(name)]
    if len(said) == 2 and f.table[said[0]] != f.table[said[1]]:
        fail(f"{f.where}: rope_parameters and rope_scaling are two names of one setting, and do not say the same; help: take one out")
    r = f.below(said[0] if said else "rope_parameters")
    base = r.number("rope_theta", f.number("rope_theta", 10000.0))
    kind = r.table.get("rope_type", r.table.get("type", "default"))
    r.needs(partial_rotary_factor=1.0)
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = {"factor": r.number("factor", 0)}
    elif kind == "llama3":
        names = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor", "context": "original_max_position_embeddings"}
        scaling = {ours: r.number(theirs, 0) for ours, theirs in names.items()}
        if not scaling["low"] < scaling["high"]:
            fail(f"{r.where}: low_freq_factor is not below high_freq_factor")
    elif kind == "yarn":
        scaling = _read_yarn(r)
        if base == 1:
            fail(f"{r.where}: rope_theta is 1, of which yarn has no logarithm")
    else:
        fail(f"{r.where}: rope_type is {str(kind)[:40]!r}; Tengen knows default, linear, llama3 and yarn")
    if not base > 0 or (scaling and not all(x > 0 for x in scaling.values())):
        fail(f"{r.where}: numbers of the positions are above 0")
    return base, scaling


def _read_yarn(r: Fields) -> dict[str, float]:
    """Its own factor of cosines and sines is that of the paper."""
    r.needs(truncate=True, mscale=None, mscale_all_dim=None)
    factor = r.number("factor", 0)
    said = r.table.get("attention_factor") is not None
    attention = r.number("attention_factor", 0) if said else 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    fast, slow = (r.number(name, default) if r.table.get(name) is not None else default for name, default in YARN.items())
    if not fast > slow:
        fail(f"{r.where}: beta_fast is not above beta_slow")
    return {"factor": factor, "fast": fast, "slow": slow, "context": r.number("original_max_position_embeddings", 0), "attention": attention}


YARN = {"beta_fast": 32.0, "beta_slow": 1.0}  # turns in the context: of pairs that stay as they are, and of those that are stretched


def _read_window(f: Fields, kind: str, layers: int) -> Any:
    if kind in ("llama", "gemma") or f.table.get("sliding_window") is None or not f.flag("use_sliding_window", kind in WINDOWED):
        return None
    window, types = f.count("sliding_window"), f.table.get("layer_types")
    if types is None:
        first = 0 if kind in WINDOWED else f.number("max_window_layers", 28)
        types = ["sliding_attention" if i >= first else "full_attention" for i in range(min(layers, 1 << 20))]
    if not isinstance(types, list) or len(types) != layers or any(t not in ("sliding_attention", "full_attention") for t in types):
        fail(f"{f.where}: layer_types does not say full_attention or sliding_attention for each of {layers} layers")
    windows = [window if t == "sliding_attention" else None for t in types]
    return window if None not in windows else windows


def _kind_of_llama(net: Llama) -> str:
    """The model_type of a network of this family. ValueError where no one has such arguments together."""
    block, windows = net.blocks[0], [b.attn.window for b in net.blocks]
    attn, gemma, windowed = block.attn, isinstance(net.norm, OffsetRMSNorm), any(w is not None for w in windows)
    qkv, out, inside = attn.qkv.bias is not None, attn.proj.bias is not None, block.down.bias is not None
    same, plain = len({*windows} - {None}) <= 1, block.activation == "silu" and net.scale == 1.0
    if gemma:
        kind, fits = "gemma", block.activation == "gelu_tanh" and net.scale == net.tokens.weight.shape[1] ** 0.5 and not windowed
        fits = fits and attn.q_norm is None and qkv == out and not inside
    elif attn.q_norm is not None:
        kind, fits = "qwen3", plain and qkv == out and not inside
    elif windowed or (qkv and not out):
        kind = "mistral" if not qkv and None not in windows and same else "qwen2"
        fits = plain and not inside and (kind == "mistral" or (qkv and not out))
    else:
        kind, fits = "llama", plain
    if not fits or not same:
        raise ValueError("save_pretrained: transformers' Llama, Mistral, Qwen and Gemma have no such windows, biases and norms together")
    return kind


def _write_llama(net: Llama) -> dict[str, Any]:
    kind, block, windows = _kind_of_llama(net), net.blocks[0], [b.attn.window for b in net.blocks]
    attn = block.attn
    more: dict[str, Any] = {}
    if kind in ("llama", "qwen3", "gemma"):
        more["attention_bias"] = attn.proj.bias is not None
    if kind == "llama":
        more["mlp_bias"] = block.down.bias is not None
    if kind in ("mistral", "qwen2", "qwen3"):
        more["sliding_window"] = next((w for w in windows if w is not None), None)
    if kind in ("qwen2", "qwen3"):
        more["use_sliding_window"] = more["sliding_window"] is not None
        more["layer_types"] = ["full_attention" if w is None else "sliding_attention" for w in windows]
    names = {
        "factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor", "context": "original_max_position_embeddings",
        "fast": "beta_fast", "slow": "beta_slow", "attention": "attention_factor",
    }  # fmt: skip
    turns: dict[str, Any] = {"rope_theta": net.base, "rope_type": "default"}
    if net.scaling:
        turns["rope_type"] = "llama3" if "low" in net.scaling else "yarn" if "fast" in net.scaling else "linear"
        turns.update((names[k], v) for k, v in net.scaling.items())
    if "original_max_position_embeddings" in turns:
        turns["original_max_position_embeddings"] = int(turns["original_max_position_embeddings"])
    return {
        "model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "vocab_size": net.vocabulary, "num_hidden_layers": len(net.blocks), "hidden_size": net.tokens.weight.shape[1],
        "num_attention_heads": attn.heads, "num_key_value_heads": attn.groups, "head_dim": attn.features,
        "intermediate_size": block.hidden, "max_position_embeddings": net.context, "rope_parameters": turns, "rms_norm_eps": net.norm.eps,
        "tie_word_embeddings": net.head is None, "hidden_act": "gelu_pytorch_tanh" if kind == "gemma" else "silu", **more,
    }  # fmt: skip


def _read_bert(f: Fields) -> dict[str, Any]:
    f.needs(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return {
        "vocabulary": f.count("vocab_size", 30522), "width": f.count("hidden_size", 768), "heads": f.count("num_attention_heads", 12),
        "depth": f.count("num_hidden_layers", 12), "context": f.count("max_position_embeddings", 512),
        "segments": f.count("type_vocab_size", 2), "drop_prob": f.number("hidden_dropout_prob", 0.1),
        "eps": f.number("layer_norm_eps", 1e-12), "hidden": f.count("intermediate_size", 3072),
        "activation": f.choice("hidden_act", ACTIVATIONS, "gelu"),
    }  # fmt: skip


def _write_bert(net: BERT) -> dict[str, Any]:
    return {
        "vocab_size": net.tokens.weight.shape[0], "hidden_size": net.tokens.weight.shape[1], "num_hidden_layers": len(net.layers),
        "num_attention_heads": net.layers[0].attn.heads, "max_position_embeddings": net.positions.weight.shape[0],
        "type_vocab_size": net.segments.weight.shape[0], "hidden_dropout_prob": net.dropout.drop_prob, "layer_norm_eps": net.norm.eps,
        "intermediate_size": net.layers[0].fc1.weight.shape[0], "hidden_act": NAMES[net.activation],
    }  # fmt: skip


def _read_masked(f: Fields) -> dict[str, Any]:
    f.needs(tie_word_embeddings=True)
    return _read_bert(f)


def _read_classifier(f: Fields) -> dict[str, Any]:
    own = f.number("classifier_dropout", 0) if f.table.get("classifier_dropout") is not None else None
    return {"num_classes": f.classes(), "head_drop_prob": own, **_read_bert(f)}


def _read_answers(f: Fields) -> dict[str, Any]:
    if (n := f.classes()) != 2:
        fail(f"{f.where}: it has {n} labels; answers have two, where they begin and where they end")
    return _read_bert(f)


def _write_headed(net: Any) -> dict[str, Any]:
    more = {}
    if isinstance(net, BERTClassifier):
        more = {"classifier_dropout": net.dropout.drop_prob, **_labels(net.classifier.weight.shape[0])}
    return {**_write_bert(net.bert), **more}


def _read_vit(f: Fields) -> dict[str, Any]:
    f.needs(qkv_bias=True)
    return {
        "num_classes": f.classes(), "image": f.count("image_size", 224), "patch": f.count("patch_size", 16),
        "width": f.count("hidden_size", 768), "heads": f.count("num_attention_heads", 12), "depth": f.count("num_hidden_layers", 12),
        "eps": f.number("layer_norm_eps", 1e-12), "hidden": f.count("intermediate_size", 3072),
        "activation": f.choice("hidden_act", ACTIVATIONS, "gelu"), "channels": f.count("num_channels", 3),
    }  # fmt: skip


def _write_vit(net: ViT) -> dict[str, Any]:
    width, channels, patch, _ = net.patch_embed.weight.shape
    return {
        "image_size": round((net.pos_embed.shape[1] - 1) ** 0.5) * patch, "patch_size": patch, "hidden_size": width,
        "num_attention_heads": net.blocks[0].attn.heads, "num_hidden_layers": len(net.blocks), "layer_norm_eps": net.norm.eps,
        "intermediate_size": net.blocks[0].fc1.weight.shape[0], "hidden_act": NAMES[net.blocks[0].activation], "num_channels": channels,
        "qkv_bias": True, **_labels(net.head.weight.shape[0]),
    }  # fmt: skip


def _read_resnet(f: Fields) -> dict[str, Any]:
    f.needs(hidden_act="relu", downsample_in_bottleneck=False, downsample_in_first_stage=False)
    block = f.choice("layer_type", {"basic": BasicBlock, "bottleneck": Bottleneck}, "bottleneck")
    width, depths = f.count("embedding_size", 64), f.counts("depths", [3, 4, 6, 3])
    sizes = [(width << i) * block.expansion for i in range(len(depths))]
    if f.counts("hidden_sizes", [256, 512, 1024, 2048]) != sizes:
        fail(f"{f.where}: hidden_sizes are {f.table.get('hidden_sizes')}; Tengen's network doubles them from embedding_size on: {sizes}")
    return {"block": block, "depths": depths, "num_classes": f.classes(), "width": width, "in_channels": f.count("num_channels", 3)}


def _write_resnet(net: ResNet) -> dict[str, Any]:
    stages = [getattr(net, f"layer{i + 1}") for i in range(net.stages)]
    block, width = type(stages[0][0]), net.conv1.weight.shape[0]
    return {
        "layer_type": "basic" if block is BasicBlock else "bottleneck", "embedding_size": width, "depths": [len(list(s)) for s in stages],
        "hidden_sizes": [(width << i) * block.expansion for i in range(net.stages)], "num_channels": net.conv1.weight.shape[1],
        "hidden_act": "relu", **_labels(net.fc.weight.shape[0]),
    }  # fmt: skip


def _labels(n: int) -> dict[str, Any]:
    names = [f"LABEL_{i}" for i in range(n)]
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {name: i for i, name in enumerate(names)}}


def _perceptrons(o: Mapping[str, Any], layers: str) -> int:
    return o[layers] * o["width"] * (2 * o["hidden"] + o["width"])


def _perceptrons_of_llama(o: Mapping[str, Any]) -> int:
    return o["layers"] * o["width"] * (3 * o["hidden"] + 2 * o["heads"] * o["features"])


def _least_vit(o: Mapping[str, Any]) -> int:
    patches = (o["image"] // o["patch"]) ** 2 + o["channels"] * o["patch"] ** 2
    return (patches + o["num_classes"]) * o["width"] + _perceptrons(o, "depth")


def _least_bert(o: Mapping[str, Any]) -> int:
    rows = o["vocabulary"] + o["context"] + o["segments"] + o.get("num_classes", 0)
    return rows * o["width"] + _perceptrons(o, "depth")


def _least_resnet(o: Mapping[str, Any]) -> int:
    width, blocks = o["width"], sum(9 * (o["width"] << i) ** 2 * depth for i, depth in enumerate(o["depths"]))
    return blocks + (o["num_classes"] + 49 * o["in_channels"]) * width


GPT2 = Kind(
    GPT, _read_gpt2, _write_gpt2, lambda o: (o["vocabulary"] + o["context"]) * o["width"] + _perceptrons(o, "layers"), "GPT2LMHeadModel"
)
LLAMA = Kind(Llama, _read_llama, _write_llama, lambda o: o["vocabulary"] * o["width"] + _perceptrons_of_llama(o), "LlamaForCausalLM")
KINDS: dict[str, Kind] = {
    "gpt2": GPT2, **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3"), LLAMA),
    "bert": Kind(BERT, _read_bert, _write_bert, _least_bert, "BertModel"),
    "vit": Kind(ViT, _read_vit, _write_vit, _least_vit, "ViTForImageClassification"),
    "resnet": Kind(ResNet, _read_resnet, _write_resnet, _least_resnet, "ResNetForImageClassification"),
}  # fmt: skip


HEADS = {  # by the architecture that a config names: networks of a model_type that have a head
    kind.architecture: ("bert", kind)
    for kind in (
        Kind(BERTMaskedLM, _read_masked, _write_headed, _least_bert, "BertForMaskedLM"),
        Kind(BERTClassifier, _read_classifier, _write_headed, _least_bert, "BertForSequenceClassification"),
        Kind(BERTTagger, _read_classifier, _write_headed, _least_bert, "BertForTokenClassification"),
        Kind(BERTAnswers, _read_answers, _write_headed, _least_bert, "BertForQuestionAnswering"),
    )
}


def kind_for(table: Mapping[str, Any], where: str) -> Kind:
    """The kind that a config describes. FileFormatError for a model_type that Tengen has not."""
    name, classes = table.get("model_type"), table.get("architectures")
    if not isinstance(name, str) or name not in KINDS:
        fail(f"{where}: model_type is {str(name)[:40]!r}; Tengen reads {', '.join(KINDS)}")
    if how := table.get("quantization_config"):
        method = how.get("quant_method") if isinstance(how, dict) else how
        fail(f"{where}: its weights are quantised by {str(method)[:40]!r}, which is not read; help: take the folder of the network before that")
    asked = classes[0] if isinstance(classes, list) and len(classes) == 1 and isinstance(classes[0], str) else ""
    of, kind = HEADS.get(asked, ("", KINDS[name]))
    return kind if of == name else KINDS[name]


def kind_of(net: Module) -> tuple[str, Kind]:
    """The model_type and kind of a network."""
    kinds = [*KINDS.items(), *HEADS.values()]
    exact = [(name, kind) for name, kind in kinds if type(net) is kind.build]
    for name, kind in exact or kinds:
        if isinstance(net, kind.build):
            return name, kind
    known = ", ".join(sorted({kind.build.__name__ for _, kind in kinds}))
    raise ValueError(f"save_pretrained: transformers has no {type(net).__name__} of ours; help: {known}")
