"""Tensor: what the user holds, and how values get in and out.

A Tensor is a buffer (a capsule of the runtime's pool), a `Layout`, and, while a gradient is being recorded, its node on the
tape. Tensors are values: a view shares memory until one of the two is written, and writing then copies. How calls of ops with
tensors run is in `eager.py`, which makes tensors by `tensor_over`.
"""

from __future__ import annotations

import datetime
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.device import Device, common_device, cpu, default_device
from tengen.base.dtype import DType, is_quantised
from tengen.base.errors import GradientError, TraceError, UsageWarning, user_line, warn_once
from tengen.compiler.arrays import array_over, as_array, buffer_over, dense, new_buffer, scalar_array
from tengen.compiler.plans import Layout
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor import quantised
from tengen.tensor.batched import Batched, check_has_values, check_same_mapping
from tengen.tensor.elsewhere import Elsewhere, Placed, Selected, refuse_writing, whole
from tengen.tensor.nodes import is_spent, kept_place, leaf_of, limits, on_tape
from tengen.tensor.recording import tracing
from tengen.tensor.sizes import Size, size_of_layout
from tengen.tensor.values import Values
from tengen.tensor.writes import NAMELESS, assigns, note, watching

if TYPE_CHECKING:
    from tengen.tensor.tensor_methods import TensorMethods  # a generated stub of what `methods.py` puts on the class
else:
    TensorMethods = object

_new = object.__new__


class Tensor(Values, TensorMethods):
    """An n-dimensional array that computes with Tengen's kernels.

    Args:
        data: a number, nested sequences, a NumPy array or a Tensor; it is copied, and a Tensor's copy stays on the tape.
        dtype: the element type; default: that of `data`, where Python floats give float32 and ints int64 (as in MegEngine's
            users' code ``Tensor([1.0])`` is float32). With MegEngine's quantised dtypes, as ``qint8(0.1)``, `data` are the integers, and
            `qparams` says what they stand for.
        device: a `Device` or its name ("cpu", "cpu0", "xpux"); the processor is the only one so far. Default: the default one.
        name: what files and messages call it. is_const, no_cache: MegEngine's, which change nothing here. format: MegEngine's, how an image
            lies in memory: "default"; others are accepted with a `UsageWarning`, since they change no value.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).numpy().tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    """

    __slots__ = ("_data", "_layout", "_node", "_grad", "_name", "_qparams", "_part", "__weakref__")
    _data: Any
    _layout: Layout
    _node: Any
    __array_priority__ = 100
    __hash__ = object.__hash__

    def __init__(self, data=None, dtype=None, device=None, is_const=False, no_cache=False, name=None, format="default"):
        there = device if device is None or isinstance(device, Device) else Device.named(device)
        if not isinstance(data, Tensor):
            _refuse_taped(data)
            q = quantised.carried(data, dtype)
            made = from_numpy(as_array(data, dtype) if q is None else as_array(data, quantised.stored(q)), device=there)
            if q is not None:
                self._qparams = quantised.meaning.of(q)
        else:
            if there is not None:
                common_device([data.device, there])
            made = data._off_tape() if dtype is None else data.astype(dtype)
            if is_quantised(dtype) or (dtype is None and quantised.holds_codes(data)):
                self._qparams = made._qparams if dtype is not None else data._qparams
        self._data, self._layout = made._data, made._layout
        self._node = data._node if isinstance(data, Tensor) and dtype is None and (not limits or on_tape(data)) else made._node
        if name is not None:
            self.name = name
        if format != "default":
            warn_once(f"Tensor(format={format!r}) changes nothing: programs decide how a tensor lies in memory", UsageWarning)

    # -- what it is ------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._layout.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._layout.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._layout.shape)

    @property
    def size(self) -> Size:
        """The number of elements; ``x.size()`` and ``x.size(0)`` are PyTorch's extents."""
        return size_of_layout(self._layout)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each axis."""
        return self._layout.strides

    @property
    def device(self) -> Device:
        """Where the data is: a `Device`, which equals its names."""
        return self._layout.device

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `GradManager.backward`, or `backward` of a tensor, accumulated, or None."""
        g = getattr(self, "_grad", None)
        if tracing.recorder is not None:
            tracing.recorder.read_grad(self, g)
        return g

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if tracing.recorder is not None:
            tracing.recorder.write_grad(self, getattr(self, "_grad", None))
        if value is not None and type(value._layout) is Batched:
            check_same_mapping(self, value)
        self._grad = value

    # -- ways out ----------------------------------------------------------------------------------------------------------
    def numpy(self) -> np.ndarray:
        """The values as a NumPy array that shares this tensor's memory. The tensor copies before its next write, so the array
        never changes under the caller's hands; it is read-only for the same reason."""
        return view_as_numpy(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, key) -> Tensor:
        """The elements that a key names, by NumPy's rules: a view for ints, slices, None and ..., else a copy."""
        return REGISTRY["getitem"].call(self, key)

    def __setitem__(self, key, value) -> None:
        """Gives the elements that a key names another value. Views made before keep the old one."""
        if sys.getrefcount(self) == NAMELESS and assigns(sys._getframe(1)):
            warn_of_lost(self)
        dispatch.set_item(self, key, value)

    def __repr__(self) -> str:
        if not settled(self):
            return f"{type(self).__name__}({self._layout.type!r}, traced)"
        body = np.array2string(self.numpy(), separator=", ", prefix=f"{type(self).__name__}(", threshold=200, precision=4)
        shape = f", shape={self.shape}" if self.size == 0 and self.ndim > 1 else ""
        return f"{type(self).__name__}({body}{shape}, dtype={self.dtype.name})"

    def _repr_html_(self) -> str:
        """A table for notebooks, with colour for the size of the numbers."""
        if not settled(self):
            return f"<code>{type(self).__name__} {self._layout.type!r}</code>, traced"
        from tengen.tensor.html import table

        return table(self, self.numpy())

    def __reduce__(self):
        return (_rebuild, (type(self), np.array(self.numpy()), _attributes(self), getattr(self, "_qparams", None)))

    def __copy__(self):
        t = type(self).__new__(type(self))
        same = self._off_tape()
        t._data, t._layout = same._data, same._layout  # values: a write will copy
        t._node = self._node if type(self) is Tensor and leaf_of(self) is None else None
        if hasattr(self, "__dict__"):
            t.__dict__.update(_attributes(self))
        if (q := getattr(self, "_qparams", None)) is not None:
            t._qparams = q
        return t

    def __deepcopy__(self, memo):
        return self.__copy__()

    def detach(self) -> Tensor:
        """The same values, off the tape."""
        if type(self._layout) is Batched:
            return tensor_over(self._data.detach(), self._layout)
        if tracing.active is not None and (recorder := tracing.recorder) is not None and recorder.of_a_body:
            return REGISTRY["stop_gradient"](self)
        t = self._off_tape()
        if (q := getattr(self, "_qparams", None)) is not None:
            t._qparams = q
        return t

    def _off_tape(self) -> Tensor:
        """The same tensor without its place on the tape. An example of a `vmap` leaves the tape of its function alone: the tensor
        of all examples keeps its place on those around the `vmap`."""
        if type(self._layout) is Selected:
            rows = self._layout.rows._off_tape()
            return tensor_over(rows, Selected(rows, self._layout.owner))
        if tracing.active is not None and (recorder := tracing.recorder) is not None and type(self._layout) not in (Batched, Placed):
            return recorder.seen(self)
        return tensor_over(self._data._off_tape() if type(self._layout) is Placed else self._data, self._layout)

    def _reset(self, other) -> None:
        """Gives this tensor another value, in place of the old one (parameters, running statistics)."""
        assign(self, other if isinstance(other, Tensor) else Tensor(other))


def warn_of_lost(t: Tensor) -> None:
    """Warns of elements that are set of a tensor which nobody can read."""
    warn_once(
        f"{t._layout.type!r}: an element is set of a tensor that nothing else holds, so that it is lost with this line; help: for "
        "x[i][j] = v write x[i, j] = v",
        UsageWarning,
    )


def _refuse_taped(data) -> None:
    """GradientError for numbers among which is a tensor whose gradient is asked for."""
    if isinstance(data, (list, tuple)):
        for v in data:
            _refuse_taped(v)
    elif isinstance(data, Tensor) and data.dtype.is_inexact and on_tape(data) and not is_spent(data):
        raise GradientError(
            f"the numbers of {data._layout.type!r} are asked for, and its gradient, which is being recorded, would be lost; "
            "help: join tensors with functional.stack() or concat(); or detach() it first"
        )


def tensor_on_tape(data, layout, node) -> Tensor:
    t = _new(Tensor)
    t._data, t._layout, t._node = data, layout, node
    return t


def _attributes(t: Tensor) -> dict[str, Any]:
    """What a copy of a Parameter has too: not its hooks, which belong to the one that they were put on."""
    return {k: v for k, v in getattr(t, "__dict__", {}).items() if k not in ("_hooks", "_after_hooks")}


def _rebuild(cls, array, state, q=None):
    t = cls.__new__(cls)
    made = from_numpy(array)
    t._data, t._layout, t._node = made._data, made._layout, None
    if state:
        t.__dict__.update(state)
    if q is not None:
        quantised.meaning.begin()
        t._qparams = q
    return t


Buffer = type(datetime.datetime_CAPI)  # what buffers are, without making one: that loads the runtime


def tensor_over(data, layout: Layout) -> Tensor:
    t = _new(Tensor)
    t._data = data
    t._layout = layout
    t._node = None
    return t


# ---- ways in and out -----------------------------------------------------------------------------------------------------


_scalars: dict = {}


def scalar(value, d: DType, device: Device | None = None) -> Tensor:
    """A 0-d tensor of a number, on a device (None: the default one). The last few thousand of them are cached."""
    device = device or default_device()
    key = (value, d, device.name, type(value), str(value) if value == 0 or type(value) is complex else None)
    t = _scalars.get(key)
    if t is None:
        if len(_scalars) > 4096:
            _scalars.clear()
        t = _scalars[key] = from_numpy(scalar_array(value, d), device=device)
    return t


def number(value, d: DType, device: Device | None = None) -> Tensor:
    """A 0-d tensor of a number: while a trace is recorded, a constant of the graph, which lies on the recorder's device. An open
    extent is computed by each run."""
    if isinstance(value, Expr):
        return REGISTRY["extent_op"](value, d)
    recorder = tracing.recorder
    if recorder is None:
        return scalar(value, d, device)
    if device is not None and device is not recorder.device:
        common_device([recorder.device, device])
    return recorder.literal(value, d)


def as_tensor(x, device: Device | None = None) -> Tensor:
    """x itself, or a Tensor of a number, an array or nested sequences.

    Args: device: where it shall lie. Errors: DeviceError for a tensor that lies elsewhere.
    """
    if not isinstance(x, Tensor):
        return Tensor(x, device=device)
    if device is not None and device is not x._layout.device:
        common_device([x._layout.device, device])
    return x


def known_values(t: Tensor) -> np.ndarray:
    """A tensor's values, of a constant of the program that is being recorded too; TraceError for what the program computes."""
    _refuse_taped(t)
    if tracing.recorder is not None and (data := tracing.recorder.known_data(t)) is not None:
        return data
    return view_as_numpy(t)


def from_numpy(a: np.ndarray, copy: bool = True, device: Device | None = None) -> Tensor:
    """A tensor with a copy of the array's values, on a device (None: the default one); without `copy` over its memory, where they
    are dense, which must stay as it is."""
    a, d = dense(a)
    device = device or default_device()
    if tracing.recorder is not None:
        common_device([tracing.recorder.device, device])
        return tracing.recorder.constant(a, TensorType(a.shape, d))
    return tensor_over(new_buffer(a, device) if copy or device is not cpu else buffer_over(a), Layout(a.shape, d, None, device))


def view_as_numpy(t: Tensor) -> np.ndarray:
    """A read-only NumPy array over the tensor's memory."""
    check_has_values(t)
    t = whole(t)
    if not settled(t):
        if get_ident() in tracing.scripts:
            raise TraceError(
                f"{user_line()}: the values of {t._layout.type!r} are asked for in a script, and do not exist while it is recorded; help: "
                "conditions, int(x), float(x), x.item() and texts are parts of the program; other functions of Python take values by jit.ignore"
            )
        if tracing.recorder is None:
            raise TraceError(
                f"{user_line()}: the values of {t._layout.type!r} are asked for, which was made inside a trace that has ended, so it has none; "
                "help: return it from the traced function instead of keeping it in an attribute or a list"
            )
        raise TraceError(
            f"{user_line()}: the values of {t._layout.type!r} are asked for inside a trace (by numpy(), item(), bool(), float() or the "
            "like), and do not exist while the program is recorded as a whole; help: return the tensor from the traced function; decide by "
            "functional.where or functional.cond, or let jit.script compile the function's ifs and loops; a call of a function that is "
            "traced with symbolic=False, and not dumped, may ask"
        )
    return array_over(t._data, t._layout)


def settled(t: Tensor) -> bool:
    """Whether a tensor has values; one that stands for a result of a part of a trace gets them, and the part is run first where it
    was not."""
    return type(t._data) is Buffer or ((settle := getattr(t._layout, "settle", None)) is not None and settle(t))


def contiguous(t: Tensor) -> Tensor:
    """The tensor with its elements dense in logical order; itself where they are already."""
    return t if t._layout.contiguous else REGISTRY["copy"](t)


def assign(target: Tensor, value: Tensor) -> None:
    """target takes value's value."""
    if watching:
        note(target)
    if tracing.writes and (told := tracing.writes.get(get_ident())) is not None:
        told(target)
    if type(value._layout) is Batched:
        check_same_mapping(target, value)
    elif type(value._layout) is Elsewhere:
        refuse_writing()
    if type(target._layout) is Placed:
        target._layout.owner.assign(target, value)
        target._node = kept_place(target, value._node)
        return
    if tracing.recorder is not None and type(target._layout) is Selected:
        if type(value._layout) is Selected:  # what x[mask] += 1 adds to
            target._data, target._layout = value._data, value._layout
            return
        target = whole(target)
    value = whole(value)
    if tracing.recorder is not None and tracing.recorder.assign(target, value):
        return
    target._data, target._layout, target._node = value._data, value._layout, kept_place(target, value._node)
