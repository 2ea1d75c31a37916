"""If and while, by Python while values are there, as regions of the graph while a program is recorded; variables that are kept from call to
call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.values import as_tensor, known, recording
from tengen.interop.tflite.reader import OpOf, called
from tengen.interop.tflite.registry import op
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.tflite.network import Scope


def scoped(f):
    """An operator that runs graphs, or has a state: it is called with the scope first."""
    f.scoped = True
    return f


def inner(scope: Scope, graph: int, inputs: Any) -> list[Any]:
    """The outputs of another graph for these inputs."""
    return type(scope)(scope.network, graph, scope.count).run(list(inputs))


@op("IF")
@scoped
def if_(scope: Scope, n: OpOf, condition: Any, *x: Any) -> tuple:
    """One of two graphs."""
    graphs = called(n)
    then, otherwise = graphs["ThenSubgraphIndex"], graphs["ElseSubgraphIndex"]
    if not recording() or isinstance(condition, np.ndarray):
        return tuple(inner(scope, then if bool(known(condition).reshape(-1)[0]) else otherwise, x))
    run = lambda g: lambda *v: tuple(map(as_tensor, inner(scope, g, v)))
    return tuple(F.cond(as_tensor(condition).reshape(()), run(then), run(otherwise), *map(as_tensor, x)))


@op("WHILE")
@scoped
def while_(scope: Scope, n: OpOf, *x: Any) -> tuple:
    """A graph while another one gives true."""
    graphs = called(n)
    go, body = graphs["CondSubgraphIndex"], graphs["BodySubgraphIndex"]
    state, steps = list(x), 0
    while not recording() or steps < LONGEST and shapes_depend(scope, body):
        again = inner(scope, go, state)[0]
        if recording() and not isinstance(again, np.ndarray):
            break
        if not bool(known(again).reshape(-1)[0]):
            return tuple(state)
        state, steps = inner(scope, body, state), steps + 1
    condition = lambda *s: as_tensor(inner(scope, go, s)[0]).reshape(())
    step = lambda s: tuple(map(as_tensor, inner(scope, body, s)))
    return tuple(F.while_loop(lambda s: condition(*s), step, tuple(map(as_tensor, state))))


LONGEST = 256  # steps of a loop that are written one after the other
SHAPE_OPERANDS = {
    "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2, 3),
    "FILL": (0,),
    "TILE": (1,),
    "BROADCAST_TO": (1,),
    "RANGE": (0, 1, 2),
}


def shapes_depend(scope: Scope, graph: int) -> bool:
    """Whether the shapes of a loop's body may depend on values that it computes, as the step: such a loop is written out step by step, where
    the number of steps is known."""
    operators = scope.network.source.graphs[graph].operators
    return any(n.has(i) and n.of(i).data is None for n in operators for i in SHAPE_OPERANDS.get(n.op, ()))


@op("CALL", "STABLEHLO_COMPOSITE")
@scoped
def call(scope: Scope, n: OpOf, *x: Any) -> tuple:
    """Another graph in place of the operator."""
    return tuple(inner(scope, next(iter(called(n).values())), x))


@op("CALL_ONCE")
def call_once(n: OpOf) -> tuple:
    """The graph was run when the network was made."""
    return ()


@op("VAR_HANDLE")
@scoped
def var_handle(scope: Scope, n: OpOf) -> Any:
    """What names a variable."""
    return scope.handle(n)


@op("READ_VARIABLE")
@scoped
def read_variable(scope: Scope, n: OpOf, handle: Any) -> Tensor:
    """The value of a variable now."""
    return F.copy(scope.network.variables[handle.name])  # an assignment after this one changes the variable itself


@op("ASSIGN_VARIABLE")
@scoped
def assign_variable(scope: Scope, n: OpOf, handle: Any, value: Any) -> tuple:
    """Its next value."""
    scope.assign(handle.name, as_tensor(value))
    return ()
