"""`check_finite`: the first operation that makes a NaN or an infinity, eagerly, in traced programs, in loops and in gradients.

Eagerly, the largest magnitude of each result is looked at when it has been computed. A compiled program gets a check behind each value
that it stores (`marks.py`), and tells after its run which were not finite; then the same run is done once more, op by op, from the same
inputs and states (`replay.py`), which finds the op itself, and the line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tengen.base.errors import NonFiniteError, user_line
from tengen.base.record import record
from tengen.compiler.plans import Layout
from tengen.debug.marks import NAN_ONLY, NOTHING, largest_magnitude, marked
from tengen.debug.replay import Place, See, inputs_of, of_a_call, replay
from tengen.ir.graph import Check
from tengen.ops.calls import Run
from tengen.ops.define import Op, dispatch, lookup
from tengen.passes.constants import Evaluate
from tengen.passes.pipeline import GRAPH, graph_passes
from tengen.passes.run import Pass
from tengen.tensor import Tensor, contiguous, tensor_over, tracing
from tengen.tensor.executable import Executable
from tengen.tensor.looking import looking
from tengen.tensor.methods import see_operators, unsee_operators
from tengen.tensor.nodes import node_of, walking
from tengen.tensor.tensor import Buffer

if TYPE_CHECKING:
    from tengen.tensor.looking import Around

KEPT = 4  # sets of what is allowed whose programs are kept


@record(frozen=True)
class Allowed:
    """What may be. inf: whether infinities may be made anywhere. where: names of ops, and lines ("model.py:12"), that may make anything."""

    inf: bool = False
    where: frozenset[str] = frozenset()

    def at(self, op: str, line: str | None) -> bool:
        """Whether an op may make anything, or one at a line."""
        return op in self.where or (line is not None and any(line == w or line.endswith("/" + w) for w in self.where if ":" in w))


def _values(x: Any) -> np.ndarray | None:
    """The numbers of an operand, or of an attribute, if they are floats."""
    if isinstance(x, Tensor):
        return x.numpy() if x.dtype.is_float and type(x._data) is Buffer else None
    a = np.asarray(x) if isinstance(x, (float, np.ndarray, np.floating)) else None
    return a if a is not None and a.dtype.kind == "f" else None


def _kind(x: Any) -> str:
    """ "nan", "inf" or "", of the elements of an operand, a result or an attribute."""
    a = _values(x)
    if a is None or a.size == 0:
        return ""
    m = float(np.abs(a).max())
    return "nan" if m != m else "inf" if m == float("inf") else ""


def _told(t: Tensor, kind: str) -> str:
    a = t.numpy()
    odd = np.isnan(a) if kind == "nan" else np.isinf(a)
    first = tuple(int(i[0]) for i in np.nonzero(odd)) if a.ndim else ()
    return f"{t._layout.type!r} with {int(odd.sum())} of {a.size} elements {'NaN' if kind == 'nan' else 'infinite'}, the first at {list(first)}"


def _range(t: Any) -> str:
    a = _values(t)
    if not isinstance(t, Tensor) or a is None or not a.size:
        return repr(t._layout.type) if isinstance(t, Tensor) else "none" if t is None else repr(t)[:40]
    a = a.astype("float64")
    good = a[np.isfinite(a)]
    odd = "" if good.size == a.size else f" and {a.size - good.size} that are not finite"
    return f"{t._layout.type!r} in [{good.min():.6g}, {good.max():.6g}]{odd}" if good.size else f"{t._layout.type!r}, nothing finite"


def _complaint(
    name: str, ins: Sequence[Any], attrs: Iterable[Any], outs: Sequence[Tensor], line: str | None, allowed: Allowed
) -> str | None:  # fmt: skip
    """What is wrong with the results of a call: a NaN; or an infinity that no operand and no attribute has."""
    for t in outs:
        kind = _kind(t)
        if not kind or allowed.at(name, line):
            continue
        before = [_kind(x) for x in (*ins, *attrs)]
        if kind == "inf" and (allowed.inf or any(before)):
            continue
        operands = ", ".join(map(_range, ins))
        if kind == "nan" and "nan" in before:
            if allowed.where:
                continue
            return f"{name} is given a NaN, which nothing in the block made: its operands are {operands}"
        return f"{name} makes {'a NaN' if kind == 'nan' else 'an infinity'}: {_told(t, kind)}; its operands are {operands}"
    return None


# ---- eager calls ---------------------------------------------------------------------------------------------------------


_here = threading.local()


class Calls:
    """Looks at eager calls. It stays where it is put when the switch is turned off, until the next eager call takes it away: a block around
    each traced call of a loop then changes nothing of Tensor, which would cost more than a short call itself."""

    def __init__(self, allowed: Allowed):
        self.allowed, self.on, self._is_there = allowed, False, False
        self._around, self._look = _eager(allowed, self._looks)
        self._lock = threading.Lock()

    def put(self) -> None:
        """From now on calls are looked at."""
        with self._lock:
            self.on = True
            if not self._is_there:
                self._is_there = True
                dispatch.add_filter(self._around)
                see_operators(self._look)

    def take_away(self) -> None:
        """Calls go past it again."""
        with self._lock:
            if self._is_there and not self.on:
                self._is_there = False
                unsee_operators(self._look)
                dispatch.remove_filter(self._around)

    def _looks(self) -> bool:
        if not self.on:
            self.take_away()
        return self.on


def _eager(allowed: Allowed, looks: Callable[[], bool]) -> tuple[Callable[[Run], Run], Callable[[Op, tuple, Any], None]]:
    """(a filter for calls of ops, and what is told of + - * /). looks: whether anything is looked at."""

    def look(op: Op, inputs: tuple, out: Any, attrs: tuple = ()) -> None:
        if not looks() or op.kind == "view" or tracing.active is not None or getattr(_here, "busy", False):
            return
        outs = out if isinstance(out, tuple) else (out,)
        _here.busy = True
        try:
            for t in outs:
                if type(t) is Tensor and t.dtype.is_float and t.size and type(t._data) is Buffer:
                    m = largest_magnitude(_flat(t)).item()
                    if not m < float("inf"):
                        _blame(op, inputs, attrs, outs, allowed)
        finally:
            _here.busy = False
        first = outs[0]
        if walking.node is None and type(first) is Tensor and (node := node_of(first)[0]) is not None:
            node.where = user_line()  # for its gradient

    def around(go: Run) -> Run:
        def run(op: Op, inputs: tuple, attrs: tuple) -> Any:
            out = go(op, inputs, attrs)
            look(op, inputs, out, attrs)
            return out

        return run

    return around, look


def _flat(t: Tensor) -> Tensor:
    """The elements as they lie in memory, in one row, where they are dense: their order does not matter."""
    if t._layout.order is None:
        return t._off_tape()
    return tensor_over(t._data, Layout((t._layout.size,), t._layout.dtype, None, t._layout.device))


def _blame(op: Op, inputs: tuple, attrs: tuple, outs: Sequence[Any], allowed: Allowed) -> None:
    """Raises the error of a call whose results are not finite, unless that may be."""
    line = user_line()
    if op.has_bodies:
        replay(*of_a_call(op, inputs, attrs), _seeing(op.name, {}, allowed))
    elif told := _complaint(op.name, inputs, attrs, outs, line, allowed):
        raise NonFiniteError(f"{_in_backward()}{told}{_at(line)}")


def _at(line: str | None) -> str:
    return f" [at {line}]" if line else ""


def _seeing(name: str, gradient_of: Mapping[int, tuple[str, str | None]], allowed: Allowed) -> See:
    """What raises the error of the first op of a replay that makes what must not be."""

    def see(at: Place, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> None:
        n = at.node
        if n.op in ("scan", "while_loop", "cond", "own_gradient") or lookup(n.op).kind == "view":
            return  # what is in a body was seen
        if told := _complaint(n.op, ins, n.attrs.values(), outs, n.where, allowed):
            of = gradient_of.get(at.number) if not at.inside else None
            inside = "".join(f" inside of {x}" for x in at.inside)
            raise NonFiniteError(f"{name}: {_gradient(*of) if of else ''}{told}{inside}{_at(n.where)}")

    return see


def _in_backward() -> str:
    node = walking.node
    return "" if node is None else _gradient(node.op.name, getattr(node, "where", None))


def _gradient(op: str, where: str | None) -> str:
    return f"in the gradient of {op}{f' (called at {where})' if where else ''}: "


# ---- compiled programs ---------------------------------------------------------------------------------------------------


class Marked(Executable):
    """The executable of the same graph with checks. flagged: positions of the nodes whose values were not finite in the last run."""

    def __init__(self, exe: Executable, lenient: dict[int, str]):
        self._lenient, self._own = dict(lenient), len(exe.source.checks)
        self._flagged = threading.local()
        g = exe.source.copy()
        for name, s in g.states.items():  # a run leaves the old ones as they are
            if s.written is not None:
                g.add_output(f"the new value of {name}", s.written)
                s.written = None
        super().__init__(g, exe.name, exe.schedules, exe.device, of_graphs=self._passes)

    def _passes(self, evaluate: Evaluate | None) -> Sequence[Pass]:
        return [*graph_passes(evaluate), Pass("mark_values", lambda g: marked(g, self._lenient), GRAPH)]

    def _checked(self, made: list[Tensor]) -> list[Tensor]:
        flags = made.pop().numpy()
        own: list[Check] = self._checks[: self._own]
        self._flagged.nodes = [int(c.message) for c, bad in zip(self._checks[self._own :], flags[self._own :]) if bad]
        for c, bad in zip(own, flags):
            if bad:
                self._raise(c)
        return made

    @property
    def flagged(self) -> list[int]:
        """Positions of nodes, in the order of the program."""
        return getattr(self._flagged, "nodes", [])


class Programs:
    """What `check_finite` runs in place of programs."""

    def __init__(self, allowed: Allowed):
        self.allowed = allowed
        self.made: WeakKeyDictionary[Executable, tuple[Marked, dict[int, str]]] = WeakKeyDictionary()

    def __call__(self, exe: Executable, buffers: list[Any], extents: tuple[int, ...]) -> list[Tensor]:
        if isinstance(exe, Marked) or getattr(_here, "busy", False):
            return exe.run(buffers, extents)
        if exe not in self.made:
            self.made[exe] = Marked(exe, {}), {}
        program, lenient = self.made[exe]
        if extents and (program.program is None or 0 in extents):  # it is compiled for each number by itself
            return self(exe.alone(extents), buffers, ())
        out = program.run(buffers, extents)
        if program.flagged:
            self._find(exe, buffers, extents)
            for node in program.flagged:  # all that was found is allowed
                lenient[node] = NAN_ONLY if node not in lenient else NOTHING
            self.made[exe] = Marked(exe, lenient), lenient
        n = len(out) - len(exe.written)
        for i, new in zip(exe.written, out[n:]):
            buffers[len(exe.source.inputs) + i] = contiguous(new)._data
        return out[:n]

    def _find(self, exe: Executable, buffers: Sequence[Any], extents: tuple[int, ...]) -> None:
        """Raises the error of the first op that makes what must not be."""

        _here.busy = True
        try:
            graph, given = inputs_of(exe, buffers, extents)
            replay(graph, given, _seeing(exe.name, exe.gradient_of, self.allowed))
        finally:
            _here.busy = False


# ---- the switch ----------------------------------------------------------------------------------------------------------


class _Switch:
    """What is on: in all threads. allowed: None: nothing is."""

    def __init__(self) -> None:
        self.allowed: Allowed | None = None
        self._before: Around | None = None  # who looked into runs before it
        self._calls: Calls | None = None  # the last ones
        self._programs: dict[Allowed, Programs] = {}  # by what is allowed, the last used last: a block in a loop finds its programs again

    def set(self, allowed: Allowed | None) -> None:
        """Turns it on, or off."""
        if self.allowed is not None and self._calls is not None:
            self._calls.on = False
            looking.by(self._before)
        if allowed is not None:
            programs = self._programs[allowed] = self._programs.pop(allowed, None) or Programs(allowed)
            if len(self._programs) > KEPT:
                del self._programs[next(iter(self._programs))]
            if self._calls is None or self._calls.allowed != allowed:
                if self._calls is not None:
                    self._calls.take_away()
                self._calls = Calls(allowed)
            self._before = looking.by(programs)
            self._calls.put()
        self.allowed = allowed


_switch = _Switch()


def set_check_finite(on: bool = True, *, allow_inf: bool = False, allow: Iterable[str] = ()) -> None:
    """Turns `check_finite` on for all that follows, in all threads, or off. Arguments as `check_finite` has them."""
    names = frozenset([allow] if isinstance(allow, str) else allow)
    _switch.set(Allowed(allow_inf, names) if on else None)


@contextmanager
def check_finite(*, allow_inf: bool = False, allow: Iterable[str] = ()) -> Iterator[None]:
    """In this block, the first operation that makes a NaN or an infinity is an error that names it, the user's line, the operands' ranges
    and where in the result it is: eagerly, in traced programs, in loops and branches, in gradients, in loaded models.

    Args:
        allow_inf: whether infinities may be; NaNs may not. allow: names of ops ("log"), and lines ("model.py:12"), that may make both.

    An infinity that an operand has already (a mask of -inf) is not made by an op, and none is looked for in arguments and parameters. A
    NaN in them is an error of the first op that has it in its result, unless `allow` names something. Complex numbers are not looked at.

    A compiled program is looked at where it stores values: an infinity that lives and dies inside of one fused kernel (the exp of a
    softplus) is found eagerly, and not there. Infinities that were found to be wanted are not looked for again in the same value, NaNs
    are. The programs are compiled for the first block with these arguments, and kept with the program that they stand for; states get new
    memory in each run.

    Errors: NonFiniteError, which is a FloatingPointError. States that the run of a program writes are then as they were before.

    >>> from tengen import Tensor, debug, functional as F
    >>> with debug.check_finite():
    ...     F.log(Tensor([1.0, 0.0]))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    NonFiniteError: log makes an infinity: f32[2] with 1 of 2 elements infinite, the first at [1]; ...
    """
    before = _switch.allowed
    set_check_finite(allow_inf=allow_inf, allow=allow)
    try:
        yield
    finally:
        _switch.set(before)
