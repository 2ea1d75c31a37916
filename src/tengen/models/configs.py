"""What Hugging Face's config.json says of a network, as arguments of ours, and back.

In: the object of a config.json. Out: the function that builds the network, its arguments, and how many numbers it has at least; or a
FileFormatError, also for settings that would make it another network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tengen.models.bert import BERT, BERTAnswers, BERTClassifier, BERTMaskedLM, BERTTagger
from tengen.models.decoder_configs import DECODERS
from tengen.models.fields import ACTIVATIONS, NAMES, Fields, Kind, fail
from tengen.models.gpt import GPT
from tengen.models.resnet import BasicBlock, Bottleneck, ResNet
from tengen.models.vit import ViT
from tengen.module import Module


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
KINDS: dict[str, Kind] = {
    "gpt2": GPT2, **DECODERS,
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
    for cls in type(net).__mro__:
        for name, kind in kinds:
            if cls is kind.build:
                return name, kind
    known = ", ".join(sorted({kind.build.__name__ for _, kind in kinds}))
    raise ValueError(f"save_pretrained: transformers has no {type(net).__name__} of ours; help: {known}")
