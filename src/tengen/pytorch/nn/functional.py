"""`torch.nn.functional`: functions of layers with PyTorch's arguments. Those that mean the same here are Tengen's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tengen import functional as F
from tengen import random as _random
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional import (
    bilinear,
    channel_shuffle,
    cosine_similarity,
    fold,
    fractional_max_pool2d,
    fractional_max_pool3d,
    logsigmoid,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    sigmoid,
    softsign,
    tanh,
    tanhshrink,
    unfold,
)
from tengen.functional.resized import cubic, factors_decide, nearest
from tengen.functional.resized import linear as linear_resized
from tengen.functional.volumes import affine_grid, grid_sample
from tengen.module.pytorch_layers import pad_sides
from tengen.ops.calls import all_with_line, also_called
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.pytorch.functions.dtypes import finfo
from tengen.pytorch.functions.elementwise import prelu
from tengen.pytorch.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from tengen.pytorch.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
)
from tengen.pytorch.nn.rare import (
    by_frequency,
    embedding_bag,
    feature_alpha_dropout,
    given,
    in_place,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    multilabel_margin_loss,
    rrelu,
    shorten_rows,
)
from tengen.tensor import Tensor
from tengen.tensor.in_place import written_to

# ---- activations ---------------------------------------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return given(input, F.relu(input), inplace)


def relu_(input: Tensor) -> Tensor:
    """`relu`, written to the input."""
    return relu(input, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return given(input, F.relu6(input), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, or alpha (exp(x) - 1) below 0."""
    return given(input, F.elu(input, alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Klambauer et al., arXiv 1706.02515."""
    return given(input, F.selu(input), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, or alpha (exp(x / alpha) - 1) below 0."""
    return given(input, F.celu(input, alpha), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x, or negative_slope x below 0."""
    return given(input, F.leaky_relu(input, negative_slope), inplace)


def gelu(input: Tensor, approximate: Any = "none") -> Tensor:
    """x Phi(x); approximate="tanh" for the formula with tanh."""
    return F.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)."""
    return given(input, F.silu(input), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))."""
    return given(input, F.mish(input), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x, or the nearer of two limits."""
    return given(input, F.hardtanh(input, min_val, max_val), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x relu6(x + 3) / 6."""
    return given(input, F.hswish(input), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return given(input, F.hsigmoid(input), inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return given(input, F.threshold(input, threshold, value), inplace)


@rounded_once
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    smooth = F.softplus(input) if beta == 1 else F.softplus(input * beta) / beta
    if threshold == 20 and input.dtype != "float64":  # less than a rounding apart
        return smooth
    return F.where(input * beta > threshold, input, smooth)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return F.hardshrink(input, lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd."""
    return F.softshrink(input, lambd)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second."""
    return F.glu(input, dim)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, which is guessed as by PyTorch where none is given."""
    return F.softmax(input if dtype is None else input.astype(dtype), dim)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x); dim as of `softmax`."""
    return softmax(-input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return F.log_softmax(input if dtype is None else input.astype(dtype), dim)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A draw of a categorical distribution, made smooth (Jang et al., arXiv 1611.01144); with `hard` one-hot, with the smooth gradient."""
    g = -F.log(_random.exponential(1.0, logits.shape)).astype(logits.dtype)
    y = F.softmax((logits + g) / tau, dim)
    if not hard:
        return y
    best = F.argmax(y, dim, True)
    return F.straight_through(F.scatter(F.zeros_like(y), dim, best, F.ones(best.shape, y.dtype)), y)


# ---- dropouts ----------------------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements zeroed with probability p, the others divided by 1 - p; the identity when not training."""
    return given(input, F.dropout(input, p, training), inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for `selu`; zeros where all are dropped, as in PyTorch."""
    if p == 1:
        return given(input, input * 0.0 if training else input, inplace)
    return given(input, F.alpha_dropout(input, p, training), inplace)


def _whole_channels(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if not training or p == 0:
        return input
    kept = F.dropout(F.ones((*input.shape[:2], *(1 for _ in input.shape[2:])), dtype=input.dtype), p)
    return given(input, input * kept, inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, L) zeroed."""
    return _whole_channels(input, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, H, W) zeroed."""
    return _whole_channels(input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (N, C, D, H, W) zeroed."""
    return _whole_channels(input, p, training, inplace)


# ---- linear maps and convolutions ----------------------------------------------------------------------------------------


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    return F.linear(input, weight, bias)


def _spatial(n: int, convolve: Any, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    if isinstance(padding, str):
        per = [dilation] * n if isinstance(dilation, int) else dilation
        whole = [d * (k - 1) for k, d in zip(weight.shape[-n:], per)]
        steps = [stride] * n if isinstance(stride, int) else list(stride)
        if padding not in ("valid", "same") or (padding == "same" and any(s != 1 for s in steps)):
            raise ArgumentError(f"padding={padding!r} must be numbers, 'valid', or 'same' with stride 1")
        if padding == "same" and any(w % 2 for w in whole):  # one more behind than in front
            widths = [(0, 0)] * (input.ndim - n) + [(w // 2, w - w // 2) for w in whole]
            input, padding = F.pad(input, widths), "valid"
        padding = 0 if padding == "valid" else [w // 2 for w in whole]
    one = input.ndim == n + 1
    y = convolve(F.expand_dims(input, 0) if one else input, weight, bias, stride, padding, dilation, groups)
    return y[0] if one else y


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Convolution of (N, C, L); weight (O, C / groups, K)."""
    return _spatial(1, F.conv1d, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Convolution of (N, C, H, W); weight (O, C / groups, KH, KW)."""
    return _spatial(2, F.conv2d, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Convolution of (N, C, D, H, W); weight (O, C / groups, KD, KH, KW)."""
    return _spatial(3, F.conv3d, input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    n: int, convolve: Any, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, extra: Any, dilation: Any, groups: int
) -> Tensor:
    """A transposed convolution of parameters in PyTorch's shapes, also of an image without a batch."""
    weight = weight if groups == 1 else weight.reshape((groups, -1, *weight.shape[1:]))
    bias = None if bias is None else bias.reshape((1, -1, *(1,) * n))
    one = input.ndim == n + 1
    y = convolve(F.expand_dims(input, 0) if one else input, weight, bias, stride, padding, extra, dilation, groups)
    return y[0] if one else y


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, L); weight (C, O / groups, K)."""
    return _transposed(1, F.conv_transpose1d, input, weight, bias, stride, padding, output_padding, dilation, groups)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, H, W); weight (C, O / groups, KH, KW)."""
    return _transposed(2, F.conv_transpose2d, input, weight, bias, stride, padding, output_padding, dilation, groups)


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, D, H, W); weight (C, O / groups, KD, KH, KW)."""
    return _transposed(3, F.conv_transpose3d, input, weight, bias, stride, padding, output_padding, dilation, groups)


# ---- norms ---------------------------------------------------------------------------------------------------------------


def refuse_one_value(x: Tensor, axes: tuple[int, ...]) -> None:
    """Errors: ValueError where statistics over these axes are of one value each. Open extents are not asked."""
    if all(type(x.shape[i]) is int and x.shape[i] == 1 for i in axes):
        raise ValueError(
            f"a norm of an input of shape {tuple(x.shape)} has one value per channel, whose variance is 0; help: more than one example, or "
            "eval() for running statistics"
        )


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Batch norm; momentum is the share of the batch's statistics that the running ones take.

    Errors: ValueError in training with one value per channel, whose normalised value would be 0 whatever it is.
    """
    if training:
        refuse_one_value(input, (0, *range(2, input.ndim)))
    return F.batch_norm(input, running_mean, running_var, weight, bias, training=training, momentum=1 - momentum, eps=eps)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """The last axes, of this shape, normalised."""
    return F.layer_norm(input, tuple(normalized_shape), weight is not None or bias is not None, weight, bias, eps)


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Groups of channels of each sample normalised."""
    return F.group_norm(input, num_groups, weight is not None or bias is not None, weight, bias, eps)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each channel of each sample normalised, by its own statistics, or by the running ones without use_input_stats. The running ones that are
    given take `momentum` of the batch's: of its means, and of its variances divided by n - 1.

    Errors: ArgumentError without use_input_stats and running statistics; ValueError for channels of one value, with use_input_stats
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError("instance_norm: use_input_stats=False needs running_mean and running_var")
        return F.batch_norm(input, running_mean, running_var, weight, bias, training=False, eps=eps)
    x, axes = input.detach(), tuple(range(2, input.ndim))
    refuse_one_value(input, axes)
    if running_mean is not None:
        running_mean.copy_(running_mean * (1 - momentum) + F.mean(x, (0, *axes)) * momentum)
    if running_var is not None:
        running_var.copy_(running_var * (1 - momentum) + F.mean(F.var(x, axes, False, 1), 0) * momentum)
    return F.instance_norm(input, weight is not None or bias is not None, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axes, times a weight."""
    return F.rms_norm(input, tuple(normalized_shape), weight, finfo(input.dtype).eps if eps is None else eps)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha / size * the sum of squares over `size` channels) ^ beta, of (N, C, ...).

    Errors: ShapeError for fewer than three axes
    """
    if input.ndim == 4 and size % 2:
        return F.local_response_norm(input, size, k, alpha / size, beta)
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: {input.shape} has no axes behind the channels; help: (N, C, L) or more")
    around = [(0, 0), (size // 2, (size - 1) // 2), *[(0, 0)] * (input.ndim - 2)]
    x, channels = widened(input), input.shape[1]
    squares = F.pad(x * x, around)
    total = sum((squares[:, i : i + channels] for i in range(1, size)), squares[:, :channels])
    return narrowed(x / (k + alpha / size * total) ** beta, input)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along an axis, or over eps where that is smaller."""
    return input / F.clip(F.norm(input, p, dim, True), eps, None)


# ---- tables, masks, images -----------------------------------------------------------------------------------------------


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of a table. max_norm: rows that are named and longer, by the norm of order norm_type, are shortened to it, in the table itself.
    scale_grad_by_freq: a row's gradient is divided by how often the input names it."""
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the table has shape {weight.shape}, it must be (rows, columns)")
    if max_norm is not None:
        shorten_rows(weight, input, max_norm, norm_type)
    return F.embedding(input, by_frequency(weight, input) if scale_grad_by_freq else weight, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 of 1 at the class and 0 elsewhere, along a new last axis; num_classes=-1: the largest class and one more."""
    return F.one_hot(tensor, int(F.max(tensor).item()) + 1 if num_classes == -1 else num_classes, dtype="int64")


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(q k^T scale) v; of a mask of bools, True is seen. enable_gqa: keys and values of fewer heads serve several."""
    if enable_gqa:
        key, value = (F.repeat(x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask, is_causal, scale, dropout_p)


_PADDED = ("constant", "reflect", "replicate", "circular")


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padded from the last axis on: (left, right, top, bottom, ...); a negative number cuts off.

    >>> pad(F.ones((1, 2)), (1, 0)).tolist()
    [[0.0, 1.0, 1.0]]
    """
    widths = [(int(a), int(b)) for a, b in zip(pad[::2], pad[1::2])]
    if len(pad) % 2 or len(widths) > input.ndim or mode not in _PADDED:
        what = f"{tuple(pad)}, mode={mode!r} of a tensor of shape {input.shape}"
        raise ArgumentError(f"pad: {what}; help: two numbers for each axis, the last first")
    return pad_sides(input, [d for w in widths for d in w], mode, 0.0 if value is None else value)


_BY_FACTORS: dict[str, tuple[Any, tuple[int, ...]]] = {  # mode -> (what resizes by factors, numbers of axes of space; () for all)
    "nearest": (nearest("nearest"), ()), "nearest-exact": (nearest("nearest-exact"), ()), "linear": (linear_resized, (1,)),
    "bilinear": (linear_resized, (2,)), "trilinear": (linear_resized, (3,)), "bicubic": (cubic, (2,)),
}  # fmt: skip


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: Any = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Images of another size. mode: "nearest" unless another is given; "area" is `adaptive_avg_pool`. Where scale_factor times an extent is no
    whole number, it decides which places are read; with recompute_scale_factor=True the extents decide.

    Errors: ArgumentError for recompute_scale_factor with a size, and for antialias with a scale_factor that decides
    """
    if recompute_scale_factor:
        if size is not None or scale_factor is None:
            raise ArgumentError("interpolate: recompute_scale_factor=True needs a scale_factor and no size")
        factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.ndim - 2)
        size, scale_factor = [int(n * f) for n, f in zip(input.shape[2:], factors)], None
    if mode == "area":
        n = input.ndim - 2
        factors = [scale_factor] * n if not isinstance(scale_factor, (list, tuple)) else scale_factor
        size = [int(s * f) for s, f in zip(input.shape[2:], factors)] if size is None else size
        return (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[n - 1](input, size)
    resize, axes = _BY_FACTORS.get(mode, (None, 0))
    if size is None and scale_factor is not None and resize is not None and input.ndim - 2 in (axes or (1, 2, 3)):
        factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.ndim - 2)
        if len(factors) == input.ndim - 2 and factors_decide(input, factors):
            if antialias or (align_corners is not None and not axes):
                raise ArgumentError(f"interpolate: scale_factor={scale_factor} with {mode!r} and these arguments; help: size=")
            given = input if input.dtype.is_inexact or not axes else input.astype("float32")
            made = resize(given, None, *([bool(align_corners)] if axes else []), factors)
            return made if made.dtype is input.dtype else F.clip(F.round(made), 0, 255).astype(input.dtype)
    return F.vision.interpolate(input, size, scale_factor, mode, align_corners, antialias)


upsample = interpolate


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode="nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode="bilinear" and align_corners=True."""
    return interpolate(input, size, scale_factor, "bilinear", True)



celu_, elu_, hardtanh_, leaky_relu_, rrelu_, selu_, threshold_ = map(in_place, (celu, elu, hardtanh, leaky_relu, rrelu, selu, threshold))

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices", "celu_", "elu_",
    "embedding_bag", "feature_alpha_dropout", "hardtanh_", "leaky_relu_", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "multilabel_margin_loss", "rrelu", "rrelu_", "selu_", "threshold_",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "affine_grid", "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "embedding", "fold", "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss",
    "layer_norm", "leaky_relu", "linear", "local_response_norm", "log_softmax", "logsigmoid", "margin_ranking_loss", "max_pool1d", "max_pool2d",
    "max_pool3d", "mish", "fractional_max_pool2d", "fractional_max_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "mse_loss",
    "multi_margin_loss", "multilabel_soft_margin_loss", "triplet_margin_with_distance_loss",
    "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6", "relu_", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid",
    "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "triplet_margin_loss", "unfold", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
all_with_line(globals(), __all__)
for _name in (  # those that have out= in PyTorch
    "avg_pool2d", "avg_pool3d", "gelu", "hardshrink", "linear", "logsigmoid", "normalize", "softplus", "softshrink",
):  # fmt: skip
    globals()[_name] = also_called(globals()[_name], [("out", written_to)])
