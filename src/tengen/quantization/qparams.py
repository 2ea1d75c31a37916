"""What a tensor's numbers were rounded to: `QParams`, and fake quantisation by them.

In: scales (greater than 0) and zero points as tensors. Out: numbers rounded as docs/numerics.md says, or the integers
    themselves.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.quantization.dtypes import (
    BUILTIN,
    QuantDtypeMeta,
    check_scale,
    check_zero,
    create_quantized_dtype,
    get_scale,
    get_zero_point,
    meta_of,
    meta_of_dtype,
)
from tengen.tensor import Tensor, quantised
from tengen.tensor.methods import put


class QuantMode(Enum):
    """Whether integers have a zero point. MegEngine's spelling.

    >>> from tengen.quantization import QuantMode
    >>> QuantMode.SYMMERTIC.value
    1
    """

    SYMMERTIC = 1
    ASYMMERTIC = 2


class QParams:
    """What a tensor's numbers are rounded to.

    Attributes: mode: with a zero point or without. dtype_meta: which integers. scale: a tensor, for all or broadcasting with
        the tensor;
    None: not known. zero_point: a tensor of float32 or integers, None in symmetric mode.
    """

    __slots__: Any = ("mode", "dtype_meta", "scale", "zero_point")

    def __init__(
        self, mode: QuantMode | None, dtype_meta: QuantDtypeMeta | None, scale: Tensor | None, zero_point: Tensor | None
    ):
        self.mode, self.dtype_meta, self.scale, self.zero_point = mode, dtype_meta, scale, zero_point

    def update(self, qparams: QParams) -> None:
        """Takes the attributes of another."""
        for name in self.__slots__:
            setattr(self, name, getattr(qparams, name))

    def __eq__(self, other: object) -> bool:
        mine = self.__slots__
        if len(mine) != len(getattr(other, "__slots__", ())):
            return False
        return all(hasattr(other, name) and _equal(getattr(self, name), getattr(other, name)) for name in mine)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"QParams({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a is b or (a.shape == b.shape and bool((a == b).all().item()))
    return a is b or (not isinstance(a, Tensor) and not isinstance(b, Tensor) and a == b)


class LSQParams(QParams):
    """`QParams`, with LSQ's factor of the scale's gradient."""

    __slots__ = ("mode", "dtype_meta", "scale", "zero_point", "grad_scale")

    def __init__(self, mode, dtype_meta, scale, zero_point, grad_scale):
        super().__init__(mode, dtype_meta, scale, zero_point)
        self.grad_scale = grad_scale


def create_qparams(
    mode: QuantMode | None = QuantMode.SYMMERTIC, dtype_meta: str | QuantDtypeMeta | None = None, scale: Tensor | None = None,
    zero_point: Tensor | None = None,
) -> QParams:  # fmt: skip
    """`QParams`, whose integers may be given by name.

    >>> from tengen import Tensor
    >>> from tengen.quantization import create_qparams
    >>> create_qparams(dtype_meta="qint8", scale=Tensor(0.5)).dtype_meta.qmax
    127
    """
    return QParams(mode, dtype_meta if dtype_meta is None else meta_of(dtype_meta), scale, zero_point)


class QParamsModuleMixin:
    """What has `get_qparams` has a quantised dtype, too."""

    def get_quantized_dtype(self):
        """The NumPy dtype that carries scale and zero point.

        Errors: ValueError where the scale is not one number
        """
        return quantized_dtype(self.get_qparams())

    def get_qparams(self) -> QParams:
        """Scale and zero point."""
        raise NotImplementedError(f"{type(self).__name__} needs get_qparams()")


def quantized_dtype(q: QParams):
    """The NumPy dtype that carries a tensor's scale and zero point."""
    assert q.dtype_meta is not None and q.scale is not None
    if q.scale.size != 1:
        raise ValueError(f"a dtype carries one scale, and there are {q.scale.size}; help: get_qparams has them")
    zero = None if q.zero_point is None else int(q.zero_point.item())
    return create_quantized_dtype(q.dtype_meta, q.scale.item(), zero)


def qparams_of(d: np.dtype) -> QParams:
    """What the integers of a quantised dtype stand for.

    >>> from tengen.core.tensor.dtype import quint8
    >>> qparams_of(quint8(0.5, 3)).zero_point.item()
    3
    """
    m = meta_of_dtype(d)
    mode, zero = (QuantMode.ASYMMERTIC, Tensor(np.int32(get_zero_point(d)))) if m.is_unsigned else (QuantMode.SYMMERTIC, None)
    return QParams(mode, m, Tensor(np.float32(get_scale(d))), zero)


def checked(q: QParams, what: str) -> QParams:
    """`q`, whose numbers were looked at.

    Errors: QuantizationError for scales and zero points that cannot be
    """
    if q.scale is not None:
        check_scale(q.scale.numpy(), f"the scale of {what}")
        if q.mode is QuantMode.ASYMMERTIC and q.zero_point is not None:
            assert q.dtype_meta is not None
            check_zero(q.zero_point.numpy(), q.dtype_meta)
    return q


def zero_of(q: QParams) -> Tensor | None:
    """The zero point as int32; None in symmetric mode."""
    return None if q.mode is not QuantMode.ASYMMERTIC or q.zero_point is None else q.zero_point.detach().astype("int32")


def codes(x: Tensor, q: QParams) -> Tensor:
    """The integers that stand for x."""
    m = q.dtype_meta
    assert m is not None and q.scale is not None
    return F.quantize_linear(x, q.scale, zero_of(q), m.qmin, m.qmax, m.np_dtype_str)


def values(integers: Tensor, q: QParams) -> Tensor:
    """What integers stand for, as a tensor that knows its `qparams`."""
    assert q.scale is not None
    x = F.dequantize_linear(integers, q.scale, zero_of(q))
    x.qparams = q
    return x


quantised.meaning.install(qparams_of, codes, values)
put({"astype": quantised.astype})


def fake_quant_tensor(inp: Tensor, qparams: QParams) -> Tensor:
    """Numbers rounded to what integers stand for; the gradient goes straight through where nothing saturates.

    Args: qparams: which integers, scale and zero point.

    >>> from tengen import Tensor
    >>> from tengen.quantization import create_qparams, fake_quant_tensor
    >>> fake_quant_tensor(Tensor([0.3, 99.0]), create_qparams(dtype_meta="qint8", scale=Tensor(0.5))).tolist()
    [0.5, 63.5]
    """
    m = qparams.dtype_meta
    assert m is not None and qparams.scale is not None
    return F.fake_quantize(inp, qparams.scale, zero_of(qparams), m.qmin, m.qmax)


MOST_BIAS = 1 << 30  # of a bias in units of the product's scale, so that it leaves room for the products


def bias_codes(bias: Tensor, scale: Tensor) -> Tensor:
    """A bias in units of a product's scale, as int32 that saturates at 2^30."""
    return F.quantize_linear(bias, scale, None, -MOST_BIAS, MOST_BIAS, "int32")


def fake_quant_bias(bias: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
    """A bias rounded to units of the product of the scales of `inp` and `w_qat`, as sums in int32 take it. Where one of the two
    has none, it stays."""
    a, b = quantised.known(inp), quantised.known(w_qat)
    if bias is None or a is None or b is None:
        return bias
    scale = product_scale(a, b, bias.shape)
    out = F.fake_quantize(bias, scale, None, -MOST_BIAS, MOST_BIAS)
    out.qparams = QParams(QuantMode.SYMMERTIC, BUILTIN["qint32"], scale, None)
    return out


def product_scale(a: QParams, b: QParams, shape: tuple[int, ...]) -> Tensor:
    """The scale of products: for all, or one for each output channel, in the shape in which a bias has it."""
    assert a.scale is not None and b.scale is not None
    scale = a.scale.detach().reshape(()) * b.scale.detach()
    return scale.reshape(()) if scale.size == 1 else scale.reshape(shape)
