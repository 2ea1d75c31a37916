"""Folding a batch norm in evaluation into the weights of the layer before it, under MegEngine's names.

In: layers and their batch norm, with trained statistics. Out: a layer that computes the same within rounding, by one product.
"""

from __future__ import annotations

import copy
from typing import Any

from tengen import module as M
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor

__all__ = ["fold_weight_bias", "fuse_conv_bn_relu_module", "fuse_linear_bn_relu_module"]


def fold_weight_bias(
    weight: Tensor, bias: Tensor | None, gamma: Tensor | None, beta: Tensor | None, bn_mean: Tensor, bn_var: Tensor, eps: float = 1e-5,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(weight, bias) of a layer that does what a layer and its batch norm do:
    w gamma / sqrt(var + eps), beta + (b - mean) gamma / sqrt(var + eps).

    Args: weight: of a linear layer (O, C) or a convolution (O, C, *K), grouped (G, O/G, C/G, *K). bias: of the layer, None is 0. gamma,
        beta: weight and bias of the batch norm; None is 1 and 0. transpose: the weight is a transposed convolution's, (C, O, *K),
        grouped (G, C/G, O/G, *K).
    Returns: the new weight in its shape, and the bias in the shape of `bias`, else of `bn_mean`.
    """
    n = bn_mean.size
    scale = (1.0 if gamma is None else gamma.reshape(n)) * REGISTRY["rsqrt"](bn_var.reshape(n) + eps)
    shift = (0.0 if beta is None else beta.reshape(n)) - bn_mean.reshape(n) * scale
    grouped = weight.shape[1 if transpose else 0] != n
    groups = weight.shape[0] if grouped else 1
    at = grouped + transpose  # the axis of outputs
    shape = [1] * weight.ndim
    shape[at] = n // groups
    if grouped:
        shape[0] = groups
    return weight * scale.reshape(tuple(shape)), (
        shift.reshape(bn_mean.shape) if bias is None else bias * scale.reshape(bias.shape) + shift.reshape(bias.shape)
    )


def _checked(bn: Any) -> None:
    if not getattr(bn, "track_running_stats", False) or bn.running_mean is None:
        raise ValueError(f"{type(bn).__name__} keeps no running statistics, so it cannot be folded")


def _fused(kind: type, layer: Any, bn: Any, bias_shape: tuple[int, ...], arguments: dict[str, Any], transpose: bool = False) -> Any:
    weight, bias = layer.weight, layer.bias
    if bn is not None:
        _checked(bn)
        gamma, beta = (bn.weight, bn.bias) if bn.affine else (None, None)
        weight, bias = fold_weight_bias(weight, bias, gamma, beta, bn.running_mean, bn.running_var, bn.eps, transpose)
    made = kind(**arguments, bias=bias is not None)
    made.weight = Parameter(weight.detach())
    if bias is not None:
        made.bias = Parameter(bias.detach().reshape(bias_shape))
    return made.train(layer.training)


def fuse_conv_bn_relu_module(conv: Any, bn: Any = None, relu: Any = None) -> Any:
    """A `Conv2d` or `ConvTranspose2d` (with relu a `ConvRelu2d` or `ConvTransposeRelu2d`) that does what these modules do one after the
    other in evaluation. Where bn is None the convolution is copied.

    Errors: ValueError for a batch norm without running statistics.
    """
    transpose = isinstance(conv, M.ConvTranspose2d)
    kind: type = (M.ConvTransposeRelu2d if transpose else M.ConvRelu2d) if relu is not None else M.ConvTranspose2d if transpose else M.Conv2d
    if bn is None and relu is None:
        return copy.deepcopy(conv)
    names = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "conv_mode", "compute_mode"]
    names += ["output_padding"] if transpose else ["padding_mode"]
    return _fused(kind, conv, bn, (1, conv.out_channels, 1, 1), {n: getattr(conv, n) for n in names}, transpose)


def fuse_linear_bn_relu_module(linear: Any, bn: Any = None, relu: Any = None) -> Any:
    """A `Linear` (with relu a `LinearRelu`) that does what these modules do one after the other in evaluation.

    Errors: ValueError for a batch norm without running statistics.
    """
    if bn is None and relu is None:
        return copy.deepcopy(linear)
    names = ("in_features", "out_features", "compute_mode")
    kind = M.Linear if relu is None else M.LinearRelu
    return _fused(kind, linear, bn, (linear.out_features,), {n: getattr(linear, n) for n in names})
