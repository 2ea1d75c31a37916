"""Members of Tensor under MegEngine's names that NumPy and PyTorch do not have, and Python's own conversions of one element."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tengen.ops.define import REGISTRY
from tengen.tensor import leaves
from tengen.tensor.parts import data_of, set_data
from tengen.tensor.quantised import meaning
from tengen.tensor.tensor import Tensor


def _name(self: Tensor) -> str:
    """What messages and files may call the tensor; "" at first."""
    return getattr(self, "_name", "")


def _set_name(self: Tensor, value: str | None) -> None:
    self._name = "" if value is None else str(value)


def _qparams(self: Tensor) -> Any:
    """What the numbers were rounded to, or the integers stand for (`quantization.QParams`); without a scale where nobody said."""
    if getattr(self, "_qparams", None) is None:
        _set_qparams(self, importlib.import_module("tengen.quantization.qparams").create_qparams())
    return self._qparams


def _set_qparams(self: Tensor, value: Any) -> None:
    if self._layout.dtype.is_int:  # a float's say what it was rounded to, and its numbers are what they are
        meaning.begin()
    self._qparams = value


def _format(self: Tensor) -> str:
    """How an image's axes lie, in MegEngine: always "default" here, for the compiler chooses."""
    return "default"


def set_value(self: Tensor, value: Any) -> None:
    """Gives the tensor another value, as MegEngine's method of this name: a tensor, an array or a number, whose shape and dtype it
    takes. ``x[...] = value`` keeps both."""
    self._reset(value)


def reset_zero(self: Tensor) -> None:
    """Every element becomes 0."""
    self._reset(REGISTRY["zeros_like"](self))


def _contains(self: Tensor, value: Any) -> bool:
    """Whether an element equals a number, as in NumPy."""
    return bool(REGISTRY["any"](REGISTRY["equal"](self, value)).item())


def _complex(self: Tensor) -> complex:
    return complex(self.item())


def _positive(self: Tensor) -> Tensor:
    return Tensor(self)


def _whole(name: str):
    def rounded(self: Tensor) -> Tensor:
        return REGISTRY[name](self) if self.dtype.is_float else Tensor(self)

    return rounded


def _wrap(self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy's functions make of results for a subclass of arrays; a Tensor of it."""
    return Tensor(array)


MEMBERS: dict[str, Any] = {
    "name": property(_name, _set_name, doc=_name.__doc__), "format": property(_format, doc=_format.__doc__),
    "requires_grad": property(leaves.requires_grad, leaves.set_requires_grad, doc=leaves.requires_grad.__doc__),
    "is_leaf": property(leaves.is_leaf, doc=leaves.is_leaf.__doc__), "grad_fn": property(leaves.grad_fn, doc=leaves.grad_fn.__doc__),
    "is_cuda": property(lambda self: False, doc="False: there is no GPU here."),
    "data": property(data_of, set_data, doc=data_of.__doc__),
    "qparams": property(_qparams, _set_qparams, doc=_qparams.__doc__),
    "_tuple_shape": property(lambda self: self._layout.shape, doc="The extents, as MegEngine's own programs ask for them."),
    "set_value": set_value, "reset_zero": reset_zero, "__contains__": _contains, "__complex__": _complex, "__pos__": _positive,
    "__floor__": _whole("floor"), "__ceil__": _whole("ceil"), "__trunc__": _whole("trunc"), "__array_wrap__": _wrap,
}  # fmt: skip
