"""Loops of a script as regions: the variables that an iteration hands to the next one become the state of a scan or a while loop.

A variable whose type an iteration changes (None before the first one, a tensor of another shape) makes the loop `Unstable`: the caller
takes an iteration out of the loop and tries again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tengen.autodiff.modes import unless_recorded
from tengen.base.dtype import bool_, int64
from tengen.base.errors import DTypeError, ScriptError, ShapeError, user_line
from tengen.base.record import record
from tengen.jit.script.aliases import Names, Pair, Path, Place, note, pairs, places_in, refusal, refuse_shared, shared, twins
from tengen.jit.script.lanes import Lanes, Stacked, elements, lane_of
from tengen.jit.script.merge import OF_ITS_OWN, UNSET, described, zeros
from tengen.jit.script.numbers import Number, stepped, strong
from tengen.jit.script.signals import Signal
from tengen.jit.script.texts import with_lists
from tengen.jit.script.variables import Variables, copied, set_cell, value_in
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.control import decision, run_cond, run_scan, run_while
from tengen.tensor.structure import fields, flatten, over_fields, unflatten
from tengen.tensor.tensor import as_tensor, tensor_over

if TYPE_CHECKING:
    from tengen.jit.script.flow import Loop


class Unstable(Exception):
    """An iteration changes the type of a variable."""

    def __init__(self, name: str, line: int, before: Any, after: Any):
        super().__init__(name)
        self.name, self.line, self.kind = name, line, ScriptError
        self.before, self.after = described(before), described(after)
        self.tensors = isinstance(before, Tensor) and isinstance(after, Tensor)
        self.lists = any(type(a) is list and type(b) is list and len(a) < len(b) for a, b in zip(_lists(before), _lists(after)))
        self.flag = type(before) is bool and isinstance(after, Tensor) and after.dtype is bool_ and not after.ndim
        if self.tensors:
            self.kind = ShapeError if before.shape != after.shape else DTypeError

    def told(self, where: str | None, earlier: tuple[Unstable, ...]) -> Exception:
        """The error for the user, with the types of the first iteration in which it was so. earlier: why iterations were taken out."""
        e = next((e for e in earlier if e.name == self.name and e.tensors), self) if self.tensors else self
        instead = "begin with a tensor of the last type, or cast it in the loop"
        if e.lists:
            instead = (
                "a list that grows is a variable, or an element with a constant key, of which the loop says rows.append(...) or "
                "out['rows'].append(...) and nothing else"
            )
        elif e.before == e.after:
            instead = OF_ITS_OWN
        return e.kind(
            f"{where}: `{e.name}` is {e.before} before an iteration of the loop and {e.after} behind it "
            f"(line {e.line}); help: a variable of a loop over tensors keeps its structure, shapes and dtypes: {instead}"
        )


def _lists(x: Any) -> list[Any]:
    """A value and what is in its lists and dicts, in order."""
    inside = x.values() if type(x) is dict else x if type(x) in (list, tuple) else ()
    return [x, *(v for y in inside for v in _lists(y))]


class Leaves(Exception):
    """A scan whose body may leave the loop."""


@record
class Known:
    """What is known of a loop's state, after it has been recorded without success.

    Attributes:
        blanks: structure and types of variables that have no value before the loop. flags: names of bools that an iteration makes bools of
            the program. deep: names of lists and dicts whose numbers
            change. moved: of variables, the paths at which an iteration puts another list or dict. ends: whether the body may leave the
            loop. value: structure and types of what it returns then, or UNSET. numbers: whether ints and floats in that differ, so that they
            are numbers of the program. unstable: why an iteration has to be taken out of the loop, if so.
    """

    blanks: dict[str, Any] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    deep: set[str] = field(default_factory=set)
    moved: dict[str, set[Path]] = field(default_factory=dict)
    ends: bool = False
    value: Any = UNSET
    numbers: bool = False
    unstable: Unstable | None = None


class _Memo(threading.local):
    """What is known of the loops of the script that is being recorded, by the loop and the types of its variables: a loop in a loop is
    recorded as often as that one, and every time it would have to be tried in the same ways again."""

    known: dict[Any, Known] | None = None
    unrolled = 0  # iterations of loops over known ranges, so far

    def begin(self) -> None:
        """Nothing is known yet of a script that is recorded now."""
        self.known, self.unrolled = {}, 0

    def unrolls(self, most: int) -> bool:
        """Whether an iteration of a known range is to be recorded by itself, and not as one of a loop; counts it if so."""
        if self.unrolled >= most:
            return False
        self.unrolled += 1
        return True

    def end(self) -> None:
        """Forgets what was known of it."""
        self.known = None


memo = _Memo()


class Again(Exception):
    """A loop is to be recorded once more: more is known of its state."""


class State:
    """The variables that a loop carries, and how they lie in the list of its state.

    Args:
        runs: whether the loop has at least one iteration.
    """

    def __init__(self, loop: Loop, variables: Variables, runs: bool, grows: bool, known: Known):
        self.loop, self.variables, self.lines, self.known = loop, variables, dict(loop.lines), known
        self.first: dict[str, Any] = {}  # values before the loop; UNSET: set in every iteration before it is read
        self.growing: dict[str, Any] = {}  # lists to which iterations append
        self.shared: set[str] = set()  # those of them that have other names too, which see what the loop appends
        self.late: list[str] = []  # without a value, and read before they are set, as it seems: what is known may say otherwise
        for n, x in variables.values.items():
            if n in loop.grows and isinstance(x, (list, Stacked)):
                if not grows:
                    raise ScriptError(
                        f"{user_line()}: `{n}` grows in a loop whose number of iterations is known only when the program runs; help: a tensor "
                        "with a row for each iteration that there may be, and x[i] = ..."
                    )
                self.growing[n] = x
                if variables.is_shared(n):
                    self.shared.add(n)
            elif (n in loop.inner or n in loop.after or variables.others_may_see(n, loop.changed)) and not (
                n in loop.changed and _keeps_itself(x)
            ):
                if x is UNSET and (n in loop.inner or not runs):
                    if runs:
                        self.late.append(n)
                        continue
                    raise ScriptError(
                        f"{user_line()}: `{n}` has no value if the loop does not run (line {self.lines.get(n, '?')}); help: set it before "
                        "the loop"
                    )
                x = list(x) if isinstance(x, Stacked) else copied(x)
                self.first[n] = as_tensor(x) if n in known.flags else _numbers(x) if n in known.deep else _number(x)
        objects = variables.objects
        self.same = {n: next(m for m in self.growing if objects[m] is objects[n]) for n in self.growing}  # the first name of each list
        for n in self.growing:
            if other := variables.other_name(n, self.growing):
                raise ScriptError(
                    f"{user_line()}: `{n}` grows in a loop that also uses `{other}`, through which it can be read, and an iteration does not "
                    "have what others have appended; help: carry what the loop reads in a variable of its own"
                )
        self.pairs: list[Pair] = []  # places of one tensor, of which the loop sets the first
        self.written: dict[tuple, str] = {}  # places whose tensors, as they were when an iteration began, are written, with the line
        self.since = twins().count
        self.keys: dict[str, Any] = {}
        self.leaves: list[Tensor] = []
        self.counts: dict[str, int] = {}

    def settle(self) -> None:
        """Lays the state out."""
        moved = self.known.moved
        self._refuse([c for n in self.first for c in self.variables.containers(n) if c[0].path in moved.get(n, ())])
        self.pairs = self._pairs()
        self.leaves = []
        for n, x in self.first.items():
            mine: list[Tensor] = []
            if x is UNSET:
                x = _zeros(self.known.blanks[n]) if n in self.known.blanks else None
            self.keys[n] = flatten(x, mine, frozen=True)
            self.counts[n] = len(mine)
            self.leaves += mine

    def begin(self, xs: list[Tensor]) -> None:
        """The variables take the values of a state."""
        self.variables.restore()
        at = 0
        for n, key in self.keys.items():
            mine = [_like(x, t) for x, t in zip(xs[at : at + self.counts[n]], self.leaves[at : at + self.counts[n]])]
            at += self.counts[n]
            x = unflatten(key, mine)
            if self.first[n] is UNSET:
                set_cell(self.variables.cells[n], UNSET)
            else:
                self.variables.put(n, x, self.known.moved.get(n, ()))
        lists: dict[str, list] = {n: [] for n in self.same.values()}
        for n, first in self.same.items():
            set_cell(self.variables.cells[n], lists[first])
        note(self.pairs, user_line() or "?")
        for n, get in self.variables.getters(self.keys).items():
            for p, x in places_in(n, get, (Tensor,)):
                twins().mark(x, functools.partial(self.written.setdefault, p[:2]))

    def end(self) -> tuple[list[Tensor], dict[str, list]]:
        """(The state behind an iteration; what was appended to the lists that grow.)"""
        found: list[Tensor] = []
        at, again = 0, False
        for n, key in self.keys.items():
            before = self.leaves[at : at + self.counts[n]]
            at += self.counts[n]
            x = value_in(self.variables.cells[n])
            x = _beside(list(x) if isinstance(x, Stacked) else x, self.first[n], n in self.known.deep)
            mine: list[Tensor] = []
            after = None if x is UNSET else flatten(x, mine, frozen=True)
            found += [strong(t) for t in mine]
            if after == key and [t._layout.type for t in mine] == [t._layout.type for t in before]:
                continue
            if x is not UNSET and self.first[n] is UNSET and n not in self.known.blanks:
                self.known.blanks[n], again = _blank(x), True
            elif (isinstance(self.first[n], (list, tuple, dict)) or fields(self.first[n])) and n not in self.known.deep:
                self.known.deep.add(n)
                again = True
            else:
                raise Unstable(n, self.lines.get(n, 0), self.first[n], x)
        self._end_names()
        for n in self.keys:
            moved = self.variables.moved(n)
            self._refuse(moved)
            paths = {p.path for p, _ in moved}
            if not paths <= self.known.moved.get(n, set()):
                self.known.moved[n], again = paths | self.known.moved.get(n, set()), True
        for n in self.late:
            if (x := value_in(self.variables.cells[n])) is not UNSET:
                raise Unstable(n, self.lines.get(n, 0), UNSET, x)
        if again:
            raise Again
        return found, {n: value_in(self.variables.cells[n]) for n, first in self.same.items() if n == first}

    def put(self, xs: list[Tensor]) -> None:
        """The variables behind the loop."""
        self.variables.restore()
        at = 0
        for n, key in self.keys.items():
            mine = [_like(x, t) for x, t in zip(xs[at : at + self.counts[n]], self.leaves[at : at + self.counts[n]])]
            at += self.counts[n]
            self.variables.put(n, unflatten(key, mine), self.known.moved.get(n, ()))

    def _pairs(self) -> list[Pair]:
        return pairs(self.variables.getters([*self.first, *self.growing]))

    def _refuse(self, moved: list[tuple[Place, Any]]) -> None:
        """ScriptError for a list or a dict with another name, if it is changed; a variable that nobody reads before it is set again is none."""
        gone = {*self.loop.names} - {*self.loop.inner, *self.loop.after}
        refuse_shared(user_line() or "?", [x for x in shared(moved) if x[1].root not in gone], self.loop.in_place)

    def _end_names(self) -> None:
        """Finds the places that an iteration makes one tensor. Errors: ScriptError if it has written one of them before, as the next one will
        do."""
        before, known = {p.key for p in self.pairs}, twins()
        for pair in self._pairs():
            if pair.key in before:
                continue
            for place in (pair.place, pair.other):
                if where := self.written.get(place[:2]) or known.line_of_write(place.now(), self.since):
                    raise refusal(where, f"{pair.place.name} and {pair.other.name}", user_line() or "?")
            self.pairs.append(pair)


def _keeps_itself(x: Any) -> bool:
    """Whether a value that is changed in place is no part of the state: the region notes what is written to a tensor."""
    return isinstance(x, Tensor) and not isinstance(x, Number)


def _number(x: Any) -> Any:
    return Number.of(x) if type(x) in (int, float) else x


def _numbers(x: Any) -> Any:
    """A value whose ints and floats are numbers of the program, also those in lists, dicts and dataclasses."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(_numbers, x))
    if type(x) in (list, tuple):
        return type(x)(map(_numbers, x))
    if type(x) is dict:
        return {k: _numbers(v) for k, v in x.items()}
    return over_fields(x, _numbers) if fields(x) else _number(x)


def _beside(x: Any, first: Any, deep: bool) -> Any:
    """A value behind an iteration, as a number where it was one before."""
    if deep:
        return _numbers(x)
    if isinstance(first, Number) and type(x) in (int, float):
        return Number.of(x if not first.dtype.is_float else float(x))
    return as_tensor(x) if type(x) is bool and isinstance(first, Tensor) else x


def _like(x: Tensor, t: Tensor) -> Tensor:
    """A state's tensor for the variable: another object than the argument of the region, so that it may be written to."""
    if isinstance(t, Number):
        return Number.of(x)
    made = tensor_over(x._data, x._layout)
    made._node = x._node
    return made


class Typed:
    """A tensor's type, and whether it is a number: all that outlives the recording of a body."""

    def __init__(self, t: Tensor):
        self.type, self.number = t._layout.type, isinstance(t, Number)

    def zeros(self) -> Tensor:
        """A tensor of the type, outside of the body."""
        return Number.of(zeros(self.type)) if self.number else zeros(self.type)


def _blank(x: Any) -> tuple[Any, list[Typed]]:
    """The structure and types of a value."""
    leaves: list[Tensor] = []
    return flatten(x, leaves, frozen=True), [Typed(t) for t in leaves]


def _zeros(blank: tuple[Any, list[Typed]]) -> Any:
    key, leaves = blank
    return unflatten(key, [t.zeros() for t in leaves])


def _attempts(run: Callable[[Known], Any], key: Any, last: bool) -> Any:
    """Records a loop, again until what its state holds is known. last: whether no iteration may be taken out of it any more. Errors: Unstable
    where one has to be."""
    known = Known() if memo.known is None else memo.known.setdefault(key, Known())
    if known.unstable is not None and not last:
        raise known.unstable.with_traceback(None)
    for _ in range(5):
        try:
            return run(known)
        except Again:
            pass
        except Unstable as e:
            if not (last and e.flag and e.name not in known.flags):
                known.unstable = e
                raise
            known.flags.add(e.name)
        except (TypeError, AttributeError, NameError):
            known.unstable = Unstable("", 0, None, None)
            raise
    raise ScriptError(f"{user_line()}: the variables of the loop keep changing their types; help: set them before the loop")


def _key(kind: str, body: Callable, loop: Loop, variables: Variables) -> Any:
    """A loop and the types of its variables; values that are known are a part of them."""
    leaves: list[Tensor] = []
    structure = flatten(dict(variables.values), leaves, frozen=True)
    return kind, getattr(body, "__code__", body), loop, structure, tuple((x._layout.type, isinstance(x, Number)) for x in leaves)


def run_lanes(over: Lanes, body: Callable[[Any], Any], loop: Loop, variables: Variables, last: bool) -> Signal | None:
    """A loop over slices as a scan; where the body may leave it, as a loop with a condition. last: as `_attempts` has it."""
    key = _key("scan", body, loop, variables)
    types = tuple(x._layout.type for x in over.tensors)
    leaves = memo.known is not None and memo.known.setdefault(("leaves", key, types), Known())
    if not (leaves and leaves.ends):
        try:
            return _attempts(lambda known: _scan(over, body, loop, variables, known), (key, types), last)
        except Leaves:
            variables.restore()
            if leaves:
                leaves.ends = True
    n = over.length
    position: list[Any] = [Number.of(0)]

    def step() -> Any:
        i = position[0]
        signal = body(over.item(strong(i)))
        position[0] = stepped(i, 1)
        return signal

    return run_while_region(lambda: position[0] < n, step, loop, variables, (key, types), last, position, n, True)


def _scan(over: Lanes, body: Callable[[Any], Any], loop: Loop, variables: Variables, known: Known) -> None:
    state = State(loop, variables, True, True, known)
    state.settle()
    n = len(state.leaves)
    made: dict[str, list] = {}

    def step(xs: list[Tensor]) -> list[Tensor]:
        state.begin(xs[:n])
        if body(over.make([_like(x, x) for x in xs[n:]])) is not None:
            raise Leaves
        variables.check(user_line())
        after, grown = state.end()
        stacked = []
        for name, some in grown.items():
            made[name] = [elements(with_lists(x)) for x in some]
            stacked += [t for _, ts in made[name] for t in ts]
        return [*after, *stacked]

    try:
        last, stacked = run_scan(step, [strong(t) for t in state.leaves], over.tensors, over.length, hidden=unless_recorded())
    finally:
        variables.restore()
    state.put(last)
    rest = iter(stacked)
    for name, some in made.items():
        before = variables.objects[name]
        grown = _grown(name, before, [lane_of(key, [next(rest) for _ in ts], over.length) for key, ts in some])
        if isinstance(before, Stacked):
            before.parts[:] = grown.parts
            variables.put(name, before, ())
        else:
            variables.put(name, *((list(grown), ()) if name in state.shared else (grown, ((),))))
    note(state.pairs, user_line() or "?")


def _grown(name: str, before: Any, parts: list[Lanes]) -> Stacked:
    """A list that a loop has filled."""
    made = list(before.parts) if isinstance(before, Stacked) else list(before)
    if len(parts) <= 1:
        return Stacked(made + parts)
    if not isinstance(parts[0].length, int):
        raise ScriptError(
            f"{user_line()}: `{name}` grows by several elements in an iteration of a loop of open length; help: one list for each"
        )
    return Stacked(made + [p.item(i) for i in range(parts[0].length) for p in parts])


def run_while_region(
    test: Callable[[], Any],
    body: Callable,
    loop: Loop,
    variables: Variables,
    key: Any,
    last: bool,
    position: list | None,
    limit: Any = None,
    runs: bool = False,
) -> Signal | None:
    """A loop with a condition.

    Args:
        key: of the loop and the types that it is given; None: those of its variables. last: as `_attempts` has it. position: of a range,
            a list of the number that comes next. limit: how many iterations there are at most. runs: whether there is one at least.
    """
    first = None if position is None else _number(position[0])
    if position is not None and not isinstance(first, Number):
        first = Number.of(first.astype(int64) if first.dtype is not int64 else first)

    def run(known: Known) -> Signal | None:
        if position is not None:
            position[0] = first
        return _WhileRegion(test, body, State(loop, variables, runs, False, known), position, limit).run()

    key = "while", key or _key("", body, loop, variables), position is None or isinstance(first, Number) and first.dtype
    return _attempts(run, key, last)


class _WhileRegion:
    """One recording of a loop with a condition. Its state: the variables; the number that comes next, of a range; where the body may leave
    the loop, the code of its signal, and what it returns."""

    def __init__(self, test: Callable[[], Any], body: Callable[[], Any], state: State, position: list | None, limit: Any):
        self.test, self.body, self.state, self.position, self.limit = test, body, state, position, limit
        self.known = state.known
        state.settle()
        self.returned: list[Tensor] = []
        self.names = Names()
        self.key = None if self.known.value is UNSET else flatten(_zeros(self.known.value), self.returned, frozen=True)

    def run(self) -> Signal | None:
        """Records it."""
        n, ends = len(self.state.leaves), self.known.ends
        counter = [] if self.position is None else [self.position[0]]
        first = [*self.state.leaves, *counter, *([Number.of(0)] if ends else []), *self.returned]
        try:
            made = run_while(self.condition, self.step, [strong(t) for t in first], self.limit, unless_recorded())
        finally:
            self.state.variables.restore()
        self.state.put(made[:n])
        note(self.state.pairs, user_line() or "?")
        if not ends:
            return None
        code, *values = made[n + len(counter) :]
        value = UNSET if self.key is None else unflatten(self.key, [_like(x, t) for x, t in zip(values, self.returned)])
        return Signal(code, value, self.names)

    def begin(self, xs: list[Tensor]) -> list[Tensor]:
        """Sets the variables. Returns the code and what is behind it."""
        n = len(self.state.leaves)
        self.state.begin(xs[:n])
        rest = xs[n:]
        if self.position is not None:
            self.position[0] = Number.of(rest.pop(0))
        return rest

    def condition(self, xs: list[Tensor]) -> Tensor:
        """Whether there is one more iteration."""
        rest = self.begin(xs)
        if not self.known.ends:
            return self._tested()
        go_on = rest[0] == 0
        if self.limit is not None:  # of a range, which reads nothing
            return REGISTRY["logical_and"].call(go_on, self.test())
        return run_cond(go_on, lambda _: [self._tested()], lambda _: [as_tensor(False)], [])[0]

    def _tested(self) -> Tensor:
        made = decision("the condition of while", self.test())
        self.state.variables.check(user_line())
        return made

    def step(self, xs: list[Tensor]) -> list[Tensor]:
        """One iteration."""
        rest = self.begin(xs)
        signal, known = self.body(), self.known
        self.state.variables.check(user_line())
        news = signal is not None and (not known.ends or (signal.value is not UNSET and known.value is UNSET))
        if news:
            known.ends = True
            known.value = known.value if signal.value is UNSET else _blank(_numbers(signal.value) if known.numbers else signal.value)
        after, _ = self.state.end()
        if news:
            raise Again
        if self.position is not None:
            after.append(strong(self.position[0]))
        return [*after, *self._ended(signal, rest[1:])] if known.ends else after

    def _ended(self, signal: Signal | None, before: list[Tensor]) -> list[Tensor]:
        """The code of an iteration, and what it returns."""
        code = strong(Number.of(0 if signal is None else signal.code))
        if signal is None or signal.value is UNSET:
            return [code, *before]
        self.names = self.names.joined(signal.names).with_those_of(signal.value)
        value = _numbers(signal.value) if self.known.numbers else signal.value
        mine: list[Tensor] = []
        if flatten(value, mine, frozen=True) != self.key or [t._layout.type for t in mine] != [t._layout.type for t in self.returned]:
            if not self.known.numbers:
                self.known.numbers, self.known.value = True, _blank(_numbers(signal.value))
                raise Again
            raise ScriptError(
                f"{user_line()}: the loop returns values of several structures, shapes or dtypes; help: the same everywhere"
            )
        return [code, *(strong(t) for t in mine)]
