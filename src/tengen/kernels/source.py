"""What flows into a kernel: a `Source` gives the value of a tensor at any coordinates, without saying where it is stored.

A leaf loads from an `Array`; an `Elementwise` combines other sources; ops with computed coordinates (padding, concatenation,
gathering) subclass `Source`. Fusion is nothing but a source inside a source: a strategy that takes a source
(pointwise, reduction, the epilogue of a contraction) takes the whole expression above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tengen.base.dtype import DType
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, const, ramp, splat, var


@dataclass(eq=False)
class At:
    """Where a source is asked for: one coordinate per axis. When `vec` names an axis, the coordinate there is the first of
    LANES consecutive ones, of which `count` exist (None: all). A coordinate may itself be a vector, one for each lane."""

    coords: tuple[Index, ...]
    vec: int | None = None
    count: Expr | None = None
    memo: dict = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        return 1 if self.vec is None and not any(isinstance(c, Expr) and c.lanes > 1 for c in self.coords) else LANES

    def coord(self, axis: int) -> Expr:
        """The coordinate as a value: a vector along the vector axis."""
        c = self.coords[axis]
        c = c if isinstance(c, Expr) else const(c)
        return c + ramp() if axis == self.vec else c

    def load(self, k: KernelBuilder, a: Array) -> Expr:
        """The elements of `a` here: one load, a splat, or a gather, by the stride along the vector axis."""
        buffer, index = k.read(a), a.index(self.coords)
        stride = 0 if self.vec is None else a.strides[self.vec]
        if isinstance(index, Expr) and index.lanes > 1:
            return k.load(buffer, index if as_int(stride) == 0 else ramp() * stride + index, LANES, self.count)
        if self.vec is None:
            return k.load(buffer, index)
        if as_int(stride) == 0:
            return splat(k.load(buffer, index))
        if as_int(stride) == 1:
            return k.load(buffer, index, LANES, self.count)
        return k.load(buffer, ramp() * stride + index, LANES, self.count)


class Source:
    """A tensor-valued expression: `shape`, `dtype`, and its value anywhere."""

    shape: tuple[Index, ...]
    dtype: DType

    def value(self, k: KernelBuilder, at: At) -> Expr:
        """Records what computes the value at `at`. Implemented by subclasses; callers use `at()`."""
        raise NotImplementedError

    def at(self, k: KernelBuilder, at: At) -> Expr:
        """The value at `at`; asked for again, it is not computed again."""
        if self not in at.memo:
            at.memo[self] = k.let(self.value(k, at))
        return at.memo[self]

    def leaves(self) -> list[Array] | None:
        """The arrays read at exactly the asked coordinates (so axes may be merged), or None if there is more to it."""
        return None

    def rebind(self, arrays: dict) -> Source:
        """The same source over other arrays (of a merged or permuted shape); only where `leaves` is not None. `arrays` also
        remembers the sources that were made, so that what was shared stays shared."""
        raise NotImplementedError

    def expand(self, shape: tuple[Index, ...]) -> Source | None:
        """The source broadcast to `shape` in a way of its own, or None for the general way of `broadcast`."""
        return None

    def reads(self, at: At) -> list[tuple[Array, At]]:
        """What is loaded for the value at `at`: arrays, and where; as far as that is known without loading anything."""
        return []

    def prefetch(self, k: KernelBuilder, at: At) -> None:
        """Prefetches what the value at `at` needs, where the processor cannot guess it from the places before."""

    @property
    def scattered(self) -> bool:
        """Whether `prefetch` does something."""
        return False


@dataclass(eq=False)
class Leaf(Source):
    """The elements of an array."""

    array: Array

    def __post_init__(self):
        self.shape, self.dtype = self.array.shape, self.array.dtype

    def value(self, k, at):
        v = at.load(k, self.array)
        return splat(v) if at.lanes > 1 else v

    def reads(self, at):
        return [(self.array, at)]

    def leaves(self):
        return [self.array]

    def rebind(self, arrays):
        return Leaf(arrays[self.array])


@dataclass(eq=False)
class Literal(Source):
    """One number everywhere."""

    number: float | int | bool
    dtype: DType
    shape: tuple[Index, ...] = ()

    def value(self, k, at):
        return const(self.number, self.dtype, at.lanes)

    def leaves(self):
        return []

    def rebind(self, arrays):
        return self


@dataclass(eq=False)
class Elementwise(Source):
    """`fn` of the operands' values at the same coordinates. Operands are broadcast to `shape` first (see `broadcast`)."""

    fn: Callable[..., Expr]
    operands: Sequence[Source]
    shape: tuple[Index, ...]
    dtype: DType

    def value(self, k, at):
        r = self.fn(*(s.at(k, at) for s in self.operands))
        return splat(r) if at.lanes > 1 else r

    def reads(self, at):
        return [x for s in self.operands for x in s.reads(at)]

    def leaves(self):
        out: list[Array] = []
        for s in self.operands:
            inner = s.leaves()
            if inner is None:
                return None
            out += inner
        return out

    def rebind(self, arrays):
        if self not in arrays:
            ops = [s.rebind(arrays) for s in self.operands]
            shape = next((s.shape for s in ops if s.shape), self.shape)
            arrays[self] = Elementwise(self.fn, ops, shape, self.dtype)
        return arrays[self]


@dataclass(eq=False)
class Given(Source):
    """A value that a kernel has computed already, and put into the `memo` of the place where it is asked for."""

    shape: tuple[Index, ...]
    dtype: DType


@dataclass(eq=False)
class View(Source):
    """Another source under a strided change of coordinates: axis j of the view is axis `axes[j]` of the source (None: a
    broadcast axis), coordinate c reads `starts[j] + c * steps[j]`; source axes that no view axis names are read at `fixed`."""

    source: Source
    shape: tuple[Index, ...]
    axes: tuple[int | None, ...]
    starts: tuple[Index, ...]
    steps: tuple[Index, ...]
    fixed: dict[int, Index] = field(default_factory=dict)

    def __post_init__(self):
        self.dtype = self.source.dtype

    def inner(self, at: At) -> At:
        """The place in the source."""
        coords: list[Index] = [self.fixed.get(i, 0) for i in range(len(self.source.shape))]
        vec = None
        for j, axis in enumerate(self.axes):
            if axis is None:
                continue
            if j == at.vec and as_int(self.steps[j]) != 1:
                coords[axis] = self.starts[j] + at.coord(j) * self.steps[j]
                continue
            coords[axis] = self.starts[j] + at.coords[j] * self.steps[j]
            if j == at.vec:
                vec = axis
        key = (tuple(coords), vec)
        inner = at.memo.get(key)
        if inner is None:
            inner = at.memo[key] = At(tuple(coords), vec, at.count)
            inner.count = at.count if inner.lanes > 1 else None
        return inner

    def value(self, k, at):
        v = self.source.at(k, self.inner(at))
        return splat(v) if at.lanes > 1 else v

    def reads(self, at):
        return self.source.reads(self.inner(at))

    def leaves(self):
        return None


@dataclass(frozen=True, eq=False)
class Ending:
    """An epilogue that is a source: `final`, in which `given` stands for the sum. place: maps the place of the sum to the place
    at which the source is asked, where these differ."""

    final: Source
    given: Source
    place: Callable[[At], At] = field(default=lambda at: at)

    def __call__(self, k: KernelBuilder, value: Expr, at: At) -> Expr:
        """What is stored."""
        at = self.place(at)
        at.memo[self.given] = cast(value, self.given.dtype)
        return self.final.at(k, at)

    def reads(self, at: At) -> list[tuple[Array, At]]:
        """What is loaded for it: `Source.reads`."""
        return self.final.reads(self.place(at))


@dataclass(frozen=True, eq=False)
class Prologue:
    """The prologue of an image: what is computed of each element as it is read. `final` is a source in which `given` stands for
    the element; all else in it has one value for each channel (axis 1), or one in all. whole: the same as a source of its own,
    which reads the image itself."""

    final: Source
    given: Source
    whole: Source

    def beside(self, k: KernelBuilder, channel: Index, count: Expr | None) -> Callable[[Expr], Expr]:
        """The prologue for LANES channels from `channel` on, as a function of a vector of elements. What it needs beside the
        elements is loaded here, once."""
        coords: list[Index] = [0] * len(self.final.shape)
        coords[1] = channel
        at = At(tuple(coords), 1, count)
        self._others(k, self.final, at)

        def make(value: Expr) -> Expr:
            mine = replace(at, memo={**at.memo, self.given: cast(value, self.given.dtype)})
            return self.final.at(k, mine)

        return make

    def _others(self, k: KernelBuilder, s: Source, at: At) -> bool:
        """Loads the parts of `s` that do not depend on the element; returns whether `s` itself depends on it."""
        if s is self.given:
            return True
        inner = [self._others(k, o, at) for o in s.operands] if isinstance(s, Elementwise) else []
        if not any(inner):
            s.at(k, at)
        return any(inner)


def moved(epilogue: Callable, place: Callable[[At], At]) -> Callable:
    """The epilogue for sums at other coordinates: `place` makes of them those that it knows."""
    if isinstance(epilogue, Ending):
        return replace(epilogue, place=lambda at: epilogue.place(place(at)))
    return lambda k, value, at: epilogue(k, value, place(at))


def broadcast(s: Source, shape: Sequence[Index]) -> Source:
    """`s` seen with `shape`, by NumPy's rule."""
    shape = tuple(shape)
    if s.shape == shape:
        return s
    if (wider := s.expand(shape)) is not None:
        return wider
    if isinstance(s, Leaf):
        return Leaf(s.array.expand(shape))
    if isinstance(s, Literal):
        return replace(s, shape=shape)
    if isinstance(s, Elementwise):
        return Elementwise(s.fn, [broadcast(broadcast(o, s.shape), shape) for o in s.operands], shape, s.dtype)
    lead = len(shape) - len(s.shape)
    axes = [None] * lead + [None if as_int(d) == 1 and as_int(shape[lead + i]) != 1 else i for i, d in enumerate(s.shape)]
    return View(s, shape, tuple(axes), (0,) * len(shape), (1,) * len(shape))


def invariant_parts(sources: Sequence[Source], axes: Sequence[int], also: tuple[type, ...] = ()) -> list[Source]:
    """The largest computed parts of sources that have one value along these axes: they are made of numbers, of arrays with
    stride 0 along the axes, and of sources of the types `also`."""
    known: dict[Source, bool] = {}
    found: dict[Source, None] = {}
    seen: set[Source] = set()

    def fixed(s: Source) -> bool:
        if s not in known:
            if isinstance(s, Leaf):
                there = all(as_int(d) != 0 for d in s.shape)  # of an array without elements nothing may be loaded
                known[s] = there and all(as_int(s.array.strides[i]) == 0 for i in axes)
            else:
                known[s] = isinstance(s, (Literal, *also)) or (isinstance(s, Elementwise) and all(map(fixed, s.operands)))
        return known[s]

    def walk(s: Source) -> None:
        if s in seen or not isinstance(s, Elementwise):
            return
        seen.add(s)
        if fixed(s):
            found[s] = None
        else:
            for o in s.operands:
                walk(o)

    for s in sources:
        walk(s)
    return list(found)


def children(s: Source) -> list[Source]:
    """The sources that a source is made of."""
    found = []
    for v in vars(s).values():
        found += [x for x in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(x, Source)]
    return found


def costs(s: Source) -> bool:
    """Whether computing the source takes a mathematical function."""
    if type(s) is Elementwise:  # others record statements
        stack = [s.fn(*(var(f"operand{i}", o.dtype) for i, o in enumerate(s.operands)))]
        while stack:
            e = stack.pop()
            if e.op == "call":
                return True
            stack.extend(e.args)
    return any(map(costs, children(s)))
