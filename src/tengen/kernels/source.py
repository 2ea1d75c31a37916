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
from tengen.loops.lang import LANES, Expr, Index, as_int, const, ramp, splat


@dataclass(eq=False)
class At:
    """Where a source is asked for: one coordinate per axis. When `vec` names an axis, the coordinate there is the first of
    LANES consecutive ones, of which `count` exist (None: all)."""

    coords: tuple[Index, ...]
    vec: int | None = None
    count: Expr | None = None
    memo: dict = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        return 1 if self.vec is None else LANES

    def coord(self, axis: int) -> Expr:
        """The coordinate as a value: a vector along the vector axis."""
        c = self.coords[axis]
        c = c if isinstance(c, Expr) else const(c)
        return c + ramp() if axis == self.vec else c

    def load(self, k: KernelBuilder, a: Array) -> Expr:
        """The elements of `a` here: one load, a splat, or a gather, by the stride along the vector axis."""
        buffer, index = k.read(a), a.index(self.coords)
        if self.vec is None:
            return k.load(buffer, index)
        stride = a.strides[self.vec]
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

    def rebind(self, arrays: dict[Array, Array]) -> Source:
        """The same source over other arrays (of a merged or permuted shape); only where `leaves` is not None."""
        raise NotImplementedError


@dataclass(eq=False)
class Leaf(Source):
    """The elements of an array."""

    array: Array

    def __post_init__(self):
        self.shape, self.dtype = self.array.shape, self.array.dtype

    def value(self, k, at):
        return at.load(k, self.array)

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

    def leaves(self):
        out: list[Array] = []
        for s in self.operands:
            inner = s.leaves()
            if inner is None:
                return None
            out += inner
        return out

    def rebind(self, arrays):
        done: dict[Source, Source] = {}
        return self._rebind(arrays, done)

    def _rebind(self, arrays, done):
        if self not in done:
            ops = [s._rebind(arrays, done) if isinstance(s, Elementwise) else s.rebind(arrays) for s in self.operands]
            done[self] = Elementwise(self.fn, ops, ops[0].shape if ops else self.shape, self.dtype)
        return done[self]


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

    def value(self, k, at):
        coords: list[Index] = [self.fixed.get(i, 0) for i in range(len(self.source.shape))]
        vec = None
        for j, axis in enumerate(self.axes):
            if axis is None:
                continue
            coords[axis] = self.starts[j] + at.coords[j] * self.steps[j]
            if j == at.vec:
                vec = axis
        if vec is not None and as_int(self.steps[at.vec]) != 1:
            raise NotImplementedError("a stepped view of a computed value along the vector axis")
        key = (tuple(coords), vec)
        inner = at.memo.get(key)
        if inner is None:
            inner = at.memo[key] = At(tuple(coords), vec, at.count if vec is not None else None)
        v = self.source.at(k, inner)
        return splat(v) if at.lanes > 1 else v

    def leaves(self):
        return None


def broadcast(s: Source, shape: Sequence[Index]) -> Source:
    """`s` seen with `shape`, by NumPy's rule."""
    shape = tuple(shape)
    if s.shape == shape:
        return s
    if isinstance(s, Leaf):
        return Leaf(s.array.expand(shape))
    if isinstance(s, Literal):
        return replace(s, shape=shape)
    if isinstance(s, Elementwise):
        return Elementwise(s.fn, [broadcast(broadcast(o, s.shape), shape) for o in s.operands], shape, s.dtype)
    lead = len(shape) - len(s.shape)
    axes = [None] * lead + [None if as_int(d) == 1 and as_int(shape[lead + i]) != 1 else i for i, d in enumerate(s.shape)]
    return View(s, shape, tuple(axes), (0,) * len(shape), (1,) * len(shape))
