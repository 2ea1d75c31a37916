"""A contraction as every strategy sees it: axes by role, unit axes gone, neighbours merged, one vector axis.

In: the arguments of `contraction.contract`. Out: a `Problem`. An axis has a stride in each operand; axes by role are
g (in all three), m (in a and out), n (in b and out) and k (in a and b, summed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tengen.base.dtype import DType, float32, uint32
from tengen.base.errors import VerifyError
from tengen.kernels.axes import store_at
from tengen.kernels.chunks import Chunks, Walk, merge
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.source import At, Ending, Through
from tengen.loops.builder import as_expr
from tengen.loops.lang import Buffer, Expr, Index, as_int, cast, const, dot2, fma, maximum, minimum

Epilogue = Callable[[KernelBuilder, Expr, At], Expr]


@dataclass(frozen=True)
class Axis:
    """An axis: its extent, its stride in each operand (0 where it has none), which axis of the caller's out it is (None: more
    than one, or none), and the spatial axis of `a` along which it moves by a number of pixels."""

    extent: Index
    a: Index = 0
    b: Index = 0
    out: Index = 0
    place: int | None = None
    pixel: tuple[int, Index] | None = None


@dataclass(frozen=True)
class Border:
    """Where `a`, windows of an image, has elements: those of pixels from 0 to `space` along each spatial axis. Others are zeros,
    and nothing is read there.

    Attributes:
        steps: for each axis of `a`, (spatial axis, pixels) that a step along it moves, or None. first: the pixel of coordinates
            zero. space: extents of the image.
    """

    steps: tuple[tuple[int, Index] | None, ...]
    first: tuple[Index, ...]
    space: tuple[Index, ...]

    def reached(self, shape: Sequence[Index]) -> bool:
        """Whether windows of this shape have, or may have, elements outside."""
        for axis, (first, space) in enumerate(zip(self.first, self.space)):
            low = high = as_expr(first)
            for d, step in zip(shape, self.steps):
                if step is not None and step[0] == axis:
                    far = as_expr((d - 1) * step[1])
                    low, high = low + minimum(far, 0), high + maximum(far, 0)
            if not all(x.op == "const" and x.attr for x in (low >= 0, high < space)):
                return True
        return False


def extents(axes: Sequence[Axis]) -> tuple[Index, ...]:
    """The extents of axes."""
    return tuple(x.extent for x in axes)


@dataclass(frozen=True)
class Problem:
    """out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n]; n is at most one axis, the vector axis. `pairs`: of elements
    rounded to bfloat16, two terms at a time by `dot2`. `zeros`: so far from each element of out in memory lies one that becomes 0.
    `through`: what is made of elements of `a` as they are copied; the side of `a` that is dense, k or m, is its channels."""

    a: Array
    b: Array
    out: Array
    g: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    chunks: Chunks
    epilogue: Epilogue | None
    name: str
    border: Border | None = None
    pairs: bool = False
    zeros: tuple[Index, ...] = ()
    through: Through | None = None

    @property
    def packed(self) -> DType:
        """The dtype of packed operands: an element, or a pair of them."""
        return uint32 if self.pairs else self.compute

    @property
    def bytes(self) -> int:
        """Bytes of a packed element."""
        return 2 if self.pairs else self.compute.size

    @property
    def even(self) -> bool:
        """Whether every chunk is known to have an even number of positions."""
        last = as_int(self.chunks.last)
        return last is not None and last % 2 == 0

    def depth(self, positions: Index) -> Expr:
        """Rows of packed operands for so many positions of k from a chunk's beginning on."""
        return as_expr((positions + 1) // 2 if self.pairs else positions)

    def packed_at(self, chunk: Index, start: Index) -> Expr:
        """The row at which a chunk that begins at position `start` is packed: one of pairs may end with half a pair."""
        return as_expr((start + chunk + 1) // 2 if self.pairs else start)

    @property
    def compute(self) -> DType:
        """The dtype that is accumulated in."""
        return self.a.dtype.compute

    @property
    def rows(self) -> Expr:
        """How many m there are."""
        return as_expr(product(extents(self.m)))

    @property
    def columns(self) -> Expr:
        """How many n there are."""
        return as_expr(product(extents(self.n)))

    @property
    def groups(self) -> Expr:
        """How many g there are."""
        return as_expr(product(extents(self.g)))

    @property
    def stored_rows(self) -> tuple[Axis, ...]:
        """The axes of m whose coordinates a store needs: the caller's for an epilogue, else merged as far as out allows."""
        if self.epilogue is not None or any(as_int(x.extent) == 0 for x in self.m):
            return self.m
        return tuple(Axis(d, out=s) for d, s in zip(*merge(extents(self.m), [x.out for x in self.m])))

    def meaning(self) -> str:
        """What is computed, as text: all that a schedule may depend on. What an epilogue does is not in it."""
        roles = " ".join(f"{r}{[(x.extent, x.a, x.b, x.out) for x in getattr(self, r)]}" for r in "gmnk")
        chunks = f"{list(self.chunks.extents)} by {self.chunks.run}"
        more = (" in pairs" if self.pairs else "") + (" computed" if self.through is not None else "")
        return f"contract {self.a.dtype} x {self.b.dtype} -> {self.out.dtype} {roles} chunks {chunks}{more}"

    def walk(self, role: str, operand: str) -> Walk:
        """The axes of a role as one walk in an operand."""
        axes = getattr(self, role)
        return Walk.of(extents(axes), [getattr(x, operand) for x in axes])

    def swapped(self) -> Problem:
        """The same sums with a and b, m and n exchanged."""
        if self.through is not None:
            raise VerifyError(f"{self.name}: columns cannot be computed as they are read; help: pointwise.stored")
        turn = lambda axes: tuple(replace(x, a=x.b, b=x.a) for x in axes)
        return replace(self, a=self.b, b=self.a, g=turn(self.g), m=turn(self.n), n=turn(self.m), k=turn(self.k))

    def base(self, operand: str, g: Sequence[Index]) -> Index:
        """Where an operand begins for these coordinates of g."""
        i = getattr(self, operand).offset
        for c, x in zip(g, self.g):
            if as_int(getattr(x, operand)) != 0:
                i = i + c * getattr(x, operand)
        return i

    def where(
        self, axes: Sequence[Axis], coords: Sequence[Index], vec: Axis | None, count: Expr | None,
        known_as: tuple[Sequence[Axis], Sequence[Index]] | None = None,
    ) -> Place:  # fmt: skip
        """The place in out that has these coordinates; along `vec`, the first of LANES. known_as: axes and coordinates that the
        epilogue knows, where they are others."""
        shape, strides, at = extents(axes), tuple(x.out for x in axes), tuple(coords)
        v = None if vec is None else list(axes).index(vec)
        inner = At(at, v, count if v is not None else None)
        array = replace(self.out, shape=shape, strides=strides)
        outer: list[Index] = [0] * self.out.ndim
        for x, c in zip(*(known_as or (axes, coords))):
            if x.place is not None:
                outer[x.place] = c
        theirs = At(tuple(outer), None if vec is None else vec.place, inner.count)
        return Place(self, array, inner, theirs)


@dataclass(frozen=True)
class Place:
    """Where in out a value belongs: in the merged axes, and as the caller's epilogue knows it."""

    problem: Problem
    out: Array
    inner: At
    theirs: At

    def load(self, k: KernelBuilder, partial: Array | None = None) -> Expr:
        """The sum so far, from out or from the array that partial sums live in."""
        return self.inner.load(k, self._of(partial))

    def place(self, k: KernelBuilder, partial: Array | None = None) -> tuple[Buffer, Index]:
        """The first element, in out or in the array that partial sums live in."""
        array = self._of(partial)
        return k.write(array), array.index(self.inner.coords)

    def store(self, k: KernelBuilder, value: Expr, partial: Array | None = None) -> None:
        """Stores a sum that more is to be added to."""
        store_at(k, self._of(partial), self.inner, value)

    def finish(self, k: KernelBuilder, value: Expr, stream: bool = False) -> None:
        """Stores the last sum, through the epilogue. stream: past the caches."""
        self.put(k, self.made(k, value), stream)

    def made(self, k: KernelBuilder, value: Expr) -> Expr:
        """What the epilogue makes of the last sum."""
        p = self.problem
        return cast(value, p.out.dtype) if p.epilogue is None else p.epilogue(k, value, self.theirs)

    def put(self, k: KernelBuilder, value: Expr, stream: bool = False) -> None:
        """Stores what was made, and zeros beside it, which nobody needs soon. stream: past the caches."""
        store_at(k, self.out, self.inner, value, stream)
        for far in self.problem.zeros:
            zero = const(0, value.dtype, value.lanes)
            store_at(k, replace(self.out, offset=self.out.offset + far), self.inner, zero, stream=True)

    def fetch(self, k: KernelBuilder) -> None:
        """Fetches what the epilogue reads there, where that is another line of memory for each row."""
        for array, at in self.problem.epilogue.reads(self.theirs) if isinstance(self.problem.epilogue, Ending) else ():
            index = as_expr(array.index(at.coords))
            dense = at.vec is not None and as_int(array.strides[at.vec]) == 1 and index.lanes == 1
            across = [i for i, d in enumerate(array.shape) if i != at.vec and as_int(d) != 1 and as_int(array.strides[i]) != 0]
            if dense and across:
                k.prefetch(k.read(array), index)

    def _of(self, partial: Array | None) -> Array:
        return self.out if partial is None else replace(partial, shape=self.out.shape)


def multiply_add(a: Expr, b: Expr, total: Expr) -> Expr:
    """One term of the sum, or a pair of terms."""
    if a.dtype is uint32 and total.dtype is float32:
        return dot2(total, a, b)
    return fma(a, b, total) if a.dtype.is_float else a * b + total


def partial_sums(lo: Lowering, p: Problem, axes: Sequence[Axis]) -> Array | None:
    """Where sums live between chunks: None for out itself, or a temporary if out has another dtype."""
    if p.out.dtype is p.compute or as_int(p.chunks.count) == 1:
        return None
    return lo.temp(p.compute, extents(axes))


def normalise(
    a: Array, b: Array, out: Array, g: int, m: int, k: int, n: int, epilogue: Epilogue | None, run: int | None, name: str,
    border: Border | None = None, pairs: bool = False, zeros: tuple[Index, ...] = (),
) -> Problem:  # fmt: skip
    """The problem of a `contract` call. The vector axis is that of n which is dense in out, or the last; other axes of
    n, which nothing merges, become axes of g."""
    chunks = Chunks(tuple(a.shape[g + m :])) if run is None else Chunks(tuple(a.shape[g + m :]), run)
    pixel = border.steps if border is not None else (None,) * a.ndim
    gs = [Axis(out.shape[i], a.strides[i], b.strides[i], out.strides[i], i, pixel[i]) for i in range(g)]
    ms = [Axis(out.shape[g + i], a.strides[g + i], 0, out.strides[g + i], g + i, pixel[g + i]) for i in range(m)]
    ns = [Axis(out.shape[g + m + i], 0, b.strides[g + k + i], out.strides[g + m + i], g + m + i) for i in range(n)]
    ks = [Axis(a.shape[g + m + i], a.strides[g + m + i], b.strides[g + i], pixel=pixel[g + m + i]) for i in range(k)]
    p = Problem(
        replace(a, through=None), b, out, _present(gs), _present(ms), _present(ns), _present(ks), chunks, epilogue, name, border, pairs,
        zeros, a.through,
    )  # fmt: skip
    return _turned(p, b.constant)


def _present(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(x for x in axes if as_int(x.extent) != 1)


def _dense(axes: Sequence[Axis], operand: str) -> bool:
    return any(as_int(getattr(x, operand)) == 1 for x in axes)


def _turned(p: Problem, constant: bool) -> Problem:
    """The problem with the better of m and n as the vector side, and one vector axis. constant: whether b is, so that packing it
    takes no time."""
    if p.border is not None:
        swap = False
    elif p.n and not p.m:  # a vector times a matrix: its columns are rows if the matrix is dense along k
        swap = not _dense(p.n, "b") and _dense(p.k, "b") and not constant
    elif _dense(p.n, "out"):
        swap = False
    elif p.n:
        swap = _dense(p.m, "out")
    else:  # a matrix times a vector: along the rows only if the matrix is dense along them
        swap = bool(p.m) and as_int(p.m[-1].a) == 1 and not _dense(p.k, "a")
    if swap:
        p = p.swapped()
    if p.epilogue is None:
        p = replace(p, m=p.m if p.border is not None else _joined(p.m), n=_joined(p.n))
    last = next((x for x in p.n if as_int(x.out) == 1), p.n[-1] if p.n else None)
    return replace(p, g=(*p.g, *(x for x in p.n if x is not last)), n=() if last is None else (last,))


def _joined(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    if any(as_int(x.extent) == 0 for x in axes):
        return tuple(axes)
    columns = merge(extents(axes), [x.a for x in axes], [x.b for x in axes], [x.out for x in axes])
    return tuple(Axis(*row) for row in zip(*columns))
