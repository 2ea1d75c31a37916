"""The recorder: while it is active, calls of ops become nodes of a graph instead of running.

`jit.trace` records users' functions with it, and eager dispatch records the body of a composite op, so that the composite runs
as one fused program. A concrete tensor that the recorded code uses becomes a named state of the graph.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from tengen import compiler
from tengen.base import errors
from tengen.base.device import Device, common_device, default_device
from tengen.base.dtype import DType, bool_
from tengen.base.errors import TraceError, Undecided, user_line
from tengen.codegen.targets import Target
from tengen.compiler import plans
from tengen.compiler.arrays import array_over, dense, new_buffer
from tengen.compiler.plans import Layout, Plan
from tengen.compiler.program import Program, value_of
from tengen.ir.graph import Check, Graph, State, Value, attr_key
from tengen.ir.rewrite import with_constants_named
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.loops.extents import open_extent, terms
from tengen.loops.lang import Expr, Index, as_int
from tengen.ops.define import Op, dispatch, lookup
from tengen.runtime import mapped, native
from tengen.tensor.casting import casting
from tengen.tensor.eager import hide_plans, put_on_tape, restore_plans
from tengen.tensor.elsewhere import Elsewhere, Selected, whole
from tengen.tensor.nodes import kept_place, leaf_of, node_of, on_tape, walking
from tengen.tensor.parameter import Parameter
from tengen.tensor.quantised import holds_codes
from tengen.tensor.recording import tracing
from tengen.tensor.selection import by_mask
from tengen.tensor.structure import flatten
from tengen.tensor.tape import call_body
from tengen.tensor.tensor import Tensor, settled, tensor_on_tape, tensor_over


class Traced:
    """What stands in for a `Layout` while recording: the type alone; memory comes later. `graph` is whose value it is. Shape, size and
    strides are what users see. `value` is the graph's value; `done` a tensor that holds what a run has computed of it."""

    __slots__ = ("shape", "dtype", "type", "size", "strides", "device", "contiguous", "graph", "value", "done", "__weakref__")

    def __init__(self, v: Value, recorder: Recorder | None = None):
        recorder = recorder or tracing.recorder
        self.graph = recorder.graph  # not the recorder: a tensor that is kept must not keep all others
        self.device = recorder.device
        recorder.made.append(ref(self))
        self.value, self.type, self.dtype = v, v.type, v.type.dtype
        self.shape, self.size, self.strides = _seen(v.type)
        self.contiguous = True
        self.done: Tensor | None = None

    def settle(self, t: Tensor) -> bool:
        """Gives a tensor, which has this in place of its layout, its values: they were computed, or are now, where a recorder answers
        questions. Returns whether it has them."""
        if self.done is None and (recorder := tracing.recorder) is not None and recorder.answers and recorder.graph is self.graph:
            recorder.asked()
        if self.done is None:
            return False
        t._data, t._layout = self.done._data, self.done._layout
        return True


@functools.lru_cache(4096)
def _seen(t: TensorType) -> tuple[tuple[Index, ...], Index, tuple[Index, ...]]:
    """Shape, size and strides for users."""
    shape, strides = (tuple(map(open_extent, x)) for x in (t.shape, contiguous_strides(t.shape)))
    return shape, open_extent(product(t.shape)), strides


def traced(v: Value) -> Tensor:
    """A tensor that stands for a value of the graph."""
    return tensor_over(v, Traced(v))


recording_lock = threading.RLock()  # held while a graph is recorded, and while the tables of plans are exchanged


class _Hidden:
    """The plans that are hidden while a thread records: taken by the first recorder of all threads, given back by the last. Threads
    that do not record find them set aside."""

    def __init__(self) -> None:
        self._lock, self._recorders, self._plans = threading.Lock(), 0, ()

    def take(self) -> None:
        """One recorder more."""
        with self._lock:
            if not self._recorders:
                self._plans = hide_plans(aside=True)
            self._recorders += 1

    def give_back(self) -> None:
        """One recorder less."""
        with self._lock:
            self._recorders -= 1
            if not self._recorders:
                plans, self._plans = self._plans, ()
                restore_plans(plans, aside=True)


_hidden = _Hidden()


class Recorder:
    """Records one graph. Use as a context manager; only one records at a time.

    A tensor that is written while recording holds the traced value until the recording ends, then its own again.

    Attributes:
        graph: what has been recorded; recording goes on behind what a given one holds. device: where its program will run: all
            tensors that it reads lie there.
        captured: the concrete tensors that are states, in order. owners: id of one that is a gradient -> the tensor it belongs
            to.
        baked: the concrete tensors that are constants, by name.
        grads: id of a tensor whose `grad` was set -> (tensor, its `grad` before, its `Parameter.overflow` then).
        reads: id of a tensor whose `grad` was read -> (tensor, whether there was one, its `Parameter.overflow` then).
        made: weak references to the layouts of all traced tensors. of_a_body: whether it records the body of a loop or a branch, which
            is differentiated as a graph (`regions.py`). answers: whether it can run what is recorded so far when a value is asked for
            (`jit/parts.py`). selections: weak references to the layouts of selections by a mask.
    """

    of_a_body = False
    answers = False
    observer: Any = None  # sees which users' code runs: `jit/observe.py`

    def __init__(
        self, name: str = "graph", constants: bool = False, lines: bool = True, device: Device | None = None, graph: Graph | None = None
    ):  # fmt: skip
        self.graph = Graph(name) if graph is None else graph
        self.device = device or default_device()
        self.constants = constants  # capture tensors as constants instead of states
        self.lines = lines
        self.captured: list[Tensor] = []
        self.baked: dict[str, Tensor] = {}
        self.owners: dict[int, Tensor] = {}
        self.grads: dict[int, tuple[Tensor, Tensor | None, Tensor | None]] = {}
        self.reads: dict[int, tuple[Tensor, bool, Tensor | None]] = {}
        self.made: list[ref[Traced]] = []
        self.selections: list[ref[Selected]] = []
        self.arguments: dict[int, int] = {}  # id of a traced tensor that stands for an argument -> the argument's position
        self.stand_ins: dict[int, list[Tensor]] = {}  # id of an argument -> tensors that stand for it, one each time it is passed
        self.late = False  # whether a gradient's rule reads tensors that may have changed since the call
        self.managers: dict[int, Any] = {}  # the `GradManager`s that begin or end during the recording
        self.ended: Any = None  # the one of them that began before it
        self.casts: dict = {}  # parameters in other dtypes, for autocast: a value of this recording is used in no other
        self.numbers: set[int] = set()  # ids of objects asked for a number that a run reads as a tensor (`group["lr"]`)
        self._by_id: dict[int, Value] = {}  # by the id of a tensor: two that share memory now may differ later
        self._states: dict[int, State] = {}
        self.gradient_of: dict[int, tuple[str, str | None]] = {}  # see `Executable`
        self._bodies = 0  # how many were recorded
        self._named: dict[str, int] = {}  # a name -> the next number behind it that may be free
        self._checked: set[Value] = set()  # what the graph's checks look at
        self._keep: list = []
        self._written: dict[int, tuple[Tensor, Any, Layout, Any]] = {}

    def __enter__(self) -> Recorder:
        recording_lock.acquire()
        self.begin()
        return self

    def begin(self) -> None:
        """From now on the calling thread's calls come here."""
        self._outer, self._outer_casts = tracing.recorder, casting.begin(self.casts)
        _hidden.take()
        tracing.recorder = self

    def pause(self) -> None:
        """Undoes `begin`."""
        tracing.recorder = self._outer
        self.casts = casting.begin(self._outer_casts)
        _hidden.give_back()

    def __exit__(self, *exc) -> None:
        if exc and exc[0] is not None:
            for manager in self.managers.values():
                if manager is not self.ended and manager.level is not None:  # began in what was not recorded
                    manager.release()
        self.pause()
        for t, data, layout, node in self._written.values():
            t._data, t._layout, t._node = data, layout, node
            on_tape(t)
        for t, before, overflow in self.grads.values():
            t._grad = before
            if isinstance(t, Parameter):
                t.overflow = overflow
        recording_lock.release()

    def called(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Calls the function that is recorded. What it returns has been counted, where it is a selection by a mask."""
        return self.counted(function(*args, **kwargs))

    def counted(self, result: Any) -> Any:
        """What the function returns. Selections by a mask that are left have been counted: those that are returned, and those that are kept."""
        left = [layout for r in self.selections if (layout := r()) is not None]
        if left:
            leaves: list[Tensor] = []
            flatten(result, leaves)
            for t in leaves:
                whole(t)
            for layout in left:
                layout.counted()
        return result

    def argument(self, name: str, like: Tensor, type_: TensorType | None = None) -> Tensor:
        """A stand-in for an argument of the traced function, which lies on the recorder's device. type_: if extents of it are
        open. Errors: TraceError for integers that stand for numbers: a program has types of arguments, and no scales."""
        if getattr(like, "_qparams", None) is not None and holds_codes(like):
            raise TraceError(
                f"{name}, {like._layout.type!r}, is of a quantised dtype, whose scale no program's argument has; help: give what it stands "
                "for, x.astype('float32'), and x.astype(qint8(scale)) inside of the function; or its integers, Tensor(x.numpy())"
            )
        t = traced(self.graph.add_input(name, type_ or like._layout.type))
        t._node = like._node if on_tape(like) else None
        t._grad = getattr(like, "_grad", None)
        self.arguments[id(t)] = len(self.arguments)
        self.stand_ins.setdefault(id(like), []).append(t)
        self._keep.append(t)
        return t

    def seen(self, t: Tensor, node: Any = None) -> Tensor:
        """Another tensor with the value that `t` has now, in the recording and in every run."""
        v = self.value(t)
        return tensor_on_tape(v, t._layout if t._data is v else Traced(v), node)

    # -- called by the dispatcher ----------------------------------------------------------------------------------------
    def record(self, op: Op, inputs: tuple, attrs: tuple):
        """Adds a call to the graph (the body's calls, for a composite), and to the tape where a gradient is being recorded. Where it
        needs two open extents to be equal, that is taken for granted: each run looks at the numbers (`at_extents`)."""
        try:
            return self._record(op, inputs, attrs)
        except Undecided as e:
            if not self.lines or e.equal is None or any(as_int(d) is not None for d in e.equal):
                raise
            shorter, longer = sorted(e.equal, key=terms)
            changed = tuple(None if x is None else _with_extent(x, longer, shorter) for x in inputs)
            if all(x is y for x, y in zip(inputs, changed)):
                raise
        return self.record(op, changed, attrs)

    def _record(self, op: Op, inputs: tuple, attrs: tuple):
        types = [None if x is None else x._layout.type for x in inputs]
        canonical = op.canonical(types, attrs)
        values = [None if x is None else self.value(x) for x in inputs]
        if self.lines and op.rules.check is not None:  # the eager call of a composite has checked what it was given
            self._check(op, inputs, types, attrs)
        if op.kind == "composite":
            out = call_body(op, tuple(None if x is None else x._off_tape() for x in inputs), canonical)
        else:
            out_types = op.infer_types(types, canonical)
            if op.has_bodies:
                canonical = {k: self._own(a) if isinstance(a, Graph) else a for k, a in canonical.items()}
            if self.lines and (of := walking.node) is not None:
                self.gradient_of[len(self.graph.nodes)] = of.op.name, getattr(of, "where", None)
            node = self.graph.add_node(op.name, values, canonical, out_types, self._line() if self.lines else None)
            outs = tuple(traced(v) for v in node.outputs)
            out = outs[0] if len(outs) == 1 else outs
        is_empty = isinstance(out, tuple) and not out  # of a loop or a branch that nobody reads
        if not is_empty and any(x is not None and x._node is not None for x in inputs):
            put_on_tape(op, tuple(None if x is None else self.seen(x, x._node) for x in inputs), attrs, out)
            first = node_of(out[0] if isinstance(out, tuple) else out)[0]
            if self.lines and first is not None and walking.node is None:
                first.where = user_line()
        return out

    def _line(self) -> str | None:
        """The line of a node: of the user's call, or in the gradient of a body that of the op that it is the gradient of."""
        return (getattr(walking.node, "where", None) if self.of_a_body else None) or user_line()

    def _check(self, op: Op, inputs: tuple, types: list, attrs: dict) -> None:
        """What a run must not meet in the operands of a call."""
        known = len(self.graph.checks)
        for v in op.violations(tuple(None if x is None else x._off_tape() for x in inputs), types, attrs):
            bad = self.value(v.bad)
            if bad not in self._checked:
                self.graph.checks.append(Check(bad, v.error.__name__, v.message, user_line()))
        self._checked.update(c.bad for c in self.graph.checks[known:])

    def check(self, bad: Tensor, error: str, message: str, where: str | None) -> None:
        """A run raises this error where `bad`, a bool[], is true."""
        self.graph.checks.append(Check(self.value(bad), error, message, where))

    def value(self, t: Tensor) -> Value:
        """The graph's value for a tensor: a traced one has one; a concrete one is captured."""
        t = whole(t)
        if isinstance(t._data, Value) and (t._layout.graph is self.graph or not t._layout.settle(t)):
            if t._layout.graph is not self.graph:
                raise TraceError(
                    f"a tensor {t._layout.type!r} was made inside another trace; help: return it from that function and pass it on"
                )
            return t._data
        if id(t) not in self._by_id:
            if type(t._layout) is Elsewhere:
                raise TraceError(f"a node {t._layout.type!r} of a graph that is edited has no value; help: call the graph, or its module")
            common_device([self.device, t.device])
            self._keep.append((t, t._data))
            self._by_id[id(t)] = self._capture(t)
        return self._by_id[id(t)]

    def _capture(self, t: Tensor) -> Value:
        if self.constants:
            v = self.add_constant(getattr(t, "name", None) or "captured", _values(t), t._layout.type)
            self.baked[v.name] = t
            return v
        name = self._fresh(getattr(t, "name", None) or f"captured{len(self.captured)}")
        read = self.graph.add_state(name, t._layout.type)
        self._states[id(t)] = self.graph.states[name]
        self.captured.append(t)
        return read

    def _fresh(self, hint: str) -> str:
        g, i = self.graph, self._named.get(hint, 0)
        name = f"{hint}_{i}" if i else hint
        while name in g.states or name in g.constants or any(v.name == name for v in g.inputs):
            i += 1
            name = f"{hint}_{i}"
        self._named[hint] = i + 1
        return name

    def _own(self, body: Graph) -> Graph:
        """A body with names of its own for its constants: the same one may be called several times."""
        self._bodies += 1
        return with_constants_named(body, lambda name: f"body{self._bodies}.{name}")

    def add_constant(self, hint: str, data: np.ndarray, t: TensorType) -> Value:
        """A constant under a name of its own."""
        return self.graph.add_constant(f"{hint}.{len(self.graph.constants)}", data, t)

    def literal(self, value, d: DType) -> Tensor:
        """A Python number as a constant of the graph."""
        return traced(self.add_constant("k", np.asarray(value, d.numpy), TensorType((), d)))

    def constant(self, array: np.ndarray, t: TensorType) -> Tensor:
        """A traced tensor of data that was made during the recording, and is the same in every run."""
        return traced(self.add_constant("c", np.array(array), t))

    def known_data(self, t: Tensor) -> np.ndarray | None:
        """The data of a constant of the graph."""
        c = self.graph.constants.get(t._data.name) if isinstance(t._data, Value) and t._layout.graph is self.graph else None
        return None if c is None or c.value is not t._data else c.data

    def by_mask(self, x: Tensor, mask: Tensor, value: Tensor | None = None) -> Tensor | None:
        """``x[mask]``, or with a value a copy of x that has it at [mask]; None where the selected elements must be counted."""
        is_computed = isinstance(mask._data, Value) and mask._layout.graph is self.graph and mask._layout.done is None
        return by_mask(x, mask, value) if is_computed else None

    def computes_the_same(self, a: Value, b: Value) -> bool:
        """Whether two values are equal in every run, as those of two calls ``x > 0`` are while x is not changed in between."""
        todo: list[tuple[Value | None, Value | None]] = [(a, b)]
        seen: set[tuple[int, int]] = set()
        while todo:
            v, w = todo.pop()
            if v is w or (id(v), id(w)) in seen:
                continue
            seen.add((id(v), id(w)))
            made, as_well = (None if u is None else self.call_of(u) for u in (v, w))
            if made is None or as_well is None or made[0] != as_well[0] or len(made[1]) != len(as_well[1]):
                return False
            todo += zip(made[1], as_well[1])
        return True

    def call_of(self, v: Value) -> tuple[Any, Sequence[Value | None]] | None:
        """(what computes a value, of which operands); None where no call does that always computes the same."""
        if v.node is None:
            c = self.graph.constants.get(v.name)
            known = c is not None and c.value is v and c.data is not None and c.data.size == 1
            return (("constant", v.type, c.data.tobytes()), ()) if known else None
        if lookup(v.node.op).rules.effect:
            return None
        return (v.node.op, v.index, tuple([(k, attr_key(a)) for k, a in v.node.attrs.items()])), v.node.inputs

    def assign(self, target: Tensor, value: Tensor) -> bool:
        """Gives a concrete tensor, which becomes a state, another value. Returns false, and does nothing, for a traced one,
        which can simply take the value."""
        if id(target) in self.arguments:
            raise TraceError(
                f"{user_line()}: argument {self.arguments[id(target)]} ({target._layout.type!r}) is changed in place inside a trace, "
                "which the caller would not see; help: work on a copy (x = x + 0) and return it"
            )
        if isinstance(target._data, Value) and id(target) not in self._written:
            if target._layout.graph is self.graph or not settled(target):
                return False
        if value._layout.type is not target._layout.type:
            raise TraceError(
                f"a tensor of type {target._layout.type!r} was given a value of type {value._layout.type!r} inside a trace; "
                "help: a traced program updates its state in place, so shape and dtype must stay"
            )
        if self.constants:
            raise TraceError("a tensor is changed inside a trace with capture_as_const=True, or in processing; help: compute a new one")
        v = self.value(value)
        if id(target) not in self._written:
            self.value(target)
            self._written[id(target)] = (target, target._data, target._layout, target._node)
        target._data, target._layout, target._node = v, Traced(v), kept_place(target, value._node)
        return True

    def read_grad(self, t: Tensor, g: Tensor | None) -> None:
        """`t.grad` was read: if it is concrete, later runs must read it anew."""
        if id(t) in self.grads or self._local(t):
            return
        self.reads.setdefault(id(t), (t, g is not None, getattr(t, "overflow", None)))
        if g is not None and not isinstance(g._data, Value):
            self.owners[id(g)] = t

    def write_grad(self, t: Tensor, before: Tensor | None) -> None:
        """`t.grad` is about to be set."""
        if self._local(t):
            return
        self.grads.setdefault(id(t), (t, before, getattr(t, "overflow", None)))

    def _local(self, t: Tensor) -> bool:
        """Whether a tensor was made while recording, so that runs know nothing of it."""
        return isinstance(t._data, Value) and id(t) not in self.arguments and id(t) not in self._written

    def walks(self, manager: Any) -> None:
        """A `GradManager` is about to compute gradients, and ends."""
        if id(manager) in self.managers:
            return
        if self.ended is not None:
            self._goes_outside()
        self.walks_to_leaves()
        self.ended = self.managers[id(manager)] = manager

    def walks_to_leaves(self) -> None:
        """`backward` of a tensor is about to compute gradients."""
        outside = [*(t for ts in self.stand_ins.values() for t in ts), *self.captured]
        if any(on_tape(t) and node_of(t)[0].op is not None for t in outside):
            self._goes_outside()

    def _goes_outside(self) -> NoReturn:
        raise TraceError(
            f"{user_line()}: backward() goes back into what was calculated before the traced function was called, which runs of the "
            "trace would not calculate anew; help: `with gm:` and gm.backward() are both inside of the traced function, or both outside"
        )

    def open(self, outputs: Sequence[Tensor]) -> bool:
        """Whether a gradient that is recorded outside may be asked for through the outputs, or through what was written."""
        return self.writes_on_tape() or any(on_tape(t) for t in outputs)

    def writes_on_tape(self) -> bool:
        """Whether a concrete tensor was given a value that a gradient may be asked for through."""
        return any(on_tape(t) for t, *_ in self._written.values() if leaf_of(t) is None)

    def changes(self) -> bool:
        """Whether a concrete tensor was written."""
        return bool(self._written)

    # -- the result ------------------------------------------------------------------------------------------------------
    def finish(self, outputs: Sequence[tuple[str, Tensor]]) -> Graph:
        """Closes the graph."""
        for manager in self.managers.values():
            if manager.level is not None:
                manager.release()
                raise TraceError(
                    "a GradManager began to record inside of the trace, and did not end there, so that it would know nothing of what runs "
                    "of the trace compute; help: `with gm:` and gm.backward() are both inside of the traced function, or both outside"
                )
        for target, *_ in self._written.values():
            state = self._states[id(target)]
            state.written = None if target._data is state.read else target._data
        for name, t in outputs:
            self.graph.add_output(name, self.value(t))
        return self.graph


def _with_extent(x: Tensor, old: Expr, new: Expr) -> Tensor:
    """A tensor with another name for an extent. A reshape for each axis says that the two are equal."""
    for axis, d in enumerate(x._layout.type.shape):
        if d is old:
            shape = x._layout.type.shape
            x = dispatch.run(lookup("reshape"), (x,), ((*shape[:axis], new, *shape[axis + 1 :]),))
    return x


def _values(t: Tensor) -> np.ndarray:
    """A tensor's values, which do not change: its own memory (also that of a mapped file), as a later write of the tensor makes
    a copy; or a copy of memory that another library owns."""
    a = t.numpy()
    foreign = native.borrowed(t._data) and not mapped.is_mapped(a)
    return np.array(a) if foreign or not a.flags.c_contiguous else a


def composite_plan(
    op: Op, layouts: Sequence[Layout | None], attrs: dict, over: tuple[int, ...] = (), alone: bool = False
) -> Plan:
    """The plan of an eager call of a composite, whose body is recorded for the pattern, optimised, and compiled, or of a loop or a
    branch, whose bodies are recorded already.

    Args:
        over: positions of operands that the results are stored over; they are dense, in logical order. The call takes them
            after the others, in the order of the operands, and returns nothing.
        alone: whether the program is for the numbers of this call alone.
    """
    device = plans.device_of(layouts)
    arrays = [None if a is None else a.array(("in", i)) for i, a in enumerate(layouts)]

    def make(call: plans.Numbered, target: Target) -> tuple[Program, list[Array]]:
        return _composite_program(op, device, call.arrays, call.attrs, call.names, over, target)

    (program, outs), names, values = plans.by_pattern(op, device, attrs, arrays, make, alone=alone, how=over)
    number = lambda e: value_of(e, names, values)
    found = [Layout(tuple(map(number, o.shape)), o.dtype, tuple(map(number, o.strides)), device) for o in outs]
    constants = [new_buffer(dense(program.data[id])[0], device) for id in program.constants]
    n = sum(a is not None for a in arrays)
    if program.checks:
        found.append(Layout((len(program.checks),), bool_, None, device))
    plan = plans.finish_plan(program, n + len(constants), found, values)
    if program.checks:
        plan = _checked(plan, program.checks)
    if constants:
        call = plan.call
        plan = Plan(lambda *data: call(*data, *constants), plan.layouts)
    if not values or over:
        return plan
    return plans.specialise_when_hot(plan, functools.partial(composite_plan, op, layouts, attrs, alone=True), device)


def _checked(plan: Plan, checks: Sequence[Check]) -> Plan:
    """The plan of a program whose last result is those of its checks, which are looked at after each call."""
    *layouts, flags = plan.layouts

    def call(*data: Any) -> Any:
        *made, found = plan.call(*data) if layouts else (plan.call(*data),)
        violated = array_over(found, flags)
        if violated.any():
            c = checks[int(violated.argmax())]
            raise getattr(errors, c.error)(c.message)
        return made[0] if len(made) == 1 else tuple(made)

    return Plan(call, tuple(layouts))


def _composite_program(
    op: Op, device: Device, arrays: Sequence[Array | None], attrs: dict, names: list[Expr], over: tuple[int, ...], target: Target
) -> tuple[Program, list[Array]]:
    rec = Recorder(op.name, constants=True, lines=False, device=device)
    with rec:
        xs = []
        placed = {}
        for i, a in enumerate(arrays):
            if a is None:
                xs.append(None)
            elif i in over:
                xs.append(traced(rec.graph.add_state(f"state{i}", TensorType(a.shape, a.dtype))))
            else:
                v = rec.graph.add_input(f"x{len(placed)}", TensorType(a.shape, a.dtype))
                placed[v] = a
                xs.append(traced(v))
        out = rec.record(op, tuple(xs), tuple(attrs.values())) if op.has_bodies else call_body(op, tuple(xs), attrs)
        outs = out if isinstance(out, tuple) else (out,)
        for i, o in zip(over, outs):
            rec.graph.states[f"state{i}"].written = rec.value(o)
        outs = () if over else outs
        graph = rec.finish([(f"output{i}", o) for i, o in enumerate(outs)])
    return compiler.driver.compile_graph(graph, placed, names, op.name, target, log_launches=plans.recording(), device=device)

