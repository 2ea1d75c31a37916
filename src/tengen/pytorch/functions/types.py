"""`torch.Tensor` and the classes by dtype, such as `torch.LongTensor`: what tensors are instances of, and PyTorch's older constructors."""

from __future__ import annotations

from typing import Any

from tengen.base.dtype import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from tengen.pytorch.functions.creation import empty
from tengen.pytorch.functions.creation import tensor as made
from tengen.pytorch.functions.dtypes import get_default_dtype, set_default_dtype
from tengen.tensor import Tensor as Ours


class _Type(type):
    """The classes below stand for Tengen's `Tensor`: its instances are theirs, where the dtype is the class's."""

    _dtype: DType | None

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Ours) and (cls._dtype is None or x.dtype is cls._dtype)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, Ours) or type.__subclasscheck__(cls, other)

    def __call__(cls, *args: Any, device: Any = None) -> Ours:
        """Tensor(2, 3): of this shape, with any values; Tensor([1, 2]): of this data. Both of the class's dtype, float32 of Tensor."""
        dtype = get_default_dtype() if cls._dtype is None else cls._dtype
        if len(args) == 1 and not isinstance(args[0], int):
            return made(args[0], dtype=dtype, device=device)
        return empty(*args, dtype=dtype, device=device) if args else made([], dtype=dtype, device=device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(Ours, name)


class Tensor(metaclass=_Type):
    """`torch.Tensor`: what every tensor is an instance of; to call it gives a tensor of the default dtype.

    >>> Tensor([1, 2]).dtype, Tensor(2, 3).shape, isinstance(made([1]), Tensor)
    (float32, (2, 3), True)
    """

    _dtype = None


def _typed(name: str, dtype: DType) -> type:
    return _Type(name, (), {"_dtype": dtype, "__doc__": f"Tensors of {dtype}: see `Tensor`.", "__module__": __name__})


FloatTensor, DoubleTensor, HalfTensor = _typed("FloatTensor", float32), _typed("DoubleTensor", float64), _typed("HalfTensor", float16)
BFloat16Tensor, BoolTensor, ByteTensor = _typed("BFloat16Tensor", bfloat16), _typed("BoolTensor", bool_), _typed("ByteTensor", uint8)
CharTensor, ShortTensor, IntTensor = _typed("CharTensor", int8), _typed("ShortTensor", int16), _typed("IntTensor", int32)
LongTensor = _typed("LongTensor", int64)


def set_default_tensor_type(t: Any) -> None:
    """Makes the dtype of a class, `torch.DoubleTensor` or "torch.DoubleTensor", the one that `set_default_dtype` sets.

    Errors: TypeError for what is no class of tensors
    """
    found = globals().get(t.rpartition(".")[2]) if isinstance(t, str) else t
    dtype = getattr(found, "_dtype", None) if isinstance(found, _Type) else None
    if dtype is None:
        raise TypeError(f"set_default_tensor_type({t!r}): no class of tensors, such as torch.FloatTensor; help: torch.set_default_dtype(dtype)")
    set_default_dtype(dtype)


layout = memory_format = str  # for type hints: `torch.strided` and `torch.channels_last` are texts

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "ShortTensor", "Tensor", "layout", "memory_format", "set_default_tensor_type",
]  # fmt: skip
