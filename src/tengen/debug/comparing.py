"""`compare`: a function traced and eagerly, side by side, and the first node whose bits differ.

In: a function and arguments. Out: a `Comparison`. The graph after all passes is run as one program whose stored values are all results,
and op by op; by the contract on bits nothing may differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.base.record import record
from tengen.compiler.arrays import array_over, new_buffer
from tengen.compiler.plans import Layout
from tengen.debug.replay import Place, inputs_of, replay
from tengen.deploy.model import Model
from tengen.deploy.verify import differing
from tengen.ir.graph import Graph
from tengen.jit.trace import trace
from tengen.passes.cleanup import remove_dead_code
from tengen.tensor import Tensor
from tengen.tensor.executable import Executable


@record(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        values: how many values of the program were compared. first: what is said of the first one that differs, in the order of the
            program; "" where none does. results: the same of a result, or a new value of a state.
    """

    values: int
    first: str = ""
    results: str = ""

    @property
    def equal(self) -> bool:
        """Whether all bits are equal."""
        return not (self.first or self.results)

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.equal:
            return f"equal bits in {self.values} values of the program"
        return "\n".join(x for x in (self.first and f"the first value that differs: {self.first}", self.results) if x)


def compare(function: Callable, *args: Any, **kwargs: Any) -> Comparison:
    """Runs a function as a traced program and op by op, and compares all bits.

    Args:
        function: a function, a module, a `trace`, or a model that was loaded. args, kwargs: of a call.

    Nothing is changed: states (parameters, random counters) are copied for both. NaNs compare as equal, whatever their bits.

    Errors: what recording and running raise; ArgumentError where the arguments of the call were given as one tuple or list, which the
        function cannot take.

    >>> from tengen import Tensor, debug, functional as F
    >>> print(debug.compare(lambda x: F.softmax(x * 2).sum(), Tensor([1.0, 2.0])))
    equal bits in ... values of the program
    """
    _check_arguments(function, args, kwargs)
    run = function if isinstance(function, (trace, Model)) else trace(function, dynamic_axes=None)
    exe, buffers, extents = run.prepared(*args, **kwargs)
    if exe.program is None:
        exe, extents = exe.alone(extents), ()
    made, states = _by_program(exe, buffers, extents)
    graph, given = inputs_of(exe, buffers, extents)
    outs, written = replay(graph, given, lambda *_: None)
    names = [*graph.output_names, *(f"the new value of {n}" for n in written)]
    results = next((told for n, a, b in zip(names, [*made, *states], [*outs, *written.values()]) if (told := _difference(n, a, b))), "")
    values, first = _first(exe, buffers, extents)
    return Comparison(values, first, results)


def _check_arguments(function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Errors: ArgumentError where one tuple or list is given, and the function takes its items but not itself."""
    if len(args) != 1 or kwargs or type(args[0]) not in (tuple, list):
        return
    if isinstance(function, Model):
        takes = lambda n: n == len(function.inputs)
    else:
        try:
            signature = inspect.signature(getattr(function, "forward", function))
        except (TypeError, ValueError):  # a builtin that does not say what it takes
            return
        takes = lambda n: _binds(signature, n)
    if not takes(1) and takes(len(args[0])):
        kind = type(args[0]).__name__
        raise ArgumentError(f"debug.compare(): a {kind} of {len(args[0])} is one argument, and the function takes {len(args[0])}; help: "
                            "compare(function, *args)")  # fmt: skip


def _binds(signature: inspect.Signature, n: int) -> bool:
    try:
        signature.bind(*[None] * n)
    except TypeError:
        return False
    return True


def _difference(what: str, traced: Tensor, eager: Tensor) -> str:
    a, b = traced.numpy(), eager.numpy()
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{what} is {traced._layout.type!r} traced, {eager._layout.type!r} eagerly"
    odd = differing(np.ascontiguousarray(a), np.ascontiguousarray(b))
    if not odd.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(odd))
    x, y = (np.atleast_1d(v)[at] for v in (a, b))
    return f"{what}, {traced._layout.type!r}: {int(odd.sum())} of {odd.size} elements, the first at {list(at)}: {x!r} traced, {y!r} eagerly"


def _copies(exe: Executable, buffers: Sequence[Any], extents: tuple[int, ...]) -> list[Any]:
    """The buffers of a run that may write its states."""
    graph, _ = inputs_of(exe, buffers, extents)
    n, types = len(graph.inputs), [s.read.type for s in graph.states.values()]
    kept = list(buffers)
    for i in exe.written:
        kept[n + i] = new_buffer(array_over(buffers[n + i], Layout(types[i].shape, types[i].dtype)))
    return kept


def _by_program(exe: Executable, buffers: Sequence[Any], extents: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """(the outputs of the program, the new values of the states that it writes)."""
    mine = _copies(exe, buffers, extents)
    graph, after = inputs_of(exe, mine, extents)
    outs = exe.run(mine, extents)
    reads = [s.read for s in graph.states.values()]
    return outs, [after[reads[i]] for i in exe.written]


def _first(exe: Executable, buffers: Sequence[Any], extents: tuple[int, ...]) -> tuple[int, str]:
    """(how many values were compared, what is said of the first one that differs)."""
    graph, given = inputs_of(exe, buffers, extents, exe.graph)
    every = _all_results(graph)
    whole = Executable(every, exe.name, exe.schedules, exe.device, of_graphs=lambda evaluate: [])
    made = dict(zip(range(len(every.outputs)), whole.run([t._data for t in given.values()])))
    found: list[str] = []
    position = iter(range(len(every.outputs)))

    def see(at: Place, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> None:
        if at.inside or at.node not in nodes:
            return
        for t in outs:
            told = _difference(_named(at), made[next(position)], t)
            if told and not found:
                found.append(told)

    nodes = set(graph.nodes)
    replay(graph, given, see)
    return len(every.outputs), found[0] if found else ""


def _named(at: Place) -> str:
    n = at.node
    ops = " and ".join(dict.fromkeys(m.op for m in n.attrs["body"].nodes)) if n.op == "fused" else n.op
    return f"node {at.number}, {ops}{f' at {n.where}' if n.where else ''}"


def _all_results(graph: Graph) -> Graph:
    """The graph with the values of all nodes as outputs, and no state that is written."""
    g = graph.copy()
    for s in g.states.values():
        s.written = None
    g.checks = []
    g.outputs = [v for n in g.nodes for v in n.outputs]
    g.output_names = [f"v{i}" for i in range(len(g.outputs))]
    return remove_dead_code(g)
