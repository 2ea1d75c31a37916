"""The bodies of loops and branches, recorded as graphs of their own.

In: a Python function of a list of tensors, called once. Out: its graph, with what it reads of what is outside (`Recorded`). A tensor from
outside that a body uses becomes an input of the graph; one that it changes (the state of a generator, a running mean) has its
new value among the outputs. What a run must not meet in a body (an index out of range) is a bool. `control.py` calls such graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from tengen.base.dtype import bool_
from tengen.base.errors import TraceError, VmapError, user_line
from tengen.base.record import record
from tengen.ir.graph import Check, Graph, Value, graph_key
from tengen.ir.rewrite import equal_values
from tengen.ir.types import TensorType
from tengen.ops.define import Op
from tengen.tensor.batched import mapping_of, mappings
from tengen.tensor.nodes import limits, new_limit, node_of
from tengen.tensor.recorder import Recorder, Traced, traced
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Tensor, as_tensor, tensor_over

Body = Callable[[list[Tensor]], Sequence[Tensor]]
BOOL = TensorType((), bool_)
_known: dict[Any, Graph] = {}


class Region(Recorder):
    """Records a body. Tensors from outside become inputs of its graph.

    Attributes:
        outside: by an identity, each tensor from outside that the body reads, and its input. changed: by the same identity, those to
            which it gives another value. begun: the order of what is put on the tape from its beginning on. around: the runs of `vmap` that it
            is inside of. function: what was called in
            it whose own gradient a graph does not hold (a function with `jit.ignore`, or an `autodiff.Function` by its rule for vmap).
        detaches: whether its results are detached also where a `no_grad` around the body is in force.
    """

    of_a_body = True

    def __init__(self, name: str):
        outer = tracing.recorder
        super().__init__(name, device=None if outer is None else outer.device)
        self.outside: dict[int, tuple[Tensor, Value]] = {}
        self.changed: dict[int, Tensor] = {}
        self.begun = new_limit()
        self.around = mappings()
        self.function, self.detaches = "", False

    def take(self, t: TensorType) -> Tensor:
        """A new argument of the body."""
        x = traced(self.graph.add_input(f"x{len(self.graph.inputs)}", t))
        self.arguments[id(x)] = len(self.arguments)
        self._keep.append(x)
        return x

    def _is_inside(self, t: Tensor) -> bool:
        return isinstance(t._data, Value) and t._layout.graph is self.graph

    def value(self, t: Tensor) -> Value:
        if self._is_inside(t):
            return t._data
        if mapping_of(t) not in (None, *self.around):
            raise VmapError(
                f"{user_line()}: the body of a loop or a branch gives {t._layout.type!r}, an example of a vmap inside of it; help: return it "
                "from the function that vmap calls"
            )
        key = id(t._data) if isinstance(t._data, Value) else id(t)  # a traced value may be held by several tensors
        if key not in self.outside:
            self._keep.append((t, t._data))
            held = t if not isinstance(t._data, Value) else tensor_over(t._data, t._layout)
            held._node = t._node
            self.outside[key] = held, self.graph.add_input(self._fresh("outside"), t._layout.type)
        return self.outside[key][1]

    def record(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        out = super().record(op, tuple(None if x is None else self.here(x) for x in inputs), attrs)
        limit = limits.get(get_ident(), 0)
        if op.why_no_vjp is None and limit and (self.detaches or limit > self.begun):  # in a `no_grad`, of the body without `detaches`
            return tuple(t.detach() for t in out) if isinstance(out, tuple) else out.detach()
        return out

    def here(self, x: Tensor) -> Tensor:
        """A tensor as the body sees it: on the tape where a gradient was begun in the body alone. Gradients that are recorded
        outside go through the loop as a whole, by its own rule."""
        if self._is_inside(x):
            return x
        v = self.value(x)
        seen = tensor_over(v, Traced(v))
        node = node_of(x)[0]
        seen._node = x._node if node is not None and node.order > self.begun else None
        return seen

    def operand(self, x: Tensor | None) -> Tensor | None:
        """What is an example of a `vmap` around the body is an operand of the loop or the branch, and plain in the body."""
        return self.here(x) if x is not None and mapping_of(x) in self.around else x

    def assign(self, target: Tensor, value: Tensor) -> bool:
        if id(target) not in self._written and not self._is_inside(target):
            key = id(target._data) if isinstance(target._data, Value) else id(target)
            self.value(target)
            self.changed[key] = target
            self._written[id(target)] = (target, target._data, target._layout, target._node)
        elif id(target) not in self._written:
            return super().assign(target, value)
        if value._layout.type is not target._layout.type:
            raise TraceError(
                f"a tensor of type {target._layout.type!r} was given a value of type {value._layout.type!r} inside of a loop or a branch; "
                "help: what it changes keeps its shape and dtype"
            )
        v = self.value(value)
        target._data, target._layout, target._node = v, Traced(v), None
        return True

    def _refuse_grad(self) -> None:
        raise TraceError(
            f"{user_line()}: the body of a loop or a branch reads or sets the grad of a tensor; help: gradients inside of a body are "
            "computed by autodiff.grad and its siblings, which return them"
        )

    def read_grad(self, t: Tensor, g: Tensor | None) -> None:
        self._refuse_grad()

    def write_grad(self, t: Tensor, before: Tensor | None) -> None:
        self._refuse_grad()

    def walks(self, manager: Any) -> None:
        self._refuse_grad()

    def kept(self, x: Tensor) -> Tensor:
        """A tensor with the value that x has now: x itself, unless it comes from outside and is changed, which ends with the body."""
        if not any(x is t for t in self.changed.values()):
            return x
        kept = tensor_over(x._data, x._layout)
        kept._node = x._node
        return kept


def shared(body: Graph) -> Graph:
    """Of equal bodies of the same lines the first one, so that calls are found by it."""
    if len(_known) > 4096:
        _known.clear()
    lines = tuple(n.where for g in body.graphs() for n in g.nodes)
    return _known.setdefault((graph_key(body), lines), body)


def _distinct(graph: Graph) -> list[Check]:
    """A graph's checks, of those that ask the same the first: a loop carries a bool for each."""
    same, found = equal_values(graph) if graph.checks else {}, {}
    for c in graph.checks:
        found.setdefault(same.get(c.bad, c.bad), c)
    return list(found.values())


@record
class Recorded:
    """A body: `arguments` -> `results`, with what it reads and changes of what is outside."""

    graph: Graph
    arguments: list[Value]
    results: list[Value]
    outside: dict[int, tuple[Tensor, Value]]
    changes: dict[int, tuple[Tensor, Value]]  # by the same identity: what is changed, and its new value
    checks: list[Check]
    function: str

    def closed(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """The graph with these inputs and outputs; see `shared`."""
        g = self.graph
        g.inputs, g.outputs, g.output_names = list(inputs), list(outputs), [f"y{i}" for i in range(len(outputs))]
        return shared(g)

    def noted(self) -> tuple[list[Value], list[Value]]:
        """For each check an input, whether it was violated before, and an output, whether it is now."""
        before = [self.graph.add_input(f"violated{i}", BOOL) for i in range(len(self.checks))]
        now = [self.graph.add_node("logical_or", [b, c.bad], {}, [BOOL], c.where).outputs[0] for b, c in zip(before, self.checks)]
        return before, now

    def none_of(self, flag: Value, bad: Sequence[Value]) -> Value:
        """A bool that holds where `flag` does, and none of the others."""
        for b in bad:
            holds = self.graph.add_node("logical_not", [b], {}, [BOOL]).outputs[0]
            flag = self.graph.add_node("logical_and", [flag, holds], {}, [BOOL]).outputs[0]
        return flag

    def input(self, name: str, key: int, t: Tensor) -> Value:
        """The input that stands for a tensor from outside, also where the body does not read it."""
        return self.outside[key][1] if key in self.outside else self.graph.add_input(name, t._layout.type)


def recorded(name: str, body: Body, types: Sequence[TensorType], detaches: bool = False) -> Recorded:
    """Calls a body once, with tensors of these types."""
    draft = Draft(name, body, types, detaches)
    return draft.finished(draft.made)


class Draft:
    """A body that has been called, and may go on being recorded: the results are not fixed yet.

    Attributes:
        made: what the body returned.

    Args: detaches: see `Region`.
    """

    def __init__(self, name: str, body: Callable[[list[Tensor]], Any], types: Sequence[TensorType], detaches: bool = False):
        self.region = Region(name)
        self.region.detaches = detaches
        with self.region as region:
            self.arguments = [region.take(t) for t in types]
            made = body(list(self.arguments))
            self.made = [region.kept(as_tensor(x)) for x in made] if type(made) in (list, tuple) else made
            self.changes = {key: (t, t._data) for key, t in region.changed.items()}

    def finished(self, results: Sequence[Tensor] | Callable[[], Sequence[Tensor]]) -> Recorded:
        """The body with these results; a function makes them inside of the body."""
        with self.region as region:
            values = [region.value(as_tensor(x)) for x in (results() if callable(results) else results)]
            checks, region.graph.checks = _distinct(region.graph), []
        if region.function and tracing.recorder is not None and tracing.recorder.of_a_body:
            tracing.recorder.function = region.function
        arguments = [x._data for x in self.arguments]
        return Recorded(region.graph, arguments, values, region.outside, self.changes, checks, region.function)
