"""Modules that are several layers in one, under MegEngine's names: what quantisation and a compiler treat as one operation. Their
float forms compute exactly what the layers compute one after the other (`trace` fuses those anyway).

`ConvRelu2d` is a `Conv2d`, with its parameters' names; the forms with batch norm hold a `conv` (or `linear`) and a `bn`.
"""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.module import init
from tengen.module.conv import Conv2d, ConvTranspose2d
from tengen.module.linear import Linear
from tengen.module.module import Module
from tengen.module.norm import BatchNorm1d, BatchNorm2d
from tengen.module.settings import PARAMETERS, Configured, counts, one_of
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor


class ConvRelu2d(Conv2d):
    """relu(conv(x)), with `Conv2d`'s arguments."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["relu"](super().forward(x))


class ConvTransposeRelu2d(ConvTranspose2d):
    """relu(conv_transpose(x)), with `ConvTranspose2d`'s arguments."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["relu"](super().forward(x))


class LinearRelu(Linear):
    """relu(linear(x)), with `Linear`'s arguments."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["relu"](super().forward(x))


class _WithBatchNorm2d(Module):
    has_parameters = True
    relu = False
    kind: type = Conv2d

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, *args, eps: float = 1e-5, momentum: float = 0.9,
        affine: bool = True, track_running_stats: bool = True, name: str | None = None, **kwargs,
    ):  # fmt: skip
        super().__init__(name)
        self.conv = self.kind(in_channels, out_channels, kernel_size, stride, padding, *args, **kwargs)
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        return REGISTRY["relu"](y) if self.relu else y


class ConvBn2d(_WithBatchNorm2d):
    """bn(conv(x)): `Conv2d`'s arguments, and by name those of `BatchNorm2d` (eps, momentum, affine, track_running_stats).

    >>> from tengen import functional as F, module as M
    >>> [n for n, _ in M.ConvBn2d(3, 8, 3).named_parameters()]
    ['bn.bias', 'bn.weight', 'conv.bias', 'conv.weight']
    """


class ConvBnRelu2d(ConvBn2d):
    """relu(bn(conv(x))). See `ConvBn2d`."""

    relu = True


class ConvTransposeBn2d(_WithBatchNorm2d):
    """bn(conv_transpose(x)): `ConvTranspose2d`'s arguments, and by name those of `BatchNorm2d`."""

    kind = ConvTranspose2d


class ConvTransposeBnRelu2d(ConvTransposeBn2d):
    """relu(bn(conv_transpose(x))). See `ConvTransposeBn2d`."""

    relu = True


class LinearBn1d(Module):
    """bn(linear(x)) of (N, in_features): `Linear`'s arguments, then those of `BatchNorm1d`."""

    has_parameters = True
    relu = False

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, compute_mode: str = "default", eps: float = 1e-5,
        momentum: float = 0.9, affine: bool = True, track_running_stats: bool = True, name: str | None = None,
    ):  # fmt: skip
        super().__init__(name)
        self.linear = Linear(in_features, out_features, bias, compute_mode)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.linear(x))
        return REGISTRY["relu"](y) if self.relu else y


class LinearBnRelu1d(LinearBn1d):
    """relu(bn(linear(x))). See `LinearBn1d`."""

    relu = True


class BatchMatMulActivation(Configured):
    """act(weight @ x + bias) for each of a batch. Parameters: weight (batch, out_features, in_features), bias (out_features,).

    Shapes: (batch, in_features, columns) -> (batch, out_features, columns)
    Args:   nonlinear_mode: "identity" or "relu".
    """

    _fixed = ("batch", "in_features", "out_features")
    _checked = PARAMETERS | counts("batch", "in_features", "out_features") | {
        "nonlinear_mode": one_of("nonlinear_mode", "identity", "relu"),
    }  # fmt: skip

    def __init__(
        self, batch: int, in_features: int, out_features: int, bias: bool = True, nonlinear_mode: str = "identity", **kwargs
    ):
        super().__init__(**kwargs)
        self.batch, self.in_features, self.out_features = batch, in_features, out_features
        self.nonlinear_mode = nonlinear_mode.lower()
        self.weight = init.blank(batch, out_features, in_features)
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        init.normal_(self.weight, 0, float(1 / np.sqrt(in_features)))

    def forward(self, x: Tensor) -> Tensor:
        y = F.matmul(self.weight, x)
        if self.bias is not None:
            y = y + self.bias.reshape(1, self.out_features, 1)
        return REGISTRY["relu"](y) if self.nonlinear_mode == "relu" else y


_FUSED = {
    **{f"fuse_add_{name}": lambda x, y, op=op: REGISTRY[op](x + y)
       for name, op in {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "h_swish": "hswish"}.items()},
    "fuse_mul_add3": lambda x, y, z: x * y + z, "fuse_mul_add4": lambda x, y, z, w: x * y + z * w,
}  # fmt: skip
_NAMES = {
    "true_div": "div", "fast_tanh": "tanh", "h_swish": "hswish", "negate": "neg", "shl": "left_shift", "shr": "right_shift",
    "and": "logical_and", "or": "logical_or", "not": "logical_not", "xor": "logical_xor", "eq": "equal", "lt": "less", "leq": "less_equal",
    "neq": "not_equal", "max": "maximum", "min": "minimum", "log_sum_exp": "logaddexp",
}  # fmt: skip


class Elemwise(Configured):
    """An elementwise operation, as a module.

    Args: method: MegEngine's name of the operation in either case, such as ``"ADD"``, ``"MUL"``, ``"RELU"``, ``"FUSE_ADD_RELU"``, or the
        name of an elementwise op of Tengen's.

    >>> from tengen import Tensor, module as M
    >>> M.Elemwise("FUSE_ADD_RELU")(Tensor([1.0, -3.0]), Tensor([1.0, 1.0])).tolist()
    [2.0, 0.0]
    """

    _checked = {"method": lambda m, method: (_elementwise_name(method), method)[1]}

    def __init__(self, method: str, **kwargs):
        super().__init__(**kwargs)
        self.method = method

    def forward(self, *inps: Tensor) -> Tensor:
        name = _elementwise_name(self.method)
        return (_FUSED[name] if name in _FUSED else REGISTRY[name])(*inps)

    def _module_info_string(self) -> str:
        return repr(self.method)


def _elementwise_name(method: str) -> str:
    name = method.lower()
    if name in _FUSED:
        return name
    name = _NAMES.get(name, name)
    if name not in REGISTRY or REGISTRY[name].kind not in ("elementwise", "composite"):
        raise ValueError(f"Elemwise({method!r}): there is no such elementwise operation; help: docs/ops.md lists them")
    return name


class Concat(Module):
    """`functional.concat` as a module: a list of tensors, and the axis."""

    def forward(self, inps: list[Tensor], axis: int = 0) -> Tensor:
        return REGISTRY["concat"](inps, axis)


class QuantStub(Module):
    """Where a network's integers begin. In a float network it is the identity."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp


class DequantStub(Module):
    """Where a network's integers end. In a float network it is the identity."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp
