"""Functions of tensors, for editors and type checkers. `python docs/generate.py` writes this file again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.functional import loss as loss
from tengen.functional import nn as nn
from tengen.functional.loss import binary_cross_entropy as binary_cross_entropy
from tengen.functional.loss import cross_entropy as cross_entropy
from tengen.functional.loss import cross_entropy_with_softmax as cross_entropy_with_softmax
from tengen.functional.loss import hinge_loss as hinge_loss
from tengen.functional.loss import l1_loss as l1_loss
from tengen.functional.loss import square_loss as square_loss
from tengen.functional.math import dot as dot
from tengen.functional.math import matmul as matmul
from tengen.functional.math import norm as norm
from tengen.functional.math import normalize as normalize
from tengen.functional.nn import adaptive_avg_pool2d as adaptive_avg_pool2d
from tengen.functional.nn import adaptive_max_pool2d as adaptive_max_pool2d
from tengen.functional.nn import avg_pool2d as avg_pool2d
from tengen.functional.nn import batch_norm as batch_norm
from tengen.functional.nn import conv1d as conv1d
from tengen.functional.nn import conv2d as conv2d
from tengen.functional.nn import conv3d as conv3d
from tengen.functional.nn import conv_transpose2d as conv_transpose2d
from tengen.functional.nn import conv_transpose3d as conv_transpose3d
from tengen.functional.nn import dropout as dropout
from tengen.functional.nn import embedding as embedding
from tengen.functional.nn import general_norm as general_norm
from tengen.functional.nn import group_norm as group_norm
from tengen.functional.nn import indexing_one_hot as indexing_one_hot
from tengen.functional.nn import instance_norm as instance_norm
from tengen.functional.nn import layer_norm as layer_norm
from tengen.functional.nn import linear as linear
from tengen.functional.nn import max_pool2d as max_pool2d
from tengen.functional.nn import pixel_shuffle as pixel_shuffle
from tengen.functional.nn import scaled_dot_product_attention as scaled_dot_product_attention
from tengen.methods import flatten as flatten
from tengen.tensor import Tensor

TensorLike = Tensor | np.ndarray | float

__all__ = [
    "abs", "adaptive_avg_pool2d", "adaptive_max_pool2d", "add", "all", "any", "argmax", "argmin", "astype", "avg_pool2d",
    "batch_norm", "binary_cross_entropy", "broadcast_to", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d",
    "copy", "cross_entropy", "cross_entropy_with_softmax", "div", "dot", "dropout", "embedding", "equal", "exp", "flatten",
    "fma", "general_norm", "group_norm", "hinge_loss", "indexing_one_hot", "instance_norm", "isfinite", "l1_loss",
    "layer_norm", "less", "linear", "log", "log_softmax", "logsoftmax", "logsumexp", "loss", "matmul", "max", "max_pool2d",
    "mean", "min", "mul", "neg", "nn", "norm", "normalize", "not_equal", "permute", "pixel_shuffle", "pow", "prod", "relu",
    "relu_grad", "reshape", "rsqrt", "scaled_dot_product_attention", "softmax", "sqrt", "square_loss", "std", "sub", "sum",
    "var", "where", "zeros_like"
]

def abs(x: TensorLike) -> Tensor:
    """|x|."""
def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y."""
def all(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether every element is true (not zero)."""
def any(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true (not zero)."""
def argmax(inp: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first largest element along `axis` (in the flattened tensor by default); a NaN counts as
    largest."""
def argmin(inp: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first smallest element along `axis` (in the flattened tensor by default); a NaN counts as
    smallest."""
def astype(x: TensorLike, dtype: Any) -> Tensor:
    """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), anything to bool is x !=
    0."""
def broadcast_to(x: TensorLike, shape: Sequence[int]) -> Tensor:
    """x repeated along new and unit axes, without copying."""
def copy(x: TensorLike) -> Tensor:
    """x, dense in logical order, in memory of its own."""
def div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, true division: integers give float32."""
def equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x == y, a bool tensor; false where either is NaN."""
def exp(x: TensorLike) -> Tensor:
    """e to the power x; at most 1 ULP off in float32."""
def fma(x: TensorLike, y: TensorLike, z: TensorLike) -> Tensor:
    """x * y + z rounded once."""
def isfinite(x: TensorLike) -> Tensor:
    """finite."""
def less(x: TensorLike, y: TensorLike) -> Tensor:
    """x < y."""
def log(x: TensorLike) -> Tensor:
    """ln x."""
def log_softmax(inp: TensorLike, axis: int | Sequence[int] | None = -1) -> Tensor:
    """log(softmax(x)), without overflow."""
def logsoftmax(inp: TensorLike, axis: int | Sequence[int] | None = -1) -> Tensor:
    """log(softmax(x)), without overflow."""
def logsumexp(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow: the largest element is taken out first."""
def max(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The largest element; a NaN wins. The gradient is shared by equal largest elements. An empty one is an error."""
def mean(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum divided by the number of elements; integers give float32. NaN where there are none."""
def min(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The smallest element; a NaN wins. The gradient is shared by equal smallest elements. An empty one is an error."""
def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y."""
def neg(x: TensorLike) -> Tensor:
    """-x."""
def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x != y, a bool tensor; true where either is NaN."""
def permute(x: TensorLike, axes: Sequence[int]) -> Tensor:
    """The axes in another order: axis j of the result is axis axes[j] of x. A view."""
def pow(x: TensorLike, y: TensorLike) -> Tensor:
    """x ** y."""
def prod(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; integers and bools give int64. An empty product is 1."""
def relu(x: TensorLike) -> Tensor:
    """max(x, 0); the gradient at 0 is 0; a NaN stays."""
def relu_grad(grad: TensorLike, out: TensorLike) -> Tensor:
    """grad where the output of `relu` is positive, 0 elsewhere."""
def reshape(x: TensorLike, shape: Sequence[int]) -> Tensor:
    """The same elements in logical order with another shape; one extent may be -1. A view where strides allow."""
def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt x."""
def softmax(inp: TensorLike, axis: int | Sequence[int] | None = -1) -> Tensor:
    """exp(x) divided by its sum along `axis`, without overflow: the largest element is taken out first."""
def sqrt(x: TensorLike) -> Tensor:
    """sqrt x."""
def std(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The standard deviation: the square root of `var`."""
def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y."""
def sum(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes by default). Integers and bools give int64; float16 and bfloat16 add in float32. An empty
    sum is 0."""
def var(inp: TensorLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The variance: the mean of the squared distance from the mean (divided by n)."""
def where(mask: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """mask ? x : y."""
def zeros_like(x: TensorLike) -> Tensor:
    """0."""
