"""Methods of Tensor under the names that PyTorch users type: each is another spelling of what Tengen has.

What PyTorch does to a tensor and Tengen does elsewhere is an error that says where.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import ArgumentError, AxisError, DTypeError, GradientError, IndexOutOfRange, ShapeError
from tengen.ir.types import Dim
from tengen.loops.lang import Expr
from tengen.ops.attributes import Offset
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.tensor import in_place
from tengen.tensor.hooks import HookHandle, put
from tengen.tensor.leaves import requires_grad_ as requires_grad_
from tengen.tensor.nodes import leaf_of, node_of, on_tape
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Tensor, contiguous


def view(self: Tensor, *shape) -> Tensor:
    """`reshape`: the same elements with another shape; one extent may be -1. Where strides do not allow a view, a copy.

    Errors: DTypeError for a dtype: elements cannot be read as those of another one
    """
    if shape and isinstance(shape[0], DType):
        raise DTypeError(f"view({shape[0]}) of {self._layout.type!r} would read bytes as another dtype; help: Tensor(x.numpy().view(dtype))")
    return self.reshape(*shape)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same elements in the shape of another tensor."""
    return self.reshape(other.shape)


def permute(self: Tensor, *dims) -> Tensor:
    """The axes in another order, all of them."""
    return REGISTRY["permute"](self, _extents(dims))


def t(self: Tensor) -> Tensor:
    """The tensor with its axes reversed; it has at most two.

    Errors: ShapeError for more than two axes
    """
    if self.ndim > 2:
        raise ShapeError(f"t() of a tensor of shape {self.shape}: it takes at most two axes; help: transpose, or swapaxes")
    return self.transpose()


def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """`expand_dims`: an axis of extent 1 at a position."""
    return REGISTRY["expand_dims"](self, dim)


def expand(self: Tensor, *sizes) -> Tensor:
    """`broadcast_to`; an extent of -1 is the tensor's own.

    Errors: ShapeError for -1 in the place of an axis that there is not
    """
    wanted = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    new = len(wanted) - self.ndim
    if any(s == -1 for s in wanted[: max(new, 0)]):
        raise ShapeError(f"expand({', '.join(map(str, wanted))}) of a tensor of shape {self.shape}: -1 stands for an axis that is not there")
    return REGISTRY["broadcast_to"](self, tuple(self.shape[i - new] if s == -1 else s for i, s in enumerate(wanted)))


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`broadcast_to` the shape of another tensor."""
    return REGISTRY["broadcast_to"](self, other.shape)


def chunk(self: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """At most so many parts along an axis, all but the last of equal extent, as PyTorch cuts them; `functional.split` gives so many.

    Errors: AxisError for an axis that there is not, ShapeError for fewer than one part

    >>> from tengen import functional as F
    >>> [part.tolist() for part in F.arange(5).chunk(2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    """
    if not -self.ndim <= dim < self.ndim:
        raise AxisError(f"chunk(dim={dim}) of a tensor of shape {self.shape}")
    if chunks < 1:
        raise ShapeError(f"chunk({chunks}) of a tensor of shape {self.shape}: there must be at least 1")
    return _parts_of(self, -(-self.shape[dim] // chunks), dim)


def _parts_of(self: Tensor, size: Dim, dim: int) -> list[Tensor]:
    """Parts of so many elements along an axis, the last of what is left; of an open extent the call at hand says how many they are."""
    n, ends = self.shape[dim], [size]
    while ends[-1] < n:
        ends.append(ends[-1] + size)
    return REGISTRY["split"](self, ends[:-1], dim)


def split(self: Tensor, split_size_or_sections: Offset | Sequence[Offset], dim: int = 0) -> list[Tensor]:
    """Parts of so many elements along an axis, the last of what is left; or of these extents, whose sum is the axis's. As PyTorch's;
    `functional.split` is MegEngine's, of a number of parts, or positions.

    Errors: AxisError for an axis that is not there, ShapeError for parts that are not.

    >>> from tengen import functional as F
    >>> [part.tolist() for part in F.arange(5).split(2)], [part.tolist() for part in F.arange(5).split([1, 4])]
    ([[0.0, 1.0], [2.0, 3.0], [4.0]], [[0.0], [1.0, 2.0, 3.0, 4.0]])
    """
    if not -self.ndim <= dim < self.ndim:
        raise AxisError(f"split(dim={dim}) of a tensor of shape {self.shape}")
    n, size = self.shape[dim], split_size_or_sections
    if isinstance(size, (int, Expr)):
        if size < 1:
            raise ShapeError(f"split({size}) of a tensor of shape {self.shape}: a part has at least 1 element")
        return _parts_of(self, size, dim)
    if n != sum(size) or any(s < 0 for s in size):
        raise ShapeError(f"split({list(size)}) of a tensor of shape {self.shape}: the parts have {sum(size)} elements, axis {dim} has {n}")
    return REGISTRY["split"](self, list(itertools.accumulate(size))[:-1], dim)


def clone(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """`copy`: the same values in memory of their own, on the tape. memory_format: accepted, as PyTorch's."""
    return REGISTRY["copy"](self)


def contiguous_(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor with its elements dense in logical order; itself where they are. memory_format: accepted, as PyTorch's."""
    return contiguous(self)


def numel(self: Tensor) -> int:
    """`size`: the number of elements."""
    return self.size


def dim(self: Tensor) -> int:
    """`ndim`: the number of axes."""
    return self.ndim


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`astype` the dtype of another tensor."""
    return REGISTRY["astype"](self, other.dtype)


def cuda(self: Tensor, device: Any = None) -> Tensor:
    """The tensor on a GPU. Errors: DeviceError while there is none."""
    return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Calls hook(gradient) when a backward walk has computed this tensor's gradient; what it returns, if anything, takes the
    gradient's place. For a result of the block in which a gradient is being recorded; a Parameter has one that lasts.

    Errors: GradientError for a tensor whose gradient nobody records.

    >>> from tengen import Tensor, autodiff
    >>> x = Tensor([1.0, 2.0])
    >>> with autodiff.GradManager().attach(x) as gm:
    ...     y = x * x
    ...     handle = y.register_hook(lambda g: g * 10.0)
    ...     gm.backward(y.sum())
    >>> x.grad.tolist()
    [20.0, 40.0]
    """
    if not on_tape(self):
        if tracing.recorder is not None and tracing.recorder.of_a_body:
            raise GradientError(
                f"register_hook() of {self._layout.type!r} in the body of a loop or a branch, which is differentiated as a graph and calls no "
                "Python; help: put the hook on what goes in or comes out, or on a Parameter, whose hooks see its whole gradient"
            )
        raise GradientError(
            f"register_hook() of {self._layout.type!r}: no gradient is being recorded for it; help: inside of `with gm:`, on what was "
            "computed from attached tensors; or gm.attach(x, callbacks=lambda x, g: ...)"
        )
    node, index = node_of(self)
    if not hasattr(node, "hooks"):
        node.hooks = {}
    return put(node.hooks, (index, hook))


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Calls hook(tensor) when a backward walk has added a gradient to the leaf's ``grad``; see `Parameter`'s.

    Errors: GradientError for a tensor that is no leaf

    >>> x, seen = Tensor([2.0]).requires_grad_(), []
    >>> handle = x.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.tolist()))
    >>> (x * x).backward()
    >>> seen
    [[4.0]]
    """
    node = leaf_of(self)
    if node is None:
        raise GradientError(f"register_post_accumulate_grad_hook() of {self._layout.type!r}, which is no leaf; help: x.requires_grad_()")
    if not hasattr(node, "hooks"):
        node.hooks = {}
    return put(node.hooks, (None, hook))


def is_complex(self: Tensor) -> bool:
    """Whether the dtype is complex64 or complex128."""
    return self.dtype.is_complex


def is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is one of floats; complex numbers are not."""
    return self.dtype.is_float


def is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype.kind not in "ub"


def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie densely in logical order."""
    return self._layout.contiguous


def element_size(self: Tensor) -> int:
    """The bytes of an element."""
    return self.dtype.size


def _axis(self: Tensor, name: str, dim: int) -> int:
    if not -self.ndim <= dim < self.ndim:
        raise AxisError(f"{name}: axis {dim} of a tensor of shape {self.shape}")
    return dim % self.ndim


def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along an axis from `start` on: a view. A negative start counts from the end.

    Errors: AxisError for an axis that there is not, IndexOutOfRange for such a start, ShapeError where they do not lie inside of it.
    """
    dim = _axis(self, "narrow", dim)
    if not -self.shape[dim] <= start <= self.shape[dim]:
        raise IndexOutOfRange(f"narrow({dim}, {start}, {length}) of a tensor of shape {self.shape} begins outside of its axis")
    first = start + self.shape[dim] if start < 0 else start
    if length < 0 or not 0 <= first <= first + length <= self.shape[dim]:
        raise ShapeError(f"narrow({dim}, {start}, {length}) of a tensor of shape {self.shape} reaches beyond its axis")
    return self[(*(slice(None),) * dim, slice(first, first + length))]


def select(self: Tensor, dim: int, index: int) -> Tensor:
    """The elements at an index of an axis, which is gone: a view.

    Errors: AxisError for an axis that there is not, IndexOutOfRange for such an index.
    """
    return self[(*(slice(None),) * _axis(self, "select", dim), index)]


def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The elements at each index of an axis, which is gone: views.

    Errors: AxisError for an axis that there is not.
    """
    dim = _axis(self, "unbind", dim)
    return tuple(self[(*(slice(None),) * dim, i)] for i in range(self.shape[dim]))


def unflatten(self: Tensor, dim: int, sizes: tuple[int, ...]) -> Tensor:
    """An axis as several; one of their extents may be -1.

    Errors: AxisError for an axis that there is not, ShapeError for extents of another product.
    """
    dim = _axis(self, "unflatten", dim)
    known = math.prod(s for s in sizes if s != -1)
    whole = tuple(self.shape[dim] // max(known, 1) if s == -1 else s for s in sizes)
    if math.prod(whole) != self.shape[dim]:
        raise ShapeError(f"unflatten({dim}, {tuple(sizes)}) of a tensor of shape {self.shape}: {self.shape[dim]} elements do not fit")
    return REGISTRY["reshape"](self, (*self.shape[:dim], *whole, *self.shape[dim + 1 :]))


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, `x[mask]`; both broadcast. Inside of a trace their number is not known: a TraceError."""
    x = REGISTRY["broadcast_to"](self, broadcast_shapes(self.shape, mask.shape))
    return x[REGISTRY["broadcast_to"](mask, x.shape)]


def new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **how: Any
) -> Tensor:
    """A tensor of one value, of this tensor's dtype and on its device unless others are given. how: `layout`, `pin_memory`: accepted.

    Errors: TypeError for another argument
    """
    if odd := how.keys() - {"layout", "pin_memory"}:
        raise TypeError(f"new_full() takes no argument {min(odd)!r}")
    made = REGISTRY["full"](size, fill_value, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return made.requires_grad_() if requires_grad else made


def new_zeros(self: Tensor, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
    """A tensor of zeros, of this tensor's dtype unless another is given. how: as in `new_full`."""
    return new_full(self, _extents(size), 0, dtype=dtype, **how)


def new_ones(self: Tensor, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
    """A tensor of ones, of this tensor's dtype unless another is given. how: as in `new_full`."""
    return new_full(self, _extents(size), 1, dtype=dtype, **how)


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A tensor of these values, of this tensor's dtype and on its device unless others are given. pin_memory: accepted."""
    made = Tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return made.requires_grad_() if requires_grad else made


def _extents(size: tuple) -> tuple:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size


# PyTorch's name of a method -> the op that it is, called with the same arguments
OF_OPS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "mm": "matmul",
    "bmm": "matmul", "mv": "matmul", "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "greater": "greater", "greater_equal": "greater_equal",
    "less": "less",
    "less_equal": "less_equal", "not_equal": "not_equal", "multiply": "mul", "subtract": "sub", "divide": "div",
    "true_divide": "div",
    "floor_divide": "floor_div", "remainder": "mod", "negative": "neg", "argwhere": "non_zero", "fix": "trunc", "sgn": "sign",
    "repeat_interleave": "repeat", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "mul": "mul",
    "add": "add", "sub": "sub", "div": "div", "neg": "neg",
    "log_softmax": "logsoftmax", "nonzero": "non_zero", "movedim": "moveaxis", "swapdims": "swapaxes", "clamp": "clip",
    **{f: f for f in (
        "cumprod", "diag", "diagonal", "index_select", "isfinite", "isinf", "isnan", "lerp", "logsumexp", "reciprocal", "roll",
        "take",
        "tril", "triu", "trunc", "unique", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bincount",
        "bitwise_and", "bitwise_not",
        "bitwise_or", "bitwise_xor", "copysign", "cosh", "count_nonzero", "diff", "digamma", "erf", "erfc", "exp2", "expm1",
        "hypot", "isclose",
        "lgamma", "log10", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "median",
        "moveaxis", "nan_to_num",
        "nextafter", "prelu", "quantile", "scatter", "scatter_add", "signbit", "sinh", "tan",
    )},
}  # fmt: skip


# methods that are functions of `functional`, or of `linalg`, which stand on a floor above and are found when they are called
OF_FUNCTIONS = {
    "tengen.functional": (
        "addcdiv", "addcmul", "addmm", "allclose", "amax", "amin", "aminmax", "baddbmm", "corrcoef", "cov", "cross", "deg2rad",
        "diag_embed",
        "diagflat", "dot", "fliplr", "flipud", "fmax", "fmin", "fmod", "frac", "hardshrink", "heaviside", "histc", "index_add",
        "index_copy",
        "index_fill", "inner", "isneginf", "isposinf", "kron", "kthvalue", "logaddexp2", "logit", "masked_scatter", "msort",
        "nanmean",
        "cummax", "cummin", "index_reduce", "logcumsumexp", "mode", "nanmedian", "nanquantile", "scatter_reduce", "unique_consecutive",
        "nansum", "norm", "outer", "rad2deg", "rot90", "sinc", "tensor_split", "xlogy",
    ),
    "tengen.fft": ("istft", "stft"),
    "tengen.linalg": ("cholesky", "det", "matrix_exp", "matrix_power", "pinv", "qr", "slogdet", "svd", "trace"),
}  # fmt: skip
_LINALG = {"inverse": "inv", "pinverse": "pinv"}


def function_of(module: str, name: str) -> Callable[..., Any]:
    """A function of a module on a floor above, which is imported when the function is first called."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{module.removeprefix('tengen.')}.{name}` of the tensor."
    return call


_POSSIBLE: dict[str, Callable[..., bool]] = {  # whether parameters are those of a distribution
    "exponential": lambda rate: rate > 0, "normal": lambda mean, std: std >= 0, "uniform": lambda low, high: low <= high,
}  # fmt: skip


def _drawn(name: str, **defaults: float) -> Callable[..., Tensor]:
    """Numbers of a distribution in a tensor's shape; `defaults`: its parameters, by the names that PyTorch's method gives them."""
    draw = function_of("tengen.random", name)

    def drawn(x: Tensor, *args: Any, generator: Any = None, **named: Any) -> Tensor:
        odd = named.keys() - defaults.keys() | set(list(defaults)[: len(args)]) & named.keys()
        if odd or len(args) > len(defaults):
            raise TypeError(f"{name}_() takes {', '.join(defaults)}, each once, and generator; got {args} and {named}")
        values = {**defaults, **dict(zip(defaults, args)), **named}.values()
        if not _POSSIBLE[name](*values):
            raise ArgumentError(f"{name}_: {', '.join(f'{n}={v}' for n, v in zip(defaults, values))} is no distribution")
        return (draw if generator is None else getattr(generator, name))(*values, size=x.shape)

    return drawn


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor in a dtype, or without one the name that PyTorch has for its type, as "torch.FloatTensor"."""
    if dtype is None:
        return f"torch.{_TYPES.get(self.dtype.name, self.dtype.name.capitalize())}Tensor"
    return REGISTRY["astype"](self, _named_type(dtype))


def _named_type(dtype: Any) -> Any:
    """The dtype of a name such as "torch.LongTensor"; other names as they are."""
    kind = dtype.removeprefix("torch.").removesuffix("Tensor") if isinstance(dtype, str) and dtype.endswith("Tensor") else None
    return next((name for name, k in _TYPES.items() if k == kind), dtype)


_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short",
    "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip


def unfold(self: Tensor, dimension: int, size: int, step: int = 1) -> Tensor:
    """Windows of so many elements along an axis, each `step` behind the one before: they are an axis behind the others.

    Errors: AxisError for an axis that there is not; ShapeError for windows longer than the axis, and for a step below 1

    >>> Tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2).tolist()
    [[1, 2, 3], [3, 4, 5]]
    """
    n = self.shape[_axis(self, "unfold", dimension)]
    if not 0 <= size <= n or step < 1:
        raise ShapeError(f"unfold({dimension}, {size}, {step}) of a tensor of shape {self.shape}: windows of at most {n}, steps of at least 1")
    axis, count = dimension % self.ndim, (n - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    windows = self[(*[slice(None)] * axis, Tensor(places.reshape(-1)))]
    shape = (*self.shape[:axis], count, size, *self.shape[axis + 1 :])
    return REGISTRY["moveaxis"](REGISTRY["reshape"](windows, shape), axis + 1, -1)


def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements lie between neighbours along each axis, or along one."""
    steps = tuple(self.strides)
    return steps if dim is None else steps[_axis(self, "stride", dim)]


def bernoulli(self: Tensor, p: float | None = None) -> Tensor:
    """Draws of 0 and 1 in the tensor's dtype: 1 with the probability that is its element, or p."""
    uniform = function_of("tengen.random", "uniform")(0.0, 1.0, size=self.shape)
    return REGISTRY["astype"](REGISTRY["less"](uniform, self.detach() if p is None else p), self.dtype)


def _random_integers(x: Tensor, low: int = 0, high: int | None = None, *, generator: Any = None, **named: int) -> Tensor:
    """PyTorch's range: of floats all integers that they hold, unless another end is given."""
    low, high = (named.get("from", low), named.get("to", high)) if named else (0, low) if high is None and low else (low, high)
    draw = function_of("tengen.random", "randint") if generator is None else generator.randint
    end = {"f": 2 ** {"float64": 53, "float16": 11, "bfloat16": 8}.get(x.dtype.name, 24)}.get(x.dtype.kind, 2 ** (x.dtype.bits - 1) - 1)
    return REGISTRY["astype"](draw(low, end if high is None else high, x.shape), x.dtype)


def _put_at(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    if not accumulate:
        return REGISTRY["setitem"](x, tuple(indices), values)
    indices = [v for i in indices for v in (REGISTRY["nonzero"](i) if i.dtype.kind == "b" else (i,))]
    places = sum(REGISTRY["where"](i < 0, i + n, i) * math.prod(x.shape[a + 1 :]) for a, (i, n) in enumerate(zip(indices, x.shape)))
    inside = x.shape[len(indices) :]
    rest = REGISTRY["reshape"](Tensor(np.arange(math.prod(inside))), inside)
    places = REGISTRY["reshape"](places, (*places.shape, *(1,) * len(inside))) + rest
    added = REGISTRY["broadcast_to"](REGISTRY["astype"](values, x.dtype), places.shape)
    flat = REGISTRY["scatter_add"](x.reshape(-1), 0, places.reshape(-1), added.reshape(-1))
    return flat.reshape(x.shape)


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements, as PyTorch's; `eq` and `functional.equal` compare element by element."""
    return self.shape == other.shape and bool(REGISTRY["all"](REGISTRY["equal"](self, other)).item())


def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference, a 0-d tensor."""
    return function_of("tengen.functional", "norm")(self - other, p)


def ravel(self: Tensor) -> Tensor:
    """All elements along one axis."""
    return REGISTRY["reshape"](self, (-1,))


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of another tensor."""
    return REGISTRY["reshape"](self, other.shape)


def take_along_dim(self: Tensor, indices: Tensor, dim: int) -> Tensor:
    """`functional.take_along_axis`."""
    return REGISTRY["take_along_axis"](self, indices, dim)


def clamp_min(self: Tensor, min: Any) -> Tensor:
    """`clip` from below."""
    return REGISTRY["clip"](self, min, None)


def clamp_max(self: Tensor, max: Any) -> Tensor:
    """`clip` from above."""
    return REGISTRY["clip"](self, None, max)


def new_empty(self: Tensor, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
    """`new_zeros`: here no tensor has values that nobody gave."""
    return new_full(self, _extents(size), 0, dtype=dtype, **how)


def new(self: Tensor, *args: Any, **how: Any) -> Tensor:
    """PyTorch's oldest way to make a tensor of this one's dtype: of a size, ``x.new(2, 3)`` or ``x.new(y.shape)``, whose
    numbers are 0, or of numbers, ``x.new([1, 2])``.

    >>> Tensor([1.5]).new([1, 2]).dtype.name, Tensor([1.5]).new(2, 3).shape
    ('float32', (2, 3))
    """
    if len(args) == 1 and not isinstance(args[0], int | tuple):
        return new_tensor(self, args[0], **how)
    return new_empty(self, *args or (0,), **how)


def _of_op(name: str, op: str) -> Callable[..., Any]:
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return REGISTRY[op](self, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`functional.{op}` of the tensor."
    return call


def detach_(self: Tensor) -> Tensor:
    """Takes the tensor itself off the tape; returns it. Gradients that were recorded through it before stay."""
    self._node = None
    return self


def _cast(name: str, dtype: str) -> Callable[..., Tensor]:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        return REGISTRY["astype"](self, dtype)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"`astype` {dtype}."
    return cast


class Elsewhere:
    """A name of PyTorch's that Tensor does not have: asking for it is an AttributeError that says what to write here."""

    def __init__(self, name: str, instead: str):
        self.name, self.instead = name, instead

    def __get__(self, tensor: Tensor | None, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}; help: {self.instead}")


ELSEWHERE = {
    **{n: f"x = x.{n[:-1]}(...): a tensor's shape changes by another tensor" for n in ("unsqueeze_", "squeeze_", "transpose_",
    "t_", "swapaxes_")},
    "resize_": "x.set_value(value)", "get_device": "x.device",
    "cat": "functional.concat([x, y], axis)", "fill": "x.fill_(v)",
    "apply_": "functions of whole tensors: x[...] = f(x)",
    "pin_memory": "x itself: there is no GPU",
    "share_memory_": "x.numpy(), and multiprocessing.shared_memory", "storage": "x.numpy()", "ptp": "x.max(axis) - x.min(axis)",
    "indices": "x.argmax(axis): max, min and median give values alone",
    "values": "the tensor itself: max, min and median give values alone",
}  # fmt: skip
CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "cfloat": "complex64", "cdouble": "complex128", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
NAMES = [
    "chunk", "clamp_max", "clamp_min", "clone", "dist", "equal", "new", "new_empty", "ravel", "reshape_as",
    "take_along_dim", "contiguous_", "cuda", "detach_", "dim", "element_size", "expand", "expand_as", "is_complex",
    "is_contiguous", "is_floating_point", "is_signed", "masked_select", "narrow", "new_full", "new_ones", "new_tensor",
    "new_zeros", "numel", "bernoulli",
    "permute", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "select", "split", "stride", "t", "type_",
    "type_as", "unbind", "unfold", "unflatten", "unsqueeze", "view", "view_as",
]  # fmt: skip
_SPELLED = {"contiguous_": "contiguous", "type_": "type"}  # functions here that have another name as methods
all_with_line(globals(), NAMES)
METHODS: dict[str, Callable] = {_SPELLED.get(name, name): globals()[name] for name in NAMES}
METHODS |= {"nelement": METHODS["numel"], "ndimension": METHODS["dim"], "split_with_sizes": METHODS["split"]}
METHODS |= {name: _cast(name, dtype) for name, dtype in CASTS.items()}
METHODS |= {name: _of_op(name, op) for name, op in OF_OPS.items()}
METHODS |= {name: function_of(module, name) for module, names in OF_FUNCTIONS.items() for name in names}
METHODS |= {name: function_of("tengen.tensor.backward", name) for name in ("backward", "retain_grad")}
METHODS |= {name: function_of("tengen.linalg", other) for name, other in _LINALG.items()}
METHODS |= in_place.methods(lambda name: function_of("tengen.functional", name))
METHODS |= {
    "bernoulli_": in_place.writing("bernoulli_", lambda x, p=0.5: bernoulli(x, p), "Draws of 0 and 1: the probability of 1"),
    "exponential_": in_place.writing("exponential_", _drawn("exponential", lambd=1.0), "Draws of an exponential distribution: its rate"),
    "index_put_": in_place.writing("index_put_", _put_at, "Values at indices, which are a tuple of tensors; accumulate: added"),
    "random_": in_place.writing("random_", _random_integers, "Draws of integers: from and to, or to alone"),
    "normal_": in_place.writing("normal_", _drawn("normal", mean=0.0, std=1.0), "Draws of a normal distribution: mean, std"),
    "uniform_": in_place.writing("uniform_", _drawn("uniform", **{"from": 0.0, "to": 1.0}), "Draws between two numbers"),
}
