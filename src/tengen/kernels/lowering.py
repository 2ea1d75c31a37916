"""What a lowering works on: strided arrays in, launches of kernels out.

An `Array` is a strided window on one of a program's buffers. Extents, strides and offsets are in elements, and each is a
number or an expression over the program's integer parameters, so one lowering serves both a specialised and a shape-generic
program. A `Lowering` collects the launches, as a tree of steps, and the temporary buffers between them.

Read next: `steps.py` (the tree), `source.py` (what flows into a kernel), `pointwise.py` (the simplest strategy).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tengen.base.dtype import DType, bool_
from tengen.base.errors import VerifyError
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
from tengen.loops.lang import Buffer, Expr, Index, as_int


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


@dataclass(frozen=True)
class Array:
    """A strided window on buffer `id` of the program. prologue: what is computed of each element as it is read
    (`source.Prologue`), for strategies that can do that; for others `pointwise.stored` writes the result to memory before."""

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
        """Whether the buffer is a constant of the program: what is made of it is made once."""
        return isinstance(self.id, tuple) and self.id[:1] == ("const",)

    def index(self, coords: Sequence[Index]) -> Index:
        """The element at these coordinates, counted from the start of the buffer."""
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
        """A unit axis put before `axis`."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def is_contiguous(self) -> bool:
        """Whether the elements are dense in logical order, as far as is known now."""
        return self.strides == contiguous_strides(self.shape) or all(
            s == c or as_int(d) == 1 for s, c, d in zip(self.strides, contiguous_strides(self.shape), self.shape)
        )


@dataclass(frozen=True)
class _Pattern:
    """What was launched for some arrays, without the place: buffers are the numbers in which they came up.

    Attributes:
        temps: those that were taken. steps: what was launched. packed: what `once` has made since: array, key, array. names: of
            the kernels that were begun. chosen: the problem keys of the schedules that were asked for.
    """

    temps: list[tuple[DType, Index]]
    steps: list[Step]
    packed: list[tuple[Array, Hashable, Array]]
    names: list[str]
    chosen: list[str]


@dataclass
class _Block:
    """A list of steps that is being written. loop: whether it is the body of a loop, with `invariant` buffers."""

    steps: list[Step]
    loop: bool = False
    invariant: frozenset[Hashable] = frozenset()


class Branches:
    """What is launched in an `If` (`Lowering.branch`): first the steps where the flag is true; after `otherwise`, the others."""

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
    """What is launched in a `While` (`Lowering.repeat_while`): first the steps that find the flag; after `holds`, its body.

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

    def __init__(self, name: str, ints: Sequence[Expr]):
        super().__init__(name)
        for v in ints:
            self.int(str(v.attr))
        self._by_id: dict[Hashable, Buffer] = {}
        self.local: dict[Hashable, Buffer] = {}  # scratch memory that arrays may lie in
        self.given: dict = {}  # Source -> function of an `At`: values that this kernel has computed before they are asked for

    @property
    def ids(self) -> tuple[Hashable, ...]:
        return tuple(self._by_id)

    def read(self, a: Array) -> Buffer:
        """The buffer of an array that the kernel reads as it lies."""
        if a.prologue is not None:
            raise VerifyError(f"kernel {self.name}: an array that is computed as it is read; help: pointwise.stored")
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
        target: what it is compiled for. ints: the program's integer parameters. schedules: what tuning found.
        first: the number of the first temporary.
    """

    def __init__(self, target, ints: Sequence[Expr] = (), schedules: Schedules | None = None, first: int = 0):
        self.target = target
        self.schedules, self._first = schedules, first
        self.choices: dict[str, Choice] = {}  # what strategies asked, by problem key
        self.node: int | None = None  # the position of the node that is being lowered
        self.nodes: dict[int, Callable[[Lowering], None]] = {}  # launches a node once more, by position
        self.ints = list(ints)
        self._blocks = [_Block([])]  # that are being written, the program's own first
        self.where: str | None = None  # the user's line that is being lowered
        self.temps: dict[Hashable, tuple[DType, Index]] = {}
        self._names: dict[str, int] = {}
        self._begun: list[str] = []  # names of kernels, before they were made unique
        self._asked: list[str] = []  # problem keys of choices, whenever one was asked for
        self._patterns: dict[Hashable, _Pattern] = {}  # what `alike` has launched
        self._made: dict[tuple, Array] = {}

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
        """A dense array that lives from its first to its last launch."""
        id = ("temp", self._first + len(self.temps))
        self.temps[id] = (dtype, product(shape))
        return Array(id, dtype, tuple(shape), contiguous_strides(shape, order))

    def kernel(self, name: str) -> KernelBuilder:
        """A new kernel; names are made unique within the program."""
        n = self._begin_kernel(name)
        return KernelBuilder(f"{name}_{n}" if n else name, [*self.ints, *(iteration(d, self.ints) for d in range(self._depth))])

    def _begin_kernel(self, name: str) -> int:
        """How many kernels of this name were begun before."""
        self._begun.append(name)
        n = self._names.get(name, 0)
        self._names[name] = n + 1
        return n

    def launch(self, k: KernelBuilder) -> None:
        """Runs the kernel after all launched before."""
        self._add(Launch(k.build(), k.ids, self.where, self.node))

    def call(self, function: Function, arrays: Sequence[Array]) -> None:
        """Runs a function on the buffers of these arrays."""
        self._add(Call(function, tuple(a.id for a in arrays)))

    def _add(self, step: Step) -> None:
        self._blocks[-1].steps.append(step)
        gone = written(step)
        self._made = {key: made for key, made in self._made.items() if key[0] not in gone}

    def alike(self, meaning: Hashable, arrays: Sequence[Array | None], run: Callable[[Lowering], None]) -> None:
        """Runs `run`, which launches what computes something of these arrays; or launches the same kernels on these, where
        something of the same meaning was run for arrays that lie alike. A network repeats its layers, and to write a kernel
        takes milliseconds.

        Args:
            meaning: whatever else decides what `run` launches.
        """
        if self.repeats:
            return run(self)
        number: dict[Hashable, int] = {}
        key = self._situation(meaning, arrays, number)
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

    def _situation(self, meaning: Hashable, arrays: Sequence[Array | None], number: dict[Hashable, int]) -> Hashable:
        """All that decides what is launched: arrays by how they lie, buffers by their kind and by which of them are the same, what
        `once` has made of them. `number` is filled with the buffers in order."""
        at = lambda a: _at(a, {a.id: number.setdefault(a.id, len(number))})
        lie = tuple(None if a is None else at(a) for a in arrays)
        packed = tuple((at(source), how, at(a)) for (id, source, how), a in self._made.items() if id in number)
        return meaning, lie, packed, tuple(id[0] if isinstance(id, tuple) else id for id in number)

    def _launch_pattern(self, p: _Pattern, ids: list[Hashable]) -> None:
        """Launches a pattern on buffers, in order of their numbers; the pattern's own temporaries follow them."""
        for dtype, n in p.temps:
            ids.append(("temp", self._first + len(self.temps)))
            self.temps[ids[-1]] = (dtype, n)
        for name in p.names:
            self._begin_kernel(name)
        for text in p.chosen:
            self._note_choice(text)
        here = lambda launch: replace(launch, where=self.where, node=self.node)
        for pattern in p.steps:
            step = mapped(pattern, ids.__getitem__, here)  # type: ignore[arg-type]
            if isinstance(step, Loop):
                self._forget_all_but(step.invariant)
            self._add(step)
        for source, how, made in p.packed:
            source = _at(source, ids)
            self._made[source.id, source, how] = _at(made, ids)

    def choose(self, problem_key: Callable[[], str], rule: S, fits: Callable[[S], str]) -> S:
        """The schedule of a kernel: what tuning found for the same problem, or what the rule says. A program with integer
        parameters serves many problems, and has the rule's.

        Args:
            problem_key: gives the problem key: a text of what is computed, with extents, strides and dtypes. fits: a schedule
                -> "", or why it cannot be used.
        """
        if self.ints:
            return rule
        text = problem_key()
        taken = answer(self.schedules, text, rule, fits)
        self.choices.setdefault(text, Choice(text, rule, taken, fits))  # type: ignore[arg-type]
        self._note_choice(text)
        return taken

    def _note_choice(self, text: str) -> None:
        self._asked.append(text)
        if self.node is not None:
            self.choices[text].nodes.add(self.node)

    def once(self, source: Array, how: Hashable, make: Callable[[], Array]) -> Array:
        """What `make` launches of `source` (packed operands): made before in the same way, it is used again, as long as nobody
        has written the source's buffer."""
        key = (source.id, source, how)
        if key not in self._made:
            self._made[key] = self._before(source, make) if self.invariant(source) else make()
        return self._made[key]

    @property
    def _depth(self) -> int:
        """How many loops what is launched now is inside of."""
        return sum(b.loop for b in self._blocks)

    @property
    def repeats(self) -> bool:
        """Whether what is launched now is inside of a loop."""
        return self._depth > 0

    def invariant(self, a: Array) -> bool:
        """Whether what is launched now is inside of a loop that does not write `a`."""
        return self._outside(a) < len(self._blocks)

    def _outside(self, a: Array) -> int:
        """How many blocks are outside of the loops around the current place that do not write `a`."""
        n = len(self._blocks)
        for i in range(n - 1, 0, -1):
            if self._blocks[i].loop:
                if a.id not in self._blocks[i].invariant:
                    break
                n = i
        return n

    @contextlib.contextmanager
    def repeat(self, count: Index, invariant: Sequence[Array] = (), independent: bool = False) -> Iterator[Expr]:
        """What is launched in the block runs `count` times; yields the number of the iteration, which arrays' offsets may depend
        on, but no number of work items. What `once` makes of `invariant` arrays, which the block does not write, is made before the
        loop. `independent`: no iteration reads what another one left in a temporary, so that those of the block alone may share memory."""
        number, ids = iteration(self._depth, self.ints), frozenset(a.id for a in invariant)
        self._forget_all_but(ids)
        with self._block(_Block([], True, ids)) as block:
            yield number
        self._forget_all_but(ids)
        self._blocks[-1].steps.append(Loop(count, tuple(block.steps), ids, independent))

    @contextlib.contextmanager
    def repeat_while(self, invariant: Sequence[Array] = (), limit: Index | None = None) -> Iterator[Condition]:
        """What is launched in the block runs again and again: first what finds the flag, given to `Condition.holds`; what follows
        is the body. `limit`: the largest number of iterations. `invariant`: as in `repeat`."""
        number, ids = iteration(self._depth, self.ints), frozenset(a.id for a in invariant)
        condition = Condition(self, number)
        self._forget_all_but(ids)
        with self._block(_Block([], True, ids)) as block:
            yield condition
        if condition.steps is None or condition.flag is None:
            raise VerifyError("a while needs a condition; help: call holds(flag) in its block")
        self._forget_all_but(ids)
        self._blocks[-1].steps.append(While(tuple(condition.steps), condition.flag, tuple(block.steps), limit, ids))

    @contextlib.contextmanager
    def branch(self, flag: Array) -> Iterator[Branches]:
        """What is launched in the block runs where the flag, one bool in memory, is true; what is launched after
        `Branches.otherwise` where it is false."""
        branches = Branches(self)
        with self._block(_Block([])) as block:
            yield branches
        first, second = (block.steps, []) if branches.then is None else (branches.then, block.steps)
        self._made = branches._made
        self._add(If(_flag(flag), tuple(first), tuple(second)))

    def function(self, name: str, parameters: Sequence[Array], write: Callable[[], None]) -> Function:
        """The steps that `write` launches, as a function of the buffers of `parameters`. Its other buffers are temporaries."""
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
        """What is launched in the block is put into a list of its own."""
        self._blocks.append(block)
        depth = len(self._blocks)
        try:
            yield block
        finally:
            del self._blocks[depth - 1 :]

    def _another_block(self) -> list[Step]:
        """The steps of the innermost block, which begins anew."""
        block = self._blocks[-1]
        steps, block.steps = block.steps, []
        return steps

    def _forget_all_but(self, ids: frozenset[Hashable]) -> None:
        self._made = {key: made for key, made in self._made.items() if key[0] in ids}

    def _before(self, source: Array, make: Callable[[], Array]) -> Array:
        """What `make` launches, put before the loops that do not write `source`."""
        blocks, n = self._blocks, self._outside(source)
        self._blocks = blocks[:n]
        try:
            return make()
        finally:
            self._blocks = blocks


def _flag(a: Array) -> Flag:
    offset = as_int(a.offset)
    if a.dtype is not bool_ or as_int(product(a.shape)) != 1 or offset is None:
        raise VerifyError(f"a flag is one bool at a known place, not {a.dtype}{list(a.shape)} at {a.offset}")
    return Flag(a.id, offset)


def _at(a: Array, ids: Mapping[Hashable, Hashable] | Sequence[Hashable]) -> Array:
    """The same window on the buffer that stands in `ids` for its own."""
    return replace(a, id=ids[a.id])  # type: ignore[index, call-overload]
