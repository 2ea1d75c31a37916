"""What importing the package installs: operators and methods on Tensor, taken from the op registry, and in `dispatch` the
functions to which calls of ops go."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tengen.base.device import Device
from tengen.base.dtype import BY_NAME, DType
from tengen.base.errors import AxisError, DeviceError, ShapeError, TengenError, UsageWarning, warn_once
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, Op, dispatch, each_op
from tengen.ops.names import ON_TENSOR
from tengen.tensor.array_protocol import PROTOCOL
from tengen.tensor.dlpack import device_of, to_dlpack
from tengen.tensor.eager import OPERATORS, run, run_slow
from tengen.tensor.megengine_names import MEMBERS
from tengen.tensor.nodes import leaves
from tengen.tensor.numpy_functions import array_function, array_ufunc, rounded
from tengen.tensor.pytorch_names import ELSEWHERE, METHODS, Elsewhere
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Tensor, as_tensor, known_values, number

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}  # they are not reflected, for Python asks the mirrored one, and not in place


def _binary(op):
    def forward(self, other):
        return NotImplemented if isinstance(other, (str, type(None))) else op(self, other)

    def reflected(self, other):
        return NotImplemented if isinstance(other, (str, type(None))) else op(other, self)

    return forward, reflected


def _in_place(op):
    def update(self, other):
        self._reset(op(self, other))
        return self

    return update


def _dims(args: tuple) -> Any:
    """Extents or axes that were given one by one, or together: an array or a tensor of them is for the op to read."""
    if len(args) != 1 or isinstance(args[0], int):
        return args
    return tuple(args[0]) if isinstance(args[0], list) else args[0]


def reshape(self: Tensor, *shape) -> Tensor:
    """The same elements with another shape; one extent may be -1."""
    return REGISTRY["reshape"](self, _dims(shape))


def transpose(self: Tensor, *axes) -> Tensor:
    """The axes in another order (reversed by default), as NumPy's, where "x" stands for a new unit axis; of a tensor of three axes or more,
    two numbers exchange two axes, as PyTorch's.

    Errors: AxisError for what is no order of all axes

    >>> from tengen import functional as F
    >>> x = F.zeros((2, 3, 4))
    >>> x.transpose(2, 0, 1).shape, x.transpose(1, 2).shape
    ((4, 2, 3), (2, 4, 3))
    """
    if len(axes) == 2 and self.ndim != 1 and all(isinstance(a, int) for a in axes):  # PyTorch's way to say which two are exchanged
        if self.ndim > 2:
            return REGISTRY["swapaxes"](self, *axes)
        if self.ndim == 2 and (axes[0] % 2, axes[1] % 2) == (0, 1):
            if leaves.parameters:  # PyTorch's dialect is loaded, and nobody there means nothing by it
                raise AxisError(
                    f"transpose{axes} of a tensor of shape {self.shape} is NumPy's, which leaves the axes as they are; help: x.t() or "
                    f"torch.transpose(x, {axes[0]}, {axes[1]})"
                )
            warn_once(
                f"transpose{axes} of {self._layout.type!r} is NumPy's, which leaves the axes as they are; help: x.T, or "
                f"swapaxes{axes}, which is PyTorch's transpose",
                UsageWarning,
            )
    axes = _dims(axes) if axes else tuple(reversed(range(self.ndim)))
    new = isinstance(axes, tuple) and any(isinstance(a, str) for a in axes)
    return REGISTRY["transpose" if new else "permute"](self, axes)


def _matrices(self: Tensor, name: str) -> Tensor:
    if self.ndim < 2:
        raise ShapeError(f".{name} of a tensor of shape {self.shape}: it has to have two axes")
    return REGISTRY["swapaxes"](self, -1, -2)


def flatten(self: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Axes start_axis .. end_axis as one.

    Errors: ShapeError where the first axis lies behind the last one
    """
    n = max(self.ndim, 1)
    if start_axis % n > end_axis % n:
        raise ShapeError(f"flatten: axis {start_axis} lies behind axis {end_axis} of {self.shape}")
    return REGISTRY["flatten"](self, start_axis % n, end_axis % n)


def to(
    self: Tensor, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None, other: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The tensor on a device, of a dtype, or both, in MegEngine's or PyTorch's spelling: `to("cpu0")`, `to("float64")`, `to("cpu", "int8")`,
    `to(other)`; itself where nothing changes. The processor is the only device so far. memory_format: accepted, as PyTorch's; how
    tensors lie in memory is a matter of the compiler.

    Errors: DeviceError for a device that is not here, TypeError for a second device or dtype
    """
    for a in args if other is None else (*args, other):
        if isinstance(a, Tensor):
            device, dtype = a.device, a.dtype
        elif isinstance(a, (DType, type, np.dtype)) or isinstance(a, str) and a in BY_NAME:
            if dtype is not None:
                raise TypeError(f"to(): two dtypes, {dtype} and {a}")
            dtype = a
        elif not isinstance(a, bool) and a is not None:  # bools are PyTorch's non_blocking and copy
            if device is not None:
                raise TypeError(f"to(): two devices, {device} and {a}")
            device = a
    there = self.device if device is None else Device.named(device)
    if there is not self.device:
        raise DeviceError(f"a tensor on {self.device} cannot be brought to {there}; help: Tensor(x.numpy(), device={there.name!r})")
    moved = self if dtype is None or self.dtype == dtype else REGISTRY["astype"](self, dtype)
    return REGISTRY["copy"](moved) if copy and moved is self else moved


def cpu(self: Tensor) -> Tensor:
    """The tensor on the processor; itself where it lies there."""
    return to(self, "cpu")


def _divmod(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    """(self // other, self % other)."""
    return self // other, self % other


def _rdivmod(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    """(other // self, other % self)."""
    return other // self, other % self


def operators(op: Op) -> dict[str, Callable]:
    """The special methods of Tensor that an op is by its operator, by name."""
    name = op.operator
    if not name:
        return {}
    if len(op.tensors) == 1:
        return {f"__{name}__": op.call}
    forward, reflected = _binary(op)
    if name in COMPARISONS:
        return {f"__{name}__": forward}
    return {f"__{name}__": forward, f"__r{name}__": reflected, f"__i{name}__": _in_place(op)}


class OfOp:
    """A method or operator of Tensor that is an op whose file is not loaded: it is loaded when somebody asks for the method.

    Args: name: the method's. op: the op's.
    """

    def __init__(self, name: str, op: str):
        self.name, self.op = name, op

    def __get__(self, tensor: Tensor | None, owner: type) -> Any:
        found = operators(op := REGISTRY[self.op]).get(self.name, op.call)
        return found if tensor is None else found.__get__(tensor, owner)


def names_on_tensor(op: Op) -> dict[str, Callable]:
    """The methods and operators of Tensor that an op says it is, by name. Four operators have faster forms in `eager.py`."""
    for name in op.methods:
        if ON_TENSOR.get(name) != op.name and hasattr(Tensor, name):
            raise TengenError(f"op {op.name!r}: Tensor.{name} is something else already; help: another name in `methods`")
    return dict.fromkeys(op.methods, op.call) | operators(op)


def _put_of_op(name: str, f: Callable) -> None:
    """Puts what an op is on Tensor, where nothing else has its name: four operators are there, and other dialects put methods of theirs in the
    place of some."""
    if name not in vars(Tensor) or type(vars(Tensor)[name]) in (OfOp, Elsewhere):
        setattr(Tensor, name, f)


def _real(self: Tensor) -> Tensor:
    """The real parts: a view of complex numbers."""
    return REGISTRY["real"](self)


def _imag(self: Tensor) -> Tensor:
    """The imaginary parts: a view of complex numbers; zeros of what is not complex."""
    return REGISTRY["imag"](self)


@functools.cache
def _set_item_of_assignment() -> Callable:
    from tengen.tensor.assignment import set_item

    return set_item


def _set_item(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    _set_item_of_assignment()(x, key, value)


def _by_mask(x: Tensor, mask: Tensor, value: Tensor | None = None) -> Tensor | None:
    recorder = tracing.recorder
    return None if recorder is None else recorder.by_mask(x, mask, value)


def install() -> None:
    """Puts operators and methods on Tensor, and the functions that run ops in `dispatch`."""
    given = {"tensor": as_tensor, "scalar": number, "known": known_values, "set_item": _set_item, "by_mask": _by_mask}
    dispatch.install(run=run, slow=run_slow, **given)
    for f in (reshape, transpose, flatten, to, cpu):
        setattr(Tensor, f.__name__, f)
    for name, (f, _) in OPERATORS.items():
        setattr(Tensor, name, f)
    for name, f in [*METHODS.items(), *MEMBERS.items(), *PROTOCOL.items()]:
        setattr(Tensor, name, f)
    Tensor.__dlpack__, Tensor.__dlpack_device__ = to_dlpack, device_of
    Tensor.T = property(lambda self: transpose(self), doc="The tensor with its axes reversed.")
    Tensor.real = property(_real, doc=_real.__doc__)
    Tensor.imag = property(_imag, doc=_imag.__doc__)
    Tensor.mH = property(lambda self: REGISTRY["conj"](_matrices(self, "mH")), doc="Each matrix transposed and conjugated.")
    Tensor.__round__ = Tensor.round = rounded
    Tensor.__divmod__, Tensor.__rdivmod__ = _divmod, _rdivmod
    Tensor.__array_ufunc__, Tensor.__array_function__ = array_ufunc, array_function
    for name, op in ON_TENSOR.items():
        if name not in vars(Tensor):
            setattr(Tensor, name, OfOp(name, op))
    each_op(names_on_tensor, _put_of_op)
    for name, instead in ELSEWHERE.items():
        if name not in vars(Tensor):
            setattr(Tensor, name, Elsewhere(name, instead))
    Tensor.__dir__ = lambda self: [n for n in object.__dir__(self) if n not in ELSEWHERE or hasattr(self, n)]
    Tensor.__hash__ = object.__hash__


def put(methods: Mapping[str, Callable | property]) -> None:
    """Puts methods on Tensor in place of those that are there."""
    for name, f in methods.items():
        setattr(Tensor, name, f)


_seeing: list[Callable[[Op, tuple, Any], None]] = []  # who is told of + - * /, the last one first


def see_operators(seen: Callable[[Op, tuple, Any], None]) -> None:
    """From now on `seen(op, operands, result)` is told of each call of + - * /, which goes past `dispatch`, until `unsee_operators`; it stands
    in for those that were told before."""
    _seeing.append(seen)
    _put_operators()


def unsee_operators(seen: Callable[[Op, tuple, Any], None]) -> None:
    """Takes back one `see_operators`."""
    _seeing.remove(seen)
    _put_operators()


def _put_operators() -> None:
    for name, (way, op) in OPERATORS.items():
        setattr(Tensor, name, _seen_by(_seeing[-1], way, op) if _seeing else way)


def _seen_by(seen: Callable[[Op, tuple, Any], None], way: Callable, op: Op) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        out = way(self, other)
        if out is not NotImplemented:
            seen(op, (self, other), out)
        return out

    return operator


all_with_line(globals(), ["reshape", "transpose", "flatten", "to", "cpu"])
install()
