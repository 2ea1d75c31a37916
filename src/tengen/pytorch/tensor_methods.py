"""Methods and attributes of `torch.Tensor` that few programs use: functions of `torch` of the tensor, their forms that write it, and what is
always so here. Importing `tengen.pytorch` puts them on Tensor; a name that Tensor has already stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.in_place import writing
from tengen.tensor.methods import put
from tengen.tensor.pytorch_names import Elsewhere

FUNCTIONS = (
    "addbmm addmv addr conj_physical diagonal_scatter dsplit float_power frexp gcd ger heaviside histogram hsplit i0 "
    "index_put isreal lcm ldexp logdet multinomial mvlgamma polygamma positive renorm resolve_conj resolve_neg "
    "select_scatter slice_scatter vdot vsplit"
).split()
WRITING = (
    "acosh addbmm addmv addr arccos arccosh arcsin arcsinh arctan arctanh arctan2 asinh atan2 atanh baddbmm bitwise_and "
    "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor clamp_max clamp_min copysign cumprod cumsum "
    "deg2rad digamma eq erfc erfinv exp2 fix float_power floor_divide fmod frac gcd ge greater greater_equal gt heaviside "
    "hypot i0 lcm ldexp le less less_equal lgamma logical_xor logit lt ne nextafter not_equal rad2deg renorm sgn sinc "
    "subtract true_divide xlogy absolute"
).split()
OF_THE_DIALECT: set[str] = set()  # what was put on Tensor: the stubs of its methods, which every program has, leave it out
ALWAYS = {
    "is_cpu": True, "is_sparse": False, "is_quantized": False, "is_meta": False, "is_mps": False, "is_xpu": False, "is_mkldnn": False,
    "is_nested": False, "is_sparse_csr": False, "layout": "strided",
}  # fmt: skip


def data_ptr(self: Tensor) -> int:
    """The address of the first element, while the tensor keeps its value."""
    return self.numpy().__array_interface__["data"][0]


def adjoint(self: Tensor) -> Tensor:
    """Each matrix transposed and conjugated."""
    return self.mH


def is_nonzero(self: Tensor) -> bool:
    """Whether the only element is not 0. Errors: ValueError for several elements"""
    return bool(self)


def itself(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor itself: what PyTorch's method changes is so already."""
    return self


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Sets the elements whose places are equal along all axes; wrap: of a tall matrix, again below. Returns the tensor."""
    n = min(self.shape)
    if wrap and self.ndim == 2:
        rows = [i for i in range(self.shape[0]) if i % (self.shape[1] + 1) < self.shape[1]]
        key: Any = (Tensor(rows), Tensor([i % (self.shape[1] + 1) for i in rows]))
    else:
        key = (Tensor(list(range(n))),) * self.ndim
    self[key] = fill_value
    return self


def _method(name: str, f: Callable) -> Callable:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return f(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`tengen.pytorch.{name}` of the tensor."
    return method


def install(torch: ModuleType) -> None:
    """Puts them on Tensor. Args: torch: the package, whose functions they call."""
    found: dict[str, Any] = {name: _method(name, getattr(torch, name)) for name in FUNCTIONS}
    found |= {f"{name}_": writing(f"{name}_", getattr(torch, name), f"`tengen.pytorch.{name}` of the tensor") for name in WRITING}
    found |= {f.__name__: f for f in (data_ptr, adjoint, is_nonzero, fill_diagonal_)}
    found |= dict.fromkeys(["pin_memory", "share_memory_", "coalesce", "to_dense"], itself)
    found["is_pinned"] = found["is_shared"] = found["is_inference"] = found["is_conj"] = found["is_neg"] = lambda self: False
    found |= {name: property(lambda self, value=value: value, doc=f"{value!r} here.") for name, value in ALWAYS.items()}
    found["nbytes"] = property(lambda self: self.numel() * self.element_size(), doc="The bytes of all elements.")
    found["itemsize"] = property(lambda self: self.element_size(), doc="The bytes of an element.")
    found["H"] = property(lambda self: REGISTRY["conj"](self.T) if self.dtype.is_complex else self.T, doc="Transposed and conjugated.")
    new = {name: f for name, f in found.items() if not _is_there(name)}
    OF_THE_DIALECT.update(new)
    put(new)


def _is_there(name: str) -> bool:
    """Whether Tensor has it; what it says is elsewhere it has not."""
    return name in vars(Tensor) and not isinstance(vars(Tensor)[name], Elsewhere)
