"""Flat positions of several axes: where a contraction's sum is cut, and walks over parts of a flat range.

The summed axes of a contraction are one flat position, counted in logical order whatever the memory looks like. `Chunks` is the
rule, part of the numerics contract, of where the sum is cut; `runs` walks a flat range in pieces that are affine in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import KernelBuilder, product
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cdiv, const, maximum, minimum


@record(frozen=True)
class Chunks:
    """Where the sum of a contraction is cut: a rule of the summed extents alone.

    Let C be the last summed extent and P the product of the others, so that a flat position is p * C + c. Where C >= 256, each
    p has ceil(C / 256) chunks, the runs c = 0..255, 256..511, and so on, the last one shorter. Where C < 256, a
    chunk is 256 // C whole positions p, the last chunk fewer. Each chunk is accumulated from zero, by one fma (integers: a
    wrapping multiplication and addition) for each position in order; the result is the first chunk, to which the others are
    added in order, or 0 if there are no positions. Nothing else may enter the rule: not the other extents, the layout,
    the strides, the target, nor the number of threads.

    Attributes:
        extents: the summed extents, in logical order. run: 256.
    """

    extents: tuple[Index, ...]
    run: int = field(default_factory=lambda: numerics.CHUNK_TERMS)

    @property
    def last(self) -> Expr:
        """C."""
        return as_expr(self.extents[-1] if self.extents else 1)

    @property
    def outer(self) -> Expr:
        """P."""
        return as_expr(product(self.extents[:-1]))

    @property
    def positions(self) -> Expr:
        """How many terms the sum has."""
        return as_expr(product(self.extents))

    @property
    def group(self) -> Expr:
        """Whole positions of the outer axes in a chunk."""
        return maximum(as_expr(self.run // maximum(self.last, 1)), 1)

    @property
    def per_group(self) -> Expr:
        """Chunks that such a group is cut into."""
        return maximum(as_expr(cdiv(self.last, self.run)), 1)

    @property
    def count(self) -> Expr:
        """How many chunks there are; 0 positions are one chunk."""
        return maximum(as_expr(cdiv(self.outer, self.group) * self.per_group), 1)

    @property
    def longest(self) -> int:
        """A bound on the positions of a chunk, known now."""
        n = as_int(self.positions)
        return self.run if n is None else max(1, min(n, self.run))

    def bounds(self, i: Index) -> tuple[Expr, Expr]:
        """The flat positions, first and one past the last, of chunk `i`."""
        group, part = as_expr(i) // self.per_group, as_expr(i) % self.per_group
        start = group * self.group * self.last + part * self.run
        whole = minimum(self.outer, (group + 1) * self.group) * self.last
        return start, minimum(whole, start + self.run)


def merge(extents: Sequence[Index], *strides: Sequence[Index]) -> list[list[Index]]:
    """Neighbouring axes that all strides walk as one, joined; unit axes vanish. Returns [extents, strides, ...]."""
    if any(as_int(d) == 0 for d in extents):
        return [[0] for _ in range(1 + len(strides))]
    rows: list[list[Index]] = []  # of (extent, stride, stride, ...)
    for d, *steps in zip(extents, *strides):
        if as_int(d) == 1:
            continue
        if rows and all(outer == s * d for outer, s in zip(rows[-1][1:], steps)):
            rows[-1] = [rows[-1][0] * d, *steps]
        else:
            rows.append([d, *steps])
    return [list(column) for column in zip(*rows)] if rows else [[] for _ in range(1 + len(strides))]


@record(frozen=True)
class Walk:
    """Some axes of an array as one flat position: extents and strides, outermost first, merged as far as possible."""

    extents: tuple[Index, ...]
    strides: tuple[Index, ...]

    @staticmethod
    def of(extents: Sequence[Index], strides: Sequence[Index]) -> Walk:
        """The axes with these extents and strides."""
        d, s = merge(extents, strides)
        return Walk(tuple(d), tuple(s))

    @property
    def step(self) -> Index:
        """The stride of the innermost axis."""
        return self.strides[-1] if self.strides else 0

    @property
    def run(self) -> Index:
        """The extent of the innermost axis: how long the walk stays affine."""
        return self.extents[-1] if self.extents else 1

    def at(self, k: KernelBuilder, i: Index) -> Expr:
        """Where flat position `i` is in memory."""
        if len(self.extents) < 2:
            return as_expr(i * self.step)
        coords = unflatten(k, k.let(as_expr(i)), self.extents)
        return sum((c * s for c, s in zip(coords, self.strides)), const(0))


@contextlib.contextmanager
def runs(k: KernelBuilder, walk: Walk, start: Index, stop: Index) -> Iterator[tuple[Expr, Expr, Expr]]:
    """A loop over the parts of the flat range start..stop in which the walk is affine: (first, one past the last, the offset in
    memory of the first). Nothing is looped over where the whole walk is affine."""
    start, stop = as_expr(start), as_expr(stop)
    if len(walk.extents) <= 1:
        yield start, stop, k.let(start * walk.step)
        return
    n = maximum(as_expr(walk.run), 1)  # an empty axis must not divide by zero before it is found to be empty
    with k.loop(k.let(start // n), k.let(cdiv(stop, n)), name="run") as q:
        first, last = k.let(maximum(start, q * n)), k.let(minimum(stop, (q + 1) * n))
        at = (first - q * n) * walk.step
        for c, s in zip(unflatten(k, q, walk.extents[:-1]), walk.strides[:-1]):
            at = at + c * s
        yield first, last, k.let(at)


def unrolled_loop(
    k: KernelBuilder, start: Index, stop: Index, unroll: int, step: Callable[[Expr], None], name: str, whole: bool = False
) -> None:  # fmt: skip
    """Runs `step` for start..stop, in order, `unroll` times in a loop's body. whole: `unroll` divides the number of times, so that
    no loop for the rest is written."""
    if unroll > 1:
        rest = as_expr(stop) if whole else k.let(start + (as_expr(stop) - start) // unroll * unroll)
        with k.loop(start, rest, unroll, name=name) as i:
            for ahead in range(unroll):
                step(k.let(i + ahead) if ahead else i)
        if whole:
            return
        start = rest
    with k.loop(start, stop, name=name) as i:
        step(i)
