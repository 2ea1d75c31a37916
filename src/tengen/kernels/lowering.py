"""What a lowering works on: strided arrays in, launches of kernels out.

An `Array` is a strided window on one of a program's buffers. Extents, strides and offsets are in elements. Each is a number or
an expression over the program's integer parameters, so the same code lowers a program for known and for open extents. A
`Lowering` collects the launches, as a tree of steps, and the temporary buffers between them.

Read next: `steps.py` (the tree), `source.py` (what flows into a kernel), `pointwise.py` (the simplest strategy).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tengen.base.dtype import DType, bool_
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.kernels.schedule import Choice, S, Schedules, answer
from tengen.kernels.steps import (
    Call,
    Flag,
    Function,
    If,
    Launch,
    Loop,
    Step,
    While,
    buffers,
    iteration,
    leaves,
    mapped,
    written,
)
from tengen.loops.builder import Builder
from tengen.loops.lang import Expr, Index, as_int, const, select
from tengen.loops.rewriting import map_expr
from tengen.loops.statements import Buffer, Kernel


def product(dims: Sequence[Index]) -> Index:
    """The number of elements of a shape."""
    n: Index = 1
    for d in dims:
        n = n * d
    return n


def contiguous_strides(shape: Sequence[Index], order: Sequence[int] | None = None) -> tuple[Index, ...]:
    """Strides in elements of a dense array; `order` lists the axes from the outermost in memory to the innermost."""
    strides: list[Index] = [1] * len(shape)
    step: Index = 1
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


@record(frozen=True)
class Array:
    """A strided window on a buffer of the program.

    Attributes:
        id: the buffer. shape, strides, offset: in elements; `offset` is the element at coordinates 0, counted from the start of
            the buffer.
        prologue: what is computed from each element when it is read (`source.Prologue`), by strategies that can do that. For
            others `pointwise.stored` stores the results in memory before.
    """

    id: Hashable
    dtype: DType
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index = 0
    prologue: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def constant(self) -> bool:
        """Whether the buffer is a constant of the program, so that what is computed from it is computed once."""
        return isinstance(self.id, tuple) and self.id[:1] == ("const",)

    def index(self, coords: Sequence[Index]) -> Index:
        """The index of the element at these coordinates: its number from the start of the buffer."""
        i = self.offset
        for c, s in zip(coords, self.strides, strict=True):
            if as_int(s) != 0:
                i = i + c * s
        return i

    def permute(self, axes: Sequence[int]) -> Array:
        """The same elements with axes in another order."""
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def expand(self, shape: Sequence[Index]) -> Array:
        """Broadcast to `shape` by NumPy's rule: new and unit axes get stride 0."""
        lead = len(shape) - self.ndim
        strides = [0] * lead + [0 if as_int(d) == 1 else s for d, s in zip(self.shape, self.strides)]
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def unsqueeze(self, axis: int) -> Array:
        """The same elements with an axis of extent 1 before `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def parts(self) -> tuple[Array, Array]:
        """The real and the imaginary parts of complex elements, as two windows on the same buffer."""
        d = self.dtype.part
        real = replace(self, dtype=d, strides=tuple(s * 2 for s in self.strides), offset=self.offset * 2)
        return real, replace(real, offset=real.offset + 1)

    def is_contiguous(self) -> bool:
        """Whether the elements are known to be dense in logical order; none are, whatever the strides."""
        dense = contiguous_strides(self.shape)
        return self.strides == dense or all([s == c or as_int(d) == 1 for s, c, d in zip(self.strides, dense, self.shape)]) or any(
            [as_int(d) == 0 for d in self.shape]
        )


@record(frozen=True)
class _Pattern:
    """What a call of `Lowering.reuse` has launched, with numbers instead of buffers: a buffer's number says when it was first
    met.

    Attributes:
        temps: (dtype, elements) of the temporaries that were taken. steps: what was launched.
        packed: (array, key, result) of each `Lowering.once` that has made something meanwhile.
        names: of the kernels that were begun. chosen: the problem keys of the schedules that were asked for.
    """

    temps: list[tuple[DType, Index]]
    steps: list[Step]
    packed: list[tuple[Array, Hashable, Array]]
    names: list[str]
    chosen: list[str]


@record
class _Block:
    """A list of steps that is being written. number: of the iteration, where it is the body of a loop. invariant: buffers that the
    loop does not write."""

    steps: list[Step]
    number: Expr | None = None
    invariant: frozenset[Hashable] = frozenset()

    @property
    def loop(self) -> bool:
        """Whether it is the body of a loop."""
        return self.number is not None

    def varies(self, a: Array) -> bool:
        """Whether the elements of an array differ from iteration to iteration: the loop writes it, or moves its window."""
        return a.id not in self.invariant or _mentions(a, self.number)


class Branches:
    """An `If` that is being written (`Lowering.branch`). What is launched first runs where the flag is true; what is launched
    after `otherwise` runs where it is false."""

    def __init__(self, lo: Lowering):
        self._lo, self._made = lo, dict(lo._made)
        self.then: list[Step] | None = None

    def otherwise(self) -> None:
        """What is launched from here on runs where the flag is false."""
        if self.then is not None:
            raise VerifyError("a branch has one `otherwise`")
        self.then = self._lo._another_block()
        self._lo._made = dict(self._made)  # what the first branch made is there only if it ran


class Condition:
    """A `While` that is being written (`Lowering.while_loop`). What is launched first computes the flag; what is launched
    after `holds` is the body.

    Attributes:
        iteration: the number of the current iteration.
    """

    def __init__(self, lo: Lowering, number: Expr):
        self._lo, self.iteration = lo, number
        self.steps: list[Step] | None = None
        self.flag: Flag | None = None

    def holds(self, flag: Array) -> None:
        """What is launched from here on is the body, which runs while the flag is true."""
        if self.steps is not None:
            raise VerifyError("a while has one condition")
        self.flag, self.steps = _flag(flag), self._lo._another_block()


class KernelBuilder(Builder):
    """A `Builder` whose buffers are the program's; every kernel of a program takes the program's integer parameters."""

    def __init__(self, name: str, ints: Sequence[Expr], target: Any = None):
        super().__init__(name)
        self.target = target  # what the kernel is compiled for
        for v in ints:
            self.int(str(v.attr))
        self._by_id: dict[Hashable, Buffer] = {}
        self.local: dict[Hashable, Buffer] = {}  # scratch memory that arrays may lie in
        self.given: dict = {}  # Source -> function of an `At`: values that this kernel has computed before they are asked for

    @property
    def ids(self) -> tuple[Hashable, ...]:
        return tuple(self._by_id)

    def read(self, a: Array) -> Buffer:
        """The buffer of an array that the kernel reads, which has no prologue."""
        if a.prologue is not None:
            raise VerifyError(f"kernel {self.name}: it reads an array that has a prologue; help: use pointwise.stored before")
        if a.id in self.local:
            return self.local[a.id]
        if a.id not in self._by_id:
            self._by_id[a.id] = self.input("x", a.dtype)
        return self._by_id[a.id]

    def write(self, a: Array) -> Buffer:
        """The buffer of an array that the kernel writes (and may read)."""
        if a.id in self.local:
            return self.local[a.id]
        if a.id not in self._by_id:
            self._by_id[a.id] = self.output("y", a.dtype)
        self._by_id[a.id].role = "out"
        return self._by_id[a.id]


class Lowering:
    """Collects what one program runs.

    Args:
        target: what the program is compiled for. ints: its integer parameters. schedules: what tuning found.
        first: the number of the first temporary.

    Attributes:
        steps: what the program runs. temps: (dtype, elements) of each temporary.
        choices: the schedules that strategies have asked for, by problem key.
        where: the user's line, and node: the position of the graph's node, that is being lowered; None where there is none.
        nodes: by position of a node, what launches it once more (tuning does).
        lower_graph: (self, graph, carried, inputs, outputs): launches what a graph inside of a node computes, from arrays and to arrays.
            The first `carried` inputs and outputs are the same arrays, which it changes. `passes/lower.py` sets it.
    """

    lower_graph: Callable[[Lowering, Any, int, Sequence[Array], Sequence[Array]], None]

    def __init__(self, target, ints: Sequence[Expr] = (), schedules: Schedules | None = None, first: int = 0):
        self.target = target
        self.schedules, self._first = schedules, first
        self.choices: dict[str, Choice] = {}
        self.node: int | None = None
        self.nodes: dict[int, Callable[[Lowering], None]] = {}
        self.ints = list(ints)
        self._blocks = [_Block([])]  # lists of steps that are being written: the program's own, then those of open loops, ...
        self.where: str | None = None
        self.temps: dict[Hashable, tuple[DType, Index]] = {}
        self._names: dict[str, int] = {}  # how many kernels of a name were begun
        self._begun: list[str] = []  # names of all kernels, before they were made unique
        self._asked: list[str] = []  # the problem key of every choice, each time that it was asked for
        self._patterns: dict[Hashable, _Pattern] = {}  # what `reuse` has launched
        self._made: dict[tuple, Array] = {}  # what `once` has made

    @property
    def steps(self) -> list[Step]:
        """What the program runs."""
        return self._blocks[0].steps

    @steps.setter
    def steps(self, steps: Sequence[Step]) -> None:
        self._blocks[0].steps = list(steps)

    @property
    def launches(self) -> list[Launch]:
        """All launches in order, also those in loops and branches."""
        return [leaf.launch for leaf in leaves(self.steps)]

    def copied(self) -> Lowering:
        """The same, to be changed on its own."""
        made = copy.copy(self)
        made._blocks, made.temps = [_Block(list(self.steps))], dict(self.temps)
        return made

    def temp(self, dtype: DType, shape: Sequence[Index], order: Sequence[int] | None = None) -> Array:
        """A new dense temporary. Its memory is its own from the first to the last launch that uses it."""
        id = ("temp", self._first + len(self.temps))
        self.temps[id] = (dtype.part, product(shape) * 2) if dtype.is_complex else (dtype, product(shape))  # kernels know no complex
        return Array(id, dtype, tuple(shape), contiguous_strides(shape, order))

    def kernel(self, name: str) -> KernelBuilder:
        """A new kernel; names are made unique within the program."""
        name = name.replace(":", "_")  # of a namespace
        n = self._begin_kernel(name)
        return KernelBuilder(f"{name}_{n}" if n else name, [*self.ints, *(iteration(d, self.ints) for d in range(self._depth))], self.target)

    def _begin_kernel(self, name: str) -> int:
        """Counts a kernel, and returns how many of this name were begun before."""
        self._begun.append(name)
        n = self._names.get(name, 0)
        self._names[name] = n + 1
        return n

    def launch(self, k: KernelBuilder, kernel: Kernel | None = None) -> None:
        """Runs the kernel after all launched before. kernel: on k's buffers, where k did not write it."""
        self._add(Launch(kernel or k.build(), k.ids, self.where, self.node))

    def call(self, function: Function, arrays: Sequence[Array]) -> None:
        """Runs a function on the buffers of these arrays."""
        self._add(Call(function, tuple(a.id for a in arrays)))

    def _add(self, step: Step) -> None:
        self._blocks[-1].steps.append(step)
        gone = written(step)
        self._made = {key: made for key, made in self._made.items() if key[0] not in gone}

    def reuse(self, problem: Hashable, arrays: Sequence[Array | None], run: Callable[[Lowering], None]) -> None:
        """Calls `run`, which launches kernels on these arrays. Where the same problem was lowered before for other arrays of
        the same extents, strides and dtypes, the kernels written then are launched on these instead. A network repeats its
        layers, and writing a kernel takes milliseconds.

        Args:
            problem: everything beside the arrays that decides what `run` launches.
        """
        if self.in_loop:
            return run(self)
        number: dict[Hashable, int] = {}
        key = self._pattern_key(problem, arrays, number)
        if key in self._patterns:
            return self._launch_pattern(self._patterns[key], list(number))
        made, temps, steps = dict(self._made), len(self.temps), len(self._blocks[-1].steps)
        begun, asked = len(self._begun), len(self._asked)
        run(self)
        taken = list(self.temps.items())[temps:]
        for id, _ in taken:
            number.setdefault(id, len(number))
        self._patterns[key] = _Pattern(
            [t for _, t in taken],
            [mapped(step, number.__getitem__) for step in self._blocks[-1].steps[steps:]],
            [(_at(source, number), how, _at(a, number)) for (_, source, how), a in self._made.items()
             if made.get((source.id, source, how)) is not a],
            self._begun[begun:],
            self._asked[asked:],
        )  # fmt: skip

    def _pattern_key(self, problem: Hashable, arrays: Sequence[Array | None], number: dict[Hashable, int]) -> Hashable:
        """Everything that decides what is launched: the problem; extents, strides, offsets and dtypes of the arrays; which of
        them share a buffer, and the kind of each buffer; what `once` has made of them. Fills `number` with the buffers'
        numbers, in the order in which they are met."""
        at = lambda a: _at(a, {a.id: number.setdefault(a.id, len(number))})
        lie = tuple(None if a is None else at(a) for a in arrays)
        packed = tuple((at(source), how, at(a)) for (id, source, how), a in self._made.items() if id in number)
        return problem, lie, packed, tuple(id[0] if isinstance(id, tuple) else id for id in number)

    def _launch_pattern(self, p: _Pattern, ids: list[Hashable]) -> None:
        """Launches a pattern on these buffers, which stand for its numbers 0, 1, ...; the pattern's temporaries have the
        numbers after them."""
        for dtype, n in p.temps:
            ids.append(("temp", self._first + len(self.temps)))
            self.temps[ids[-1]] = (dtype, n)
        for name in p.names:
            self._begin_kernel(name)
        for text in p.chosen:
            self._note_choice(text)
        here = lambda launch: replace(launch, where=self.where, node=self.node)
        for pattern in p.steps:
            step = mapped(pattern, ids.__getitem__, here)
            if isinstance(step, Loop):
                self._forget_all_but(step.invariant)
            self._add(step)
        for source, how, made in p.packed:
            source = _at(source, ids)
            self._made[source.id, source, how] = _at(made, ids)

    def choose(self, problem_key: Callable[[], str], rule: S, fits: Callable[[S], str]) -> S:
        """The schedule of a kernel: the one that tuning found for the same problem, or `rule`. A program with integer
        parameters is one for many problems, and takes the rule.

        Args:
            problem_key: returns the problem key, a text of what is computed, with extents, strides and dtypes.
            fits: a schedule -> why the kernel cannot have it; empty if it can.
        """
        if self.ints:
            return rule
        text = problem_key()
        taken = answer(self.schedules, text, rule, fits)
        self.choices.setdefault(text, Choice(text, rule, taken, fits))
        self._note_choice(text)
        return taken

    def _note_choice(self, text: str) -> None:
        self._asked.append(text)
        if self.node is not None:
            self.choices[text].nodes.add(self.node)

    def once(self, source: Array, how: Hashable, make: Callable[[], Array]) -> Array:
        """An array that `make` computes from `source`, such as a packed operand. If the same was made before and the source's
        buffer has not been written since, that is returned. In a loop that does not write the source, it is made before the
        loop.

        Args:
            how: everything beside the source that decides what `make` computes.
        """
        key = (source.id, source, how)
        if key not in self._made:
            self._made[key] = self._before(source, make) if self.invariant(source) else make()
        return self._made[key]

    @property
    def _depth(self) -> int:
        """How many loops the current place is inside of."""
        return sum(b.loop for b in self._blocks)

    @property
    def in_loop(self) -> bool:
        """Whether the current place is inside of a loop."""
        return self._depth > 0

    def invariant(self, a: Array) -> bool:
        """Whether the current place is inside of a loop in which `a` stays what it is."""
        return self._outside(a) < len(self._blocks)

    def _outside(self, a: Array) -> int:
        """How many of the open blocks enclose all loops around the current place in which `a` stays what it is: what is launched in
        the innermost of these blocks comes before those loops."""
        n = len(self._blocks)
        for i in range(n - 1, 0, -1):
            if self._blocks[i].loop:
                if self._blocks[i].varies(a):
                    break
                n = i
        return n

    @contextlib.contextmanager
    def loop(self, count: Index, invariant: Sequence[Array] = (), independent: bool = False) -> Iterator[Expr]:
        """What is launched in this context runs `count` times. Yields the number of the iteration, on which offsets of arrays
        may depend, but not the number of a kernel's pieces.

        Args:
            invariant: arrays that the loop does not write. What `once` makes of them is made before the loop.
            independent: no iteration reads what another one stored in a temporary. Then a temporary that is used in the loop
                alone holds nothing between two iterations, and may share its memory with others.
        """
        number, ids = iteration(self._depth, self.ints), frozenset(a.id for a in invariant)
        self._forget_all_but(ids)
        with self._block(_Block([], number, ids)) as block:
            yield number
        self._forget_all_but(ids, number)
        self._blocks[-1].steps.append(Loop(count, tuple(block.steps), ids, independent))

    @contextlib.contextmanager
    def while_loop(self, invariant: Sequence[Array] = (), limit: Index | None = None) -> Iterator[Condition]:
        """What is launched in this context runs again and again: first what computes the flag, which is then given to
        `Condition.holds`; what is launched after that is the body, which runs where the flag is true. `limit`: how many
        iterations there are at most. `invariant`: as in `loop`."""
        number, ids = iteration(self._depth, self.ints), frozenset(a.id for a in invariant)
        condition = Condition(self, number)
        self._forget_all_but(ids)
        with self._block(_Block([], number, ids)) as block:
            yield condition
        if condition.steps is None or condition.flag is None:
            raise VerifyError("a while needs a condition; help: call holds(flag) in its block")
        self._forget_all_but(ids, number)
        self._blocks[-1].steps.append(While(tuple(condition.steps), condition.flag, tuple(block.steps), limit, ids))

    @contextlib.contextmanager
    def branch(self, flag: Array | Expr) -> Iterator[Branches]:
        """What is launched in this context runs where the flag is true: one bool in memory, or a condition on the program's
        parameters. What is launched after `Branches.otherwise` runs where it is false."""
        branches = Branches(self)
        with self._block(_Block([])) as block:
            yield branches
        first, second = (block.steps, []) if branches.then is None else (branches.then, block.steps)
        self._made = branches._made
        self._add(If(_flag(flag) if isinstance(flag, Array) else select(flag, const(1), const(0)), tuple(first), tuple(second)))

    def function(self, name: str, parameters: Sequence[Array], write: Callable[[], None]) -> Function:
        """The steps that `write` launches, as a function of the buffers of `parameters`. All other buffers that they use are
        temporaries that `write` takes."""
        blocks, made, temps = self._blocks, self._made, len(self.temps)
        self._blocks, self._made = [_Block([])], {}
        try:
            write()
            steps = tuple(self.steps)
        finally:
            self._blocks, self._made = blocks, made
        own = frozenset(list(self.temps)[temps:])
        ids = tuple(a.id for a in parameters)
        if odd := set().union(*map(buffers, steps)) - own - set(ids):
            raise VerifyError(f"function {name}: it uses {sorted(map(str, odd))[0]}, which is not its own")
        return Function(name, ids, steps, own)

    @contextlib.contextmanager
    def _block(self, block: _Block) -> Iterator[_Block]:
        """What is launched in this context is put in the list of `block`."""
        self._blocks.append(block)
        depth = len(self._blocks)
        try:
            yield block
        finally:
            del self._blocks[depth - 1 :]

    def _another_block(self) -> list[Step]:
        """Takes the steps out of the innermost block, so that it begins anew, and returns them."""
        block = self._blocks[-1]
        steps, block.steps = block.steps, []
        return steps

    def forget_prepared(self) -> None:
        """What `once` has made of anything but constants is not used again."""
        self._made = {key: made for key, made in self._made.items() if key[0][:1] == ("const",)}

    def _forget_all_but(self, ids: frozenset[Hashable], number: Expr | None = None) -> None:
        """Forgets what was made of other buffers, and of windows that this number of an iteration, now past, has placed."""
        self._made = {key: made for key, made in self._made.items() if key[0] in ids and not _mentions(key[1], number)}

    def _before(self, source: Array, make: Callable[[], Array]) -> Array:
        """Calls `make`; what it launches is put before the loops that do not write `source`."""
        blocks, n = self._blocks, self._outside(source)
        self._blocks = blocks[:n]
        try:
            return make()
        finally:
            self._blocks = blocks


def _mentions(a: Array, number: Expr | None) -> bool:
    """Whether a window's place, shape or strides depend on the number of an iteration."""
    if number is None:
        return False
    memo: dict[Expr, bool] = {}
    parts = (x for x in (a.offset, *a.shape, *a.strides) if isinstance(x, Expr))
    return any(map_expr(x, lambda e, inner: e is number or any(inner), memo) for x in parts)


def _flag(a: Array) -> Flag:
    offset = as_int(a.offset)
    if a.dtype is not bool_ or as_int(product(a.shape)) != 1 or offset is None:
        raise VerifyError(f"a flag is one bool at a known place, not {a.dtype}{list(a.shape)} at {a.offset}")
    return Flag(a.id, offset)


def _at(a: Array, ids: Mapping[Hashable, Hashable] | Sequence[Hashable]) -> Array:
    """The same window on the buffer that `ids` has in the place of its own."""
    return replace(a, id=ids[a.id])
