"""A recording: what a traced function computes for one signature, and what has to be unchanged for it to be run.

In: the graph that the recorder made, the tensors that it captured, what was read. Out: whether it fits a call (`fits`), and the
tensors that are its states now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any
from weakref import ref

from tengen.autodiff import GradManager
from tengen.base.dtype import bool_
from tengen.base.errors import Undecided, VerifyError
from tengen.base.record import record
from tengen.ir.graph import Check, Graph
from tengen.ir.types import TensorType
from tengen.jit.guards import Guards
from tengen.jit.opening import LEAST, Pattern, Shapes, shapes_of
from tengen.loops.decisions import decisions
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr, const, select, var
from tengen.tensor import Tensor
from tengen.tensor.executable import Executable
from tengen.tensor.nodes import is_nested, on_tape
from tengen.tensor.recorder import Recorder
from tengen.tensor.tape import cut

if TYPE_CHECKING:
    from tengen.jit.gradients import Gradient


def value_at(condition: Expr, numbers: Mapping[str, int]) -> bool:
    """What a condition on open extents is for these numbers. Errors: Undecided for one on anything else."""
    try:
        return bool(Numbers({var(e): n for e, n in numbers.items()})(condition))
    except VerifyError as e:
        raise Undecided(f"{e}") from None


@contextlib.contextmanager
def deciding(numbers: Mapping[str, int] | None) -> Iterator[list[tuple[Expr, bool]]]:
    """In this block, comparisons of open extents are answered for these numbers. Gives what was asked, and the answers. None:
    they are refused."""
    asked: dict[Expr, bool] = {}
    told: list[tuple[Expr, bool]] = []

    def decide(condition: Expr) -> bool:
        assert numbers is not None
        if condition not in asked:
            asked[condition] = value_at(condition, numbers)
            told.append((condition, asked[condition]))
        return asked[condition]

    with decisions.answered(None if numbers is None else decide, decisions.equal):
        yield told


_SIGNS = {"lt": ("<", ">="), "le": ("<=", ">"), "gt": (">", "<="), "ge": (">=", "<"), "eq": ("==", "!=")}


def told(c: Expr, answer: bool) -> str:
    """What holds where a condition has this answer."""
    if c.op in _SIGNS:
        return f"{c.args[0]!r} {_SIGNS[c.op][not answer]} {c.args[1]!r}"
    return f"{'' if answer else 'not '}{c!r}"


def with_checks(graph: Graph, conditions: Sequence[tuple[Expr, bool]]) -> Graph:
    """The graph, whose runs raise a ValueError for extents with which a condition has another answer: what leaves the trace (a file) is the
    program of one recording."""
    g = graph.copy()
    for c, answer in conditions:
        wrong = select(c, const(int(not answer)), const(int(answer)))
        bad = g.add_node("extent_op", [], {"n": wrong, "dtype": bool_}, [TensorType((), bool_)]).outputs[0]
        message = f"{graph.name} was recorded for {told(c, answer)} and does not serve other numbers"
        g.checks.append(Check(bad, "ValueError", message, None))
    return g


def placed(t: Tensor, rec: Recorder) -> Tensor | int:
    """A tensor, or the position of the argument that it stands in for."""
    return rec.arguments.get(id(t), t)


def held(t: Tensor | int, leaves: Sequence[Tensor]) -> Tensor:
    """The tensor that `placed` named, among the arguments of this call."""
    return leaves[t] if isinstance(t, int) else t


def attached_to(managers: Sequence[GradManager], tensors: Sequence[Tensor]) -> list[list]:
    """For each manager and tensor: the callbacks that it was attached with, and the first place where the same tensor stands;
    None where it is not attached."""
    found: list[list] = []
    for m in managers:
        first: dict[int, int] = {}
        calls = [m.callbacks_of(x) for x in tensors]
        found.append([c if c is None else (first.setdefault(id(x), i), c) for i, (x, c) in enumerate(zip(tensors, calls))])
    return found


@record
class Recording:
    """One recorded and compiled signature."""

    graph: Graph  # as recorded
    states: list[Tensor]
    # In the following fields an int in the place of a tensor is the position of an argument.
    owners: dict[int, Tensor | int]  # position of a state -> the tensor whose gradient it is
    grads: list[tuple[Tensor | int, bool, Tensor | None]]  # (tensor, whether a run sets its grad or clears it, its overflow)
    guards: list[tuple[Tensor | int, bool | None, Tensor | None]]  # (tensor, whether it has a grad; None: either; its overflow)
    taped: list[bool]  # which arguments and states a gradient was being recorded for
    open: bool  # the result depends on those, or on Python, so that no program can be run for a call
    result: Any  # structure of the result
    n_results: int
    objects: list[Any] = field(default_factory=list)  # arguments that are neither tensors nor plain values
    baked: dict[str, Tensor] = field(default_factory=dict)  # captured as constants, by name
    run: Executable | None = None
    extents: tuple[str, ...] = ()  # names of the open extents, in the executable's order
    managers: list[GradManager] = field(default_factory=list)  # those that recorded inside
    attached: list[list] = field(default_factory=list)  # and what they knew of arguments and states
    ended: GradManager | None = None  # began to record outside
    key: Any = None  # of its signature
    numbers: dict[str, int] = field(default_factory=dict)  # of its open extents when it was recorded
    cause: str = ""  # why it was made
    where: str | None = None  # the line of the call that it was made for
    pattern: Pattern | None = None  # it was opened for this one; None: its signature has no names, or those of a table
    conditions: list[tuple[Expr, bool]] = field(default_factory=list)  # what Python code asked of its open extents, and the answers
    fixed: str = ""  # why extents in which calls differed are numbers
    gradient_of: dict[int, tuple[str, str | None]] = field(default_factory=dict)  # see `Executable`
    read: Guards = None  # whether what it read is what it was
    gradient: Gradient | None = None  # of its results, which a gradient outside may be asked for through
    nested: bool = False  # it is open as long as several gradients are recorded, so that one may be asked for through another
    asleep: bool = False  # it holds its tensors weakly, because what it read has changed

    def state(self, i: int, leaves: Sequence[Tensor]) -> Tensor:
        """The tensor that holds state i now."""
        return held(self.owners[i], leaves)._grad if i in self.owners else self.states[i]

    @property
    def values(self) -> tuple[int, ...]:
        """The numbers of its open extents when it was recorded, in the executable's order."""
        return tuple(self.numbers[e] for e in self.extents)

    def serves(self, numbers: Mapping[str, int]) -> bool:
        """Whether a recording with open extents can be run with these numbers."""
        if not self.decides(numbers):
            return False
        return self.run is None or self.pattern is None or self.run.serves(tuple(numbers[e] for e in self.extents), LEAST)

    def decides(self, numbers: Mapping[str, int]) -> bool:
        """Whether Python code that compares open extents takes the same way with these numbers."""
        return not self.conditions or all(value_at(c, numbers) == answer for c, answer in self.conditions)

    def told_conditions(self) -> tuple[str, ...]:
        """What holds of the open extents for which it was made."""
        return tuple(told(c, answer) for c, answer in self.conditions)

    def examples(self) -> list[Shapes]:
        """The shapes that it was made for."""
        return self.pattern.examples if self.pattern is not None else [shapes_of(self.key)]

    def fits(self, leaves: Sequence[Tensor]) -> bool:
        """Whether what was recorded still holds: what it read, gradients that are there, types of states, what is on the
        tape."""
        if not self.read.hold() or not self.wake() or (self.nested and not is_nested()):
            return False
        for t, there, overflow in self.guards:
            x = held(t, leaves)
            if (there is not None and (getattr(x, "_grad", None) is not None) != there) or getattr(x, "overflow", None) is not overflow:
                return False
        states = [self.state(i, leaves) for i in range(len(self.states))]
        if any(s._layout.type is not t.read.type for s, t in zip(states, self.graph.states.values())):
            return False
        if self.managers and attached_to(self.managers, (*leaves, *self.states)) != self.attached:
            return False
        if self.gradient is not None:
            return self.gradient.serves([*leaves, *states])
        if self.ended is None:
            return [x._node is not None and on_tape(x) for x in (*leaves, *states)] == self.taped
        if self.ended.level is None:
            return False
        return [x._node is not None for x in cut([*leaves, *states], self.ended.level)] == self.taped

    # A recording that does not fit now keeps no tensor alive (a parameter that was replaced, say). It may fit again while they
    # live.
    def sleep(self) -> None:
        """Replaces the references to tensors by weak ones, until `wake`."""
        self.read.sleep()
        if not self.asleep:
            self._map(lambda t: ref(t) if isinstance(t, Tensor) else t)
            self.asleep = True

    def wake(self) -> bool:
        """Makes the references strong again. Returns whether all tensors still exist."""
        if self.asleep and not self.lost():
            self._map(lambda t: t() if isinstance(t, ref) else t)
            self.asleep = False
        return not self.asleep

    def lost(self) -> bool:
        """Whether the recording can never be used again, because an object that it needs does not exist any more."""
        gone: list[Any] = []
        if self.asleep:
            self._map(lambda t: gone.append(t) if isinstance(t, ref) and t() is None else t)
        return bool(gone) or self.read.lost()

    def _map(self, f: Callable[[Any], Any]) -> None:
        self.states = [f(t) for t in self.states]
        self.owners = {i: f(t) for i, t in self.owners.items()}
        self.grads = [(f(t), there, f(overflow)) for t, there, overflow in self.grads]
        self.guards = [(f(t), there, f(overflow)) for t, there, overflow in self.guards]
        self.baked = {name: f(t) for name, t in self.baked.items()}
