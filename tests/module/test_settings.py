"""Every argument of every module's constructor, set after construction: it takes effect, or it is an error that says why not."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from exhaustive import but

from tengen import Parameter, Tensor, random
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager

RNG = np.random.default_rng(0)
VECTORS, IMAGES, SEQUENCE = (Tensor(RNG.standard_normal(s).astype("f4")) for s in ((4, 6), (2, 6, 9, 9), (5, 2, 6)))
LINES, VOLUMES = (Tensor(RNG.standard_normal(s).astype("f4")) for s in ((2, 6, 9), (2, 6, 5, 5, 5)))
SHUFFLED = Tensor(RNG.standard_normal((2, 4, 3, 3)).astype("f4"))
NUMBERS = Tensor(np.array([[0, 3], [1, 2]], np.int32))
CONV = {
    "in_channels": (6, 3), "out_channels": (6, 12), "kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "dilation": (1, 2),
    "groups": (1, 2), "bias": (True, False), "conv_mode": ("cross_correlation", "convolution"), "compute_mode": ("default", "float32"),
}  # fmt: skip
LOCAL = {k: v for k, v in CONV.items() if k not in ("bias", "compute_mode")}
PADDED = CONV | {"padding_mode": ("zeros", "reflect")}
BATCH = {
    "num_features": (6, 4), "eps": (1e-5, 0.5), "momentum": (0.9, 0.5), "affine": (True, False), "track_running_stats": (True, False),
    "freeze": (False, True),
}  # fmt: skip
RECURRENT = {
    "input_size": (6, 3), "hidden_size": (4, 5), "num_layers": (2, 3), "bias": (True, False), "batch_first": (False, True),
    "dropout": (0, 0.5), "bidirectional": (False, True), "proj_size": (0, 2),
}  # fmt: skip
CELL = {"input_size": (6, 3), "hidden_size": (4, 5), "bias": (True, False)}
LAYER = {
    "d_model": (6, 4), "nhead": (2, 3), "dim_feedforward": (8, 9), "dropout": (0.0, 0.5), "activation": ("relu", "gelu"),
    "layer_norm_eps": (1e-5, 0.5), "batch_first": (False, True), "norm_first": (False, True), "bias": (True, False),
}  # fmt: skip
POOL = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (0, 1)}
MAX = {
    "kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 1), "dilation": (1, 2), "return_indices": (False, True), "ceil_mode": (False, True),
}  # fmt: skip
AVERAGE = {
    "kernel_size": (4, 2), "stride": (2, 1), "padding": (1, 0), "mode": ("average_count_exclude_padding", "average"),
    "ceil_mode": (False, True), "count_include_pad": (None, True), "divisor_override": (None, 3),
}  # fmt: skip
LP = {"norm_type": (2.0, 4.0), "kernel_size": (2, 3), "stride": (2, 1), "ceil_mode": (False, True)}
TO_SIZE = {"return_indices": (False, True)}
PLACES = Tensor(np.broadcast_to(np.arange(5) * 2 % 5, (2, 6, 5)).copy())
NORM = {"eps": (1e-5, 0.5), "affine": (True, False)}
LINEAR = {"in_features": (6, 5), "out_features": (3, 2), "bias": (True, False), "compute_mode": ("default", "float32")}
TRANSPOSED = CONV | {"stride": (2, 3), "output_padding": (0, 1)}
SLIDING = {"kernel_size": (3, 2), "padding": (0, 1), "stride": (2, 1), "dilation": (1, 2)}

# of every module: the inputs of a call, and for each argument a value to build with and another
MODULES = {
    "GELU": ((VECTORS,), {"approximate": ("none", "tanh")}), "Softplus": ((VECTORS,), {"beta": (1.0, 2.0), "threshold": (None, 0.5)}),
    "Linear": ((VECTORS,), LINEAR), "LinearRelu": ((VECTORS,), LINEAR),
    "Embedding": ((NUMBERS,), {
        "num_embeddings": (4, 5), "embedding_dim": (3, 2), "padding_idx": (None, 0), "max_norm": (None, 1.0), "norm_type": (None, 2.0),
        "freeze": (False, True),
    }),
    "Conv1d": ((LINES,), PADDED), "Conv2d": ((IMAGES,), PADDED), "Conv3d": ((VOLUMES,), PADDED),
    "ConvRelu2d": ((IMAGES,), PADDED), "ConvTransposeRelu2d": ((IMAGES,), TRANSPOSED),
    "ConvTranspose1d": ((LINES,), TRANSPOSED), "ConvTranspose2d": ((IMAGES,), TRANSPOSED), "ConvTranspose3d": ((VOLUMES,), TRANSPOSED),
    "BatchMatMulActivation": ((SEQUENCE.transpose(0, 2, 1),), {
        "batch": (5, 1), "in_features": (6, 3), "out_features": (3, 2), "bias": (True, False), "nonlinear_mode": ("identity", "relu"),
    }),
    "BatchNorm1d": ((LINES,), BATCH), "BatchNorm2d": ((IMAGES,), BATCH),
    "BatchNorm3d": ((VOLUMES,), BATCH),
    "SyncBatchNorm": ((IMAGES,), BATCH | {"group": (None, object())}),
    "LayerNorm": ((VECTORS,), NORM | {"normalized_shape": (6, 3)}),
    "GroupNorm": ((IMAGES,), NORM | {"num_groups": (3, 2), "num_channels": (6, 4)}),
    "InstanceNorm": ((IMAGES,), NORM | {"num_channels": (6, 4)}),
    "GeneralNorm": ((VECTORS,), NORM | {"normalized_shape": (6, 4), "normalized_axis": (1, 0)}),
    "RMSNorm": ((VECTORS,), NORM | {"normalized_shape": (6, 3)}),
    "LocalResponseNorm": ((IMAGES,), {"kernel_size": (3, 5), "k": (2.0, 1.0), "alpha": (0.5, 0.1), "beta": (0.75, 0.5)}),
    "MaxPool1d": ((LINES,), MAX), "MaxPool2d": ((IMAGES,), MAX), "MaxPool3d": ((VOLUMES,), MAX),
    "AvgPool1d": ((LINES,), AVERAGE), "AvgPool2d": ((IMAGES,), AVERAGE), "AvgPool3d": ((VOLUMES,), AVERAGE),
    "LPPool1d": ((LINES,), LP), "LPPool2d": ((IMAGES,), LP), "LPPool3d": ((VOLUMES,), LP),
    "MaxUnpool1d": ((LINES[..., :5], PLACES), POOL | {"padding": (1, 0)}),
    "AdaptiveAvgPool1d": ((LINES,), {"oshp": (2, 3)}), "AdaptiveMaxPool1d": ((LINES,), TO_SIZE | {"oshp": (2, 3)}),
    "AdaptiveAvgPool2d": ((IMAGES,), {"oshp": (2, (3, 1))}), "AdaptiveMaxPool2d": ((IMAGES,), TO_SIZE | {"oshp": (2, (3, 1))}),
    "AdaptiveAvgPool3d": ((VOLUMES,), {"oshp": (2, (3, 1, 2))}), "AdaptiveMaxPool3d": ((VOLUMES,), TO_SIZE | {"oshp": (2, (3, 1, 2))}),
    "LeakyReLU": ((VECTORS,), {"negative_slope": (0.01, 0.5)}),
    "PReLU": ((IMAGES,), {"num_parameters": (1, 6), "init": (0.25, 0.5)}),
    "Softmax": ((VECTORS,), {"axis": (None, 0)}), "LogSoftmax": ((VECTORS,), {"axis": (None, 0)}), "GLU": ((VECTORS,), {"axis": (-1, 0)}),
    "ELU": ((VECTORS,), {"alpha": (1.0, 0.5)}),
    "Dropout1d": ((LINES,), {"drop_prob": (0.0, 0.5)}), "Dropout3d": ((VOLUMES,), {"drop_prob": (0.0, 0.5)}),
    "AlphaDropout": ((VECTORS,), {"drop_prob": (0.0, 0.5)}), "Dropout": ((VECTORS,), {"drop_prob": (0.0, 0.5)}),
    "Dropout2d": ((IMAGES,), {"drop_prob": (0.0, 0.5)}),
    "Pad": ((VECTORS,), {"pad_width": (((1, 1), (0, 2)), ((0, 0), (1, 1))), "mode": ("constant", "replicate"), "constant_val": (0.0, 2.0)}),
    "PixelShuffle": ((SHUFFLED,), {"upscale_factor": (2, 1)}), "Elemwise": ((VECTORS,), {"method": ("RELU", "SIGMOID")}),
    "SlidingWindow": ((IMAGES,), SLIDING),
    "LocalConv2d": ((IMAGES,), {"input_height": (9, 8), "input_width": (9, 8)} | LOCAL),
    "Resize": ((IMAGES,), {"size": ((5, 4), (3, 3)), "format": ("NCHW", "NHWC"), "imode": ("linear", "nearest"), "antialias": (False, True)}),
    "Flip": ((IMAGES,), {"vertical": (True, False), "horizontal": (True, False)}), "Rot90": ((IMAGES,), {"clockwise": (True, False)}),
    "Rotate": ((IMAGES,), {"angle": (10.0, 30.0), "format": ("NCHW", "NHWC"), "interp_mode": ("bilinear", "nearest")}),
    "Flatten": ((IMAGES,), {"start_axis": (1, 2), "end_axis": (-1, -2)}),
    "RNN": ((SEQUENCE,), RECURRENT | {"nonlinearity": ("tanh", "relu")}), "LSTM": ((SEQUENCE,), RECURRENT), "GRU": ((SEQUENCE,), RECURRENT),
    "RNNCell": ((VECTORS,), CELL | {"nonlinearity": ("tanh", "relu")}), "LSTMCell": ((VECTORS,), CELL), "GRUCell": ((VECTORS,), CELL),
    "MultiHeadAttention": ((SEQUENCE,), {
        "embed_dim": (6, 4), "num_heads": (2, 3), "attn_dropout": (0.0, 0.5), "out_dropout": (0.0, 0.5), "bias": (True, False),
        "kdim": (None, 5), "vdim": (None, 5), "add_bias_kv": (False, True), "add_zero_attn": (False, True),
    }),
    "TransformerEncoderLayer": ((SEQUENCE,), LAYER), "TransformerDecoderLayer": ((SEQUENCE, SEQUENCE), LAYER),
    "TransformerEncoder": ((SEQUENCE,), {"num_layers": (2, 1)}), "TransformerDecoder": ((SEQUENCE, SEQUENCE), {"num_layers": (2, 1)}),
    **{f"{kind}Pad{n}d": ((x,), {"padding": (1, 2), "value": (0.0, 2.0)} if kind == "Constant" else {"padding": (1, 2)})
       for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular") for n, x in ((1, LINES), (2, IMAGES), (3, VOLUMES))},
    **{f"InstanceNorm{n}d": ((x,), NORM | {"num_features": (6, 4), "momentum": (0.1, 0.5), "track_running_stats": (False, True)})
       for n, x in ((1, LINES), (2, IMAGES), (3, VOLUMES))},
    "Hardtanh": ((VECTORS,), {"min_val": (-1.0, -0.5), "max_val": (1.0, 0.5)}), "CELU": ((VECTORS,), {"alpha": (1.0, 0.5)}),
    "Threshold": ((VECTORS,), {"threshold": (0.0, 0.5), "value": (1.0, 2.0)}), "Hardshrink": ((VECTORS,), {"lambd": (0.5, 0.1)}),
    "Softshrink": ((VECTORS,), {"lambd": (0.5, 0.1)}), "Softmin": ((VECTORS,), {"axis": (0, 1)}),
    "Unflatten": ((IMAGES,), {"dim": (1, 2), "unflattened_size": ((3, -1), (1, -1))}),
    "Unfold": ((IMAGES,), {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (0, 1), "stride": (1, 2)}),
    "PixelUnshuffle": ((IMAGES,), {"downscale_factor": (3, 1)}), "ChannelShuffle": ((IMAGES,), {"groups": (2, 3)}),
    "CosineSimilarity": ((VECTORS, VECTORS + 1), {"axis": (0, 1), "eps": (1e-8, 9.0)}),
    "PairwiseDistance": ((VECTORS, VECTORS + 1), {"p": (2.0, 1.0), "eps": (1e-6, 1.0), "keepdims": (False, True)}),
    "Bilinear": ((VECTORS, VECTORS), {"in1_features": (6, 5), "in2_features": (6, 4), "out_features": (3, 2), "bias": (True, False)}),
    "EmbeddingBag": ((NUMBERS,), {"num_embeddings": (4, 5), "embedding_dim": (3, 2), "mode": ("mean", "sum")}),
    "Dilation": ((IMAGES, Tensor([[0.0, 1.0], [1.0, 1.0]])), {
        "iterations": (1, 2), "border_type": ("BORDER_CONSTANT", "BORDER_WRAP"), "border_value": (0.0, 9.0),
    }),
}  # fmt: skip
WITHOUT = {  # they take no settings, hold modules whose settings they are, or only take settings that fit each other or operands (the last)
    "Concat", "ConvBn2d", "ConvBnRelu2d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d", "DequantStub", "Hardsigmoid", "Hardswish",
    "CTCLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "PoissonNLLLoss", "SoftMarginLoss",
    *M.lazy.__all__, "FractionalMaxPool2d", "FractionalMaxPool3d", "MaxUnpool2d", "MaxUnpool3d",  # test_lazy.py, test_pytorch_calls.py
    "FillPoly", "Fold", "ParameterDict", "ParameterList", "Softmax2d", "Softsign", "Tanhshrink", "Transformer", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",  # test_pytorch_layers.py
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "NLLLoss", "SmoothL1Loss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",  # test_pytorch_modules.py
    "Identity", "LinearBn1d", "LinearBnRelu1d", "LogSigmoid", "Mish", "Module", "ModuleDict", "ModuleList", "QuantStub", "ReLU", "ReLU6",
    "SELU", "Sequential", "SiLU", "Sigmoid", "Tanh",
    "SlidingWindowTranspose", "DeformableConv2d", "DeformablePSROIPooling", "RegionRestrictedConv", "Remap", "Upsample",
    # their settings: test_augment.py, since two calls draw different numbers
    "ActiveBlur", "AdditiveElemwise", "AdditiveGaussianNoise", "AdditiveLaplaceNoise", "AdditivePoissonNoise", "CropAndPad", "Cutmix", "Emboss",
    "GaussianBlur", "LinearContrast", "Mixup", "Sharpen",
}  # fmt: skip
VALUES = {"initial_weight", "encoder_layer", "decoder_layer", "norm"}  # arguments that are tensors or modules
UNREAD = {"inplace"}  # changes no number: test_pytorch_modules.py
FIXED = {  # what decides which parameters are built; the rest takes effect
    "in_features", "out_features", "compute_mode", "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "in_channels",
    "out_channels", "kernel_size", "groups", "conv_mode", "num_features", "normalized_shape", "num_channels", "num_parameters", "init",
    "input_size", "hidden_size", "num_layers", "bidirectional", "proj_size", "embed_dim", "kdim", "vdim", "d_model", "nhead", "bias",
    "dim_feedforward", "layer_norm_eps", "batch", "normalized_axis", "group",
    "add_bias_kv", "add_zero_attn", "in1_features", "in2_features", "input_height", "input_width",
}  # fmt: skip


def build(name: str, **changed) -> M.Module:
    given = {k: v[0] for k, v in MODULES[name][1].items()} | changed
    first = {"TransformerEncoder": M.TransformerEncoderLayer, "TransformerDecoder": M.TransformerDecoderLayer}
    args = (first[name](6, 2, 8, dropout=0.0),) if name in first else ()
    net = getattr(M, name)(*args, **given)
    for p in net.parameters():
        p += 0.25  # norms begin with ones and zeros, biases with zeros
    return net


def leaves(x) -> list:
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [(x.shape, x.numpy().tobytes())]


def outputs(net: M.Module, name: str) -> list:
    """Shapes and bits: of a call in training, the buffers after it, and a call in evaluation. The module stays as it is."""
    found, net = [], copy.deepcopy(net)
    for mode in (True, False):
        random.seed(5)
        found += leaves(net.train(mode)(*MODULES[name][0]))
        found += leaves(list(net.buffers())) if getattr(net, "track_running_stats", True) else []
    return found


def same_values(net: M.Module, other: M.Module) -> M.Module:
    """`net` with the other's values, where both have them."""
    have = dict(other.state_dict())
    net.load_state_dict({k: have.get(k, v) for k, v in net.state_dict().items()})
    return net


def test_every_module_and_argument_is_here():
    modules = {n for n in M.__all__ if inspect.isclass(getattr(M, n)) and issubclass(getattr(M, n), M.Module)}
    assert modules == set(MODULES) | WITHOUT
    for name in MODULES:
        taken = set(inspect.signature(getattr(M, name).__init__).parameters) - {"self", "kwargs"} - UNREAD
        assert taken - VALUES == set(MODULES[name][1]), name


@but(first_of="name", every=2)
@pytest.mark.parametrize("name, argument", [(n, a) for n, (_, table) in MODULES.items() for a in table])
def test_a_setting_takes_effect_or_is_refused(name, argument):
    a, b = MODULES[name][1][argument]
    net = build(name)
    windows = "pool" in name.lower() or name in ("LocalResponseNorm", "SlidingWindow", "Unfold")  # whose size builds no parameter
    fixed = argument in FIXED - ({"kernel_size"} if windows else set()) or (name, argument) == ("RNN", "nonlinearity")
    fixed |= name.startswith("InstanceNorm") and argument in ("momentum", "track_running_stats")
    fixed &= name != "ChannelShuffle" and not name.startswith("LPPool")  # they build no parameter
    fixed |= name == "LocalConv2d"  # a filter for each place: everything decides how many there are
    if name.endswith("Layer") and argument == "dropout":
        with pytest.raises(TypeError, match="dropout is a module.*drop_prob"):
            net.dropout = b
        return
    if fixed:
        with pytest.raises((AttributeError, TypeError, ValueError), match=rf"{name}.*{argument}"):
            setattr(net, argument, b)
        if argument not in ("bias", "kdim", "vdim"):
            setattr(net, argument, a)  # what it is
        assert outputs(net, name) == outputs(same_values(build(name), net), name)
        return
    before = outputs(build(name), name)
    other = build(name, **{argument: b})
    changed = copy.deepcopy(net)
    setattr(changed, argument, b)
    same_values(other, changed)
    want = outputs(other, name)
    assert outputs(changed, name) == want and (want != before or argument == "freeze" and name == "Embedding")
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        setattr(again, argument, b)
        setattr(again, argument, a)
        assert outputs(again, name) == outputs(same_values(build(name), net), name)


@pytest.mark.parametrize("make, argument, words", [
    (lambda: M.BatchNorm2d(3, track_running_stats=False), "track_running_stats", "BatchNorm2d.*built without running_mean"),
    (lambda: M.BatchNorm1d(3, affine=False), "affine", "BatchNorm1d.affine.*built without weight"),
    (lambda: M.InstanceNorm(3, affine=False), "affine", "InstanceNorm.affine.*built without weight"),
    (lambda: M.LayerNorm(3, affine=False), "affine", "LayerNorm.affine.*built without weight"),
])  # fmt: skip
def test_what_was_not_built_cannot_be_turned_on(make, argument, words):
    net = make()
    setattr(net, argument, False)
    with pytest.raises(AttributeError, match=words):
        setattr(net, argument, True)


def test_values_are_looked_at_when_they_are_set():
    conv = M.Conv2d(1, 2, 3, padding_mode="reflect")
    conv.padding = 1
    assert conv(IMAGES[:, :1]).shape == (2, 2, 9, 9) and conv.padding == (1, 1)
    for name, bad in [("padding_mode", "same"), ("stride", "two"), ("padding", 1.5), ("bias", True), ("weight", np.zeros(3)), ("groups", 2)]:
        with pytest.raises((AttributeError, TypeError, ValueError), match=name):
            setattr(conv, name, bad)
    conv.bias = None
    conv.weight = Parameter(np.ones((2, 1, 3, 3), np.float32))
    assert [n for n, _ in conv.named_parameters()] == ["weight"]
    with pytest.raises(ValueError, match="conv_mode='convolution'"):
        M.Conv2d(1, 2, 3, conv_mode="convolution")
    with pytest.raises(ValueError, match="6 features cannot be shared out to 4 heads"):
        M.MultiHeadAttention(6, 2).num_heads = 4
    layer = M.TransformerEncoderLayer(6, 2, 8)
    with pytest.raises(ValueError, match="activation='tanh'"):
        layer.activation = "tanh"


@pytest.mark.parametrize("make, words", [
    *((lambda n=n: M.Linear(n, 3), "Linear: in_features=0 must be at least 1") for n in (0, np.int64(0))),
    (lambda: M.Linear(3, 2.5), r"Linear: out_features=2\.5 must be a whole number"), (lambda: M.Conv2d(2, 2, 3, groups=0), "groups=0"),
    (lambda: M.Conv3d(0, 2, 3), "in_channels=0"), (lambda: M.Conv1d(1, 2, 0), "kernel_size must be a positive int"),
    (lambda: M.Conv2d(3, 4, 1, groups=2), "3 and 4 channels cannot be shared out to 2 groups"),
    (lambda: M.GroupNorm(0, 4), "num_groups=0"), (lambda: M.GroupNorm(3, 4), "4 channels cannot be shared out to 3"),
    (lambda: M.BatchNorm2d(-1), "num_features=-1"), (lambda: M.LSTM(4, 0), "hidden_size=0"), (lambda: M.LSTM(4, 2, 0), "num_layers=0"),
    (lambda: M.RNNCell(0, 2), "input_size=0"), (lambda: M.MultiHeadAttention(4, 0), "4 features cannot be shared out to 0 heads"),
    (lambda: M.MultiHeadAttention(0, 1), "embed_dim=0"), (lambda: M.PReLU(0), "num_parameters=0"),
    (lambda: M.Embedding(-1, 3), "num_embeddings=-1"),
])  # fmt: skip
def test_sizes_that_are_none(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_numpy_integers_are_sizes():
    n = np.int64(4)
    assert M.Linear(n, n).in_features == M.Conv2d(n, n, n, groups=n).groups == M.LSTM(n, n).hidden_size == 4
    assert M.LayerNorm(n).normalized_shape == M.LayerNorm([n]).normalized_shape == (4,)


def test_pytorchs_way_to_freeze_takes_effect():
    layer = M.Linear(2, 2)
    p = layer.weight
    p.requires_grad = False
    gm = GradManager().attach(layer.parameters())
    with gm:
        gm.backward(F.sum(layer(Tensor([[1.0, 2.0]]))))
    assert p.grad is None and layer.bias.grad.tolist() == [1.0, 1.0]
    p.no_decay = True  # a mark of the user's own
    assert copy.deepcopy(p).frozen and copy.deepcopy(p).no_decay and pickle.loads(pickle.dumps(p)).no_decay
