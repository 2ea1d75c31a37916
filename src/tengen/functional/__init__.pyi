"""Functions of tensors, for editors and type checkers. `python docs/generate.py` writes this file again."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tengen.functional import loss as loss
from tengen.functional import metric as metric
from tengen.functional import nn as nn
from tengen.functional import vision as vision
from tengen.functional.accumulated import cummax as cummax
from tengen.functional.accumulated import cummin as cummin
from tengen.functional.accumulated import cumulative_trapezoid as cumulative_trapezoid
from tengen.functional.accumulated import index_reduce as index_reduce
from tengen.functional.accumulated import logcumsumexp as logcumsumexp
from tengen.functional.accumulated import mode as mode
from tengen.functional.accumulated import nanmedian as nanmedian
from tengen.functional.accumulated import nanquantile as nanquantile
from tengen.functional.accumulated import pdist as pdist
from tengen.functional.accumulated import scatter_reduce as scatter_reduce
from tengen.functional.accumulated import unique_consecutive as unique_consecutive
from tengen.functional.activations import bilinear as bilinear
from tengen.functional.activations import celu as celu
from tengen.functional.activations import channel_shuffle as channel_shuffle
from tengen.functional.activations import embedding_bag as embedding_bag
from tengen.functional.activations import fold as fold
from tengen.functional.activations import gumbel_softmax as gumbel_softmax
from tengen.functional.activations import hardshrink as hardshrink
from tengen.functional.activations import hardtanh as hardtanh
from tengen.functional.activations import pixel_unshuffle as pixel_unshuffle
from tengen.functional.activations import softmin as softmin
from tengen.functional.activations import softshrink as softshrink
from tengen.functional.activations import softsign as softsign
from tengen.functional.activations import tanhshrink as tanhshrink
from tengen.functional.activations import threshold as threshold
from tengen.functional.arranged import atleast_1d as atleast_1d
from tengen.functional.arranged import atleast_2d as atleast_2d
from tengen.functional.arranged import atleast_3d as atleast_3d
from tengen.functional.arranged import block_diag as block_diag
from tengen.functional.arranged import broadcast_tensors as broadcast_tensors
from tengen.functional.arranged import cartesian_prod as cartesian_prod
from tengen.functional.arranged import chunk as chunk
from tengen.functional.arranged import column_stack as column_stack
from tengen.functional.arranged import combinations as combinations
from tengen.functional.arranged import diag_embed as diag_embed
from tengen.functional.arranged import diagflat as diagflat
from tengen.functional.arranged import dstack as dstack
from tengen.functional.arranged import fliplr as fliplr
from tengen.functional.arranged import flipud as flipud
from tengen.functional.arranged import hstack as hstack
from tengen.functional.arranged import index_add as index_add
from tengen.functional.arranged import index_copy as index_copy
from tengen.functional.arranged import index_fill as index_fill
from tengen.functional.arranged import isin as isin
from tengen.functional.arranged import masked_scatter as masked_scatter
from tengen.functional.arranged import movedim as movedim
from tengen.functional.arranged import rot90 as rot90
from tengen.functional.arranged import tensor_split as tensor_split
from tengen.functional.arranged import tril_indices as tril_indices
from tengen.functional.arranged import triu_indices as triu_indices
from tengen.functional.arranged import unbind as unbind
from tengen.functional.arranged import unravel_index as unravel_index
from tengen.functional.arranged import vstack as vstack
from tengen.functional.composed import addcdiv as addcdiv
from tengen.functional.composed import addcmul as addcmul
from tengen.functional.composed import addmm as addmm
from tengen.functional.composed import amax as amax
from tengen.functional.composed import amin as amin
from tengen.functional.composed import aminmax as aminmax
from tengen.functional.composed import baddbmm as baddbmm
from tengen.functional.composed import bartlett_window as bartlett_window
from tengen.functional.composed import blackman_window as blackman_window
from tengen.functional.composed import bucketize as bucketize
from tengen.functional.composed import cdist as cdist
from tengen.functional.composed import corrcoef as corrcoef
from tengen.functional.composed import cov as cov
from tengen.functional.composed import deg2rad as deg2rad
from tengen.functional.composed import fmax as fmax
from tengen.functional.composed import fmin as fmin
from tengen.functional.composed import fmod as fmod
from tengen.functional.composed import frac as frac
from tengen.functional.composed import hamming_window as hamming_window
from tengen.functional.composed import hann_window as hann_window
from tengen.functional.composed import heaviside as heaviside
from tengen.functional.composed import histc as histc
from tengen.functional.composed import inner as inner
from tengen.functional.composed import isneginf as isneginf
from tengen.functional.composed import isposinf as isposinf
from tengen.functional.composed import kaiser_window as kaiser_window
from tengen.functional.composed import kron as kron
from tengen.functional.composed import kthvalue as kthvalue
from tengen.functional.composed import logaddexp2 as logaddexp2
from tengen.functional.composed import logit as logit
from tengen.functional.composed import logspace as logspace
from tengen.functional.composed import msort as msort
from tengen.functional.composed import nanmean as nanmean
from tengen.functional.composed import nansum as nansum
from tengen.functional.composed import pairwise_distance as pairwise_distance
from tengen.functional.composed import rad2deg as rad2deg
from tengen.functional.composed import sinc as sinc
from tengen.functional.composed import std_mean as std_mean
from tengen.functional.composed import tensordot as tensordot
from tengen.functional.composed import trapezoid as trapezoid
from tengen.functional.composed import vander as vander
from tengen.functional.composed import var_mean as var_mean
from tengen.functional.composed import xlogy as xlogy
from tengen.functional.control import cond as cond
from tengen.functional.control import fori_loop as fori_loop
from tengen.functional.control import scan as scan
from tengen.functional.control import while_loop as while_loop
from tengen.functional.einsum import einsum as einsum
from tengen.functional.loss import binary_cross_entropy as binary_cross_entropy
from tengen.functional.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from tengen.functional.loss import cosine_embedding_loss as cosine_embedding_loss
from tengen.functional.loss import cross_entropy as cross_entropy
from tengen.functional.loss import cross_entropy_with_softmax as cross_entropy_with_softmax
from tengen.functional.loss import ctc_loss as ctc_loss
from tengen.functional.loss import focal_loss as focal_loss
from tengen.functional.loss import gaussian_nll_loss as gaussian_nll_loss
from tengen.functional.loss import hinge_embedding_loss as hinge_embedding_loss
from tengen.functional.loss import hinge_loss as hinge_loss
from tengen.functional.loss import huber_loss as huber_loss
from tengen.functional.loss import kl_div as kl_div
from tengen.functional.loss import l1_loss as l1_loss
from tengen.functional.loss import margin_ranking_loss as margin_ranking_loss
from tengen.functional.loss import multi_margin_loss as multi_margin_loss
from tengen.functional.loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from tengen.functional.loss import nll_loss as nll_loss
from tengen.functional.loss import poisson_nll_loss as poisson_nll_loss
from tengen.functional.loss import smooth_l1_loss as smooth_l1_loss
from tengen.functional.loss import soft_margin_loss as soft_margin_loss
from tengen.functional.loss import square_loss as mse_loss
from tengen.functional.loss import square_loss as square_loss
from tengen.functional.loss import triplet_margin_loss as triplet_margin_loss
from tengen.functional.loss import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from tengen.functional.math import bmm as bmm
from tengen.functional.math import cosine_similarity as cosine_similarity
from tengen.functional.math import cross as cross
from tengen.functional.math import dot as dot
from tengen.functional.math import matinv as matinv
from tengen.functional.math import matmul as matmul
from tengen.functional.math import norm as norm
from tengen.functional.math import normalize as normalize
from tengen.functional.math import outer as outer
from tengen.functional.math import svd as svd
from tengen.functional.metric import topk_accuracy as topk_accuracy
from tengen.functional.nn import alpha_dropout as alpha_dropout
from tengen.functional.nn import batch_norm as batch_norm
from tengen.functional.nn import conv1d as conv1d
from tengen.functional.nn import conv2d as conv2d
from tengen.functional.nn import conv3d as conv3d
from tengen.functional.nn import conv_transpose1d as conv_transpose1d
from tengen.functional.nn import conv_transpose2d as conv_transpose2d
from tengen.functional.nn import conv_transpose3d as conv_transpose3d
from tengen.functional.nn import dropout as dropout
from tengen.functional.nn import embedding as embedding
from tengen.functional.nn import general_norm as general_norm
from tengen.functional.nn import glu as glu
from tengen.functional.nn import group_norm as group_norm
from tengen.functional.nn import indexing_one_hot as indexing_one_hot
from tengen.functional.nn import instance_norm as instance_norm
from tengen.functional.nn import layer_norm as layer_norm
from tengen.functional.nn import linear as linear
from tengen.functional.nn import local_response_norm as local_response_norm
from tengen.functional.nn import multi_head_attention as multi_head_attention
from tengen.functional.nn import pixel_shuffle as pixel_shuffle
from tengen.functional.nn import rms_norm as rms_norm
from tengen.functional.nn import scaled_dot_product_attention as scaled_dot_product_attention
from tengen.functional.nn import softplus as softplus
from tengen.functional.nn import sync_batch_norm as sync_batch_norm
from tengen.functional.pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from tengen.functional.pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from tengen.functional.pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from tengen.functional.pooling import adaptive_max_pool1d as adaptive_max_pool1d
from tengen.functional.pooling import adaptive_max_pool2d as adaptive_max_pool2d
from tengen.functional.pooling import adaptive_max_pool3d as adaptive_max_pool3d
from tengen.functional.pooling import avg_pool1d as avg_pool1d
from tengen.functional.pooling import avg_pool2d as avg_pool2d
from tengen.functional.pooling import avg_pool3d as avg_pool3d
from tengen.functional.pooling import fractional_max_pool2d as fractional_max_pool2d
from tengen.functional.pooling import fractional_max_pool3d as fractional_max_pool3d
from tengen.functional.pooling import lp_pool1d as lp_pool1d
from tengen.functional.pooling import lp_pool2d as lp_pool2d
from tengen.functional.pooling import lp_pool3d as lp_pool3d
from tengen.functional.pooling import max_pool1d as max_pool1d
from tengen.functional.pooling import max_pool2d as max_pool2d
from tengen.functional.pooling import max_pool3d as max_pool3d
from tengen.functional.pooling import max_unpool1d as max_unpool1d
from tengen.functional.pooling import max_unpool2d as max_unpool2d
from tengen.functional.pooling import max_unpool3d as max_unpool3d
from tengen.functional.vision import nms as nms
from tengen.functional.vision import nvof as nvof
from tengen.ops.attributes import Axes, Color, Count, DTypeLike, Extent, Naturals, NewShape, Number, Offset, Positive, Positives, Shape
from tengen.tensor.tensor import Tensor

TensorLike = Tensor | np.ndarray | float

__all__ = [
    "abs", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "addcdiv", "addcmul", "addmm", "affine_grid", "all", "allclose",
    "alpha_dropout", "amax", "amin", "aminmax", "angle", "any", "arange", "argmax", "argmin", "argsort", "as_strided", "asin",
    "asinh", "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "attention_int", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "baddbmm", "bartlett_window", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "blackman_window", "block_diag", "bmm", "broadcast_tensors", "broadcast_to", "bucketize", "cartesian_prod", "cbrt",
    "cdist", "ceil", "celu", "centre_codes", "channel_shuffle", "chunk", "clip", "column_stack", "combinations", "complex",
    "concat", "cond", "cond_take", "conj", "conv1d", "conv2d", "conv3d", "conv_int", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "copy", "copysign", "corrcoef", "correlation", "cos", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "count_nonzero", "cov", "cross", "cross_entropy", "cross_entropy_with_softmax", "ctc_loss", "cummax",
    "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "cvt_color", "deformable_conv2d", "deformable_psroi_pooling",
    "deg2rad", "dequantize_linear", "diag", "diag_embed", "diagflat", "diagonal", "diff", "digamma", "div", "dot", "dropout",
    "dstack", "einsum", "elu", "embedding", "embedding_bag", "equal", "erf", "erfc", "exp", "exp2", "expand_dims", "expm1",
    "eye", "fake_attention", "fake_quantize", "flatten", "flip", "fliplr", "flipud", "floor", "floor_div", "fma", "fmax",
    "fmin", "fmod", "focal_loss", "fold", "fori_loop", "frac", "fractional_max_pool2d", "fractional_max_pool3d", "full",
    "full_like", "gather", "gaussian_nll_loss", "gelu", "general_norm", "glu", "greater", "greater_equal", "grid_sample",
    "group_norm", "gumbel_softmax", "hamming_window", "hann_window", "hardshrink", "hardtanh", "heaviside",
    "hinge_embedding_loss", "hinge_loss", "histc", "histogram", "hsigmoid", "hstack", "hswish", "huber_loss", "hypot", "imag",
    "index_add", "index_copy", "index_fill", "index_reduce", "index_select", "indexing_one_hot", "inner", "instance_norm",
    "interpolate", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "kaiser_window", "kl_div", "kron",
    "kthvalue", "l1_loss", "layer_norm", "leaky_relu", "left_shift", "lerp", "less", "less_equal", "lgamma", "linear",
    "linear_grouped", "linspace", "local_conv2d", "local_response_norm", "log", "log10", "log1p", "log2", "log_softmax",
    "logaddexp", "logaddexp2", "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logit",
    "logsigmoid", "logsoftmax", "logspace", "logsumexp", "lookup_codes", "loss", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "margin_ranking_loss", "masked_fill", "masked_scatter", "matinv", "matmul", "matmul_int", "max", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "maximum", "mean", "median", "meshgrid",
    "metric", "min", "minimum", "mish", "mod", "mode", "moveaxis", "movedim", "mse_loss", "msort", "mul",
    "multi_head_attention", "multi_margin_loss", "multilabel_soft_margin_loss", "nan_to_num", "nanmean", "nanmedian",
    "nanquantile", "nansum", "neg", "nextafter", "nll_loss", "nms", "nn", "non_zero", "nonzero", "norm", "normalize",
    "not_equal", "nvof", "one_hot", "ones", "ones_like", "outer", "pad", "pairwise_distance", "pdist", "permute",
    "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "polar", "pow", "prelu", "prod", "quantile", "quantize_linear",
    "rad2deg", "real", "reciprocal", "region_restricted_conv", "relu", "relu6", "remap", "repeat", "requantize_linear",
    "resample", "reshape", "right_shift", "rms_norm", "roi_align", "roi_pooling", "roll", "rot90", "round", "rsqrt",
    "scaled_dot_product_attention", "scan", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "selu", "sigmoid",
    "sign", "signbit", "silu", "sin", "sinc", "sinh", "sliding_window", "sliding_window_transpose", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "sort", "split", "sqrt", "square",
    "square_loss", "squeeze", "stack", "std", "std_mean", "straight_through", "sub", "sum", "svd", "swapaxes",
    "sync_batch_norm", "take", "take_along_axis", "tan", "tanh", "tanhshrink", "tensor_split", "tensordot", "threshold",
    "tile", "topk", "topk_accuracy", "transpose", "trapezoid", "tril", "tril_indices", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "triu", "triu_indices", "trunc", "unbind", "unfold", "unique", "unique_consecutive",
    "unravel_index", "vander", "var", "var_mean", "view_as_complex", "view_as_real", "vision", "vstack", "warp_affine",
    "warp_perspective", "where", "while_loop", "xlogy", "zeros", "zeros_like"
]

def abs(x: TensorLike) -> Tensor:
    """|x|; the gradient at 0 is 0. The least integer of a dtype stays, as in NumPy."""
def acos(x: TensorLike) -> Tensor:
    """The inverse cosine in [0, pi], at most 2 ULP off; NaN outside [-1, 1]."""
def acosh(x: TensorLike) -> Tensor:
    """The inverse hyperbolic cosine, at most 2 ULP off (float64: 4); NaN below 1."""
def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y; of bools, whether either is true."""
def affine_grid(theta: TensorLike, size: Sequence[Extent], align_corners: bool = False) -> Tensor:
    """The grid of `grid_sample` for affine maps, as PyTorch's: grid[n, i, j] = theta[n] (x, y, 1), where (x, y) is the place
    of row i and column j in the result."""
def all(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether every element is true (not zero)."""
def allclose(inp: TensorLike, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close, see `isclose`: a 0-d bool tensor."""
def angle(inp: TensorLike) -> Tensor:
    """The argument of complex numbers in [-pi, pi], by `atan2`; of real numbers 0 or pi, and NaN of NaN, as in NumPy. Where a
    number is 0 so is its gradient."""
def any(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true (not zero)."""
def arange(
    start: Number = 0, stop: Number | None = None, step: Number = 1, dtype: DTypeLike = 'float32', device: Any = None,
) -> Tensor:
    """start, start + step, ... below stop; one argument is `stop`. float32 by default, as in MegEngine."""
def argmax(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first largest element along `axis` (in the flattened tensor by default); a NaN counts as
    largest."""
def argmin(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first smallest element along `axis` (in the flattened tensor by default); a NaN counts as
    smallest."""
def argsort(inp: TensorLike, descending: Any = False, axis: int = -1) -> Tensor:
    """The int64 positions that sort the tensor along `axis`: stable, descending too; NaN counts as largest."""
def as_strided(inp: TensorLike, size: Shape, stride: int | Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements at places that strides name, as a view: element (i, j, ...) is number storage_offset + i stride[0] + j
    stride[1] + ... of the tensor's elements, counted with the last axis innermost. Places may be read several times; their
    gradients are added."""
def asin(x: TensorLike) -> Tensor:
    """The inverse sine in [-pi/2, pi/2], at most 2 ULP off; NaN outside [-1, 1]."""
def asinh(x: TensorLike) -> Tensor:
    """The inverse hyperbolic sine, at most 2 ULP off (float64: 4)."""
def astype(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), integers wrap, anything
    to bool is x != 0."""
def atan(x: TensorLike) -> Tensor:
    """The inverse tangent in [-pi/2, pi/2], at most 2 ULP off."""
def atan2(y: TensorLike, x: TensorLike) -> Tensor:
    """The angle of the point (x, y) in [-pi, pi], at most 2 ULP off; zeros and infinities as in C99."""
def atanh(x: TensorLike) -> Tensor:
    """The inverse hyperbolic tangent, at most 2 ULP off (float64: 4); infinite at -1 and 1, NaN beyond."""
def attention_int(
    query: TensorLike, key: TensorLike, value: TensorLike, multiplier: TensorLike, value_scale: TensorLike,
) -> Tensor:
    """Attention of numbers that int8 stands for, as float32: softmax(multiplier q k^T) v value_scale, with weights of 8
    bits."""
def bincount(inp: TensorLike, weights: TensorLike | None = None, minlength: Count = 0) -> Tensor:
    """How often each of the integers 0, 1, ... occurs in a vector, as int64; with weights their sums. Not inside a trace: how
    long the result is depends on the largest."""
def bitwise_and(x: TensorLike, y: TensorLike) -> Tensor:
    """The bits that are in both x and y."""
def bitwise_not(x: TensorLike) -> Tensor:
    """All bits turned over; of a bool, its negation."""
def bitwise_or(x: TensorLike, y: TensorLike) -> Tensor:
    """The bits that are in x or y."""
def bitwise_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """The bits that are in exactly one of x and y."""
def broadcast_to(x: TensorLike, shape: Shape | Sequence[None]) -> Tensor:
    """x repeated along new and unit axes, without copying. None in the shape keeps the extent that x has there."""
def cbrt(x: TensorLike) -> Tensor:
    """The cube root, of negative numbers too; at most 2 ULP off."""
def ceil(x: TensorLike) -> Tensor:
    """The smallest integer that is not below x. The gradient is 0."""
def centre_codes(inp: TensorLike, zero: TensorLike) -> Tensor:
    """inp - zero as int16: codes whose zero point is taken off, at most 9 bits, as `matmul_int` and `conv_int` multiply
    them."""
def clip(x: TensorLike, lower: TensorLike | None = None, upper: TensorLike | None = None) -> Tensor:
    """min(max(x, lower), upper), promoted to one dtype; a NaN stays. Where x is a bound the gradient goes to x."""
def complex(real: TensorLike, imag: TensorLike) -> Tensor:
    """The complex numbers real + i imag; the parts broadcast. float64 parts give complex128, all others complex64."""
def concat(inps: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along `axis`; dtypes are promoted."""
def cond_take(mask: TensorLike, x: TensorLike) -> tuple[Tensor, Tensor]:
    """The elements where the mask is true, as a vector, and their positions in the flattened tensor. Not inside a trace."""
def conj(inp: TensorLike) -> Tensor:
    """The complex conjugate x - iy of x + iy; what is not complex, as it is."""
def conv_int(
    inp: TensorLike, weight: TensorLike, stride: Positives = 1, padding: Naturals = 0, dilation: Positives = 1, groups: Any = 1,
) -> Tensor:
    """`conv` of integers of few bits, in int32: exact. Padding is 0, so a zero point is taken off before (`centre_codes`)."""
def copy(x: TensorLike) -> Tensor:
    """x, dense in logical order, in memory of its own."""
def copysign(x: TensorLike, y: TensorLike) -> Tensor:
    """|x| with the sign bit of y; integers give float32."""
def correlation(
    data1: TensorLike,
    data2: TensorLike,
    kernel_size: Positive = 1,
    max_displacement: Count = 1,
    stride1: Positive = 1,
    stride2: Positive = 1,
    pad_size: Count = 0,
    is_multiply: bool = True,
) -> Tensor:
    """How alike the patches of one image are to those of another around them: the mean, over channels and patch, of products
    (or of absolute differences)."""
def cos(x: TensorLike) -> Tensor:
    """The cosine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
def cosh(x: TensorLike) -> Tensor:
    """The hyperbolic cosine, at most 2 ULP off."""
def count_nonzero(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """How many elements along `axis` (of all by default) are not 0, as int64."""
def cumprod(inp: TensorLike, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running products along `axis`, in order; integers and bools give int64. Arguments as in `cumsum`; exclusive ones start
    at 1."""
def cumsum(inp: TensorLike, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running sums along `axis`, in order; integers and bools give int64, float16 and bfloat16 add in float32."""
def cvt_color(inp: TensorLike, mode: Color, format: Literal['NHWC', 'NCHW'] = 'NHWC') -> Tensor:
    """Pictures in other colours."""
def deformable_conv2d(
    inp: TensorLike,
    weight: TensorLike,
    offset: TensorLike,
    mask: TensorLike,
    bias: TensorLike | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    groups: Positive = 1,
    conv_mode: Literal['cross_correlation'] = 'cross_correlation',
    compute_mode: Literal['default', 'float32'] = 'default',
) -> Tensor:
    """Convolution whose windows' pixels are moved by offsets and weighed by a mask."""
def deformable_psroi_pooling(
    inp: TensorLike,
    rois: TensorLike,
    trans: TensorLike,
    no_trans: bool,
    part_size: Positive,
    pooled_h: Positive,
    pooled_w: Positive,
    sample_per_part: Positive,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> Tensor:
    """Regions of images pooled to one size, where each bin is moved by an offset: the average of samples of the bin."""
def dequantize_linear(inp: TensorLike, scale: TensorLike, zero: TensorLike | None = None) -> Tensor:
    """What integers stand for: scale (inp - zero)."""
def diag(inp: TensorLike, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or a matrix with the vector `inp` on its k-th diagonal."""
def diagonal(inp: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements (i, i + offset) of two axes, as a new last axis; a view."""
def diff(inp: TensorLike, n: Count = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours along `axis`, n times over."""
def digamma(x: TensorLike) -> Tensor:
    """The derivative of `lgamma`, as exact as that; NaN at negative integers. Its own derivatives are those of the series of
    trigamma."""
def div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, true division: integers give float32."""
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (e^x - 1)."""
def equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x == y, a bool tensor; false where either is NaN."""
def erf(x: TensorLike) -> Tensor:
    """The error function, at most 2 ULP off."""
def erfc(x: TensorLike) -> Tensor:
    """1 - erf(x) without cancellation, at most 2 ULP off (float64: 4)."""
def exp(x: TensorLike) -> Tensor:
    """e to the power x; at most 2 ULP off."""
def exp2(x: TensorLike) -> Tensor:
    """2 to the power x; exact at integers, at most 2 ULP off elsewhere."""
def expand_dims(inp: TensorLike, axis: int | Sequence[int]) -> Tensor:
    """A view with unit axes at these places of the result."""
def expm1(x: TensorLike) -> Tensor:
    """e^x - 1 without cancellation near 0; at most 2 ULP off."""
def eye(N: Shape, M: Extent | None = None, k: int = 0, dtype: DTypeLike = 'float32', device: Any = None) -> Tensor:
    """The N x M (N x N) matrix with ones on its k-th diagonal; N may be a shape of one or two extents."""
def fake_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    query_scale: TensorLike,
    key_scale: TensorLike,
    value_scale: TensorLike,
    scale: float | None = None,
) -> Tensor:
    """What `attention_int` gives of numbers that are rounded to int8, as a network learns that will compute it so: the same
    bits."""
def fake_quantize(
    inp: TensorLike, scale: TensorLike, zero: TensorLike | None = None, low: int = -128, high: int = 127,
) -> Tensor:
    """`dequantize_linear` of `quantize_linear`: numbers rounded to what integers stand for, still as floats."""
def flatten(inp: TensorLike, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Axes start_axis .. end_axis as one; a 0-d tensor gets one axis."""
def flip(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """A view with the order of elements turned round along `axis` (all axes by default)."""
def floor(x: TensorLike) -> Tensor:
    """The largest integer that is not above x. The gradient is 0."""
def floor_div(x: TensorLike, y: TensorLike) -> Tensor:
    """floor(x / y), as Python's //: exact even where x / y would round up to the next integer."""
def fma(x: TensorLike, y: TensorLike, z: TensorLike) -> Tensor:
    """x * y + z, rounded once (integers wrap)."""
def full(shape: Shape, value: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor with `value` everywhere; of the value's dtype by default (Python floats float32, ints int64, complex
    complex64)."""
def full_like(inp: TensorLike, value: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor of inp's shape (and dtype and device, if none is given) with `value` everywhere."""
def gather(inp: TensorLike, axis: int, index: TensorLike) -> Tensor:
    """out[..., i, ...] = inp[..., index[..., i, ...], ...] along `axis` (NumPy's take_along_axis, PyTorch's gather)."""
def gelu(x: TensorLike, approximate: Literal['none', 'tanh'] = 'none') -> Tensor:
    """x P(X <= x) for a standard normal X: x (1 + erf(x / sqrt 2)) / 2."""
def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """x > y, a bool tensor; false where either is NaN."""
def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x >= y, a bool tensor; false where either is NaN."""
def grid_sample(
    inp: TensorLike,
    grid: TensorLike,
    mode: Literal['bilinear', 'nearest', 'bicubic'] = 'bilinear',
    padding_mode: Literal['zeros', 'border', 'reflection'] = 'zeros',
    align_corners: bool = False,
) -> Tensor:
    """Images read at the places of a grid, as PyTorch's: (-1, -1) and (1, 1) are an image's corners."""
def histogram(
    inp: TensorLike, bins: Positive = 10, range: Sequence[float] | None = None, density: bool = False,
) -> tuple[Tensor, Tensor]:
    """(counts, edges): how many elements lie in each of `bins` parts of equal width. A part begins with its lower edge; the
    last one has its upper edge too. NaNs, and what lies outside of `range`, are not counted."""
def hsigmoid(x: TensorLike) -> Tensor:
    """relu6(x + 3) / 6: a sigmoid of straight lines."""
def hswish(x: TensorLike) -> Tensor:
    """x hsigmoid(x)."""
def hypot(x: TensorLike, y: TensorLike) -> Tensor:
    """The square root of x^2 + y^2, without overflow or underflow in between; at most 1 ULP off. Infinite where either is
    infinite, beside a NaN too."""
def imag(inp: TensorLike) -> Tensor:
    """The imaginary parts: a view of complex numbers; zeros of what is not complex."""
def index_select(inp: TensorLike, axis: int, index: TensorLike) -> Tensor:
    """inp at a vector of integer indices of one axis (PyTorch's order of arguments)."""
def interpolate(
    inp: TensorLike,
    size: Shape | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Literal['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic'] = 'bilinear',
    align_corners: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """An image made larger or smaller."""
def isclose(inp: TensorLike, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Where |inp - other| <= atol + rtol |other|, or both are equal (infinities too), or with `equal_nan` both are NaN."""
def isfinite(x: TensorLike) -> Tensor:
    """Whether x is neither an infinity nor NaN; every integer is."""
def isinf(x: TensorLike) -> Tensor:
    """Whether x is an infinity; no integer is."""
def isnan(x: TensorLike) -> Tensor:
    """Whether x is NaN; no integer is."""
def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
def left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x shifted left by y bits; by the width or more, or by a negative number: 0."""
def lerp(start: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """start + weight (end - start): the point at a share `weight` of the way. The weight may be a number."""
def less(x: TensorLike, y: TensorLike) -> Tensor:
    """x < y, a bool tensor; false where either is NaN."""
def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x <= y, a bool tensor; false where either is NaN."""
def lgamma(x: TensorLike) -> Tensor:
    """log|gamma(x)|, at most 3 ULP off (float32: 1) of the result, or of 1/2 where that is more; infinite at 0 and negative
    integers. Below 0 the error is relative to the larger terms of the reflection formula."""
def linear_grouped(
    inp: TensorLike,
    codes: TensorLike,
    scale: TensorLike,
    bits: int = 8,
    group: int = 32,
    features: int | None = None,
    activations: str = 'float32',
) -> Tensor:
    """inp @ w.T, where w[o, k] = scale[o, k // group] q[o, k]: for few rows, which cost what reading the integers costs."""
def linspace(start: Any, stop: Any, num: Extent, dtype: DTypeLike = 'float32', device: Any = None) -> Tensor:
    """`num` numbers from start to stop, both included, evenly spaced; computed in float64."""
def local_conv2d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    conv_mode: Literal['cross_correlation'] = 'cross_correlation',
) -> Tensor:
    """Convolution with another filter at each place (a locally connected layer)."""
def log(x: TensorLike) -> Tensor:
    """The natural logarithm, at most 2 ULP off; -inf at 0, NaN below."""
def log10(x: TensorLike) -> Tensor:
    """The logarithm to base 10, at most 2 ULP off; -inf at 0, NaN below."""
def log1p(x: TensorLike) -> Tensor:
    """log(1 + x) without cancellation near 0, at most 2 ULP off; -inf at -1, NaN below."""
def log2(x: TensorLike) -> Tensor:
    """The logarithm to base 2; exact at powers of 2, at most 2 ULP off elsewhere; -inf at 0, NaN below."""
def log_softmax(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """log(softmax(x)), without overflow. Args: axis: as of `softmax`."""
def logaddexp(x: TensorLike, y: TensorLike) -> Tensor:
    """log(e^x + e^y) without overflow: the larger of the two, plus log1p(e^-|x - y|)."""
def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether both are true (not zero; a NaN is true)."""
def logical_not(x: TensorLike) -> Tensor:
    """Whether x is zero (a NaN is not)."""
def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether either is true (not zero; a NaN is true)."""
def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether exactly one is true (not zero; a NaN is true)."""
def logsigmoid(x: TensorLike) -> Tensor:
    """log(sigmoid(x)) = -softplus(-x)."""
def logsoftmax(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """log(softmax(x)), without overflow. Args: axis: as of `softmax`."""
def logsumexp(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow: the largest element is taken out first. -inf where there are none."""
def lookup_codes(inp: TensorLike, table: TensorLike) -> Tensor:
    """table[inp - the least value of inp's dtype]: any function of an int8 or uint8, by a table of 256 entries."""
def masked_fill(inp: TensorLike, mask: TensorLike, value: float) -> Tensor:
    """`where`: the value where the mask is true, else inp's element; in inp's dtype."""
def matmul_int(inp1: TensorLike, inp2: TensorLike, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """`matmul` of integers of few bits, in int32: exact."""
def max(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The largest element; a NaN wins. The gradient is shared by equal largest elements. An empty one is an error."""
def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y; a NaN in either wins. In a tie the gradient goes to y."""
def mean(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum divided by the number of elements; integers give float32. NaN where there are none."""
def median(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The element in the middle along `axis` (of all by default); of an even number the mean of both, as in NumPy (PyTorch
    gives the lower one). Integers give float32. NaN where an element is NaN."""
def meshgrid(*inputs: TensorLike, indexing: Literal['xy', 'ij'] = 'xy') -> list[Tensor]:
    """Coordinate grids of vectors, as views: "xy" puts the second vector along the first axis, "ij" keeps the order."""
def min(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The smallest element; a NaN wins. The gradient is shared by equal smallest elements. An empty one is an error."""
def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y; a NaN in either wins. In a tie the gradient goes to y."""
def mish(x: TensorLike) -> Tensor:
    """x tanh(softplus(x))."""
def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """x - floor_div(x, y) * y, as Python's %: it has the sign of y, and is exact but for one rounding where a sign is
    changed."""
def moveaxis(inp: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with axes moved to other places; the others keep their order."""
def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y; of bools, whether both are true."""
def nan_to_num(x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with other numbers for what is none: `nan` for NaNs; for infinities the given ones, else the largest and the least of
    the dtype. Of complex numbers, each part by itself."""
def neg(x: TensorLike) -> Tensor:
    """-x; unsigned integers wrap, as in NumPy."""
def nextafter(x: TensorLike, y: TensorLike) -> Tensor:
    """The next number of the dtype after x on the way to y; y where they are equal, NaN where either is. The gradient is that
    of x alone."""
def non_zero(condition: TensorLike, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The int64 positions of true (not zero) elements: a row for each, a column for each axis; with `as_tuple` what `nonzero`
    gives. Not inside a trace."""
def nonzero(inp: TensorLike) -> tuple[Tensor, ...]:
    """The int64 positions of true (not zero) elements, one vector for each axis, in logical order. Not inside a trace."""
def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x != y, a bool tensor; true where either is NaN."""
def one_hot(inp: TensorLike, num_classes: Extent, dtype: DTypeLike | None = None) -> Tensor:
    """1 at each index, else 0, along a new last axis; of inp's dtype by default."""
def ones(shape: Shape, dtype: DTypeLike | None = 'float32', device: Any = None) -> Tensor:
    """A tensor of ones."""
def ones_like(inp: TensorLike, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor of ones of inp's shape and dtype, on inp's device."""
def pad(
    src: TensorLike,
    pad_width: Extent | Sequence[Extent] | Sequence[Sequence[Extent]],
    mode: Literal['constant', 'edge', 'replicate', 'reflect', 'circular', 'wrap'] = 'constant',
    constant_value: float | bool = 0.0,
) -> Tensor:
    """src with more elements around it."""
def permute(x: TensorLike, axes: Axes) -> Tensor:
    """The axes in another order: axis j of the result is axis axes[j] of x. A view."""
def polar(abs: TensorLike, angle: TensorLike) -> Tensor:
    """The complex numbers of these absolute values and arguments, abs (cos(angle) + i sin(angle))."""
def pow(x: TensorLike, y: TensorLike) -> Tensor:
    """x to the power y: of floats at most 2 ULP off with C99's special cases; of integers exact, and wrapping."""
def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """x where x > 0, else weight * x; the weight broadcasts, and has a gradient."""
def prod(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; integers and bools give int64. An empty product is 1."""
def quantile(
    inp: TensorLike,
    q: float | Sequence[float],
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    interpolation: Literal['linear', 'lower', 'higher', 'midpoint', 'nearest'] = 'linear',
) -> Tensor:
    """Values that a share q of the elements along `axis` (all axes by default) is not greater than."""
def quantize_linear(
    inp: TensorLike,
    scale: TensorLike,
    zero: TensorLike | None = None,
    low: int = -128,
    high: int = 127,
    dtype: DTypeLike = ...,
) -> Tensor:
    """The integers that stand for numbers: clip(round(inp / scale) + zero, low, high), halves to even."""
def real(inp: TensorLike) -> Tensor:
    """The real parts: a view of complex numbers; what is not complex, as it is."""
def reciprocal(x: TensorLike) -> Tensor:
    """1 / x; integers give float32."""
def region_restricted_conv(
    inp: TensorLike,
    weight: TensorLike,
    rin: TensorLike,
    rout: TensorLike,
    bias: TensorLike | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    groups: Positive = 1,
    conv_mode: Literal['cross_correlation'] = 'cross_correlation',
    compute_mode: Literal['default', 'float32'] = 'default',
) -> Tensor:
    """Convolution in which a result sees only pixels of its own region: those with rin[n, y, x] == rout[n, py, px]."""
def relu(x: TensorLike) -> Tensor:
    """max(x, 0); the gradient at 0 is 0; a NaN stays. Integers are taken as they are."""
def relu6(x: TensorLike) -> Tensor:
    """min(max(x, 0), 6); the gradient at 0 and 6 is 0."""
def remap(
    inp: TensorLike,
    map_xy: TensorLike,
    border_mode: Literal['replicate', 'constant', 'reflect', 'reflect_101', 'wrap'] = 'replicate',
    scalar: float = 0.0,
    interp_mode: Literal['linear', 'nearest', 'cubic'] = 'linear',
) -> Tensor:
    """Images read at the places that a map names: out[n, c, i, j] = inp[n, c] at (x, y) = map_xy[n, i, j]."""
def repeat(inp: TensorLike, repeats: Extent | Sequence[int], axis: int | None = None) -> Tensor:
    """Each element repeated, as NumPy's repeat: one number for all, or one for each position of `axis`; flattened without an
    axis."""
def requantize_linear(
    inp: TensorLike,
    multiplier: TensorLike,
    zero: TensorLike | None = None,
    low: int = -128,
    high: int = 127,
    dtype: DTypeLike = ...,
) -> Tensor:
    """Sums of products as integers of few bits: clip(round(inp * multiplier) + zero, low, high), halves to even."""
def resample(
    inp: TensorLike,
    size: Shape,
    filter: Literal['area', 'linear', 'cubic'] = 'linear',
    format: Literal['NCHW', 'NHWC'] = 'NCHW',
    antialias: bool = True,
) -> Tensor:
    """An image of another size, in which each pixel is a mean of all that it covers."""
def reshape(x: TensorLike, shape: NewShape) -> Tensor:
    """The same elements in logical order with another shape; one extent may be -1. A view where strides allow."""
def right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x shifted right by y bits, with its sign; by the width or more, or by a negative number: 0, or -1 for negative x."""
def roi_align(
    inp: TensorLike,
    rois: TensorLike,
    output_shape: Positives,
    mode: Literal['average', 'max'] = 'average',
    spatial_scale: float = 1.0,
    sample_points: Positives = 2,
    aligned: bool = True,
) -> Tensor:
    """Regions of images pooled to one size: each bin is the average, or the largest, of samples that lie in it evenly."""
def roi_pooling(
    inp: TensorLike, rois: TensorLike, output_shape: Positives, mode: Literal['max', 'average'] = 'max', scale: float = 1.0,
) -> Tensor:
    """Regions of images pooled to one size: each bin is the largest, or the average, of the pixels that it touches."""
def roll(inp: TensorLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes; what leaves at the end comes back at the front. Flattened without an axis."""
def round(x: TensorLike) -> Tensor:
    """The nearest integer, halves to even; integers stay. The gradient is 0."""
def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x), at most 1 ULP off; infinite at 0, NaN below."""
def scatter(
    inp: TensorLike, axis: int, index: TensorLike, source: TensorLike, mode: Literal['set', 'add', 'mul', 'max', 'min'] = 'set',
) -> Tensor:
    """A copy of inp in which [..., index[..., i, ...], ...] along `axis` takes source[..., i, ...]."""
def scatter_add(inp: TensorLike, axis: int, index: TensorLike, source: TensorLike) -> Tensor:
    """`scatter` in mode "add": a copy of inp to whose elements [..., index[..., i, ...], ...] along `axis` source[..., i, ...]
    is added. A sum of bools is true where one of them is."""
def searchsorted(table: TensorLike, values: TensorLike, right: bool = False) -> Tensor:
    """For each value the first position in the ascending last axis of `table` that keeps it sorted (after equal elements with
    `right`); int64. NaNs are largest."""
def selu(x: TensorLike) -> Tensor:
    """Scaled elu, which keeps mean 0 and variance 1 through deep networks."""
def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + e^-x), at most 2 ULP off; nothing overflows on the way."""
def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1; a NaN stays. The gradient is 0."""
def signbit(x: TensorLike) -> Tensor:
    """Whether the sign bit is set: of negative numbers, and of -0.0 and NaNs that have it."""
def silu(x: TensorLike) -> Tensor:
    """x sigmoid(x)."""
def sin(x: TensorLike) -> Tensor:
    """The sine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
def sinh(x: TensorLike) -> Tensor:
    """The hyperbolic sine, at most 2 ULP off."""
def sliding_window(
    inp: TensorLike, kernel_size: Positives, padding: Naturals = 0, stride: Positives = 1, dilation: Positives = 1,
) -> Tensor:
    """All windows over the last two axes of an image padded with zeros, without copying where there is no padding."""
def sliding_window_transpose(
    inp: TensorLike,
    output_size: Extent | Sequence[Extent],
    kernel_size: Positives,
    padding: Naturals = 0,
    stride: Positives = 1,
    dilation: Positives = 1,
) -> Tensor:
    """The sum of windows put back in their places: the transpose of `sliding_window`."""
def softmax(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """exp(x) divided by its sum along `axis`, without overflow: the largest element is taken out first."""
def sort(inp: TensorLike, descending: Any = False, axis: int = -1) -> tuple[Tensor, Tensor]:
    """(values in order along `axis`, the int64 positions they come from). Stable, descending too; NaN counts as largest."""
def split(inp: TensorLike, nsplits_or_sections: int | Sequence[Offset], axis: int = 0) -> list[Tensor]:
    """So many parts (a number), or the parts between these positions (a list), as views. Where the axis cannot be cut in equal
    parts, the first ones have one element more."""
def sqrt(x: TensorLike) -> Tensor:
    """The square root, correctly rounded; NaN below 0, -0.0 stays."""
def square(x: TensorLike) -> Tensor:
    """x * x."""
def squeeze(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """A view without these unit axes (all unit axes by default)."""
def stack(inps: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
def std(
    inp: TensorLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: Count = 0,
    unbiased: bool | None = None,
) -> Tensor:
    """The standard deviation: the square root of `var`, which see for `correction`. The gradient is 0 where it is 0."""
def straight_through(value: TensorLike, through: TensorLike) -> Tensor:
    """`value`, whose gradient goes to `through` instead: what is computed by integers, and learnt as floats."""
def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y."""
def sum(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes by default). Integers and bools give int64; float16 and bfloat16 add in float32. An empty
    sum is 0."""
def swapaxes(inp: TensorLike, axis1: int, axis2: int) -> Tensor:
    """A view with two axes exchanged."""
def take(inp: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """inp at integer indices of one axis (of the flattened tensor by default): the indices' axes take its place."""
def take_along_axis(inp: TensorLike, indices: TensorLike, axis: int) -> Tensor:
    """`gather`, with NumPy's order of arguments: out[..., i, ...] = inp[..., indices[..., i, ...], ...] along `axis`."""
def tan(x: TensorLike) -> Tensor:
    """The tangent of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
def tanh(x: TensorLike) -> Tensor:
    """The hyperbolic tangent, at most 2 ULP off."""
def tile(inp: TensorLike, reps: Extent | Sequence[Extent]) -> Tensor:
    """The whole tensor repeated along each axis, as NumPy's tile."""
def topk(
    inp: TensorLike, k: int, descending: Any = True, kth_only: bool = False, no_sort: bool = False, axis: int = -1,
) -> Tensor:
    """The k largest (smallest, if not descending) elements along `axis` and their positions."""
def transpose(inp: TensorLike, pattern: Sequence[int | Literal['x']] | None = None) -> Tensor:
    """A view with the axes in another order, reversed by default; "x" in the pattern is a new unit axis."""
def tril(inp: TensorLike, k: int = 0) -> Tensor:
    """The last two axes' lower triangle, up to the k-th diagonal; zeros above."""
def triu(inp: TensorLike, k: int = 0) -> Tensor:
    """The last two axes' upper triangle, from the k-th diagonal on; zeros below."""
def trunc(x: TensorLike) -> Tensor:
    """x without its fraction. The gradient is 0."""
def unfold(
    inp: TensorLike, kernel_size: Positives, dilation: Positives = 1, padding: Naturals = 0, stride: Positives = 1,
) -> Tensor:
    """The windows of images as columns (im2col). Shapes: (N, C, H, W) -> (N, C KH KW, PH PW)."""
def unique(
    inp: TensorLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    equal_nan: bool = True,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements in ascending order (complex ones by their real parts, then the imaginary ones), as a vector. Not
    inside a trace."""
def var(
    inp: TensorLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: Count = 0,
    unbiased: bool | None = None,
) -> Tensor:
    """The variance: the mean of the squared distance from the mean."""
def view_as_complex(x: TensorLike) -> Tensor:
    """Pairs of floats along the last axis as complex numbers: a view, where the two of each pair are neighbours in memory."""
def view_as_real(x: TensorLike) -> Tensor:
    """Complex numbers as pairs of floats: a view with one axis more, of the real and the imaginary part."""
def warp_affine(
    inp: TensorLike,
    mat: TensorLike,
    out_shape: Shape,
    border_mode: Literal['replicate', 'constant', 'reflect', 'reflect_101', 'wrap'] = 'replicate',
    border_val: float = 0.0,
    format: Literal['NHWC', 'NCHW'] = 'NHWC',
    interp_mode: Literal['linear', 'nearest', 'cubic'] = 'linear',
) -> Tensor:
    """Images under affine maps: the result at row i and column j is the image at (x, y) = mat (j, i, 1)."""
def warp_perspective(
    inp: TensorLike,
    mat: TensorLike,
    out_shape: Shape,
    mat_idx: TensorLike | None = None,
    border_mode: Literal['replicate', 'constant', 'reflect', 'reflect_101', 'wrap'] = 'replicate',
    border_val: float = 0.0,
    format: Literal['NHWC', 'NCHW'] = 'NCHW',
    interp_mode: Literal['linear', 'nearest', 'cubic'] = 'linear',
) -> Tensor:
    """Images under perspective maps: the result at row i and column j is the image at (x / z, y / z) with (x, y, z) = mat (j,
    i, 1)."""
def where(mask: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """x where the mask is true (not zero), else y. The dtype is what x and y promote to."""
def zeros(shape: Shape, dtype: DTypeLike | None = 'float32', device: Any = None) -> Tensor:
    """A tensor of zeros."""
def zeros_like(inp: TensorLike, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros of inp's shape and dtype, on inp's device."""
