"""Networks of the field under their usual names, with random weights.

    net = tengen.models.resnet18(num_classes=10)

`list_models()` names all; `create(name, **options)` builds one by its name. Each takes `weights=`, a safetensors file, and `layout=`, whose
names it has: torchvision, timm, transformers, megengine, paddle; see `tengen.interop.weights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import names_of
from tengen.models.bert import BERT, BERTAnswers, BERTClassifier, BERTMaskedLM, BERTTagger, bert_base
from tengen.models.convnext import ConvNeXt, convnext_tiny
from tengen.models.densenet import DenseNet, densenet121
from tengen.models.efficientnet import EfficientNet, efficientnet_b0
from tengen.models.gpt import GPT, gpt
from tengen.models.llama import Llama, llama
from tengen.models.lstm import LSTMClassifier, lstm
from tengen.models.mobilenet import MobileNetV2, MobileNetV3, mobilenet_v2, mobilenet_v3_large
from tengen.models.resnet import BasicBlock, Bottleneck, ResNet, resnet, resnet18, resnet34, resnet50
from tengen.models.shufflenet import ShuffleNetV2, shufflenet_v2_x1_0
from tengen.models.small import MLP, LeNet, lenet, mlp
from tengen.models.unet import UNet, unet
from tengen.models.vgg import VGG, vgg16
from tengen.models.vit import ViT, vit_base, vit_small, vit_tiny
from tengen.module import Module

if TYPE_CHECKING:
    from tengen.models.pretrained import from_pretrained, load_tokenizer, save_pretrained

__getattr__ = names_of(__name__, {"tengen.models.pretrained": "from_pretrained load_tokenizer save_pretrained"})

_BUILDERS = {
    f.__name__: f
    for f in (
        bert_base, convnext_tiny, densenet121, efficientnet_b0, gpt, lenet, llama, lstm, mlp, mobilenet_v2, mobilenet_v3_large, resnet,
        resnet18, resnet34, resnet50, shufflenet_v2_x1_0, unet, vgg16, vit_base, vit_small, vit_tiny,
    )
}  # fmt: skip


def list_models() -> list[str]:
    """The names of all networks.

    >>> import tengen
    >>> "resnet50" in tengen.models.list_models()
    True
    """
    return sorted(_BUILDERS)


def create(name: str, **options) -> Module:
    """The network of that name; `options` are those of its function, such as ``num_classes``.

    >>> import tengen
    >>> type(tengen.models.create("lenet")).__name__
    'LeNet'
    """
    if name not in _BUILDERS:
        raise ValueError(f"there is no model {name!r}; help: one of {', '.join(list_models())}")
    return _BUILDERS[name](**options)


__all__ = [
    "BERT", "BERTAnswers", "BERTClassifier", "BERTMaskedLM", "BERTTagger", "MLP", "VGG", "BasicBlock", "Bottleneck", "ConvNeXt", "DenseNet",
    "EfficientNet", "GPT", "LSTMClassifier", "Llama", "LeNet", "MobileNetV2", "MobileNetV3", "ResNet", "ShuffleNetV2", "UNet", "ViT",
    "create", "from_pretrained", "list_models", "load_tokenizer", "save_pretrained",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*__all__, *_BUILDERS})
