"""The networks of torchvision, timm and transformers whose checkpoints `tests/interop/test_weights.py` reads: small, made when asked for.

Each case has a name "model layout", the arguments of `tengen.models`, the input's shape, and a function that makes theirs.
"""


def torchvision(name, **options):
    def make():
        import torchvision.models as tv

        return getattr(tv, name)(num_classes=7, **options)

    return make


def timm(name, **options):
    def make():
        import timm

        return timm.create_model(name, num_classes=7, **options)

    return make


def resnet():
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=7)


def densenet():
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 1, 1), 16, num_classes=7)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 2), CNBlockConfig(48, 48, 1), CNBlockConfig(48, None, 1)], num_classes=7)


def vit():
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 3, 24, 96, num_classes=7)


def shufflenet():
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([2, 1, 1], [8, 16, 24, 32, 40], num_classes=7)


def hugging_face(kind, **options):
    def make():
        import transformers

        config = getattr(transformers, f"{kind}Config")(num_labels=7, **options)
        return getattr(transformers, f"{kind}ForImageClassification")(config)

    return make


IMAGE = (2, 3, 64, 64)
CONVNEXT = {"depths": (1, 2, 1, 1), "channels": (16, 32, 48, 48)}
VIT = {"image": 32, "patch": 8, "width": 24, "heads": 3, "depth": 2}
CASES = {
    "resnet torchvision": ({"depths": (1, 1, 1, 1)}, IMAGE, resnet),
    "resnet50 timm": ({}, None, timm("resnet50")),
    "resnet transformers": (
        {"depths": (1, 2), "width": 8, "bottleneck": True}, IMAGE,
        hugging_face("ResNet", depths=[1, 2], hidden_sizes=[32, 64], embedding_size=8, layer_type="bottleneck"),
    ),
    "vgg16 torchvision": ({}, None, torchvision("vgg16")),
    "vgg16 timm": ({}, None, timm("vgg16")),
    "mobilenet_v2 torchvision": (
        {"stages": [(1, 16, 1, 1), (6, 24, 2, 2)]}, IMAGE,
        torchvision("mobilenet_v2", inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2]]),
    ),
    "mobilenet_v2 timm": ({}, IMAGE, timm("mobilenetv2_100")),
    "mobilenet_v3_large torchvision": ({}, IMAGE, torchvision("mobilenet_v3_large")),
    "mobilenet_v3_large timm": ({}, IMAGE, timm("mobilenetv3_large_100")),
    "efficientnet_b0 torchvision": ({}, None, torchvision("efficientnet_b0")),
    "efficientnet_b0 timm": ({}, IMAGE, timm("efficientnet_b0")),
    "shufflenet_v2_x1_0 torchvision": ({"depths": (2, 1, 1), "channels": (8, 16, 24, 32, 40)}, IMAGE, shufflenet),
    "densenet121 torchvision": ({"growth": 8, "depths": (2, 1, 1), "width": 16}, IMAGE, densenet),
    "densenet121 timm": ({}, None, timm("densenet121")),
    "convnext_tiny torchvision": (CONVNEXT, IMAGE, convnext),
    "convnext_tiny timm": (CONVNEXT, IMAGE, timm("convnext_tiny", depths=(1, 2, 1, 1), dims=(16, 32, 48, 48))),
    "convnext_tiny transformers": (
        CONVNEXT, IMAGE, hugging_face("ConvNext", depths=[1, 2, 1, 1], hidden_sizes=[16, 32, 48, 48], layer_norm_eps=1e-6),
    ),
    "vit_tiny torchvision": (VIT, (2, 3, 32, 32), vit),
    "vit_tiny timm": (VIT, (2, 3, 32, 32), timm("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2)),
    "vit_tiny transformers": (
        VIT, (2, 3, 32, 32), hugging_face("ViT", image_size=32, patch_size=8, hidden_size=24, num_attention_heads=3, num_hidden_layers=2,
                                          intermediate_size=96, layer_norm_eps=1e-6),
    ),
}  # fmt: skip
