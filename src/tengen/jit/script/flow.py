"""Conditions and loops of a function that is being recorded: what the code of `rewrite.py` calls.

A condition that is known decides at once, and a loop over what is known runs in Python. A condition that is a tensor, a tensor that is
gone over, and a bound that is a tensor become regions (`tensor/control.py`). What leaves a part of the user's function early is a
`Signal`, whose code is a tensor where that depends on values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tengen.autodiff.modes import unless_recorded
from tengen.base.errors import ScriptError, user_line
from tengen.base.record import NamedTuple
from tengen.jit.script.aliases import Pair, Path, Place, note, pairs, refuse_shared, shared
from tengen.jit.script.checks import Raised, record_check
from tengen.jit.script.lanes import Count, Lanes, Stacked, lanes, numbers, unknown
from tengen.jit.script.loops import Unstable, memo, run_lanes, run_while_region
from tengen.jit.script.merge import UNSET, Merge, built
from tengen.jit.script.numbers import Number, stepped, strong
from tengen.jit.script.signals import RETURN, STOP, Signal, consumed, continued, returned
from tengen.jit.script.variables import Variables, mapped
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.control import decision, run_cond

UNROLLED = 4096  # iterations of known ranges in one script: behind them, ranges stay loops of the program
Peeled = tuple[Unstable, ...]  # why iterations of a loop were taken out of it, so far
PEELED = 2  # iterations that a loop may have by themselves, in which a variable takes its type


class Branch(NamedTuple):
    """What is known of an `if`: names that are set or changed in it, those of them that are read behind it, those that are changed in
    place alone, the last lines that set a name in both branches, whether a loop with a condition is around,
    and what the function changes in place anywhere."""

    names: tuple[str, ...]
    live: tuple[str, ...]
    changed: tuple[str, ...]
    then_lines: tuple[tuple[str, int], ...]
    else_lines: tuple[tuple[str, int], ...]
    stops: bool
    in_place: tuple[str, ...]


class Loop(NamedTuple):
    """What is known of a loop: names that are set or changed in it; those of them that an iteration reads before it sets them; those
    that are read behind it; those of which it only appends; those that are changed in place alone; the last lines that set a name;
    whether a loop with a condition is around,
    and what the function changes in place anywhere."""

    names: tuple[str, ...]
    inner: tuple[str, ...]
    after: tuple[str, ...]
    grows: tuple[str, ...]
    changed: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]
    stops: bool
    in_place: tuple[str, ...]

    def branch(self) -> Branch:
        """The loop, or what is left of it, as a branch that may not be taken."""
        live = tuple(n for n in self.names if n in self.inner or n in self.after)
        return Branch(self.names, live, self.changed, self.lines, (), self.stops, self.in_place)


# ---- branches --------------------------------------------------------------------------------------------------------


def if_(test: Any, then: Callable[[], Any], other: Callable[[], Any], site: tuple) -> Signal | None:
    """``if test: then() else: other()``"""
    if not unknown(test):
        return then() if test else other()
    return branch(test, then, other, Branch(*site), "return")


class _Side(NamedTuple):
    """How a branch has ended."""

    signal: Any  # None, a Signal, or what was raised
    values: dict[str, Any]  # of the live variables
    same: dict[str, bool]  # whether they are what they were
    moved: dict[str, set[Path]]  # where they have other lists and dicts than they had
    shared: list[tuple[Place, Place, type]]  # lists and dicts in them that have another name
    pairs: list[Pair]  # places of one tensor, of which the first is in them


def branch(
    test: Tensor, then: Callable[[], Any], other: Callable[[], Any], site: Branch, what: str, holder: Callable | None = None
) -> Signal | None:
    """One of two functions, by a tensor. what: a name of what both return, for messages. holder: a function with the cells of the
    variables; None: both are."""
    variables = Variables((then, other) if holder is None else (holder,), site.names)
    where = user_line() or "?"
    test = decision("the condition", test)
    merge, template = Merge(where), {}
    for n in site.changed:
        if isinstance(variables.objects.get(n), Stacked):
            raise ScriptError(
                f"{where}: `{n}`, which a loop has filled, is changed where a condition is a tensor; help: F.stack it first"
            )

    def side(f: Callable[[], Any]) -> Callable[[list[Tensor]], _Side]:
        def body(_: list[Tensor]) -> _Side:
            variables.restore()
            try:
                signal = f()
            except Raised as e:
                signal = e
            variables.check(user_line())
            return _side(signal, variables, site)

        return body

    def settle(a: _Side, b: _Side) -> tuple:
        template.update(_settled(merge, a, b, site, what))
        return tuple((lambda i=i: [pair[i]() for pair in merge.pairs]) for i in (0, 1))

    try:
        made = run_cond(test, side(then), side(other), [], settle, unless_recorded())
    finally:
        variables.restore()
    for n, (value, moved) in template["values"].items():
        variables.put(n, built(value, made), moved)
    for is_then, e in template["raised"]:
        record_check(test if is_then else REGISTRY["logical_not"].call(test), e, where)
    note(template["pairs"], where)
    code, value = built(template["code"], made), built(template["value"], made)
    return None if isinstance(code, int) and code == 0 else Signal(code, value, template["names"])


def _side(signal: Any, variables: Variables, site: Branch) -> _Side:
    """A branch that has ended with a signal, or an error."""
    live = [n for n in variables.cells if n in site.live or variables.others_may_see(n, site.changed)]
    region = tracing.recorder
    read = [] if _is_gone(signal) else live  # behind it
    moved = {n: {p.path for p, _ in variables.moved(n)} for n in read}
    lists, names = shared([c for n in read for c in variables.containers(n)]), pairs(variables.getters(read))
    if isinstance(signal, Signal) and signal.value is not UNSET:
        signal = Signal(signal.code, mapped(signal.value, region.kept), signal.names.with_those_of(signal.value))
    values = {n: mapped(x, region.kept) for n, x in variables.now(live).items()}
    return _Side(signal, values, {n: variables.is_untouched(n) for n in live}, moved, lists, names)


def _settled(merge: Merge, a: _Side, b: _Side, site: Branch, what: str) -> dict[str, Any]:
    """What both sides have in common: templates of the variables, and of how they end."""
    raised = [isinstance(s.signal, Raised) for s in (a, b)]
    if all(raised):
        raise ScriptError(f"{merge.where}: both branches raise an error; help: raise it before the `if`")
    gone = [_is_gone(s.signal) for s in (a, b)]
    values, unread = {}, {*site.names} - {*site.live}
    lines = dict(site.then_lines), dict(site.else_lines)
    for n in a.values:
        if all(g or s.same[n] for g, s in zip(gone, (a, b))):
            continue  # neither has set it, or the region has noted what was written to it
        x, y = (UNSET if g else s.values[n] for g, s in zip(gone, (a, b)))
        moved = a.moved.get(n, set()) | b.moved.get(n, set())
        mine = [x for s in (a, b) for x in s.shared if x[0].root == n and x[0].path in moved and x[1].root not in unread]
        refuse_shared(merge.where, mine, site.in_place)
        if any(gone) and not all(gone):
            values[n] = merge.either(x, y, n, (0, 0)), moved
        elif not (x is UNSET and y is UNSET):
            values[n] = merge.both(x, y, n, (lines[0].get(n), lines[1].get(n))), moved
    ends = [Signal(STOP if site.stops else None, UNSET) if r else s.signal or Signal(0, UNSET) for r, s in zip(raised, (a, b))]
    codes = [e.code for e in ends]
    if None in codes:
        codes = [c for c in codes if c is not None] * 2
    code = (
        codes[0]
        if all(isinstance(c, int) for c in codes) and codes[0] == codes[1]
        else merge.both(_int(codes[0]), _int(codes[1]), what, (0, 0))
    )
    at = lines[0].get("return"), lines[1].get("return")
    value = merge.either(ends[0].value, ends[1].value, what, at)
    return {
        "values": values,
        "pairs": [*a.pairs, *b.pairs],
        "names": ends[0].names.joined(ends[1].names),
        "code": code,
        "value": value,
        "raised": [(i == 0, s.signal) for i, s in enumerate((a, b)) if raised[i]],
    }


def _is_gone(signal: Any) -> bool:
    """Whether a branch ends the function, so that no variable is read behind it."""
    return isinstance(signal, Raised) or signal is not None and isinstance(signal.code, int) and signal.code in (RETURN, STOP)


def _int(code: Any) -> Any:
    return code if isinstance(code, int) else Number.of(code)


def choose(test: Any, then: Callable[[], Any], other: Callable[[], Any], what: str = "the value") -> Any:
    """``then() if test else other()``"""
    if not unknown(test):
        return then() if test else other()
    made = branch(test, lambda: returned(then()), lambda: returned(other()), Branch((), (), (), (), (), False, ()), what)
    return value(made)


def after(signal: Signal | None, rest: Callable[[], Any], site: tuple, others: bool | None = None) -> Signal | None:
    """What follows a part that may have left the function. others: None: its signal is that of both; else the iteration ends behind them, and a
    `continue` in the part has no signal any more: whether it may have others."""
    left = (lambda: signal) if others is None else (lambda: continued(signal, others))
    return _unless(signal, rest, Branch(*site), rest, left)


def _unless(
    signal: Signal | None, rest: Callable[[], Any], site: Branch, holder: Callable, left: Callable[[], Signal | None] | None = None
) -> Signal | None:
    """``rest()`` where a part has not been left. left: gives the signal where it has been; None: it is that of the part."""
    if signal is None:
        return rest()
    left = left or (lambda: signal)
    if isinstance(signal.code, int):
        return left()
    return branch(strong(signal.code) == 0, rest, left, site, "return", holder)


def value(signal: Signal | None) -> Any:
    """What the whole function returns."""
    if signal is None or signal.value is UNSET:
        return None
    signal.names.note(signal.value)
    return signal.value


# ---- loops -----------------------------------------------------------------------------------------------------------


def for_(xs: Any, body: Callable[[Any], Any], site: tuple) -> Signal | None:
    """``for item in xs: body(item)``"""
    loop, over = Loop(*site), lanes(xs)
    if isinstance(over, Lanes):
        made = _unchanged(over.read, body, loop, lambda: _over_lanes(over, body, loop, ()))
        return consumed(
            made if not over.tail else _unless(made, lambda: _known(iter(over.tail), body, loop), loop.branch(), body),
            loop.stops,
        )
    if isinstance(over, Count):
        return consumed(_over_count(over, body, loop), loop.stops)
    if isinstance(xs, range):
        return consumed(_over_range(xs, body, loop), loop.stops)
    return consumed(_known(iter(xs), body, loop), loop.stops)


def _unchanged(read: Sequence[Tensor], body: Callable[[Any], Any], loop: Loop, run: Callable[[], Signal | None]) -> Signal | None:
    """A loop over tensors, which it must not change in place: plain Python would read what is changed, and the program has cut them up."""
    set_too = [n for n in loop.names if n in loop.in_place and n not in loop.changed]  # so that the loop changes another tensor, as it seems
    objects = Variables((body,), set_too).objects if read and set_too else {}
    changed, before = any(objects.get(n) is t for n in set_too for t in read), [t._data for t in read]
    made = None if changed else run()
    if changed or any(t._data is not data for t, data in zip(read, before)):
        raise ScriptError(f"{user_line()}: the loop changes a tensor in place that it goes over; help: go over a copy, `x + 0`")
    return made


def _known(items: Iterator[Any], body: Callable[[Any], Any], loop: Loop) -> Signal | None:
    """A loop over what is known: the body is recorded for each item."""
    for item in items:
        signal = body(item)
        if signal is not None:
            return _unless(signal, lambda: _known(items, body, loop), loop.branch(), body)
    return None


def _over_range(xs: range, body: Callable[[Any], Any], loop: Loop) -> Signal | None:
    """A range, which stays a loop from where it depends on a tensor whether it goes on, or where a script has unrolled enough."""
    for i in xs:
        if tracing.recorder is not None and not memo.unrolls(UNROLLED):
            return _over_lanes(numbers(range(i, xs.stop, xs.step)), body, loop, ())
        signal = body(i)
        if signal is not None:
            left = range(i + xs.step, xs.stop, xs.step)
            if isinstance(signal.code, int) or not len(left):
                return signal
            return _unless(signal, functools.partial(_over_lanes, numbers(left), body, loop, ()), loop.branch(), body)
    return None


def _over_lanes(over: Lanes, body: Callable[[Any], Any], loop: Loop, peeled: Peeled) -> Signal | None:
    """A loop over slices: a scan, or, where it may be left early, a loop with a condition."""
    if isinstance(over.length, int) and over.length <= 0:
        return None
    variables = Variables((body,), loop.names)
    try:
        return run_lanes(over, body, loop, variables, len(peeled) == PEELED)
    except Unstable as e:
        if len(peeled) == PEELED:
            raise e.told(user_line(), peeled) from None
        peeled = (*peeled, e.with_traceback(None))
    except (TypeError, AttributeError, NameError):  # of a variable that the first iteration may set
        if len(peeled) == PEELED or not any(x is None or x is UNSET for x in variables.objects.values()):
            raise
        peeled = (*peeled, Unstable("", 0, None, None))
    variables.restore()
    del variables  # it refers to the lists that the rest of the loop may fill
    rest = over.behind(1)
    return _unless(body(over.item(0)), lambda: _over_lanes(rest, body, loop, peeled), loop.branch(), body)


def _over_count(over: Count, body: Callable[[Any], Any], loop: Loop) -> Signal | None:
    """A range with a bound that is a tensor."""
    position = [over.start]

    def test() -> Any:
        return position[0] < over.stop if over.step > 0 else position[0] > over.stop

    def step() -> Any:
        i = position[0]
        signal = body(i)
        position[0] = stepped(i, over.step)
        return signal

    return _while(test, step, loop, (), body, position)


def while_(test: Callable[[], Any], body: Callable[[], Any], site: tuple) -> Signal | None:
    """``while test(): body()``"""
    loop = Loop(*site)
    return consumed(_while(test, body, loop, (), body, None), loop.stops)


def _while(test: Callable, body: Callable, loop: Loop, peeled: Peeled, holder: Callable, position: list | None) -> Signal | None:
    """A loop with a condition. holder: a function with the cells of its variables. position: of a range, a list of one."""
    while True:
        go_on = test()
        if unknown(go_on):
            return _while_region(go_on, test, body, loop, peeled, holder, position)
        if not go_on:
            return None
        signal = body()
        if signal is not None:
            if isinstance(signal.code, int):
                return signal
            again = lambda: _while_left(test, body, loop, peeled, holder, position)
            return _unless(signal, again, loop.branch(), holder)


def _while_left(
    test: Callable, body: Callable, loop: Loop, peeled: Peeled, holder: Callable, position: list | None
) -> Signal | None:
    """What is left of a loop whose condition may be known, and which a tensor may end."""
    go_on = test()
    if not unknown(go_on) and not go_on:
        return None
    return _while_region(go_on, test, body, loop, peeled, holder, position)


def _while_region(
    go_on: Any, test: Callable, body: Callable, loop: Loop, peeled: Peeled, holder: Callable, position: list | None
) -> Signal | None:  # fmt: skip
    variables = Variables((holder, test), loop.names)
    at = None if position is None else position[0]
    try:
        return run_while_region(test, body, loop, variables, None, len(peeled) == PEELED, position)
    except Unstable as e:
        if len(peeled) == PEELED:
            raise e.told(user_line(), peeled) from None
        peeled = (*peeled, e.with_traceback(None))
    except (TypeError, AttributeError, NameError):  # of a variable that the first iteration may set
        if len(peeled) == PEELED or not any(x is None or x is UNSET for x in variables.objects.values()):
            raise
        peeled = (*peeled, Unstable("", 0, None, None))
    variables.restore()
    if position is not None:
        position[0] = at
    first = lambda: _unless(body(), lambda: _while(test, body, loop, peeled, holder, position), loop.branch(), holder)
    if not unknown(go_on):
        return first()
    return branch(go_on, first, lambda: None, loop.branch(), "return", holder)
