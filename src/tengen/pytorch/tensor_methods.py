"""Methods and attributes of `torch.Tensor` that few programs use: functions of `torch` of the tensor, their forms that write it, and what is
always so here. Importing `tengen.pytorch` puts them on Tensor; a name that Tensor has already stays what it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tengen import random
from tengen.base.errors import ArgumentError
from tengen.ops.define import REGISTRY
from tengen.pytorch import special
from tengen.tensor import Tensor
from tengen.tensor.dialect_views import views_by
from tengen.tensor.in_place import writing
from tengen.tensor.methods import put
from tengen.tensor.parts import is_part, relay
from tengen.tensor.pytorch_names import Elsewhere
from tengen.tensor.tensor import assign

FUNCTIONS = (
    "addbmm addmv addr cholesky_inverse cholesky_solve conj_physical diagonal_scatter dsplit float_power frexp gcd geqrf ger heaviside "
    "histogram hsplit i0 igamma igammac index_put isreal lcm ldexp logdet lu lu_solve multinomial mvlgamma orgqr ormqr positive put "
    "renorm resolve_conj resolve_neg select_scatter slice_scatter triangular_solve unsafe_chunk unsafe_split vdot vsplit erfinv"
).split()
WRITING = (
    "acosh addbmm addmv addr arccos arccosh arcsin arcsinh arctan arctanh arctan2 asinh atan2 atanh baddbmm bitwise_and "
    "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor clamp_max clamp_min conj_physical copysign cumprod cumsum "
    "deg2rad digamma eq erfc erfinv exp2 fix float_power floor_divide fmod frac gcd ge greater greater_equal gt heaviside "
    "hypot i0 igamma igammac lcm ldexp le less less_equal lgamma logical_xor logit lt mvlgamma ne nextafter not_equal rad2deg renorm sgn sinc "
    "subtract true_divide xlogy absolute"
).split()
FUNCTIONS_THAT_WRITE = (
    "abs acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil clamp clamp_max clamp_min clip cos cosh deg2rad "
    "detach erf erfc exp exp2 expm1 fill fix floor frac i0 index_put log log10 log1p log2 logit nan_to_num neg negative rad2deg reciprocal "
    "round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc xlogy zero"
).split()  # torch.exp_(x) is x.exp_()
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


def hermitian(self: Tensor) -> Tensor:
    """The matrix transposed and conjugated."""
    return REGISTRY["conj"](self.T) if self.dtype.is_complex else self.T


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


def get_device(self: Tensor) -> int:
    """The number of the GPU: -1 on the processor."""
    return -1


def storage_offset(self: Tensor) -> int:
    """Where the first element lies in the tensor's memory: 0, since no two tensors of a program share one."""
    return 0


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return self.shape == other.shape


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are one tensor."""
    return self is tensor


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over the axes along which a tensor of this size would be broadcast to the tensor's own, which is itself where these are none; of
    integers and bools int64.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).sum_to_size(1, 2).tolist()
    [[4.0, 6.0]]
    """
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if shape == self.shape:
        return self
    return REGISTRY["sum_to"](self if self.dtype.is_inexact else REGISTRY["astype"](self, "int64"), shape)


def _shaped(name: str, plain: Callable) -> Callable:
    """The method that gives the tensor itself the shape that the function has."""

    def method(self: Tensor, *args: Any) -> Tensor:
        if is_part(self):
            shape = self.shape
            relay(self, lambda x: plain(x, *args), lambda x: REGISTRY["reshape"](x, shape) if "squeeze" in name else plain(x, *args))
        else:
            assign(self, plain(self, *args))
        return self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`; the tensor itself takes the shape. A view stays a view."
    return method


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """The tensor with another shape: its elements in their order, and zeros where there were none. Errors: ArgumentError for a view

    >>> Tensor([1.0, 2.0]).resize_(2, 2).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    n = math.prod(shape)
    if is_part(self) or self.requires_grad:
        raise ArgumentError(f"resize_() of {self._layout.type!r}, which is a view or requires a gradient; help: x = x.reshape(...)")
    flat = self.reshape(-1)[:n]
    made = flat if n <= self.size else REGISTRY["concat"]([flat, REGISTRY["zeros"]((n - self.size,), self.dtype)], 0)
    assign(self, made.reshape(shape))
    return self


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, *the_template.shape)


def polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma of the elements."""
    return special.polygamma(n, self)


def _applied(x: Tensor, *rest: Any) -> Tensor:
    """Of `apply_` and `map_`: a Python function of each element, or of the elements of two tensors."""
    *others, function = rest
    each = zip(x.reshape(-1).tolist(), *(o.expand(*x.shape).reshape(-1).tolist() for o in others))
    return Tensor([function(*values) for values in each], dtype=x.dtype).reshape(x.shape)


def _share(x: Tensor, generator: Any) -> Tensor:
    """Numbers drawn from (0, 1), one for each element."""
    draw = random if generator is None else generator
    return 1.0 - draw.uniform(0.0, 1.0, size=x.shape)  # of (0, 1], so that its logarithm is finite


def _cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    if not sigma > 0:
        raise ArgumentError(f"cauchy_: sigma={sigma} must be positive")
    return REGISTRY["tan"]((_share(x, generator) - 0.5) * math.pi) * sigma + median


def _log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    if not std > 0:
        raise ArgumentError(f"log_normal_: std={std} must be positive")
    return REGISTRY["exp"]((random if generator is None else generator).normal(mean, std, size=x.shape))


def _geometric(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_: p={p} must be above 0 and below 1")
    return REGISTRY["astype"](REGISTRY["maximum"](REGISTRY["ceil"](REGISTRY["log"](_share(x, generator)) / math.log1p(-p)), 1.0), x.dtype)


def _called(name: str, f: Callable, says: str) -> Callable:
    """A function of f's under another name and docstring, to which the tensor is given first."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return f(self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = says
    return call


def install(torch: ModuleType) -> None:
    """Puts them on Tensor. Args: torch: the package, whose functions they call."""
    found: dict[str, Any] = {n: _called(n, getattr(torch, n), f"`tengen.pytorch.{n}` of the tensor.") for n in FUNCTIONS}
    found |= {f"{name}_": writing(f"{name}_", getattr(torch, name), f"`tengen.pytorch.{name}` of the tensor") for name in WRITING}
    plain = (
        data_ptr, is_nonzero, fill_diagonal_, get_device, storage_offset, is_same_size, is_set_to, polygamma, resize_, resize_as_, sum_to_size,
    )  # fmt: skip
    found |= {f.__name__: f for f in plain}
    found |= {
        "put_": writing("put_", torch.put, "Values at the places of the flattened tensor; accumulate: added to what is there"),
        "polygamma_": writing("polygamma_", polygamma, "The n-th derivative of digamma of the elements"),
        "apply_": writing("apply_", _applied, "A Python function of each element"),
        "map_": writing("map_", _applied, "A Python function of the elements of the tensor and of another one"),
        "cauchy_": writing("cauchy_", _cauchy, "Draws of a Cauchy distribution: median, sigma"),
        "log_normal_": writing("log_normal_", _log_normal, "e to draws of a normal distribution: mean, std"),
        "geometric_": writing("geometric_", _geometric, "Draws of a geometric distribution: p; how many trials to the first success"),
    }
    found |= {f"{name}_": _shaped(name, getattr(torch, name)) for name in ("squeeze", "t", "transpose", "swapaxes", "swapdims", "unsqueeze")}
    found |= dict.fromkeys(["pin_memory", "share_memory_", "coalesce", "to_dense"], itself)
    found["is_pinned"] = found["is_shared"] = found["is_inference"] = found["is_conj"] = found["is_neg"] = lambda self: False
    found |= {name: property(lambda self, value=value: value, doc=f"{value!r} here.") for name, value in ALWAYS.items()}
    found["nbytes"] = property(lambda self: self.numel() * self.element_size(), doc="The bytes of all elements.")
    found["itemsize"] = property(lambda self: self.element_size(), doc="The bytes of an element.")
    found["adjoint"], found["H"] = views_by("adjoint", adjoint), property(views_by("H", hermitian), doc=hermitian.__doc__)
    new = {name: f for name, f in found.items() if not _is_there(name)}
    OF_THE_DIALECT.update(new)
    put(new)
    for name in (f"{n}_" for n in FUNCTIONS_THAT_WRITE):
        says = f"The method `{name}` of the tensor, which takes the result; returns it."
        setattr(torch, name, _called(name, getattr(Tensor, name), says))


def _is_there(name: str) -> bool:
    """Whether Tensor has it; what it says is elsewhere it has not."""
    return name in vars(Tensor) and not isinstance(vars(Tensor)[name], Elsewhere)
