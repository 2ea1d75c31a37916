"""The recorder: while it is active, calls of ops become nodes of a graph instead of running.

`jit.trace` records users' functions with it, and eager dispatch records the body of a composite op, so that the composite runs as
one fused program. A concrete tensor that the recorded code touches becomes a named state of the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import TraceError
from tengen.codegen.target import Target
from tengen.ir.graph import Graph, State, Value
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.loops.lang import Expr
from tengen.ops.define import Op
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize
from tengen.runtime import eager, native
from tengen.runtime.eager import Layout, Plan
from tengen.runtime.program import Program, build
from tengen.tensor import Tensor, _new, plan_maker, record, tracing
from tengen import tensor as tensor_module

PACKAGE = str(Path(__file__).parent)


class Traced:
    """What stands in for a `Layout` while recording: the type alone; memory comes later."""

    __slots__ = ("shape", "dtype", "type", "size", "strides", "contiguous")

    def __init__(self, t: TensorType):
        self.type, self.shape, self.dtype = t, t.shape, t.dtype
        self.size, self.strides, self.contiguous = product(t.shape), contiguous_strides(t.shape), True


def traced(v: Value) -> Tensor:
    """A tensor that stands for a value of the graph."""
    t = _new(Tensor)
    t._data, t._layout, t._node = v, Traced(v.type), None
    return t


def user_line() -> str | None:
    """The caller's "file:line" outside the package."""
    f = sys._getframe(1)
    while f is not None and f.f_code.co_filename.startswith(PACKAGE):
        f = f.f_back
    return f"{f.f_code.co_filename}:{f.f_lineno}" if f is not None else None


class Recorder:
    """Records one graph. Use as a context manager; only one records at a time.

    Attributes:
        graph: what has been recorded. captured: the concrete tensors that are states, in order.
    """

    def __init__(self, name: str = "graph", constants: bool = False, lines: bool = True):
        self.graph = Graph(name)
        self.constants = constants  # capture tensors as constants instead of states
        self.lines = lines
        self.captured: list[Tensor] = []
        self._states: dict[int, State] = {}
        self._known: dict[int, Value] = {}
        self._keep: list[Tensor] = []
        self._written: dict[int, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> Recorder:
        self._outer = tracing.recorder
        self._plans = tensor_module._plans
        self._tables = [dict(t) for t in tensor_module.binary_tables]
        tracing.recorder = self
        tensor_module._plans = {}
        for t in tensor_module.binary_tables:
            op = t["op"]
            t.clear()
            t["op"] = op
        return self

    def __exit__(self, *exc) -> None:
        tracing.recorder = self._outer
        tensor_module._plans = self._plans
        for t, old in zip(tensor_module.binary_tables, self._tables):
            t.update(old)

    # -- called by the dispatcher ----------------------------------------------------------------------------------------
    def record(self, op: Op, inputs: tuple, attrs: tuple):
        """Adds a call to the graph (the body's calls, for a composite), and to the tape where a gradient is being recorded."""
        types = [None if x is None else x._layout.type for x in inputs]
        canonical = op.canonical(types, attrs)
        if op.kind == "composite":
            off_tape = tuple(None if x is None else x.detach() for x in inputs)
            out = op.fn(list(off_tape), **canonical) if op.variadic and op.tensors != ("args",) else (
                op.fn(*off_tape, **canonical))  # fmt: skip
        else:
            out_types = op.infer_types(types, canonical)
            values = [None if x is None else self.value(x) for x in inputs]
            node = self.graph.add_node(op.name, values, canonical, out_types, user_line() if self.lines else None)
            outs = tuple(traced(v) for v in node.outputs)
            out = outs[0] if len(outs) == 1 else outs
        if any(x is not None and x._node is not None for x in inputs):
            record(op, inputs, attrs, out)
        return out

    def value(self, t: Tensor) -> Value:
        """The graph's value for a tensor: a traced one has one; a concrete one is captured."""
        if isinstance(t._data, Value):
            return t._data
        if id(t) in self._written:
            return self._written[id(t)][1]._data
        if id(t) in self._known:
            return self._known[id(t)]
        return self._capture(t)

    def _capture(self, t: Tensor) -> Value:
        self._keep.append(t)
        if self.constants:
            v = self.graph.add_constant(np.array(t.numpy()), t._layout.type, getattr(t, "name", None) or "c")
        else:
            state = self.graph.add_state(t._layout.type, getattr(t, "name", None) or f"captured{len(self.captured)}")
            self._states[id(t)] = state
            self.captured.append(t)
            v = state.read
        self._known[id(t)] = v
        return v

    def literal(self, value, d: DType) -> Tensor:
        """A Python number as a constant of the graph."""
        return traced(self.graph.add_constant(np.asarray(value, d.numpy), TensorType((), d), "k"))

    def constant(self, array: np.ndarray, t: TensorType) -> Tensor:
        """Data made while recording: it is the same in every run."""
        return traced(self.graph.add_constant(array, t, "c"))

    def assign(self, target: Tensor, value: Tensor) -> bool:
        """target._reset(value) while recording. False: the target itself is traced, and simply takes the value."""
        if isinstance(target._data, Value):
            return False
        if value._layout.type is not target._layout.type:
            raise TraceError(
                f"a state of type {target._layout.type!r} was given a value of type {value._layout.type!r} inside a trace; "
                "help: a traced program updates its state in place, so shape and dtype must stay"
            )
        if self.constants:
            raise TraceError("a tensor is changed inside a trace with capture_as_const=True; help: trace without it")
        self.value(target)
        if not isinstance(value._data, Value):
            value = traced(self.value(value))
        self._written[id(target)] = (target, value)
        return True

    # -- the result ------------------------------------------------------------------------------------------------------
    def finish(self, outputs: Sequence[tuple[str, Tensor]]) -> Graph:
        """Closes the graph."""
        for key, (_, value) in self._written.items():
            state = self._states[key]
            state.written = None if value._data is state.read else value._data
        for name, t in outputs:
            self.graph.add_output(self.value(t), name)
        return self.graph


def composite_plan(op: Op, layouts: Sequence[Layout | None], attrs: dict) -> Plan:
    """The plan of an eager call of a composite: its body, recorded for the pattern, fused, and compiled."""
    arrays = [None if a is None else a.array(("in", i)) for i, a in enumerate(layouts)]
    sym = eager._Symbols()
    named = [None if a is None else eager._named(a, sym) for a in arrays]

    def make(arrays_: Sequence[Array | None], names: list[Expr]) -> tuple[Program, list[Array]]:
        return _composite_program(op, arrays_, attrs, names)

    program, outs, values = eager.by_pattern(op, attrs, arrays, named, sym, make)
    found = [
        Layout(tuple(eager.number(d, sym, values) for d in o.shape), o.dtype, tuple(eager.number(s, sym, values) for s in o.strides))
        for o in outs
    ]
    return eager.finish_plan(program, sum(a is not None for a in arrays), found, values)


def _composite_program(op: Op, arrays: Sequence[Array | None], attrs: dict, names: list[Expr]) -> tuple[Program, list[Array]]:
    rec = Recorder(op.name, constants=True, lines=False)
    with rec:
        xs = []
        placed = {}
        for a in arrays:
            if a is None:
                xs.append(None)
                continue
            v = rec.graph.add_input(TensorType(a.shape, a.dtype))
            placed[v] = a
            xs.append(traced(v))
        out = op.fn(xs, **attrs) if op.variadic and op.tensors != ("args",) else op.fn(*xs, **attrs)
        outs = out if isinstance(out, tuple) else (out,)
        graph = rec.finish([(f"output{i}", o) for i, o in enumerate(outs)])
    return compile_graph(graph, placed, names, op.name)


def compile_graph(graph: Graph, placed: dict[Value, Array] | None, names: list[Expr], name: str, target: Target | None = None):
    """Passes, lowering, memory plan, machine code. Buffers: inputs, states, large constants; outputs. See `program.build`."""
    placed = dict(placed or {})
    order = {v.name: placed[v] for v in graph.inputs if v in placed}
    graph = optimize(graph)
    lo, outs = lower(graph, target or Target.host(), names, {v: order[v.name] for v in graph.inputs if v.name in order})
    ids = [placed_id for placed_id in (order[v.name].id if v.name in order else ("in", i) for i, v in enumerate(graph.inputs))]
    ids += [("state", i) for i in range(len(graph.states))]
    ids += [("const", v.name) for v in graph.constants]
    program = build(lo, ids, [("out", i) for i in range(len(outs))], name)
    program.graph = graph
    return program, [outs[i] for i in range(len(outs))]


def _unused(_: Callable) -> None:
    raise TraceError("not reached")


plan_maker["composite"] = composite_plan
_ = native
