"""What a program runs: a tree of steps, with kernels at its leaves.

    Launch      one kernel on buffers of the program
    Loop        steps that run a number of times, one iteration after another
    If          one of two lists of steps, by a bool in a buffer, or by an integer that is known before the program runs
    While       steps that run as long as steps of its own find a bool true
    Call        a `Function`: steps that are written once and run on other buffers in each call

A kernel takes the program's integer parameters, followed by the number of the current iteration of each `Loop` and `While` that
it is inside of, outermost first (`iteration`). Numbers of iterations, numbers of a kernel's pieces and sizes of buffers depend
on the program's parameters alone, so that they are known before it runs.

Read next: `lowering.py`, which writes such a tree, and `steps_text.py`, which prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Union

from tengen.base.dtype import DType, bool_, int64
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.loops.lang import Expr, Index, as_int, var
from tengen.loops.statements import Kernel


def iteration(depth: int, ints: Sequence[Expr] = ()) -> Expr:
    """The number of the current iteration of the loop at this depth, 0 for the outermost: an integer parameter of kernels in
    it, under a name that none of the program's own integers has."""
    name, taken = f"step{depth}" if depth else "step", {str(v.attr) for v in ints}
    while name in taken:
        name += "_"
    return var(name)


@record(frozen=True)
class Launch:
    """One kernel run on these buffers of the program, in the kernel's order. `where` is the user's line that asked for it,
    `node` the position of the graph's node that it computes; None where there is no graph, or no node."""

    kernel: Kernel
    ids: tuple[Hashable, ...]
    where: str | None = None
    node: int | None = None

    @property
    def writes(self) -> set[Hashable]:
        """The buffers that it writes."""
        return {id for id, b in zip(self.ids, self.kernel.buffers) if b.role == "out"}


@record(frozen=True, eq=False)
class Loop:
    """Steps that run `count` times, one iteration after another: the steps of a recurrence, or the images of a batch.

    Attributes:
        invariant: buffers that the body does not write. independent: no iteration reads what another one left in a temporary.
    """

    count: Index
    body: tuple[Step, ...]
    invariant: frozenset[Hashable] = frozenset()
    independent: bool = False


@record(frozen=True)
class Flag:
    """One bool in a buffer, `offset` elements from its start."""

    id: Hashable
    offset: int = 0


@record(frozen=True, eq=False)
class If:
    """The steps of `then` where the flag is true when they are reached, else those of `otherwise`. An int64 expression over the
    program's parameters is a flag too: true where it is not 0."""

    flag: Flag | Expr
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()


@record(frozen=True, eq=False)
class While:
    """Runs `condition`, and, if the flag is then true, `body`, and begins again; ends after `limit` iterations at the latest.

    Attributes:
        invariant: buffers that neither `condition` nor `body` writes.
    """

    condition: tuple[Step, ...]
    flag: Flag
    body: tuple[Step, ...]
    limit: Index | None = None
    invariant: frozenset[Hashable] = frozenset()


@record(frozen=True, eq=False)
class Function:
    """Steps that several calls share.

    Attributes:
        parameters: buffers that stand for those of a call. temps: buffers of its own, which keep nothing from one call to the
            next. Its steps use no others. Inside of a loop's body it does not see the number of the iteration.
    """

    name: str
    parameters: tuple[Hashable, ...]
    body: tuple[Step, ...]
    temps: frozenset[Hashable] = frozenset()


@record(frozen=True)
class Call:
    """A function run on these buffers, in the order of its parameters."""

    function: Function
    ids: tuple[Hashable, ...]


Step = Union[Launch, Loop, If, While, Call]


@record(frozen=True)
class Leaf:
    """A launch with the loops that it is inside of, outermost first."""

    launch: Launch
    loops: tuple[Loop | While, ...] = ()


def blocks(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps directly inside of a step, in the order in which they run; a call's function is not inside of it."""
    match step:
        case Loop():
            return (step.body,)
        case If():
            return step.then, step.otherwise
        case While():
            return step.condition, step.body
    return ()


def functions(steps: Iterable[Step]) -> list[Function]:
    """The functions that steps call, each once, those that others call before them."""
    found: dict[int, Function] = {}

    def visit(some: Iterable[Step]) -> None:
        for s in some:
            for block in blocks(s):
                visit(block)
            if isinstance(s, Call) and id(s.function) not in found:
                visit(s.function.body)
                found[id(s.function)] = s.function

    visit(steps)
    return list(found.values())


def leaves(steps: Iterable[Step], loops: tuple[Loop | While, ...] = ()) -> Iterator[Leaf]:
    """The launches in these steps in the order of the text, with their loops; those of functions are not among them."""
    for s in steps:
        if isinstance(s, Launch):
            yield Leaf(s, loops)
        inside = (*loops, s) if isinstance(s, (Loop, While)) else loops
        for block in blocks(s):
            yield from leaves(block, inside)


def every_leaf(steps: Sequence[Step]) -> list[Leaf]:
    """The launches of a whole program: those of its functions first, then those of its steps. A position in this list is the
    number of a launch in a record (`runtime/launch_log.py`)."""
    return [leaf for f in functions(steps) for leaf in leaves(f.body)] + list(leaves(steps))


def mapped(step: Step, ids: Callable[[Hashable], Hashable], launch: Callable[[Launch], Launch] = lambda x: x) -> Step:
    """The same step on other buffers. launch: what becomes of a launch besides."""
    again = lambda steps: tuple(mapped(s, ids, launch) for s in steps)
    flag = lambda f: replace(f, id=ids(f.id)) if isinstance(f, Flag) else f
    match step:
        case Launch():
            return launch(replace(step, ids=tuple(map(ids, step.ids))))
        case Loop():
            return replace(step, body=again(step.body), invariant=frozenset(map(ids, step.invariant)))
        case If():
            return If(flag(step.flag), again(step.then), again(step.otherwise))
        case While():
            invariant = frozenset(map(ids, step.invariant))
            return While(again(step.condition), flag(step.flag), again(step.body), step.limit, invariant)
    return replace(step, ids=tuple(map(ids, step.ids)))


def flags(step: If | While) -> set[Hashable]:
    """The buffer that a branch or a loop reads its flag from, if it lies in one."""
    return {step.flag.id} if isinstance(step.flag, Flag) else set()


def buffers(step: Step) -> set[Hashable]:
    """All buffers that a step reads or writes."""
    match step:
        case Launch() | Call():
            found = set(step.ids)
        case If() | While():
            found = flags(step)
        case _:
            found = set()
    return found.union(*(buffers(s) for block in blocks(step) for s in block))


def written(step: Step) -> set[Hashable]:
    """All buffers that a step may write."""
    if isinstance(step, Launch):
        return step.writes
    if isinstance(step, Call):
        inside: set[Hashable] = set().union(*map(written, step.function.body))
        return {id for id, p in zip(step.ids, step.function.parameters) if p in inside}
    return set().union(*(written(s) for block in blocks(step) for s in block))


# ---- lifetimes -------------------------------------------------------------------------------------------------------


Interval = tuple[int, int]  # of positions, both ends included


def lifetimes(steps: Sequence[Step], temps: Iterable[Hashable]) -> dict[Hashable, tuple[Interval, ...]]:
    """When each temporary holds something: positions of its first and last use, counted over all launches as they stand in the
    text, those of a function again in each call. In order of first use.

    What one iteration of a loop leaves, the next one may read: a buffer that a loop's body uses lives through the whole loop,
    unless the iterations are independent and nothing outside of the loop uses it. A function's own temporaries live in each
    of its calls, and not between them.
    """
    names = set(temps)
    uses: dict[Hashable, int] = {}
    for id in _uses(steps, {}):
        uses[id] = uses.get(id, 0) + 1
    walk = _Lifetimes(names, uses)
    walk.block(steps, {})
    return {id: tuple(sorted(walk.found[id])) for id in walk.order}


def _uses(steps: Iterable[Step], known: Mapping[Hashable, Hashable]) -> Iterator[Hashable]:
    """Every use of a buffer; parameters of functions by the buffers that stand for them."""
    for s in steps:
        if isinstance(s, Launch):
            yield from (known.get(id, id) for id in s.ids)
        elif isinstance(s, Call):
            yield from _uses(s.function.body, dict(zip(s.function.parameters, (known.get(id, id) for id in s.ids))))
        elif isinstance(s, (If, While)):
            yield from (known.get(id, id) for id in flags(s))
        for block in blocks(s):
            yield from _uses(block, known)


@record
class _Lifetimes:
    """A walk over steps.

    Attributes:
        found: the intervals of each buffer. Several where it holds nothing between them, as a function's own temporaries do
            between two calls. order: buffers in order of first use. uses: how often a buffer is used in the whole program.
    """

    names: set[Hashable]
    uses: dict[Hashable, int]
    position: int = 0
    order: dict[Hashable, None] = field(default_factory=dict)
    found: dict[Hashable, list[Interval]] = field(default_factory=dict)

    def block(self, steps: Iterable[Step], known: Mapping[Hashable, Hashable]) -> None:
        for s in steps:
            match s:
                case Launch():
                    self._use([known.get(id, id) for id in s.ids])
                    self.position += 1
                case If():
                    self._flag(s.flag, known)
                    self.block(s.then, known)
                    self.block(s.otherwise, known)
                case Loop():
                    self._loop((s.body,), None, s.independent, known)
                case While():
                    self._loop((s.condition, s.body), s.flag, False, known)
                case Call():
                    self._call(s, known)

    def _use(self, ids: Iterable[Hashable]) -> None:
        for id in ids:
            if id in self.names:
                self.order.setdefault(id)
                first, _ = self.found.get(id, [(self.position, 0)])[0]
                self.found[id] = [(first, self.position)]

    def _flag(self, flag: Flag | Expr, known: Mapping[Hashable, Hashable]) -> None:
        """Reading a flag has a position of its own."""
        if isinstance(flag, Flag):
            self._use([known.get(flag.id, flag.id)])
            self.position += 1

    def _inside(self, parts: Iterable[tuple[Step, ...]], flag: Flag | None, known: Mapping[Hashable, Hashable]):
        """(the intervals of the buffers that these lists of steps use, as if there were nothing else in the program; the
        position at which they begin). `flag` is read after the first list."""
        begin, outer = self.position, self.found
        self.found = {}
        for i, part in enumerate(parts):
            self.block(part, known)
            if flag is not None and i == 0:
                self._flag(flag, known)
        mine, self.found = self.found, outer
        return mine, begin

    def _loop(self, parts, flag: Flag | None, independent: bool, known: Mapping[Hashable, Hashable]) -> None:
        mine, begin = self._inside(parts, flag, known)
        count: dict[Hashable, int] = {}
        for part in parts:
            for id in _uses(part, known):
                count[id] = count.get(id, 0) + 1
        for id, intervals in mine.items():
            own = independent and count.get(id) == self.uses[id]
            self._add(id, intervals if own else [(begin, self.position - 1)], own)

    def _call(self, call: Call, known: Mapping[Hashable, Hashable]) -> None:
        f = call.function
        inner = dict(zip(f.parameters, (known.get(id, id) for id in call.ids)))
        mine, _ = self._inside((f.body,), None, inner)
        for id, intervals in mine.items():
            self._add(id, intervals, id in f.temps)

    def _add(self, id: Hashable, intervals: list[Interval], settled: bool) -> None:
        """Adds intervals of a buffer. Unless they are settled, they and those there were become one interval that spans them
        all."""
        before = self.found.get(id, [])
        both = [*before, *intervals]
        self.found[id] = both if settled else [(min(f for f, _ in both), max(l for _, l in both))]


# ---- rules -----------------------------------------------------------------------------------------------------------


def verify_steps(steps: Sequence[Step], temps: Mapping[Hashable, tuple[DType, Index]], ints: Sequence[Expr]) -> None:
    """Checks what a program's tree must be: kernels take as many buffers as they are given, of their dtypes, and the integers
    that they get where they stand; flags are bools; an invariant buffer is not written; functions use their own buffers alone.

    Errors: VerifyError.
    """
    for f in functions(steps):
        known = {*f.parameters, *f.temps}
        if len(set(f.parameters)) < len(f.parameters):
            raise VerifyError(f"function {f.name}: a parameter stands twice")
        for s in f.body:
            if odd := buffers(s) - known:
                raise VerifyError(f"function {f.name}: it uses {sorted(map(str, odd))[0]}, which is not its own")
        _verify(f.body, temps, list(ints))
    _verify(steps, temps, list(ints))


def _verify(steps: Sequence[Step], temps: Mapping[Hashable, tuple[DType, Index]], ints: list[Expr], depth: int = 0) -> None:
    for s in steps:
        match s:
            case Launch():
                _verify_launch(s, temps, [*ints, *(iteration(d, ints) for d in range(depth))])
            case Call():
                if len(s.ids) != len(s.function.parameters):
                    wanted = len(s.function.parameters)
                    raise VerifyError(f"a call of {s.function.name} with {len(s.ids)} buffers, not {wanted}")
            case Loop() | While():
                if odd := s.invariant & written(s):
                    raise VerifyError(f"a loop writes {sorted(map(str, odd))[0]}, which it says is invariant")
                count = s.count if isinstance(s, Loop) else s.limit
                if count is not None and (n := as_int(count)) is not None and n < 0:
                    raise VerifyError(f"a loop of {n} iterations")
        if isinstance(s, If) and isinstance(s.flag, Expr):
            if s.flag.dtype is not int64 or s.flag.lanes != 1:
                raise VerifyError(f"the flag {s.flag!r} of a branch is no integer")
        elif isinstance(s, (If, While)) and s.flag.id in temps:
            dtype, n = temps[s.flag.id]
            size = as_int(n)
            if dtype is not bool_ or (size is not None and not 0 <= s.flag.offset < size):
                raise VerifyError(f"the flag {s.flag} is no bool: the buffer is {n} elements of {dtype}")
        for block in blocks(s):
            _verify(block, temps, ints, depth + isinstance(s, (Loop, While)))


def _verify_launch(launch: Launch, temps: Mapping[Hashable, tuple[DType, Index]], ints: list[Expr]) -> None:
    k = launch.kernel
    if len(launch.ids) != len(k.buffers) or len(set(launch.ids)) < len(launch.ids):
        raise VerifyError(f"kernel {k.name} takes {len(k.buffers)} distinct buffers, not {launch.ids}")
    if len(k.ints) != len(ints) or any(a is not b for a, b in zip(k.ints, ints)):
        raise VerifyError(f"kernel {k.name} takes the integers {list(k.ints)}, where it stands there are {ints}")
    for id, b in zip(launch.ids, k.buffers):
        if id in temps and temps[id][0].size != b.dtype.size:
            raise VerifyError(f"kernel {k.name}: {b.name} is {b.dtype}, the buffer {id} holds {temps[id][0]}")
