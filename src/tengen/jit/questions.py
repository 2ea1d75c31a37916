"""The recorder of functions that may ask for values: a question runs what is recorded, and recording goes on behind it.

In: the calls of ops of one call of a traced function. Out: tensors that have values when they are asked for them, and when the
call has ended. What is recorded changes tensors as eager calls do: one that is written takes the new value, and other holders of
the old one keep that. `parts.py` finds and runs the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from tengen.base.device import Device, common_device
from tengen.base.dtype import DType
from tengen.base.errors import TraceError, user_line
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ir.graph import Value, attr_key
from tengen.ir.types import TensorType
from tengen.jit.arguments import Copies
from tengen.jit.calls import Call, Calls, Template, of_numbers, template, templates, values_of
from tengen.jit.guards import Watch
from tengen.jit.leaks import kept, references
from tengen.jit.parts import Parts, Sequenced, Whole
from tengen.ops.define import Op
from tengen.tensor import Parameter, Tensor, from_numpy
from tengen.tensor.batched import Batched
from tengen.tensor.casting import casting
from tengen.tensor.eager import put_on_tape
from tengen.tensor.recorder import Recorder, Traced, recording_lock
from tengen.tensor.structure import flatten, mapped, objects_of
from tengen.tensor.tensor import number, tensor_on_tape, tensor_over


class Cut(BaseException):
    """A call was run in parts to its end, because the function has asked for a value.

    Attributes:
        result: what it returned. error: what it raised in place of that. arguments: what it was given in place of the caller's arguments; None:
            it was given those.
    """

    def __init__(self, result: Any, error: BaseException | None = None, arguments: Copies | None = None):
        super().__init__()
        self.result, self.error, self.arguments = result, error, arguments

    def ended(self, args: tuple, kwargs: dict) -> Any:
        """What the call returns, or raises. The caller's arguments are changed as the function has changed what it was given."""
        if self.arguments is not None:
            self.arguments.give_back((args, kwargs))
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # which refers to this frame
        return self.result


class PartsRecorder(Recorder):
    """Records a call, and runs what it has recorded when a value is asked for.

    With a watch the call is first recorded as a whole, with stand-ins for the arguments, as `Recorder` does; the first question
    turns it into one that is run in parts, and the call ends with `Cut`. So does, at the end, what runs of the program would not repeat: a
    variable that the function has changed, a tensor that it has kept, a random number of Python's.

    Attributes:
        whole: whether nothing was asked for yet in such a call. copies: the arguments of such a call. cuts: the lines that asked, in order.
    """

    answers = True

    def __init__(self, parts: Parts, device: Device, constants: bool = False, watch: Watch | None = None):
        super().__init__(parts.name, constants=constants, device=device)
        self._parts, self._watch, self.whole = parts, watch, watch is not None
        self.observer = None if watch is None else watch.observer
        self._is_recorded = self.whole  # and not called because it is known to ask for values
        self.cuts: list[str | None] = []
        self.copies: Copies | None = None
        self._calls = Calls()
        self._templates = templates(device)
        self._numbers: dict[Value, tuple[Any, DType]] = {}  # Python numbers, of what was recorded as a whole
        self._first: Whole | None = None  # what was recorded as a whole, until it is run
        self._memory: dict[Any, Value] = {}  # what tensors of a memory and a layout are as sources
        self._seen: list[ref[Tensor]] = []  # tensors that may stand for values
        self._arguments: list[tuple[Tensor, Tensor]] = []  # with their stand-ins
        self._changes: list[tuple[int, Callable[[], None]]] = []  # (checks before a change, what undoes it)
        self._changed: dict[tuple[int, str], int] = {}  # after how many checks something was changed last
        self._assigned: set[int] = set()

    def __enter__(self) -> PartsRecorder:
        if self.whole:
            super().__enter__()
        else:
            self.begin()
        return self

    def __exit__(self, *exc) -> None:
        if self.whole:
            super().__exit__(*exc)
        else:
            self.pause()

    def called(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        error, box = None, [None]  # a list, so that no variable holds the result
        before = references([s for _, s in self._arguments])
        try:
            box[0] = self.counted(function(*args, **kwargs))
        except BaseException as e:
            if self.whole:
                raise
            error = e  # what was called until now is done, as eager calls are
        if self.whole:
            if (where := self._effect(box, before)) is None:
                return box[0]
            self._parts.effects[where] += 1
            self._end_of_whole()
        result = box[0]
        casting.begin()
        try:
            self._run(None, compiling=error is None)
        except BaseException as e:
            error = e
        if error is None:
            self._parts.warn_of_many(self.cuts)
        try:
            raise Cut(self._give_back(result) if self._is_recorded else result, error)
        finally:
            del error  # which refers to this frame

    # -- what the dispatcher calls ---------------------------------------------------------------------------------------
    def record(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        if not self.whole:
            if (out := self.again(op, inputs, attrs)) is not None:
                return out
            types = tuple([None if x is None else x._layout.type for x in inputs])
            return self._add(template(op, types, attrs, self.device), op, inputs, attrs)
        assert self.observer is not None
        resume = self.observer.pause()
        try:
            out = super().record(op, inputs, attrs)
        finally:
            resume()
        for t in out if isinstance(out, tuple) else (out,):
            self._seen.append(ref(t))
        return out

    def again(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """Records a call like one that was recorded before; None where there is none, or an operand is no tensor."""
        if self.whole:
            return None
        try:
            found = self._templates[op, attrs, tuple([None if x is None else x._layout.type for x in inputs])]
        except (KeyError, AttributeError, TypeError):  # an operand that is no tensor, an attribute without a hash
            return None
        if found.exact is not None and found.exact != attr_key(attrs):
            return None
        for x in inputs:
            if x is not None and type(x._layout) is Batched:
                return None
        return self._add(found, op, inputs, attrs)

    def _add(self, t: Template, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """Adds a call, and puts it on the tape where a gradient is being recorded."""
        calls, checks = self._calls, t.checks
        operands = tuple([None if x is None else self.value(x) for x in inputs])
        outs = [Value(a) for a in t.types]
        calls.made.append(Call(t, operands, outs, user_line() if checks else None))
        calls.checks += checks
        if t.single:
            out: Any = tensor_over(outs[0], Traced(outs[0], self))
            self._seen.append(ref(out))
        else:
            out = tuple([tensor_over(v, Traced(v, self)) for v in outs])
            self._seen += map(ref, out)
        for x in inputs:
            if x is not None and x._node is not None:
                put_on_tape(op, inputs, attrs, out)
                break
        return out

    def argument(self, name: str, like: Tensor, type_: TensorType | None = None) -> Tensor:
        t = super().argument(name, like, type_)
        self._arguments.append((like, t))
        self._seen.append(ref(t))
        return t

    def seen(self, t: Tensor, node: Any = None) -> Tensor:
        if not self.whole and not isinstance(t._data, Value):
            return tensor_on_tape(t._data, t._layout, node)
        made = super().seen(t, node)
        self._seen.append(ref(made))
        return made

    def value(self, t: Tensor) -> Value:
        data = t._data
        if type(data) is Value and t._layout.graph is self.graph:
            return data
        if self.whole or (type(data) is Value and not t._layout.settle(t)):
            return super().value(t)
        key = id(t._data), t._layout  # as long as the part is recorded, the source keeps the memory
        v = self._memory.get(key)
        if v is None:
            common_device([self.device, t.device])
            v = self._memory[key] = Value(t._layout.type)
            self._calls.sources[v] = tensor_over(t._data, t._layout)
        return v

    def literal(self, value: Any, d: DType) -> Tensor:
        if self.whole:
            t = super().literal(value, d)
            self._numbers[t._data] = (value, d)
            return t
        v = Value(of_numbers(d))
        self._calls.sources[v] = (value, d)
        t = tensor_over(v, Traced(v, self))
        self._seen.append(ref(t))
        return t

    def constant(self, array: np.ndarray, t: TensorType) -> Tensor:
        if self.whole:
            return super().constant(array, t)
        return tensor_over(new_buffer(array, self.device), Layout(t.shape, t.dtype, None, self.device))

    def known_data(self, t: Tensor) -> np.ndarray | None:
        if self.whole or not isinstance(t._data, Value) or (s := self._calls.sources.get(t._data)) is None:
            return super().known_data(t)
        return values_of(s)

    def call_of(self, v: Value) -> tuple[Any, Sequence[Value | None]] | None:
        if self.whole or v.node is not None:
            return super().call_of(v)
        if type(s := self._calls.sources.get(v)) is tuple:
            return ("number", s[1], attr_key(s[0])), ()
        for c in reversed(self._calls.made):
            if c.template is not None and v in c.outs:
                return (id(c.template), c.outs.index(v)), c.operands
        return None

    def check(self, bad: Tensor, error: str, message: str, where: str | None) -> None:
        if self.whole:
            return super().check(bad, error, message, where)
        self._calls.made.append(Call(None, (self.value(bad),), [], where, (error, message)))
        self._calls.checks += 1

    def assign(self, target: Tensor, value: Tensor) -> bool:
        if self.whole and (id(target) in self.arguments or isinstance(target._data, Value) and id(target) not in self._written):
            return super().assign(target, value)
        self._note(target, "value", target._data, target._layout, target._node)
        self._assigned.add(id(target))
        self._seen.append(ref(target))
        return self.whole and super().assign(target, value)

    def read_grad(self, t: Tensor, g: Tensor | None) -> None:
        if self.whole:
            super().read_grad(t, g)

    def write_grad(self, t: Tensor, before: Tensor | None) -> None:
        self._note(t, "grad", before, getattr(t, "overflow", None))
        if self.whole:
            super().write_grad(t, before)

    def walks(self, manager: Any) -> None:
        if self.whole:
            super().walks(manager)

    def _effect(self, box: list[Any], before: list[int]) -> str | None:
        """The line of what the call, which was recorded as a whole, has done that runs of a program would not repeat; None: nothing. box: its
        result. before: references to the arguments' stand-ins before the call."""
        assert self._watch is not None
        if self.copies is not None and self.copies.changed():
            return user_line() or "unknown:0"
        if (where := self._watch.effect([*self.captured, *self.baked.values()], self.numbers)) is not None:
            return where
        leaves: list[Tensor] = []
        objects = objects_of(flatten(box, leaves))
        known = Counter(map(id, leaves))  # references of each tensor
        known.update({id(s): n for (_, s), n in zip(self._arguments, before)})
        known.update(id(t._grad) for t, *_ in self.grads.values() if getattr(t, "_grad", None) is not None)
        del leaves
        written = {id(t) for t, *_ in self._written.values()}
        return kept(self._seen, written, known, objects, {id(t) for t, *_ in self.grads.values()})

    # -- questions ---------------------------------------------------------------------------------------------------------
    def _end_of_whole(self) -> None:
        """The call is run in parts from here on."""
        if self.observer is not None:  # nothing of such a call is guarded
            self.observer.__exit__()
            self.observer = None
        if self.whole:
            self._divide()

    def asked(self) -> None:
        """A value is asked for: runs what is recorded, and goes on with nothing recorded."""
        self._end_of_whole()
        where = user_line()
        self.cuts.append(where)
        self._parts.cuts[where] += 1
        self._run(where)

    def _divide(self) -> None:
        """What was recorded as a whole so far becomes the first part. What it has changed is not set back at the end any more."""
        for i, (x, _) in enumerate(self._arguments):
            if id(x) in self._written:
                raise TraceError(
                    f"{user_line()}: a value is asked for behind a change in place of a tensor that the function reaches by itself and "
                    f"that is argument {i} of this call too ({x._layout.type!r}); help: pass another tensor, or a copy (x + 0)"
                )
        self.whole, given = False, self._calls.sources
        given.update(self._numbers)
        for (x, _), v in zip(self._arguments, self.graph.inputs):
            given[v] = tensor_over(x._data, x._layout)
        for t, s in zip(self.captured, self.graph.states.values()):
            _, data, layout, _ = self._written.get(id(t), (t, t._data, t._layout, None))
            given[s.read] = tensor_over(data, layout)
        self.pause()
        for c in self.graph.constants.values():
            if c.value not in given:
                baked = self.baked.get(c.name)
                given[c.value] = from_numpy(c.data, device=self.device) if baked is None else tensor_over(baked._data, baked._layout)
        self.begin()
        self._first = Whole(self.graph, given)
        self._calls.checks = len(self.graph.checks)
        self._written, self.grads, self.reads, self.owners = {}, {}, {}, {}
        self._by_id, self._checked, self._states, self._keep, self.captured, self.constants = {}, set(), {}, [], [], False
        recording_lock.release()

    def _note(self, t: Tensor, what: str, *before: Any) -> None:
        """Something of a tensor is about to be changed. Only the first change behind a check matters."""
        checks, key = len(self.graph.checks) if self.whole else self._calls.checks, (id(t), what)
        if self._changed.get(key) != checks:
            self._changed[key] = checks
            self._changes.append((checks, lambda: _undo(t, what, *before)))

    def _run(self, where: str | None, compiling: bool = True) -> None:
        """Gives all tensors that are still there their values."""
        graph, calls, changes = self.graph, self._calls, self._changes
        work = self._first or Sequenced(self._parts.name, calls)
        there = [x for r in self.made if (x := r()) is not None and x.done is None and x.graph is graph]
        self.graph, self._calls, self._changes, self._first = type(graph)(graph.name), Calls(), [], None
        self.made, self._memory, self._changed = [], {}, {}
        self.pause()
        kept = 0  # changes before what goes wrong
        try:
            wanted = {x.value for x in there if x.value not in calls.sources}
            found, bad, error = self._parts.compute(work, wanted, where, compiling, self.device)
            for x in there:
                s = calls.sources.get(x.value)
                x.done = found[x.value] if s is None else s if isinstance(s, Tensor) else number(*s)
            kept = len(changes) if bad is None else sum(checks <= bad for checks, _ in changes)
        finally:
            for _, undo in reversed(changes[kept:]):
                undo()
            self._settle()
            self.begin()
        if error is not None:
            raise error

    def _settle(self) -> None:
        """Gives tensors the values that were computed of them."""
        seen, self._seen = self._seen, []
        for r in seen:
            t = r()
            if t is not None and isinstance(t._data, Value):
                if t._layout.done is None:
                    self._seen.append(r)
                else:
                    t._data, t._layout = t._layout.done._data, t._layout.done._layout

    def _give_back(self, result: Any) -> Any:
        """Arguments take what their stand-ins have become, and their places in the result."""
        own = {id(s): x for x, s in self._arguments}
        for x, s in self._arguments:
            if id(s) in self._assigned:
                x._data, x._layout, x._node = s._data, s._layout, s._node
            if getattr(s, "_grad", None) is not getattr(x, "_grad", None):
                x._grad = s._grad
        leaves: list[Tensor] = []
        flatten(result, leaves)
        return mapped(result, lambda t: own.get(id(t), t)) if any(id(t) in own for t in leaves) else result


def _undo(t: Tensor, what: str, first: Any, second: Any, third: Any = None) -> None:
    if what == "value":
        t._data, t._layout, t._node = first, second, third
        return
    t._grad = first
    if isinstance(t, Parameter):
        t.overflow = second


def call_in_parts(parts: Parts, function: Callable, args: tuple, kwargs: dict, device: Device) -> NoReturn:
    """Calls a function that is known to ask for values. Raises `Cut`."""
    recorder = PartsRecorder(parts, device)
    with recorder:
        recorder.called(function, args, kwargs)
    raise AssertionError("a call in parts ends with Cut")
