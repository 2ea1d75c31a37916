"""A contraction as every strategy sees it: out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n], with one vector axis n.

In: the arguments of `contract.contract`. Out: a `Problem`. Axes are sorted by role: g (groups: in all three arrays), m (rows:
in a and out), n (columns: in b and out) and k (summed: in a and b). Each has an extent, and a stride in each array. Unit axes
are left out, neighbouring axes that all arrays walk as one are merged, and a and b may have changed places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tengen.base.dtype import DType
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.kernels.axes import store_at
from tengen.kernels.contraction.chunks import Chunks, Walk, merge
from tengen.kernels.contraction.formats import MATCHED_TERMS, DotFormat, dot_format
from tengen.kernels.contraction.prefetch import line_vectors
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.source import At, Ending, Prologue
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cast, const, maximum, minimum
from tengen.loops.statements import Buffer

# Terms of a chunk at most where the order of the sum changes no bit, by the terms of a group: rows of pairs, and panels, lie in L1.
EXACT_TERMS = {2: 768, 4: 2560}

Epilogue = Callable[[KernelBuilder, Expr, At], Expr]


@record(frozen=True)
class Axis:
    """An axis of a problem.

    Attributes:
        extent: how many positions it has. a, b, out: its stride in each array, in elements; 0 where the array has no such axis.
        place: which axis of the caller's out it is; None: several merged ones, or none. pixel: (spatial axis, pixels): a step
            along this axis moves so many pixels along that axis of the image in `a`; None: it moves along none.
    """

    extent: Index
    a: Index = 0
    b: Index = 0
    out: Index = 0
    place: int | None = None
    pixel: tuple[int, Index] | None = None


@record(frozen=True)
class Border:
    """Which elements of `a`, windows of an image, exist: those whose pixel is in 0..space along each spatial axis. The others
    are zeros, and nothing is read there.

    Attributes:
        steps: for each axis of `a`, (spatial axis, pixels) that a step along it moves, or None. first: the pixel of coordinates
            zero. space: extents of the image.
    """

    steps: tuple[tuple[int, Index] | None, ...]
    first: tuple[Index, ...]
    space: tuple[Index, ...]

    def reached(self, shape: Sequence[Index]) -> bool:
        """Whether windows of this shape have, or may have, elements outside of the image."""
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


@record(frozen=True)
class Problem:
    """out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n].

    Attributes:
        a, b, out: the arrays, of which dtype, buffer and offset matter. g, m, n, k: the axes by role; n is one axis or none.
        chunks: where the sum is cut. epilogue: makes what is stored of a sum; None: a cast. name: of the kernels.
        format: of the products. border: which elements of `a` lie outside of an image; None: none.
        zeros: offsets from an element of out to others that become 0.
        prologue: what is computed of an element of `a` as it is packed; the dense side of `a`, k or m, is its channels.
    """

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
    format: DotFormat
    border: Border | None = None
    zeros: tuple[Index, ...] = ()
    prologue: Prologue | None = None

    @property
    def packed(self) -> DType:
        """The dtype of packed operands: of a group of elements."""
        return self.format.operand

    @property
    def bytes(self) -> int:
        """Bytes of an element of a packed operand."""
        return self.format.storage.size

    @property
    def whole_groups(self) -> bool:
        """Whether every chunk is known to be whole groups of terms, as an operation of the format multiplies them."""
        last, terms = as_int(self.chunks.last), self.format.terms
        return terms == 1 or (last is not None and last % terms == self.chunks.run % terms == 0)

    @property
    def biased(self) -> bool:
        """Whether elements of `a` are moved by 128 (`DotFormat.biases`). Each chunk of packed b has what its sums begin with in a row
        before its first one."""
        return self.format.biases(self.a.dtype)

    def stored(self, x: Expr, operand: str) -> Expr:
        """An element of `a` or b as the format stores it."""
        return self.format.stored(x, self.a.dtype) if operand == "a" else cast(x, self.format.second)

    def depth(self, positions: Index) -> Expr:
        """How many rows a packed operand has for so many positions of k from the beginning of a chunk on."""
        terms = self.format.terms
        return as_expr((positions + (terms - 1)) // terms * (terms // self.format.group) if terms > 1 else positions)

    def packed_at(self, chunk: Index, start: Index) -> Expr:
        """The row of packed b where chunk number `chunk`, which begins at position `start`, is found: each earlier chunk
        may have ended with a part of a group."""
        terms = self.format.terms
        row = as_expr((start + chunk * (terms - 1) + (terms - 1)) // terms * (terms // self.format.group) if terms > 1 else start)
        return row + (chunk + 1) if self.biased else row

    @property
    def compute(self) -> DType:
        """The dtype that is accumulated in."""
        return self.format.total

    @property
    def rows(self) -> Expr:
        """The number of rows: the product of m's extents."""
        return as_expr(product(extents(self.m)))

    @property
    def columns(self) -> Expr:
        """The number of columns: the product of n's extents."""
        return as_expr(product(extents(self.n)))

    @property
    def groups(self) -> Expr:
        """The number of groups: the product of g's extents."""
        return as_expr(product(extents(self.g)))

    @property
    def stored_rows(self) -> tuple[Axis, ...]:
        """The axes of m whose coordinates a store needs: merged as far as out allows, and what an epilogue reads. An epilogue is asked
        with the number of a merged row as its coordinate on the innermost axis, and 0 on the others."""
        if any(as_int(x.extent) == 0 for x in self.m):
            return self.m
        if self.epilogue is None:
            return tuple(Axis(d, out=s) for d, s in zip(*merge(extents(self.m), [x.out for x in self.m])))
        if not (isinstance(self.epilogue, Ending) and self.epilogue.anywhere):
            return self.m
        rows: list[tuple[Axis, list[Index]]] = []  # an axis, and its steps in out and in what is read
        for x in self.m:
            steps = [x.out, *self._steps_of_reads(x)]
            if rows and all(outer == inner * x.extent for outer, inner in zip(rows[-1][1], steps)):
                x = replace(x, extent=rows.pop()[0].extent * x.extent)
            rows.append((x, steps))
        return tuple(x for x, _ in rows)

    def _steps_of_reads(self, axis: Axis) -> list[Index]:
        """The elements in memory from what an epilogue reads at a position of an axis of m to what it reads at the next, for each read."""
        assert isinstance(self.epilogue, Ending)
        at = lambda c: At(tuple(c if i == axis.place else 0 for i in range(self.out.ndim)))
        pairs = zip(self.epilogue.reads(at(0)), self.epilogue.reads(at(1)))
        return [
            next((s for c, d, s in zip(here.coords, there.coords, array.strides) if as_int(c) != as_int(d)), 0)
            for (array, here), (_, there) in pairs
        ]

    def problem_key(self) -> str:
        """The problem key: a text of all that a schedule may depend on. What an epilogue computes is not in it."""
        roles = " ".join(f"{r}{[(x.extent, x.a, x.b, x.out) for x in getattr(self, r)]}" for r in "gmnk")
        chunks = f"{list(self.chunks.extents)} by {self.chunks.run}"
        more = (f" in {self.format.name}" if self.format.group > 1 else "") + (" computed" if self.prologue is not None else "")
        return f"contract {self.a.dtype} x {self.b.dtype} -> {self.out.dtype} {roles} chunks {chunks}{more}"

    def walk(self, role: str, operand: str) -> Walk:
        """The axes of a role as one walk in an operand."""
        axes = getattr(self, role)
        return Walk.of(extents(axes), [getattr(x, operand) for x in axes])

    def swapped(self) -> Problem:
        """The same sums with a and b exchanged, and m and n: out = (b^T a^T)^T."""
        if self.prologue is not None:
            raise VerifyError(f"{self.name}: columns cannot be computed as they are read; help: pointwise.stored")
        turn = lambda axes: tuple(replace(x, a=x.b, b=x.a) for x in axes)
        return replace(self, a=self.b, b=self.a, g=turn(self.g), m=turn(self.n), n=turn(self.m), k=turn(self.k))

    def base(self, operand: str, g: Sequence[Index]) -> Index:
        """The element of an operand where the group with these coordinates of g begins."""
        i = getattr(self, operand).offset
        for c, x in zip(g, self.g):
            if as_int(getattr(x, operand)) != 0:
                i = i + c * getattr(x, operand)
        return i

    def where(
        self, axes: Sequence[Axis], coords: Sequence[Index], vec: Axis | None, count: Expr | None,
        known_as: tuple[Sequence[Axis], Sequence[Index]] | None = None,
    ) -> Place:  # fmt: skip
        """The place in out at these coordinates of `axes`, of a vector along `vec` (None: a scalar), `count` lanes of which
        exist.
        known_as: axes with the coordinates that the epilogue is asked with, where those differ."""
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


@record(frozen=True)
class Place:
    """Where in out a value belongs: `inner` in merged axes, as it is stored; `theirs` in the caller's axes, for the
    epilogue."""

    problem: Problem
    out: Array
    inner: At
    theirs: At

    def load(self, k: KernelBuilder, partial: Array | None = None) -> Expr:
        """The sum so far, from out or from the array that partial sums live in."""
        return self.inner.load(k, self._of(partial))

    def place(self, k: KernelBuilder, partial: Array | None = None) -> tuple[Buffer, Index]:
        """The buffer and the element where it lies, in out or in the array that partial sums live in."""
        array = self._of(partial)
        return k.write(array), array.index(self.inner.coords)

    def store(self, k: KernelBuilder, value: Expr, partial: Array | None = None) -> None:
        """Stores a sum to which later chunks will be added."""
        store_at(k, self._of(partial), self.inner, value)

    def finish(self, k: KernelBuilder, value: Expr, stream: bool = False) -> None:
        """Stores the complete sum, through the epilogue. stream: past the caches."""
        self.put(k, self.made(k, value), stream)

    def made(self, k: KernelBuilder, value: Expr) -> Expr:
        """What the epilogue makes of the complete sum."""
        p = self.problem
        return cast(value, p.out.dtype) if p.epilogue is None else p.epilogue(k, value, self.theirs)

    def put(self, k: KernelBuilder, value: Expr, stream: bool = False) -> None:
        """Stores what `made` returned, and the problem's `zeros`, past the caches as nothing reads them soon. stream: whether
        the value goes past the caches too."""
        store_at(k, self.out, self.inner, value, stream)
        for far in self.problem.zeros:
            zero = const(0, value.dtype, value.lanes)
            store_at(k, replace(self.out, offset=self.out.offset + far), self.inner, zero, stream=True)

    def prefetch(self, k: KernelBuilder, v: int, partial: Array | None, stored: bool) -> None:
        """Prefetches where it lies, if it is `stored` through the caches, and what the epilogue reads here, where each row reads a cache
        line of its own. v: the number of the vector in its row, of which vectors of bytes are four in a cache line, prefetched once."""
        if stored and v % line_vectors(self._of(partial).dtype) == 0:
            k.prefetch(*self.place(k, partial))
        for array, at in self.problem.epilogue.reads(self.theirs) if isinstance(self.problem.epilogue, Ending) else ():
            index = as_expr(array.index(at.coords))
            dense = at.vec is not None and as_int(array.strides[at.vec]) == 1 and index.lanes == 1
            across = [i for i, d in enumerate(array.shape) if i != at.vec and as_int(d) != 1 and as_int(array.strides[i]) != 0]
            if dense and across and v % line_vectors(array.dtype) == 0:
                k.prefetch(k.read(array), index)

    def _of(self, partial: Array | None) -> Array:
        return self.out if partial is None else replace(partial, shape=self.out.shape)


def multiply_add(a: Expr, b: Expr, total: Expr) -> Expr:
    """total + a * b: an fma of floats, a wrapping product and sum of integers."""
    return dot_format(total.dtype).multiply_add(a, b, total)


def partial_sums(lo: Lowering, p: Problem, axes: Sequence[Axis]) -> Array | None:
    """Where sums live between chunks: None for out itself; a temporary over `axes` if out has another dtype."""
    if p.out.dtype is p.compute or as_int(p.chunks.count) == 1:
        return None
    return lo.temp(p.compute, extents(axes))


def normalise(
    a: Array, b: Array, out: Array, g: int, m: int, k: int, n: int, epilogue: Epilogue | None, run: int | None, name: str,
    border: Border | None = None, format: DotFormat | None = None, zeros: tuple[Index, ...] = (),
) -> Problem:  # fmt: skip
    """The problem of a `contract` call. The vector axis is the axis of n that is dense in out, else the last one; other axes of
    n that could not be merged with it become axes of g."""
    format = format or dot_format(a.dtype)
    if format.group not in (1, 2, 4):
        raise VerifyError(f"{name}: nothing packs groups of {format.group} terms ({format.name}); help: groups.py packs 2 and 4")
    if run is None and format.group > 1 and format.exact:
        run = _exact_run(a.shape[g + m :], EXACT_TERMS[format.group])
    chunks = Chunks(tuple(a.shape[g + m :])) if run is None else Chunks(tuple(a.shape[g + m :]), run)
    pixel = border.steps if border is not None else (None,) * a.ndim
    gs = [Axis(out.shape[i], a.strides[i], b.strides[i], out.strides[i], i, pixel[i]) for i in range(g)]
    ms = [Axis(out.shape[g + i], a.strides[g + i], 0, out.strides[g + i], g + i, pixel[g + i]) for i in range(m)]
    ns = [Axis(out.shape[g + m + i], 0, b.strides[g + k + i], out.strides[g + m + i], g + m + i) for i in range(n)]
    ks = [Axis(a.shape[g + m + i], a.strides[g + m + i], b.strides[g + i], pixel=pixel[g + m + i]) for i in range(k)]
    p = Problem(
        replace(a, prologue=None), b, out, _present(gs), _present(ms), _present(ns), _present(ks), chunks, epilogue, name,
        format, border, zeros, a.prologue,
    )  # fmt: skip
    return _oriented(p, b.constant)


def _exact_run(extents: Sequence[Index], terms: int) -> int:
    """Positions of a run where the order of the sum changes no bit: few chunks of about equal length, each of so many terms at most."""
    last, outer = (as_int(x) for x in (extents[-1] if extents else 1, product(extents[:-1])))
    if not last or not outer:
        return terms
    if last > terms:
        return -(-last // -(-last // terms) // MATCHED_TERMS) * MATCHED_TERMS
    most = max(1, terms // last)
    return -(-outer // -(-outer // most)) * last


def _present(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(x for x in axes if as_int(x.extent) != 1)


def _dense(axes: Sequence[Axis], operand: str) -> bool:
    return any(as_int(getattr(x, operand)) == 1 for x in axes)


def _oriented(p: Problem, constant: bool) -> Problem:
    """The problem with a and b exchanged where m is the better side for vectors, and with one vector axis. constant: whether b
    is a constant, which is packed once and so costs nothing in a run."""
    if p.format.group == 4:  # the operands are packed differently
        swap = False
    elif p.border is not None or p.prologue is not None:  # of what is computed as it is read, rows alone can be
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
