"""The building blocks of networks, under MegEngine's names and with its shapes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tengen.base.arguments import check_flag
from tengen.base.config import config
from tengen.base.dtype import float64, int64
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional.export import export
from tengen.ir.types import Dim
from tengen.kernels import numerics
from tengen.loops.lang import maximum
from tengen.ops import attention as _attention
from tengen.ops import nn as _nn
from tengen.ops.attributes import Shape
from tengen.ops.calls import all_with_line
from tengen.ops.contract import linear as _linear
from tengen.ops.conv import conv as _conv
from tengen.ops.conv import conv_bias as _conv_bias
from tengen.ops.conv import conv_transposed as _conv_transposed
from tengen.ops.define import REGISTRY
from tengen.ops.reduce import extent
from tengen.ops.reduce import mean as _mean
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.random.state import uniform_mask
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.functional.nn_ops import *  # noqa: F403  (a generated stub of the ops that stand here)


def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default") -> Tensor:
    """inp @ weight.T + bias. Shapes: (..., in), (out, in), (out,) -> (..., out).

    >>> from tengen import Tensor, functional as F
    >>> F.linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5])).tolist()
    [[11.5]]
    """
    return _linear(inp, weight, bias)


def _check_image(name: str, inp: Tensor, n: int, conv_mode: str) -> None:
    if inp.ndim != n + 2:
        raise ShapeError(f"{name}{n}d takes an image of {n + 2} axes (batch, channels, {n} of space), got {inp.shape}")
    if conv_mode.lower() != "cross_correlation":
        raise ShapeError(f"conv_mode={conv_mode!r}: only 'cross_correlation' exists; help: flip the filter")


def _convolution(inp, weight, bias, stride, padding, dilation, groups, conv_mode, n, algorithm="direct"):
    _check_image("conv", inp, n, conv_mode)
    if algorithm == "auto" and not config.winograd:
        algorithm = "direct"
    if bias is None:
        return _conv(inp, weight, stride, padding, dilation, groups, algorithm)
    return _conv_bias(inp, weight, bias, stride, padding, dilation, groups, algorithm)


def conv1d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups: int = 1,
    conv_mode: str = "cross_correlation", compute_mode: str = "default",
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, L) with (O, C, K), bias (1, O, 1). See `conv2d`."""
    return _convolution(inp, weight, bias, stride, padding, dilation, groups, conv_mode, 1)


def conv2d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups: int = 1,
    conv_mode: str = "cross_correlation", compute_mode: str = "default", *, algorithm: str = "auto",
) -> Tensor:  # fmt: skip
    """Convolution (cross-correlation) of images.

    Shapes:   (N, C, H, W), (O, C, KH, KW) or with groups (G, O/G, C/G, KH, KW), bias (1, O, 1, 1) -> (N, O, PH, PW)
    Args:
        algorithm: "auto", "direct", or "winograd2" and "winograd4" (3x3 filters, stride and dilation 1, one group). "auto"
            chooses by the extents of channels and space, never by the batch, and a graph keeps the choice; TENGEN_WINOGRAD=0
            makes it "direct".
    Numerics: direct: accumulated over (KH, KW, C) in that order; Winograd: docs/numerics.md. The same bits for any batch,
        threads and target

    >>> from tengen import functional as F
    >>> F.conv2d(F.ones((1, 1, 4, 4)), F.ones((1, 1, 3, 3)), padding=1).numpy()[0, 0, 0].tolist()
    [4.0, 6.0, 6.0, 4.0]
    """
    return _convolution(inp, weight, bias, stride, padding, dilation, groups, conv_mode, 2, algorithm)


def conv3d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups: int = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, D, H, W) with (O, C, KD, KH, KW), bias (1, O, 1, 1, 1). See `conv2d`."""
    return _convolution(inp, weight, bias, stride, padding, dilation, groups, conv_mode, 3)


def conv_transpose1d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, dilation=1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution with one spatial axis. See `conv_transpose2d`."""
    return _transposed(inp, weight, bias, stride, padding, output_padding, dilation, groups, "cross_correlation", 1)


def conv_transpose2d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, dilation=1, groups: int = 1,
    conv_mode: str = "cross_correlation", compute_mode: str = "default",
) -> Tensor:  # fmt: skip
    """Transposed convolution: (N, C, H, W), (C, O, KH, KW) or with groups (G, C/G, O/G, KH, KW), bias (1, O, 1, 1) ->
    (N, O, (H - 1) stride - 2 padding + dilation (KH - 1) + 1 + output_padding, ...). output_padding is less than the stride or the
    dilation."""
    return _transposed(inp, weight, bias, stride, padding, output_padding, dilation, groups, conv_mode, 2)


def conv_transpose3d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, dilation=1, groups: int = 1
) -> Tensor:
    """Transposed convolution with three spatial axes. See `conv_transpose2d`."""
    return _transposed(inp, weight, bias, stride, padding, output_padding, dilation, groups, "cross_correlation", 3)


def _transposed(inp, weight, bias, stride, padding, output_padding, dilation, groups, conv_mode, n):
    _check_image("conv_transpose", inp, n, conv_mode)
    algorithm = "auto" if config.winograd else "direct"
    y = _conv_transposed(inp, weight, None, stride, padding, dilation, groups, output_padding, algorithm)
    return y if bias is None else y + bias


def layer_norm(inp: Tensor, normalized_shape: Shape, affine: bool = True, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    """Layer norm over the last axes, which have the shape `normalized_shape`.

    Errors: ShapeError for a normalized_shape that is not that of the last axes
    """
    shape = normalized_shape
    if tuple(inp.shape[len(inp.shape) - len(shape) :]) != shape:
        raise ShapeError(f"layer_norm: the last axes of {inp.shape} are not {shape}")
    return _nn.layer_norm(inp, weight if affine else None, bias if affine else None, len(shape), eps)


def general_norm(
    inp: Tensor, normalized_axis: int | Sequence[int], affine: bool = True, weight=None, bias=None, eps: float = 1e-5
) -> Tensor:
    """Normalisation over any axes; weight and bias have the extents of those axes."""
    axes = (normalized_axis,) if isinstance(normalized_axis, int) else tuple(sorted(a % inp.ndim for a in normalized_axis))
    shape = tuple(d if i in {a % inp.ndim for a in axes} else 1 for i, d in enumerate(inp.shape))
    w = weight.reshape(shape) if affine and weight is not None else None
    b = bias.reshape(shape) if affine and bias is not None else None
    return _nn.general_norm(inp, axes, w, b, eps)


def group_norm(inp: Tensor, num_groups: int, affine: bool = True, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    """Group norm of (N, C, *S); weight and bias are (C,)."""
    return _nn.group_norm(inp, num_groups, weight if affine else None, bias if affine else None, eps)


def instance_norm(inp: Tensor, affine: bool = True, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    """Each channel of each sample normalised over space; weight and bias are (C,)."""
    return group_norm(inp, inp.shape[1] if inp.ndim > 1 else 1, affine, weight, bias, eps)


def batch_norm(
    inp: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, *, training: bool = False, momentum: float = 0.9, eps: float = 1e-5, inplace: bool = True,
) -> Any:  # fmt: skip
    """Batch norm of (N, C, *S). Statistics, weight and bias hold C elements, shaped (C,) or (1, C, 1, ...).

    In training the batch's statistics are used, and the running ones become ``momentum * running + (1 - momentum) * batch``
    (MegEngine's
    momentum: the share kept; the variance that is kept is divided by n - 1). Otherwise the running ones are used.

    Args: inplace: the running statistics are written; False (in training): they stay, and the result is (y, new mean, new variance), as
        MegEngine's is.
    Errors: ShapeError for fewer than two axes, for statistics or weights that do not fit the channels, and without statistics
    """
    if inp.ndim < 2:
        raise ShapeError(f"batch_norm takes a tensor of at least 2 axes (batch, channels, ...), got shape {inp.shape}")
    for what, t in (("mean", running_mean), ("variance", running_var), ("weight", weight), ("bias", bias)):
        if t is not None and isinstance(inp.shape[1], int) and t.size != inp.shape[1]:
            raise ShapeError(f"batch_norm: a {what} of shape {t.shape} for the {inp.shape[1]} channels of {inp.shape}")
    shape = (1, inp.shape[1], *(1 for _ in inp.shape[2:]))
    weight = None if weight is None else weight.reshape(shape)
    bias = None if bias is None else bias.reshape(shape)
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm needs running_mean and running_var unless training=True")
        return _nn.batch_norm_eval(inp, running_mean.reshape(shape), running_var.reshape(shape), weight, bias, eps)
    y, m, v = _nn.batch_norm_train(inp, weight, bias, eps)
    moved: list[Tensor | None] = []
    for running, now in ((running_mean, m), (running_var, v * _unbias(inp.size // inp.shape[1], v))):
        new = None if running is None else running * momentum + now.detach().reshape(running.shape) * (1 - momentum)
        if running is not None and inplace:
            running._reset(new)
        moved.append(new)
    return y if inplace else (y, *moved)


def sync_batch_norm(
    inp: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.9, eps: float = 1e-5, eps_mode: str = "additive",
    group=None,
) -> Tensor:  # fmt: skip
    """`batch_norm` over the batches of all processes of a group, which may have several sizes; with one process, `batch_norm`.

    Args: eps_mode: "additive", the variance plus eps; "max", the greater of the variance and eps, is not here. group: see
        `functional.distributed`.
    Numerics: the mean is that of all samples, and the variance that of the differences from it (two passes, not the difference of
        squares); sums of the processes are added in the order of the ranks.
    Errors: ArgumentError for an eps_mode that is not there
    """
    if eps_mode.lower() != "additive":
        raise ArgumentError(f"sync_batch_norm: eps_mode={eps_mode!r} must be 'additive'")
    processes = importlib.import_module("tengen.functional.distributed")  # here: most networks train in one process
    if not training or (processes.WORLD if group is None else group).size == 1:
        return batch_norm(inp, running_mean, running_var, weight, bias, training=training, momentum=momentum, eps=eps)
    axes, shape = [0, *range(2, inp.ndim)], (1, inp.shape[1], *(1 for _ in inp.shape[2:]))
    n = processes.all_reduce_sum(extent(inp.size // max(inp.shape[1], 1), int64), group)
    count = n.astype(inp.dtype)
    mean = processes.all_reduce_sum(inp.sum(axes), group).reshape(shape) / count
    centred = inp - mean
    var = processes.all_reduce_sum((centred * centred).sum(axes), group).reshape(shape) / count
    y = centred / (var + eps).sqrt()
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    samples = n.astype(float64)
    unbiased = var * (samples / REGISTRY["maximum"](samples - 1, 1)).astype(var.dtype)
    for running, now in ((running_mean, mean), (running_var, unbiased)):
        if running is not None:
            running._reset(running * momentum + now.detach().reshape(running.shape) * (1 - momentum))
    return y


def _unbias(n: Dim, v: Tensor) -> float | Tensor:
    """n / (n - 1), by which a variance divided by n becomes one divided by n - 1."""
    if isinstance(n, int):
        return n / max(n - 1, 1)
    return (extent(n, float64) / extent(maximum(n - 1, 1), float64)).astype(v.dtype)


def dropout(inp: Tensor, drop_prob: float = 0.5, training: bool = True) -> Tensor:
    """Zeroes elements with probability `drop_prob` and divides the others by 1 - drop_prob; the identity when not training.

    Errors: ArgumentError for what is no probability; TypeError for a training that is no bool
    """
    if not 0 <= drop_prob <= 1:
        raise ArgumentError(f"dropout: drop_prob={drop_prob} is not a probability")
    if not training or drop_prob == 0:
        return inp
    if drop_prob == 1:
        return inp * 0
    return inp * uniform_mask(inp.shape, 1 - drop_prob).astype(inp.dtype) * (1 / (1 - drop_prob))


def alpha_dropout(inp: Tensor, drop_prob: float = 0.5, training: bool = True) -> Tensor:
    """Dropout for `selu`: sets elements to selu's limit at -inf with probability `drop_prob`, and scales and shifts all so that mean 0 and
    variance 1 stay. The identity when not training.

    Source: Klambauer et al., arXiv 1706.02515, section 3.

    Errors: ArgumentError for a drop_prob outside of [0, 1); TypeError for a training that is no bool
    """
    if not 0 <= drop_prob < 1:
        raise ArgumentError(f"alpha_dropout: drop_prob={drop_prob} must be in [0, 1)")
    if not training or drop_prob == 0:
        return inp
    low, keep = -1.7580993408473766, 1 - drop_prob
    scale = (keep + low * low * keep * drop_prob) ** -0.5
    kept = REGISTRY["where"](uniform_mask(inp.shape, keep), inp, low)
    return REGISTRY["astype"](kept * scale - scale * low * drop_prob, inp.dtype)


dropout.aliases = alpha_dropout.aliases = {"inplace": ""}  # PyTorch's word: it changes no number
_dropout = dropout  # where a parameter has that name


def embedding(inp: Tensor, weight: Tensor, padding_idx=None, max_norm=None, norm_type=None) -> Tensor:
    """Rows of `weight` (V, D) by index: (...) of integers -> (..., D).

    Args: padding_idx: a row that gets no gradient, as in PyTorch.
    Errors: ArgumentError for max_norm or norm_type, which there are not
    """
    if max_norm is not None or norm_type is not None:
        raise ArgumentError("embedding: max_norm and norm_type must be None (as in MegEngine); help: divide rows by functional.norm")
    rows = weight[inp]
    if padding_idx is None:
        return rows
    padded = REGISTRY["equal"](inp, padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx)
    return REGISTRY["where"](REGISTRY["expand_dims"](padded, -1), REGISTRY["stop_gradient"](rows), rows)


def rms_norm(inp: Tensor, normalized_shape: Shape, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axes, which have the shape `normalized_shape`, times weight.

    Source: Zhang and Sennrich, arXiv 1910.07467.
    Numerics: float16 and bfloat16 are computed in float32, where squares do not overflow, and rounded once.
    Errors: ShapeError for a normalized_shape that is not that of the last axes

    >>> from tengen import Tensor, functional as F
    >>> F.rms_norm(Tensor([[1.0, 7.0]]), 2, eps=0.0).tolist()  # divided by 5
    [[0.20000000298023224, 1.399999976158142]]
    """
    shape = tuple(normalized_shape)
    if not shape or tuple(inp.shape[len(inp.shape) - len(shape) :]) != shape:
        raise ShapeError(f"rms_norm: the last axes of {inp.shape} are not {shape}")
    x = widened(inp)
    y = x * REGISTRY["rsqrt"](_mean(x * x, tuple(range(-len(shape), 0)), True) + eps)
    return narrowed(y, inp) if weight is None else narrowed(y * weight, inp, weight)


def glu(inp: Tensor, axis: int = -1) -> Tensor:
    """a sigmoid(b), where a and b are the halves of inp along `axis`: a gated linear unit (Dauphin et al., arXiv 1612.08083).

    Errors: ShapeError for an axis of odd extent
    """
    if inp.ndim == 0 or inp.shape[axis] % 2:
        raise ShapeError(f"glu of {inp.shape} along axis {axis}: an axis of even extent is needed")
    a, b = REGISTRY["split"](inp, 2, axis)
    return a * REGISTRY["sigmoid"](b)


def local_response_norm(
    inp: Tensor, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Tensor:
    """x / (k + alpha * the sum of x^2 over `kernel_size` neighbouring channels)^beta, for images (N, C, H, W).

    Source: Krizhevsky et al., 2012; alpha multiplies the sum as in MegEngine, where PyTorch's multiplies the mean.
    Errors: ShapeError unless there are four axes, ArgumentError for an even kernel_size.
    """
    if inp.ndim != 4:
        raise ShapeError(f"local_response_norm takes images (N, C, H, W), got {inp.shape}")
    if kernel_size % 2 == 0 or kernel_size < 1:
        raise ArgumentError(f"local_response_norm: kernel_size={kernel_size} must be odd")
    half, c = kernel_size // 2, inp.shape[1]
    x = widened(inp)
    squares = REGISTRY["pad"](x * x, ((0, 0), (half, half), (0, 0), (0, 0)))
    total = squares[:, :c]
    for i in range(1, kernel_size):
        total = total + squares[:, i : i + c]
    return narrowed(x / REGISTRY["pow"](k + alpha * total, beta), inp)


def pixel_shuffle(inp: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r r, H, W) -> (*, C, H r, W r).

    Errors: ShapeError for channels that are no multiple of the square of the factor
    """
    r = upscale_factor
    if inp.ndim < 3 or r < 1 or (isinstance(inp.shape[-3], int) and inp.shape[-3] % (r * r)):
        raise ShapeError(f"pixel_shuffle of {inp.shape} by {r}: an image (*, C r r, H, W) is needed")
    *lead, c, h, w = inp.shape
    n = len(lead)
    x = inp.reshape(*lead, c // (r * r), r, r, h, w)
    return x.transpose(*range(n), *(n + i for i in (0, 3, 1, 4, 2))).reshape(*lead, c // (r * r), h * r, w * r)


def indexing_one_hot(inp: Tensor, index: Tensor, axis: int = 1, keepdims: bool = False) -> Tensor:
    """The element of `inp` along `axis` that `index` names, at every other position."""
    picked = REGISTRY["where"](_nn.class_mask(index, inp, axis), inp, REGISTRY["zeros_like"](inp))
    return REGISTRY["sum"](picked, axis, keepdims)


indexing_one_hot.aliases = {"src": "inp"}

def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, is_causal: bool | str = False,
    scale: float | None = None, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """softmax(scale q k^T + mask) v, without a matrix of scores in memory.

    Shapes:   query (*G, T, D), key (*G, S, D), value (*G, S, E), mask (*G, T, S) -> (*G, T, E); leading axes are broadcast
    Args:
        mask: bool, true where a key is seen, or a float that is added to the scores. is_causal: True is PyTorch's: query t
            sees the keys 0..t; "lower_right" lets it see 0..t + S - T, for keys that come from a cache first. scale: default
            1 / sqrt(D). dropout: probability with which a weight of the softmax is zeroed (whenever it is above 0, as in PyTorch;
            the weights are then kept in memory, as where D + E is above 1024).
    Returns:  a query that sees no key has the result 0
    Numerics: `ops.attention.attention`; the same bits for any batch, number of queries, threads and target

    >>> from tengen import functional as F
    >>> x = F.eye(2).reshape(1, 2, 2)
    >>> F.scaled_dot_product_attention(x, x, x, is_causal=True).numpy()[0, 0].tolist()
    [1.0, 0.0]
    """
    if not isinstance(is_causal, str):
        check_flag("scaled_dot_product_attention", "is_causal", is_causal)
    causal = is_causal if isinstance(is_causal, str) else "upper_left" if is_causal else "none"
    if dropout == 0 and query.shape[-1] + value.shape[-1] <= numerics.ATTENTION_MOST_FEATURES:
        return _attention.attention(query, key, value, mask, scale, causal)[0]
    weights = _attention.attention_weights(query, key, mask, scale, causal)
    return REGISTRY["matmul"](_dropout(weights, dropout), value)


def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_heads: int, attn_drop: float, out_drop: float,
    io_weight_bias: Tensor | None, qproj_size: int | None = None, kproj_size: int | None = None, vproj_size: int | None = None,
    oproj_size: int | None = None, qbias: bool = False, kbias: bool = False, vbias: bool = False, obias: bool = False,
    bias_k: Tensor | None = None, bias_v: Tensor | None = None, add_zero_attn: bool = False, key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None, need_weights: bool = False, average_attn_weights: bool = False, is_causal: bool = False,
    maybe_cudnn_style_mask: bool = False, reslink: bool = False, training: bool = True,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of `num_heads` heads between linear maps x @ W + b, whose W and b lie one after the other in `io_weight_bias`.

    Shapes: query (N, T, Q), key (N, S, K), value (N, S, V), or without N -> ((N, T, O), weights or None)
    Args:
        embed_dim: what the heads share. io_weight_bias: the numbers of the maps (Q, qproj_size) of the queries, (K, kproj_size) of the keys,
            (V, vproj_size) of the values, (vproj_size, oproj_size) of the output, then the biases that there are. A size of None is
            embed_dim, 0: there is no map. qbias, kbias, vbias, obias: which maps have a bias. attn_drop, out_drop: the share of weights, and
            of outputs, that are zeroed where `training` is set. key_padding_mask: (N, S), bool, true where a key is NOT seen, or a float that
            is added to the scores. attn_mask: (T, S) or (N num_heads, T, S), of the same kinds. is_causal: query t sees the keys 0..t.
            maybe_cudnn_style_mask: an attn_mask (2, T) holds the first key that a query sees, and the first behind the last; a
            key_padding_mask (2, N) the lengths of queries and of keys. need_weights: return the weights too, (N num_heads, T, S), or their
            average over heads (N, T, S) where average_attn_weights is set. bias_k, bias_v, add_zero_attn, reslink: MegEngine's, which must be
            left as they are, there too.
    Numerics: scores are divided by the root of embed_dim / num_heads (of embed_dim without a map of the queries)
    Errors:   ShapeError for sizes that do not fit
    Source:   Vaswani et al., arXiv 1706.03762
    Errors: ShapeError for operands that do not fit each other, ArgumentError for arguments that must be left as they are

    >>> from tengen import functional as F
    >>> x = F.ones((2, 3, 4))
    >>> y, weights = F.multi_head_attention(x, x, x, 4, 2, 0.0, 0.0, F.ones(64), need_weights=True)
    >>> y.shape, weights.shape
    ((2, 3, 4), (4, 3, 3))
    """
    for name, wanted in (("bias_k", bias_k), ("bias_v", bias_v), ("add_zero_attn", add_zero_attn), ("reslink", reslink)):
        if wanted is not None and wanted is not False:
            raise ArgumentError(f"multi_head_attention: {name} must be left as it is; help: concat rows to key and value, or add the query")
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        shapes = f"{query.shape}, {key.shape}, {value.shape}"
        raise ShapeError(f"multi_head_attention takes query, key and value of 3 axes, or 2 without a batch; got {shapes}")
    alone = query.ndim == 2
    if alone:
        query, key, value = (x.reshape(1, *x.shape) for x in (query, key, value))
        key_padding_mask = key_padding_mask if key_padding_mask is None or key_padding_mask.ndim == 2 else key_padding_mask.reshape(1, -1)
    sizes = [embed_dim if s is None else s for s in (qproj_size, kproj_size, vproj_size, oproj_size)]
    inner = sizes[2] or value.shape[-1]
    maps = _packed_maps(io_weight_bias, [query.shape[-1], key.shape[-1], value.shape[-1], inner], sizes, [qbias, kbias, vbias, obias])
    n, t, s = query.shape[0], query.shape[1], key.shape[1]
    q, k, v = (_as_heads(_through_map(x, m), num_heads) for x, m in zip((query, key, value), maps))
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"multi_head_attention: heads of queries have {q.shape[-1]} features, those of keys {k.shape[-1]}")
    scale = float(embed_dim // num_heads if sizes[0] else embed_dim) ** -0.5
    mask = _added_mask(key_padding_mask, attn_mask, is_causal, maybe_cudnn_style_mask, (n, num_heads, t, s), q)
    share = attn_drop if training else 0.0
    weights = None
    if need_weights:
        scores = REGISTRY["matmul"](q, REGISTRY["swapaxes"].call(k, -1, -2)) * scale
        weights = REGISTRY["softmax"](scores if mask is None else scores + mask, -1)
        y = REGISTRY["matmul"](dropout(weights, share, training), v)
        weights = weights.mean(1) if average_attn_weights else weights.reshape(n * num_heads, t, s)
    else:
        y = scaled_dot_product_attention(q, k, v, mask, scale=scale, dropout=share)
    y = _through_map(y.transpose(0, 2, 1, 3).reshape(n, t, inner), maps[3])
    y = dropout(y, out_drop, training)
    return (y.reshape(*y.shape[1:]) if alone else y), weights


def _packed_maps(packed: Tensor | None, given: list, sizes: list[int], biases: list[bool]) -> list[tuple]:
    """(weight, bias) of the four maps, None for what is not there."""
    shapes = [(i, o) if o else None for i, o in zip(given, sizes)] + [(o,) if b and o else None for o, b in zip(sizes, biases)]
    for what, o, b in zip(("query", "key", "value", "output"), sizes, biases):
        if b and not o:
            raise ArgumentError(f"multi_head_attention: the {what} has a bias and no map (its size is 0); help: leave the bias out")
    needed, there = sum(prod(s) for s in shapes if s is not None), 0 if packed is None else packed.size
    if needed != there:
        raise ShapeError(f"multi_head_attention: io_weight_bias has {there} numbers, {shapes} take {needed}")
    parts: list[Any] = []
    at, flat = 0, None if packed is None else packed.reshape(-1)
    for s in shapes:
        parts.append(None if s is None or flat is None else flat[at : at + prod(s)].reshape(*s))
        at += 0 if s is None else prod(s)
    return list(zip(parts[:4], parts[4:]))


def _through_map(x: Tensor, m: tuple) -> Tensor:
    weight, bias = m
    x = x if weight is None else REGISTRY["matmul"](x, weight)
    return x if bias is None else x + bias


def _as_heads(x: Tensor, heads: int) -> Tensor:
    n, t, e = x.shape
    if e % heads:
        raise ShapeError(f"multi_head_attention: {e} features cannot be shared out to {heads} heads")
    return x.reshape(n, t, heads, e // heads).transpose(0, 2, 1, 3)


def _added_mask(padding: Tensor | None, mask: Tensor | None, causal: bool, ranges: bool, shape: tuple, q: Tensor) -> Tensor | None:
    """What is added to the scores (N, heads, T, S): all masks together."""
    n, heads, t, s = shape
    arange, found = REGISTRY["arange"].call, []
    if causal:
        found.append(arange(s).reshape(1, s) > arange(t).reshape(t, 1))
    if mask is not None and ranges and mask.shape == (2, t) and t != 2:
        keys = arange(s).reshape(1, s)
        mask = (keys < mask[0].reshape(t, 1)) | (keys >= mask[1].reshape(t, 1))
    if mask is not None:
        if mask.shape not in ((t, s), (n * heads, t, s)):
            raise ShapeError(f"multi_head_attention: attn_mask {mask.shape} must have the shape {(t, s)} or {(n * heads, t, s)}")
        found.append(mask.reshape(n, heads, t, s) if mask.ndim == 3 else mask)
    if padding is not None:
        if ranges and padding.shape == (2, n) and s != n:
            padding = arange(s).reshape(1, s) >= padding[1].reshape(n, 1)
        if padding.shape != (n, s):
            raise ShapeError(f"multi_head_attention: key_padding_mask {padding.shape} must have the shape {(n, s)}")
        found.append(padding.reshape(n, 1, 1, s))
    added = [REGISTRY["where"](m, float("-inf"), 0.0).astype(q.dtype) if m.dtype == "bool" else m.astype(q.dtype) for m in found]
    total = None
    for m in added:
        total = m if total is None else total + m
    return total if total is None else REGISTRY["broadcast_to"](total, shape)


@rounded_once
def softplus(inp: Tensor, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow.

    Args: threshold: from beta x above it on the result is x, as PyTorch has it above 20; None: it is computed everywhere.
    Errors: ArgumentError for a beta that is not positive

    >>> from tengen import Tensor, functional as F
    >>> F.softplus(Tensor([0.0, 30.0]), threshold=20).tolist()
    [0.6931471824645996, 30.0]
    """
    if not beta > 0:
        raise ArgumentError(f"softplus: beta={beta} must be positive")
    scaled = inp if beta == 1 else inp * beta
    y = REGISTRY["softplus"](scaled) if beta == 1 else REGISTRY["softplus"](scaled) / beta
    return y if threshold is None else REGISTRY["where"](REGISTRY["greater"](scaled, threshold), inp, y)


softplus.aliases = {"x": "inp"}
_ELSEWHERE = {  # names of other modules that stand here, too
    "tengen.functional.loss": "binary_cross_entropy cross_entropy ctc_loss hinge_loss l1_loss square_loss",
    "tengen.functional.math": "normalize",
    "tengen.functional.pooling": "adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d max_pool2d",
    "tengen.functional.vision": "nms nvof",
}
__all__ = [
    "alpha_dropout", "batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "dropout",
    "embedding", "general_norm", "glu", "group_norm", "indexing_one_hot", "instance_norm", "layer_norm", "linear", "local_response_norm",
    "multi_head_attention", "pixel_shuffle", "rms_norm", "scaled_dot_product_attention", "softplus", "sync_batch_norm",
    *export(globals(), "nn", elsewhere=_ELSEWHERE),
]  # fmt: skip
all_with_line(globals(), __all__)
