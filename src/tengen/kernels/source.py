"""What flows into a kernel: a `Source` gives the value of a tensor at any coordinates, stored or not.

A `Leaf` loads from an `Array`; an `Elementwise` combines other sources; ops with computed coordinates (padding, gathering)
subclass `Source`. Fusion is nothing but a source inside of a source: a strategy that takes a source (pointwise, reduction, the
epilogue of a contraction) computes the whole expression in its own loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, const, ramp, splat, var

# A list of a source's arrays that is longer than this names each array once. An array that is read by several operands stands in the list
# once for each of them, and behind n softmaxes that would be 4^n times.
MOST_INPUTS = 64


@record(eq=False)
class At:
    """The place at which a source is asked for its value.

    Attributes:
        coords: one coordinate for each axis. A coordinate may be a vector of one for each lane.
        vec: an axis, or None. On this axis the coordinate is the first of LANES consecutive ones, so the value is a vector.
        count: how many of these exist; None: all.
        memo: what has been computed for this place already, by source.
        steady: what has been computed for all places that differ from this one on axis `vec` alone, see `Source.steady`.
    """

    coords: tuple[Index, ...]
    vec: int | None = None
    count: Expr | None = None
    memo: dict = field(default_factory=dict)
    steady: dict = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        return 1 if self.vec is None and not any(isinstance(c, Expr) and c.lanes > 1 for c in self.coords) else LANES

    def coord(self, axis: int) -> Expr:
        """The coordinate on an axis as an expression; on the vector axis, the coordinates of all lanes."""
        c = self.coords[axis]
        c = c if isinstance(c, Expr) else const(c)
        return c + ramp() if axis == self.vec else c

    def load(self, k: KernelBuilder, a: Array) -> Expr:
        """The element of `a` here, or a vector of elements: a vector load, a splat of one load, or a gather, depending on the
        stride along the vector axis."""
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
    """A tensor-valued expression: it has a shape, a dtype, and a value at all coordinates."""

    shape: tuple[Index, ...]
    dtype: DType

    def value(self, k: KernelBuilder, at: At) -> Expr:
        """Writes the statements that compute the value at `at`. Subclasses implement it; callers use `at()`."""
        raise NotImplementedError(f"{type(self).__name__} needs value()")

    def at(self, k: KernelBuilder, at: At) -> Expr:
        """The value at `at`. It is computed when it is first asked for at this place, and remembered in its `memo`."""
        if self not in at.memo:
            at.memo[self] = k.let(self.value(k, at))
        return at.memo[self]

    def leaves(self) -> list[Array] | None:
        """The arrays that the source reads, if it reads each at exactly the coordinates that it is asked for, so that axes may
        be merged or put in another order; else None."""
        return None

    def rebind(self, arrays: dict) -> Source:
        """The same source over other arrays, whose axes are merged or permuted; only where `leaves` is not None. `arrays` maps
        each array to its replacement, and each source to what was made of it, so that what was shared stays shared."""
        raise NotImplementedError(f"{type(self).__name__} needs rebind()")

    def expand(self, shape: tuple[Index, ...], done: dict) -> Source | None:
        """The source broadcast to `shape`, where this kind of source has its own way; None where `broadcast` does it. done: as there."""
        return None

    def steady(self, k: KernelBuilder, at: At) -> dict:
        """Writes the statements of what the source's own value needs and what does not vary along axis `at.vec`: the entries of
        `At.steady` that `value` looks up, under keys that name the source and the coordinates on the other axes."""
        return {}

    def reads(self, at: At) -> list[tuple[Array, At]]:
        """(array, place) for each load that the value at `at` takes, as far as that is known without loading anything."""
        return []

    def prefetch(self, k: KernelBuilder, at: At) -> None:
        """Writes prefetches of what the value at `at` needs, if its addresses are such that the processor cannot guess them."""

    @property
    def scattered(self) -> bool:
        """Whether `prefetch` does something."""
        return False

    def launch(self, lo: Lowering, final: Source, out: Array, name: str) -> bool:
        """Launches a kernel of this kind of source's own that stores `final`, which is computed from this source and numbers alone, where
        that takes less time than `pointwise`'s. Returns whether it did."""
        return False

    def apart(self, lo: Lowering, out: Array) -> bool:
        """Whether `launch` has a kernel for `out` that is so much quicker that its results are stored where they are part of a larger
        expression."""
        return False


def leaves_of(sources: Sequence[Source]) -> list[Array] | None:
    """The arrays that several sources read; None where `Source.leaves` is None for one of them."""
    found: list[Array] = []
    for s in sources:
        if (inner := s.leaves()) is None:
            return None
        found += inner
    return found


def argument_of(s: Source) -> Source | None:
    """The only source, beside numbers, that `s` is computed from, which is no array and no function of others; else None."""
    found: dict[Source, None] = {}
    seen, stack = {s}, [s]
    while stack and len(found) < 2:
        x = stack.pop()
        if isinstance(x, Elementwise):
            new = [o for o in x.operands if o not in seen]
            seen.update(new)
            stack += new
        elif not isinstance(x, Literal):
            found[x] = None
    return next(iter(found)) if len(found) == 1 and not stack else None


@record(eq=False)
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


@record(eq=False)
class Literal(Source):
    """The same number at all coordinates."""

    number: float | int | bool
    dtype: DType
    shape: tuple[Index, ...] = ()

    def value(self, k, at):
        return const(self.number, self.dtype, at.lanes)

    def leaves(self):
        return []

    def rebind(self, arrays):
        return self


@record(eq=False)
class Elementwise(Source):
    """`fn` of the operands' values at the same coordinates. Operands are broadcast to `shape` before (see `broadcast`). by_fma: what has the
    values of `fn`, and is quicker on targets with an instruction for an fma."""

    fn: Callable[..., Expr]
    operands: Sequence[Source]
    shape: tuple[Index, ...]
    dtype: DType
    by_fma: Callable[..., Expr] | None = None

    def value(self, k, at):
        quick = self.by_fma is not None and (k.target is None or k.target.computes("fma", at_once=True))
        fn = self.by_fma if quick else self.fn
        r = fn(*(s.at(k, at) for s in self.operands))
        return splat(r) if at.lanes > 1 else r

    def reads(self, at):
        return [x for s in self.operands for x in s.reads(at)]

    @functools.cached_property
    def _leaves(self) -> list[Array] | None:
        found = leaves_of(self.operands)
        return found if found is None or len(found) <= MOST_INPUTS else list(dict.fromkeys(found))

    def leaves(self):  # asked once, of each of the sources that share this one
        return self._leaves

    def rebind(self, arrays):
        if self not in arrays:
            ops = [s.rebind(arrays) for s in self.operands]
            shape = next((s.shape for s in ops if s.shape), self.shape)
            arrays[self] = replace(self, operands=ops, shape=shape)
        return arrays[self]


@record(eq=False)
class Given(Source):
    """A value that a kernel has computed already, and has put in the `memo` of the place at which it will be asked for."""

    shape: tuple[Index, ...]
    dtype: DType


@record(eq=False)
class View(Source):
    """Another source, seen with other coordinates.

    Attributes:
        axes: axis j of the view is axis `axes[j]` of the source; None: an axis that is broadcast.
        starts, steps: coordinate c on axis j is coordinate `starts[j] + c * steps[j]` of the source.
        fixed: axis of the source -> coordinate, for axes that no axis of the view stands for (default: 0).
    """

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
            inner = at.memo[key] = At(tuple(coords), vec, at.count, {}, at.steady)
            inner.count = at.count if inner.lanes > 1 else None
        return inner

    def value(self, k, at):
        v = self.source.at(k, self.inner(at))
        return splat(v) if at.lanes > 1 else v

    def reads(self, at):
        return self.source.reads(self.inner(at))

    def leaves(self):
        return None


@record(frozen=True, eq=False)
class Ending:
    """An epilogue that is a source: what is stored is `final`, in which `given` stands for the complete sum. place: maps the
    place of the sum to the place at which `final` is asked for, where these differ; sum: a kernel's sum to what `given` stands for.
    """

    final: Source
    given: Source
    place: Callable[[At], At] = field(default=lambda at: at)
    sum: Callable[[Expr], Expr] = field(default=lambda value: value)

    def __call__(self, k: KernelBuilder, value: Expr, at: At) -> Expr:
        """What is stored for the sum `value` at `at`."""
        at = self.place(at)
        at.memo[self.given] = cast(self.sum(value), self.given.dtype)
        return self.final.at(k, at)

    def reads(self, at: At) -> list[tuple[Array, At]]:
        """(array, place) for each load that it takes, see `Source.reads`."""
        return self.final.reads(self.place(at))

    @functools.cached_property
    def anywhere(self) -> bool:
        """Whether it reads arrays at exactly the coordinates that it is asked for, and depends on these in no other way, as of
        `Source.leaves`."""
        seen, stack = {self.final}, [self.final]
        while stack:
            s = stack.pop()
            if type(s) is Elementwise:
                new = [o for o in s.operands if o not in seen]
                seen.update(new)
                stack += new
            elif s is not self.given and s.leaves() is None:
                return False
        return True


@record(frozen=True, eq=False)
class Prologue:
    """The prologue of an image (a norm and an activation, say): what is computed from each element when it is read.

    Attributes:
        final: the result, a source in which `given` stands for the element. Everything else in it has one value for each
            channel (axis 1), or one value in all.
        whole: the same as a source that loads the elements itself.
    """

    final: Source
    given: Source
    whole: Source

    def beside(self, k: KernelBuilder, channel: Index, count: Expr | None) -> Callable[[Expr], Expr]:
        """The prologue for LANES channels from `channel` on, as a function of a vector of elements. What does not depend on the
        elements is loaded and computed here, once."""
        coords: list[Index] = [0] * len(self.final.shape)
        coords[1] = channel
        at = At(tuple(coords), 1, count)
        self._others(k, self.final, at)

        def make(value: Expr) -> Expr:
            mine = replace(at, memo={**at.memo, self.given: cast(value, self.given.dtype)})
            return self.final.at(k, mine)

        return make

    def _others(self, k: KernelBuilder, s: Source, at: At) -> bool:
        """Computes the parts of `s` that do not depend on the element. Returns whether `s` itself depends on it."""
        if s is self.given:
            return True
        inner = [self._others(k, o, at) for o in s.operands] if isinstance(s, Elementwise) else []
        if not any(inner):
            s.at(k, at)
        return any(inner)


def moved(epilogue: Callable, place: Callable[[At], At]) -> Callable:
    """The epilogue for a kernel whose sums have other coordinates; `place` maps them to those that the epilogue expects."""
    if isinstance(epilogue, Ending):
        return replace(epilogue, place=lambda at: epilogue.place(place(at)))
    return lambda k, value, at: epilogue(k, value, place(at))


def given(epilogue: Callable, sum: Callable[[Expr], Expr]) -> Callable:
    """The epilogue for a kernel whose sums are in another dtype; `sum` maps them to those that the epilogue expects."""
    if isinstance(epilogue, Ending):
        return replace(epilogue, sum=sum)
    return lambda k, value, at: epilogue(k, sum(value), at)


def broadcast(s: Source, shape: Sequence[Index], done: dict | None = None) -> Source:
    """`s` broadcast to `shape`, by NumPy's rule. done: what was broadcast before, (id of a source, shape) -> (it, the result): a part that
    several others are made of stays one."""
    shape = tuple(shape)
    if s.shape == shape:
        return s
    done = {} if done is None else done
    if (found := done.get((id(s), shape))) is None:
        found = done[id(s), shape] = (s, _broadcast(s, shape, done))
    return found[1]


def _broadcast(s: Source, shape: tuple[Index, ...], done: dict) -> Source:
    if (wider := s.expand(shape, done)) is not None:
        return wider
    if isinstance(s, Leaf):
        return Leaf(s.array.expand(shape))
    if isinstance(s, Literal):
        return replace(s, shape=shape)
    if isinstance(s, Elementwise):
        return replace(s, operands=[broadcast(broadcast(o, s.shape, done), shape, done) for o in s.operands], shape=shape)
    lead = len(shape) - len(s.shape)
    axes = [None] * lead + [None if as_int(d) == 1 and as_int(shape[lead + i]) != 1 else i for i, d in enumerate(s.shape)]
    return View(s, shape, tuple(axes), (0,) * len(shape), (1,) * len(shape))


def invariant_parts(sources: Sequence[Source], axes: Sequence[int], also: tuple[type, ...] = ()) -> list[Source]:
    """The parts of sources that are computed and do not vary along these axes; only the largest ones, not parts of them. They
    are made of numbers, of arrays with stride 0 along the axes, and of sources of the types `also`."""
    answers: dict[Source, bool] = {}
    found: dict[Source, None] = {}
    seen: set[Source] = set()

    def invariant(s: Source) -> bool:
        if s not in answers:
            if isinstance(s, Leaf):
                there = all(as_int(d) != 0 for d in s.shape)  # nothing may be loaded from an array without elements
                answers[s] = there and all(as_int(s.array.strides[i]) == 0 for i in axes)
            else:
                inner = isinstance(s, Elementwise) and all(map(invariant, s.operands))
                answers[s] = isinstance(s, (Literal, *also)) or inner
        return answers[s]

    def walk(s: Source) -> None:
        if s in seen or not isinstance(s, Elementwise):
            return
        seen.add(s)
        if invariant(s):
            found[s] = None
        else:
            for o in s.operands:
                walk(o)

    for s in sources:
        walk(s)
    return list(found)


def steady_parts(sources: Sequence[Source], k: KernelBuilder, at: At) -> dict:
    """The entries of `At.steady` of all that the sources are made of, for the places that differ from `at` on axis `at.vec`."""
    found: dict = {}
    seen: set = set()

    def walk(s: Source, at: At) -> None:
        if (s, id(at)) in seen:  # a view's place is kept in that of whoever asks
            return
        seen.add((s, id(at)))
        found.update(s.steady(k, at))
        if isinstance(s, View):
            walk(s.source, s.inner(at))
        elif isinstance(s, Elementwise):
            for o in s.operands:
                walk(o, at)

    for s in sources:
        walk(s, at)
    return found


def children(s: Source) -> list[Source]:
    """The sources that a source is directly made of."""
    found = []
    for v in vars(s).values():
        found += [x for x in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(x, Source)]
    return found


def costs(s: Source) -> bool:
    """Whether computing a value of the source takes a call of a mathematical function (exp, tanh, ...)."""
    if type(s) is Elementwise:  # the values of other sources are statements, not expressions
        stack = [s.fn(*(var(f"operand{i}", o.dtype) for i, o in enumerate(s.operands)))]
        while stack:
            e = stack.pop()
            if e.op == "call":
                return True
            stack.extend(e.args)
    return any(map(costs, children(s)))
