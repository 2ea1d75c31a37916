"""What a lowering works on: strided arrays in, launches of kernels out.

An `Array` is a strided window on one of a program's buffers. Extents, strides and offsets are in elements, and each is a
number or an expression over the program's integer parameters, so one lowering serves both a specialised and a shape-generic
program. A `Lowering` collects the launches, in order, and the temporary buffers between them.

Read next: `source.py` (what flows into a kernel), `pointwise.py` (the simplest strategy).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from tengen.base.dtype import DType
from tengen.base.errors import VerifyError
from tengen.kernels.schedule import Choice, S, Schedules, answer
from tengen.loops.builder import Builder
from tengen.loops.lang import Buffer, Expr, Index, Kernel, as_int, var

STEP = var("step")  # of the `Repeat` that a launch is in: the last integer parameter of its kernel


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


@dataclass(frozen=True, eq=False)
class Repeat:
    """Launches that run `count` times, one after another, with STEP = 0, 1, ...: the steps of a recurrence, or the images of a
    batch. `steady` are buffers that they do not write; `apart`: no time round reads what another one left in a temporary."""

    count: Index
    steady: frozenset[Hashable]
    apart: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel run on these buffers of the program, in the kernel's order. `where` is the user's line that asked for it,
    `node` the position of the graph's node that it computes; None where there is no graph, or no node. Neighbours with one
    `repeat` run together as often as it says."""

    kernel: Kernel
    ids: tuple[Hashable, ...]
    where: str | None = None
    node: int | None = None
    repeat: Repeat | None = None


def by_repeat(launches: Sequence[Launch]) -> Iterator[tuple[Repeat | None, list[tuple[int, Launch]]]]:
    """Launches with their positions, those of one `Repeat` together."""
    for _, part in groupby(enumerate(launches), lambda at: id(at[1].repeat)):
        some = list(part)
        yield some[0][1].repeat, some


@dataclass(frozen=True)
class _Pattern:
    """What was launched for some arrays, less where it was: buffers are the numbers in which they came up.

    Attributes:
        temps: those that were taken. launches: kernels with their buffers and the position of their repeat, if any.
            repeats: count, steady buffers, apart. packed: what `once` has made since: key, array. names: of the kernels that were
            begun. chosen: the problem keys of the schedules that were asked for.
    """

    temps: list[tuple[DType, Index]]
    launches: list[tuple[Kernel, list[int], int | None]]
    repeats: list[tuple[Index, list[int], bool]]
    packed: list[tuple[Array, Hashable, Array]]
    names: list[str]
    chosen: list[str]


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
        self.launches: list[Launch] = []
        self.where: str | None = None  # the user's line that is being lowered
        self.temps: dict[Hashable, tuple[DType, Index]] = {}
        self._names: dict[str, int] = {}
        self._begun: list[str] = []  # names of kernels, before they were made unique
        self._asked: list[str] = []  # problem keys of choices, whenever one was asked for
        self._patterns: dict[Hashable, _Pattern] = {}  # what `alike` has launched
        self._made: dict[tuple, Array] = {}
        self._repeat: Repeat | None = None
        self._begin = 0  # where the launches of `_repeat` begin

    def temp(self, dtype: DType, shape: Sequence[Index], order: Sequence[int] | None = None) -> Array:
        """A dense array that lives from its first to its last launch."""
        id = ("temp", self._first + len(self.temps))
        self.temps[id] = (dtype, product(shape))
        return Array(id, dtype, tuple(shape), contiguous_strides(shape, order))

    def kernel(self, name: str) -> KernelBuilder:
        """A new kernel; names are made unique within the program."""
        n = self._begin_kernel(name)
        return KernelBuilder(f"{name}_{n}" if n else name, self.ints if self._repeat is None else [*self.ints, STEP])

    def _begin_kernel(self, name: str) -> int:
        """How many kernels of this name were begun before."""
        self._begun.append(name)
        n = self._names.get(name, 0)
        self._names[name] = n + 1
        return n

    def launch(self, k: KernelBuilder) -> None:
        """Runs the kernel after all launched before."""
        self._launch(k.build(), k.ids, self._repeat)

    def _launch(self, kernel: Kernel, ids: tuple[Hashable, ...], repeat: Repeat | None) -> None:
        self.launches.append(Launch(kernel, ids, self.where, self.node, repeat))
        written = {id for id, b in zip(ids, kernel.buffers) if b.role == "out"}
        self._made = {key: made for key, made in self._made.items() if key[0] not in written}

    def alike(self, meaning: Hashable, arrays: Sequence[Array | None], run: Callable[[Lowering], None]) -> None:
        """Runs `run`, which launches what computes something of these arrays; or launches the same kernels on these, where
        something of the same meaning was run for arrays that lie alike. A network repeats its layers, and to write a kernel
        takes milliseconds.

        Args:
            meaning: whatever else decides what `run` launches.
        """
        if self._repeat is not None:
            return run(self)
        number: dict[Hashable, int] = {}
        key = self._situation(meaning, arrays, number)
        if key in self._patterns:
            return self._launch_pattern(self._patterns[key], list(number))
        made, temps, launches = dict(self._made), len(self.temps), len(self.launches)
        begun, asked = len(self._begun), len(self._asked)
        run(self)
        taken = list(self.temps.items())[temps:]
        for id, _ in taken:
            number.setdefault(id, len(number))
        new = self.launches[launches:]
        repeats = list(dict.fromkeys(x.repeat for x in new if x.repeat is not None))
        place = lambda ids: [number[id] for id in ids]
        self._patterns[key] = _Pattern(
            [t for _, t in taken],
            [(x.kernel, place(x.ids), repeats.index(x.repeat) if x.repeat is not None else None) for x in new],
            [(r.count, place(r.steady), r.apart) for r in repeats],
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
        repeats = [Repeat(count, frozenset(ids[i] for i in steady), apart) for count, steady, apart in p.repeats]
        for r in repeats:
            self._forget_all_but(r.steady)
        for kernel, places, i in p.launches:
            self._launch(kernel, tuple(ids[j] for j in places), None if i is None else repeats[i])
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
            self._made[key] = self._before(make) if self.steady(source) else make()
        return self._made[key]

    @property
    def repeats(self) -> bool:
        """Whether what is launched now is repeated."""
        return self._repeat is not None

    def steady(self, a: Array) -> bool:
        """Whether what is launched now is repeated, and `a` stays the same."""
        return self._repeat is not None and a.id in self._repeat.steady

    @contextlib.contextmanager
    def repeat(self, count: Index, steady: Sequence[Array] = (), apart: bool = False) -> Iterator[Expr]:
        """What is launched in the block runs `count` times; yields the number of the time, which arrays' offsets may depend on,
        but no number of pieces. What `once` makes of `steady` arrays, which the block does not write, is made before. `apart`: no
        time round reads what another one left in a temporary, so that those of the block alone may lie over each other."""
        if self._repeat is not None:
            raise ValueError("a repeat inside a repeat")
        ids = frozenset(a.id for a in steady)
        self._repeat, self._begin = Repeat(count, ids, apart), len(self.launches)
        self._forget_all_but(ids)
        try:
            yield STEP
        finally:
            self._forget_all_but(ids)
            self._repeat = None

    def _forget_all_but(self, ids: frozenset[Hashable]) -> None:
        self._made = {key: made for key, made in self._made.items() if key[0] in ids}

    def _before(self, make: Callable[[], Array]) -> Array:
        """What `make` launches, put before the repeat."""
        inside, self.launches = self.launches[self._begin :], self.launches[: self._begin]
        repeat, self._repeat = self._repeat, None
        made = make()
        self._repeat, self._begin = repeat, len(self.launches)
        self.launches += inside
        return made


def _at(a: Array, ids: Mapping[Hashable, Hashable] | Sequence[Hashable]) -> Array:
    """The same window on the buffer that stands in `ids` for its own."""
    return replace(a, id=ids[a.id])  # type: ignore[index, call-overload]
