"""Tensor: what the user holds; eager dispatch; the tape.

A Tensor is a buffer (a capsule of the runtime's pool), a `Layout`, and, while a gradient is being recorded, its node on the
tape. Tensors are values: a view shares memory until one of the two is written, and writing then copies. Every operation
goes through `run`: it looks up the plan of (op, layouts, attributes) and calls it; a miss goes to `run_slow`, which converts
arguments, makes the plan, or hands the call to the trace that is being recorded.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen import ops  # noqa: F401  (registers all ops)
from tengen.base.device import Device, common_device, cpu, default_device
from tengen.base.dtype import DType, bool_, complex64, dtype, float32, float64, int64, promote, promote_scalar
from tengen.base.errors import ArgumentError, DTypeError, GradientError, TraceError, UsageWarning, told, user_line, warn_once
from tengen.compiler.arrays import array_over, as_array, buffer_over, dense, new_buffer, scalar_array
from tengen.compiler.plans import Layout, Plan, exact_key, forget_programs, make_plan, zero_among
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr
from tengen.ops.complex_numbers import formed
from tengen.ops.define import REGISTRY, Op, dispatch
from tengen.runtime import native
from tengen.tensor.batched import Batched, check_has_values, check_same_mapping
from tengen.tensor.elsewhere import Elsewhere, Owner, refuse_writing
from tengen.tensor.nodes import TapeNode, kept_place, limits, on_tape, visible_node
from tengen.tensor.recording import tracing
from tengen.tensor.values import Values
from tengen.tensor.writes import NAMELESS, assigns, note, watching

if TYPE_CHECKING:
    from tengen.tensor.tensor_methods import TensorMethods  # a generated stub of what `methods.py` puts on the class
else:
    TensorMethods = object

_plans: dict = {}  # (op, attrs, layouts) -> Plan; replaced by an empty one while a trace is recorded
_aside: tuple[dict, dict] | None = None  # the two tables while a thread records, for the threads that do not
_slow_plans: dict = {}  # the same for calls that must not take `run`'s short way: operands are checked first, or one is absent
_new = object.__new__


class Tensor(Values, TensorMethods):
    """An n-dimensional array that computes with Tengen's kernels.

    Args:
        data: a number, nested sequences, a NumPy array or a Tensor; it is copied, and a Tensor's copy stays on the tape.
        dtype: the element type; default: that of `data`, where Python floats give float32 and ints int64 (as in MegEngine's
            users' code ``Tensor([1.0])`` is float32).
        device: a `Device` or its name ("cpu", "cpu0", "xpux"); the processor is the only one so far. Default: the default one.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).numpy().tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    """

    __slots__ = ("_data", "_layout", "_node", "_grad", "_name", "__weakref__")
    _data: Any
    _layout: Layout
    _node: Any
    __array_priority__ = 100
    __hash__ = object.__hash__

    def __init__(self, data=None, dtype=None, device=None):
        there = device if device is None or isinstance(device, Device) else Device.named(device)
        if not isinstance(data, Tensor):
            _refuse_taped(data)
            made = from_numpy(as_array(data, dtype), device=there)
        else:
            if there is not None:
                common_device([data.device, there])
            made = data._off_tape() if dtype is None else REGISTRY["astype"](data, dtype)
        self._data, self._layout = made._data, made._layout
        self._node = data._node if isinstance(data, Tensor) and dtype is None and (not limits or on_tape(data)) else made._node

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
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size

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
        """The gradient that `GradManager.backward` accumulated, or None."""
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
            warn_once(
                f"{self._layout.type!r}: an element is set of a tensor that nothing else holds, so that it is lost with this line; help: for "
                "x[i][j] = v write x[i, j] = v",
                UsageWarning,
            )
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
        return (_rebuild, (type(self), np.array(self.numpy()), _attributes(self)))

    def __copy__(self):
        t = type(self).__new__(type(self))
        same = self._off_tape()
        t._data, t._layout = same._data, same._layout  # values: a write will copy
        t._node = self._node if type(self) is Tensor else None
        if hasattr(self, "__dict__"):
            t.__dict__.update(_attributes(self))
        return t

    def __deepcopy__(self, memo):
        return self.__copy__()

    def detach(self) -> Tensor:
        """The same values, off the tape."""
        if type(self._layout) is Batched:
            return tensor_over(self._data.detach(), self._layout)
        if tracing.active is not None and (recorder := tracing.recorder) is not None and recorder.of_a_body:
            return REGISTRY["stop_gradient"](self)
        return self._off_tape()

    def _off_tape(self) -> Tensor:
        """The same tensor without its place on the tape. An example of a `vmap` leaves the tape of its function alone: the tensor
        of all examples keeps its place on those around the `vmap`."""
        if tracing.active is not None and (recorder := tracing.recorder) is not None and type(self._layout) is not Batched:
            return recorder.seen(self)
        return tensor_over(self._data, self._layout)

    def _reset(self, other) -> None:
        """Gives this tensor another value, in place of the old one (parameters, running statistics)."""
        assign(self, other if isinstance(other, Tensor) else Tensor(other))

    # -- the fast road of binary operators -----------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor: return _binary(_add, self, other)  # fmt: skip

    def __sub__(self, other: Any) -> Tensor: return _binary(_sub, self, other)  # fmt: skip

    def __mul__(self, other: Any) -> Tensor: return _binary(_mul, self, other)  # fmt: skip

    def __truediv__(self, other: Any) -> Tensor: return _binary(_div, self, other)  # fmt: skip


def _refuse_taped(data) -> None:
    """GradientError for numbers among which is a tensor whose gradient is asked for."""
    if isinstance(data, (list, tuple)):
        for v in data:
            _refuse_taped(v)
    elif isinstance(data, Tensor) and data.dtype.is_inexact and on_tape(data):
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
    return {k: v for k, v in getattr(t, "__dict__", {}).items() if k != "_hooks"}


def _rebuild(cls, array, state):
    t = cls.__new__(cls)
    made = from_numpy(array)
    t._data, t._layout, t._node = made._data, made._layout, None
    if state:
        t.__dict__.update(state)
    return t


Buffer = type(datetime.datetime_CAPI)  # what buffers are, without making one: that loads the runtime


def tensor_over(data, layout: Layout) -> Tensor:
    t = _new(Tensor)
    t._data = data
    t._layout = layout
    t._node = None
    return t


# ---- dispatch ----------------------------------------------------------------------------------------------------------


def _binary(table: dict, a: Tensor, b) -> Tensor:
    try:
        plan = table[a._layout, b._layout]
    except (KeyError, AttributeError):
        plan = None
    if plan is None:
        return _binary_slow(table, a, b)
    out = _new(Tensor)
    out._data = plan.call(a._data, b._data)
    out._layout = plan.layouts[0]
    out._node = None if a._node is None and b._node is None else (visible_node if limits else TapeNode)(table["op"], (a, b), ())
    return out


def _binary_slow(table: dict, a: Tensor, b):
    op = table["op"]
    if isinstance(b, Tensor):
        out = run(op, (a, b), ())
        plan = _plans.get((op, (), (a._layout, b._layout)))
        if plan is not None:
            table[a._layout, b._layout] = plan
        return out
    if not isinstance(b, (int, float, complex, np.ndarray, np.generic, Expr)):
        return NotImplemented
    if isinstance(b, (int, float, complex)):  # as a tensor, one of the last that `scalar` has made, it has a plan
        d = promote_scalar(a.dtype, b)
        b = number(b, d, a._layout.device) if d is a.dtype else b  # where the dtype changes, `_convert` casts both
    return run(op, (a, b), ())


def run(op: Op, inputs: tuple, attrs: tuple):
    """Runs a call of an op: every `op.call` comes here."""
    try:
        plan = _plans[op, attrs, tuple([x._layout for x in inputs])]
    except (KeyError, AttributeError, TypeError):
        plan = None  # leave the handler first, so that an error below is not reported as one during this one
    if plan is None or (plan.zero and exact_key(attrs) is not attrs):
        return run_slow(op, inputs, attrs)
    r = plan.call(*[x._data for x in inputs])
    out = tensor_over(r, plan.layouts[0]) if len(plan.layouts) == 1 else tuple(map(tensor_over, r, plan.layouts))
    for x in inputs:
        if x._node is not None:
            return put_on_tape(op, inputs, attrs, out)
    return out


def put_on_tape(op: Op, inputs: tuple, attrs: tuple, out):
    """Puts a call on the tape."""
    if op.why_no_vjp is not None:
        return out
    outs = out if isinstance(out, tuple) else (out,)
    made = visible_node if limits else TapeNode
    node = made(op, inputs, attrs, tuple(o._off_tape() for o in outs) if op.saves_output else None)
    if node is None:
        return out
    if len(outs) == 1:
        outs[0]._node = node
    else:
        for i, o in enumerate(outs):
            o._node = (node, i)
    return out


def run_slow(op: Op, inputs: tuple, attrs: tuple):
    """The same without a look at the table of plans: brings the call into order, and makes or finds its plan, or records it."""
    if tracing.active is not None and (recorder := tracing.recorder) is not None and recorder.answers:
        out = recorder.again(op, inputs, attrs)
        if out is not None:
            return out
    try:
        attrs = op.plain(attrs)
        inputs = _convert(op, inputs)
        op.check_operands(inputs)
        warn_of_float64(op, inputs)
        of, given = formed(op, [None if x is None else x._layout.type for x in inputs], attrs)
        if of is not op:
            return _run_form(op, of, inputs, attrs, given)
        recorder, batched = tracing.recorder, any([x is not None and type(x._layout) is Batched for x in inputs])
        if batched and recorder is not None and recorder.of_a_body:
            inputs = tuple(map(recorder.operand, inputs))
            batched = any([x is not None and type(x._layout) is Batched for x in inputs])
        if batched:
            from tengen.tensor.batching import run_batched

            out = run_batched(op, inputs, attrs)
        elif recorder is not None:
            return recorder.record(op, inputs, attrs)
        else:
            out = _execute(op, inputs, attrs)
    except Exception as e:
        odd = isinstance(e, (AttributeError, KeyError, ArithmeticError, AssertionError)) and not isinstance(e, OverflowError)
        better = ArgumentError(f"does not take these arguments ({type(e).__name__}: {e})") if odd else e
        explain(better, op, inputs, attrs)
        if odd:
            raise better from e
        raise
    if any(x is not None and x._node is not None for x in inputs):
        put_on_tape(op, inputs, attrs, out)
    return out


def _run_form(op: Op, form: Op, inputs: tuple, attrs: tuple, given: tuple):
    """Runs a call's form for complex numbers; the next call of the same kind finds the form's plan."""
    layouts = tuple(None if x is None else x._layout for x in inputs)
    eager = tracing.recorder is None and not any(type(a) is Batched for a in layouts)
    types = [None if a is None else a.type for a in layouts]
    checked = op.rules.check is not None and (op.rules.checks is None or op.rules.checks(types))
    if eager and checked:  # the form's ops are not looked at once more
        if check_values(op, inputs, types) is None:
            look(op, inputs, types, attrs)
    out = run(form, inputs, given)
    if eager and not checked and tracing.active is None and (plan := _plans.get((form, exact_key(given), layouts))) is not None:
        plan.zero = plan.zero or zero_among(attrs)
        _plans[op, exact_key(attrs), layouts] = plan
    return out


def warn_of_float64(op: Op, inputs: tuple) -> None:
    """Warns where float64 data meets a float32 parameter: all that follows is computed in float64."""
    for p in inputs:
        if type(p) is Tensor or p is None or p.dtype is not float32 or op.own:
            continue
        for x in inputs:
            if x is not None and x.dtype is float64:
                warn_once(
                    f"{op.name}(): {x._layout.type!r} meets the float32 parameter {p._layout.type!r}, and the result is float64, and "
                    "what follows from it too; help: Tensor(data, dtype='float32') or x.astype('float32')",
                    UsageWarning,
                    of="float64",
                )
                return


def explain(e: Exception, op: Op, inputs: tuple, attrs: tuple) -> None:
    """Completes an error's message: the call that the user made, and the user's line."""
    found = told(e)
    if found is None:
        return
    text, where = found  # the outermost call names itself, around the first text
    types = [x._layout.type if isinstance(x, Tensor) else None if x is None else type(x).__name__ for x in inputs]
    call = "" if text.startswith(f"{op.name}(") else f"{op.signature(types, dict(zip(op.attrs, attrs)))}: "
    e.args = (f"{call}{text} [at {where}]",)


def computed(op: Op, inputs: Sequence[Tensor | None], attrs: dict[str, Any]) -> tuple[Tensor, ...]:
    """The outputs of a node of a graph, off the tape; what must not be in its operands is not looked at. attrs: canonical."""
    given = {"axis": attrs.get("axes"), **attrs}  # reductions name their axes `axis` when they are called
    out = _execute(op, tuple(inputs), tuple([given[name] for name in op.attrs]), looking=False)
    return out if isinstance(out, tuple) else (out,)


def _execute(op: Op, inputs: tuple, attrs: tuple, looking: bool = True):
    """Runs off the tape. looking: whether the operands' values are checked."""
    for x in inputs:
        if x is not None and type(x._data) is not Buffer:
            settled(x)
    layouts = tuple(None if x is None else x._layout for x in inputs)
    types = [None if a is None else a.type for a in layouts]
    if (owner := check_values(op, inputs, types)) is not None:
        return owner.record(op, inputs, attrs)
    checked = op.rules.check is not None and (op.rules.checks is None or op.rules.checks(types))
    plans = (_aside or (_plans, _slow_plans))[checked or None in layouts]
    key = (op, exact_key(attrs), layouts)
    plan = plans.get(key)
    if plan is None:
        canonical = op.canonical(types, attrs)
        if op.kind == "view":
            return _view(op, inputs[0], canonical, key)
        plan = plans[key] = planned(op, layouts, canonical)
        plan.zero = zero_among(attrs)
    if checked and looking:
        look(op, inputs, types, attrs)
    r = plan.call(*[x._data for x in inputs if x is not None])
    return tensor_over(r, plan.layouts[0]) if len(plan.layouts) == 1 else tuple(map(tensor_over, r, plan.layouts))


def check_values(op: Op, inputs: tuple, types: Sequence) -> Owner | None:
    """Who owns the graph that an operand stands for a value of; None if all have values. TraceError for one that has none and never
    will."""
    for x in inputs:
        if x is not None and not settled(x):
            if type(x._layout) is Elsewhere:
                return x._layout.owner
            raise TraceError(
                f"{op.signature(types)}: an operand was made inside a trace that has ended, so it has no value; help: return it "
                "from the traced function instead of keeping it in an attribute or a list"
            )
    return None


def look(op: Op, inputs: tuple, types: Sequence, attrs: tuple) -> None:
    """Checks the operands' values by the op's own rules: raises the error of the first violation."""
    for v in op.violations(inputs, types, attrs):
        if v.bad.item():
            raise v.error(v.found() if v.found else v.message)


def planned(op: Op, layouts: Sequence[Layout | None], attrs: dict, over: tuple[int, ...] = ()) -> Plan:
    if op.kind != "composite" and not op.has_bodies:
        return make_plan(op, layouts, attrs)
    from tengen.tensor.recorder import composite_plan

    return composite_plan(op, layouts, attrs, over)


def slow_plan(key: tuple, make: Callable[[], Any]) -> Any:
    """The plan of a call in `_slow_plans`; `make` makes it if there is none yet."""
    plan = _slow_plans.get(key)
    if plan is None:
        plan = make()
        if tracing.active is None:
            _slow_plans[key] = plan
    return plan


def _view(op: Op, x: Tensor, attrs: dict, key) -> Tensor:
    """A view shares the buffer: only the layout and the address change."""
    out = op.infer_types([x._layout.type], attrs)[0]
    a = op.make_view(x._layout.array(0), out, attrs)
    if a is None:
        return _view(op, contiguous(x)._off_tape(), attrs, None)
    layout = Layout(tuple(a.shape), a.dtype, tuple(a.strides), x.device)
    if key is not None and tracing.active is None:
        offset = a.offset * a.dtype.size
        _plans[key] = Plan((lambda d: native.view(d, offset)) if offset else _same, (layout,))
    return tensor_over(native.view(x._data, a.offset * a.dtype.size) if a.offset else x._data, layout)


def _same(data):
    return data


def _convert(op: Op, inputs: tuple) -> tuple:
    """Numbers and arrays among the operands become tensors; a Python number is weak: it takes the others' dtype."""
    if all(isinstance(x, Tensor) or x is None for x in inputs):
        return inputs
    strong = None  # the dtype that the tensors among the operands promote to
    device = None  # of the tensors, and so of the others
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor):
            device = x._layout.device
        if isinstance(x, (Tensor, np.ndarray, np.generic)) and i not in op.own and not isinstance(x, (float, complex)):
            strong = dtype(x.dtype) if strong is None else promote(strong, dtype(x.dtype))
    out: list[Any] = []
    lift = None
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor) or x is None:
            out.append(x)
        elif isinstance(x, Expr):  # an open extent: as weak as the number that it will be
            out.append(REGISTRY["extent_op"](x, promote_scalar(strong, 1) if strong is not None and i not in op.own else int64))
        elif isinstance(x, (bool, int, float, complex)):
            d = promote_scalar(strong, x) if strong is not None and i not in op.own else _default_dtype(x)
            lift = d if strong is not None and d.is_float and not strong.is_float and i not in op.own else lift
            out.append(number(x, d, device))
        elif isinstance(x, (np.ndarray, np.generic, list, tuple)):
            out.append(Tensor(x, device=device))
        else:
            raise DTypeError(f"{op.name}: a {type(x).__name__} is not a tensor; help: pass a Tensor, an array or a number")
    if (
        lift is not None
    ):  # an int tensor and a Python float give the default float; promoting both as tensors would give float64
        out = [x if x is None or x.dtype.is_float or i in op.own else REGISTRY["astype"](x, lift) for i, x in enumerate(out)]
    return tuple(out)


def _default_dtype(x) -> DType:
    return bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else complex64 if isinstance(x, complex) else float32


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



# ---- ways in and out -----------------------------------------------------------------------------------------------------


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
    if not settled(t):
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
    if type(value._layout) is Batched:
        check_same_mapping(target, value)
    elif type(value._layout) is Elsewhere:
        refuse_writing()
    if tracing.recorder is not None and tracing.recorder.assign(target, value):
        return
    target._data, target._layout, target._node = value._data, value._layout, kept_place(target, value._node)


# (layout, layout) -> Plan, one table for each operator: a shorter way than that of `run`
_add: dict = {"op": REGISTRY["add"]}
_sub: dict = {"op": REGISTRY["sub"]}
_mul: dict = {"op": REGISTRY["mul"]}
_div: dict = {"op": REGISTRY["div"]}
_tables = (_add, _sub, _mul, _div)


def set_aside(plans: tuple) -> None:
    """Keeps what `hide_plans` has given for the threads that go on computing; () ends that."""
    global _aside
    _aside = plans[:2] if plans else None


def hide_plans() -> tuple:
    """Empties the tables of plans, so that each call takes the slow way, which records it. Returns what was in them."""
    global _plans, _slow_plans
    saved = (_plans, _slow_plans, [dict(t) for t in _tables])
    _plans, _slow_plans = {}, {}
    for t in _tables:
        op = t["op"]
        t.clear()
        t["op"] = op
    return saved


_short_ways = {name: vars(Tensor)[f"__{name}__"] for name in ("add", "sub", "mul", "truediv")}


def see_operators(seen: Callable[[Op, tuple, Any], None] | None) -> None:
    """From now on `seen(op, operands, result)` is told of each call of + - * /, which goes past `dispatch`; None: nobody is."""
    for (name, way), table in zip(_short_ways.items(), _tables):
        setattr(Tensor, f"__{name}__", way if seen is None else _seen_by(seen, way, table))


def _seen_by(seen: Callable[[Op, tuple, Any], None], way: Callable, table: dict) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        out = way(self, other)
        if out is not NotImplemented:
            seen(table["op"], (self, other), out)
        return out

    return operator


def forget_plans() -> None:
    """Forgets all plans and the programs behind them: an op has become another one."""
    hide_plans()
    forget_programs()


def restore_plans(saved: tuple) -> None:
    """Undoes `hide_plans`; plans made since are forgotten."""
    global _plans, _slow_plans
    _plans, _slow_plans = saved[:2]
    for t, old in zip(_tables, saved[2]):
        t.update(old)
        for made in t.keys() - old.keys():
            del t[made]
