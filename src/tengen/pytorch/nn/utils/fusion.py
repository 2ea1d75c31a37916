"""`torch.nn.utils.fusion`: a layer and the batch norm behind it as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.tensor import Parameter, Tensor


def _fused(layer: Any, norm: Any, axis: int) -> Any:
    if layer.training or norm.training:
        raise ArgumentError(f"{type(layer).__name__} and {type(norm).__name__} are fused for evaluation; help: call eval() on both first")
    made = copy.deepcopy(layer)
    found = fuse_conv_bn_weights(
        layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias, transpose=axis == 1
    )
    made.weight, made.bias = found
    return made


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """(Weight, bias) of the layer that is a convolution or a linear layer and the batch norm behind it.

    Args: conv_w: (out, in, ...); with transpose (in, out, ...). conv_b: (out,), or None. bn_rm, bn_rv: running mean and variance. bn_eps: what
        is added to the variance. bn_w, bn_b: the norm's weight and bias, or None.
    """
    factor = 1.0 / F.sqrt(bn_rv.detach() + bn_eps)
    factor = factor if bn_w is None else factor * bn_w.detach()
    shift = 0.0 if bn_b is None else bn_b.detach()
    offset = -bn_rm.detach() if conv_b is None else conv_b.detach() - bn_rm.detach()
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    return Parameter(conv_w.detach() * factor.reshape(tuple(shape))), Parameter(offset * factor + shift)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None
) -> tuple[Parameter, Parameter]:
    """`fuse_conv_bn_weights` of a linear layer."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that computes what the given one and the batch norm behind it compute in evaluation mode; it is a copy.

    Errors: ArgumentError where one of them is in training mode

    >>> import tengen.pytorch as torch
    >>> conv, norm, x = torch.nn.Conv2d(1, 2, 3).eval(), torch.nn.BatchNorm2d(2).eval(), torch.ones(1, 1, 3, 3)
    >>> norm.running_var.fill_(4.0).shape
    (2,)
    >>> torch.allclose(fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-6)
    True
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """The same of a linear layer. Errors: ArgumentError where one of them is in training mode"""
    return _fused(linear, bn, 0)


__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]
