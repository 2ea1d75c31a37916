"""Calls of ops as they are made: what each one is as a graph is found once, by the op, its attributes and the types of its
operands, so that recording a call again takes a look into a table.

In: calls, with values in place of tensors. Out: a key by which the same sequence of calls is found again, or one graph of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base.device import Device
from tengen.base.dtype import DType
from tengen.base.record import NamedTuple
from tengen.ir.graph import Check, Graph, Value, attr_key
from tengen.ir.rewrite import with_constants_named
from tengen.ir.types import TensorType
from tengen.ops.define import Op
from tengen.tensor import Tensor, from_numpy
from tengen.tensor.recorder import Recorder, traced

MOST = 4096  # templates that are kept

Source = Tensor | tuple[Any, DType]  # a tensor that calls read, or a Python number and its dtype


class Template:
    """A call as a graph of its own.

    Attributes:
        graph: inputs are the operands that are there. types: of the outputs. single: whether the call gives a tensor, not a tuple of them.
        constants: what its constants are. exact: the key of its attributes, where a zero is among them.
    """

    __slots__ = ("graph", "types", "single", "constants", "exact", "checks")

    def __init__(self, graph: Graph, types: list[TensorType], single: bool, constants: dict[Value, Source], exact: Any):
        self.graph, self.types, self.single, self.constants, self.exact = graph, types, single, constants, exact
        self.checks = len(graph.checks)


class _TemplateRecorder(Recorder):
    """Records one call. numbers: Python numbers among the constants."""

    def __init__(self, name: str, device: Device):
        super().__init__(name, constants=True, device=device)
        self.numbers: dict[Value, Source] = {}

    def literal(self, value: Any, d: DType) -> Tensor:
        t = super().literal(value, d)
        self.numbers[t._data] = (value, d)
        return t


_templates: dict[str, dict[tuple, Template]] = {}


def templates(device: Device) -> dict[tuple, Template]:
    """The templates for a device, by op, attributes and types of operands. 0.0 and -0.0 are equal attributes: see `Template.exact`."""
    return _templates.setdefault(device.name, {})


def template(op: Op, types: tuple, attrs: tuple, device: Device) -> Template:
    """The template of a call, which is kept. types: of the operands; None for one that is absent."""
    rec = _TemplateRecorder(op.name, device)
    with rec:
        operands = [None if t is None else traced(rec.graph.add_input(f"x{i}", t)) for i, t in enumerate(types)]
        out = rec.record(op, tuple(operands), attrs)
        outs = out if isinstance(out, tuple) else (out,)
        graph = rec.finish([(f"y{i}", o) for i, o in enumerate(outs)])
    constants = {c.value: rec.numbers.get(c.value) or from_numpy(c.data, device=device) for c in graph.constants.values()}
    exact = attr_key(attrs) if any(map(_zero, attrs)) else None
    made = Template(graph, [v.type for v in graph.outputs], not isinstance(out, tuple), constants, exact)
    known = templates(device)
    if len(known) >= MOST:
        known.clear()
    try:
        known[op, attrs, types] = made
    except TypeError:  # an attribute without a hash
        pass
    return made


def _zero(a: Any) -> bool:
    return any(map(_zero, a)) if isinstance(a, tuple) else isinstance(a, (float, complex)) and a == 0


def of_numbers(d: DType) -> TensorType:
    """The type of a Python number as a tensor."""
    t = _of_numbers.get(id(d))  # dtypes stay, and their own hash takes a call
    if t is None:
        t = _of_numbers[id(d)] = TensorType((), d)
    return t


_of_numbers: dict[int, TensorType] = {}


class Call(NamedTuple):
    """A call, or, without a template, a check of its only operand.

    Attributes:
        line: the user's, for its checks. check: (error, message)
    """

    template: Template | None
    operands: tuple[Value | None, ...]
    outs: list[Value]
    line: str | None
    check: tuple[str, str] | None = None


class Calls:
    """Calls in order, and what they read. checks: how many of the operands' values they make.

    Attributes:
        sources: what each value is that no call gives.
    """

    def __init__(self) -> None:
        self.made: list[Call] = []
        self.sources: dict[Value, Source] = {}
        self.checks = 0

    def numbered(self) -> tuple[Any, dict[Value | None, int], list[Source]]:
        """(a key that is equal for calls that compute the same, a number for each value, the sources in the order in which they
        are read)."""
        number: dict[Value | None, int] = {None: -1}
        given: list[Source] = []
        kinds: list[Any] = []
        sequence: list[Any] = []
        for c in self.made:
            for v in c.operands:
                if v not in number:
                    number[v] = len(number)
                    s = self.sources[v]
                    given.append(s)
                    kinds.append(s[1] if type(s) is tuple else s._layout.type)
            sequence.append((c.template, tuple([number[v] for v in c.operands]), c.line, c.check))
            for v in c.outs:
                number[v] = len(number)
        return (tuple(sequence), tuple(kinds)), number, given


def expanded(name: str, calls: Calls) -> tuple[Graph, dict[Value, Source], dict[Value, Value]]:
    """(the graph of all calls, what its sources are, the value of the graph for each value of the calls)."""
    g, given = Graph(name), dict(calls.sources)
    to: dict[Value, Value] = {v: v for v in given}
    bodies = 0
    for c in calls.made:
        t = c.template
        if t is None:
            assert c.check is not None and c.operands[0] is not None
            g.checks.append(Check(to[c.operands[0]], *c.check, c.line))
            continue
        at = dict(zip(t.graph.inputs, [to[v] for v in c.operands if v is not None]))
        for v, s in t.constants.items():
            at[v] = Value(v.type)
            given[at[v]] = s
        for n in t.graph.nodes:
            attrs = n.attrs
            if any(type(a) is Graph for a in attrs.values()):
                bodies += 1
                attrs = {k: _renamed(a, bodies) if type(a) is Graph else a for k, a in attrs.items()}
            made = g.add_node(n.op, [None if v is None else at[v] for v in n.inputs], attrs, [v.type for v in n.outputs])
            at.update(zip(n.outputs, made.outputs))
        g.checks += [Check(at[k.bad], k.error, k.message, c.line) for k in t.graph.checks]
        to.update(zip(c.outs, [at[v] for v in t.graph.outputs]))
    return g, given, to


def _renamed(body: Graph, i: int) -> Graph:
    return with_constants_named(body, lambda name: f"call{i}.{name}")


def values_of(source: Source) -> np.ndarray:
    """The values of what a call reads."""
    return np.asarray(source[0], source[1].numpy) if type(source) is tuple else source.numpy()
