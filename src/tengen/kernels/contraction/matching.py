"""Weights of 8 bits whose products are added two by two in int16: in which pairs they fit, and the rows that are multiplied by them.

    for each panel of columns, chunk of k, block of 16 positions:        # once, where b is packed
        pairs = 8 pairs of the positions, each of which fits in every column of the panel
        packed[panel][group] = the weights of two pairs, of each column
        turns[panel][block] = the positions in that order
    for each panel, tile of rows, block:                                 # when the kernel runs
        turned[row][block] = swizzle(a[row, block], turns[panel][block])
    acc[row] += dot4s(turned[row][group], packed[panel][group])

A pair fits where no sum of two products by uint8 is beyond an int16: where its weights, those of one sign in each column, add up to at most
`GREATEST_PAIR`. The pairs are a matching of the block's positions, found by taking again and again a position that fits with the fewest
others, with that of them which fits with the fewest. Of two positions that are left, which do not fit, what the second one's weights have too
much is *excess*: it goes to groups behind the panel's others, in pairs that fit or alone, whose rows are turned once more. So sums are exact
whatever the weights are. A panel has room for as many groups of excess as it has others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from tengen.base.dtype import int16, int32, int64, uint8, uint32
from tengen.base.errors import VerifyError
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.formats import MATCHED_TERMS, dot_of_bytes
from tengen.kernels.contraction.packing import pack_b, packed_axes
from tengen.kernels.contraction.problem import Problem, extents
from tengen.kernels.contraction.register_parts import Rows
from tengen.kernels.contraction.tile import Tile
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    bitcast,
    cast,
    cdiv,
    const,
    equal,
    fold,
    maximum,
    minimum,
    ramp,
    select,
    splat,
    swizzle,
    unary,
)
from tengen.loops.statements import Buffer

GREATEST_PAIR = 128  # magnitudes of a pair's weights of one sign, in sum: 255 * 128 is below 2^15
ROOM_OF_PANELS = 2  # groups of a packed panel, for each group of its positions: as many again of excess
NO_POSITION = 0x80  # an index of `swizzle` that gives 0
BLOCK_GROUPS = MATCHED_TERMS // 4  # groups of four positions of a block
BLOCK_PAIRS = MATCHED_TERMS // 2  # of a block
MOST_BLOCKS = 255  # of a chunk: their numbers are bytes of its turns
TURNED_PAD_BYTES = 64  # between the turned rows: what the last turn of a row writes past its end


class Turns:
    """Where the turns of a panel's chunk lie: the orders of its blocks, then of its excess, with the block that each belongs to and its
    groups; and how many there are of these."""

    def __init__(self, p: Problem):
        blocks = -(-p.chunks.longest // MATCHED_TERMS)
        if blocks > MOST_BLOCKS:
            raise VerifyError(f"{p.name}: pairs are matched in chunks of at most {MOST_BLOCKS * MATCHED_TERMS} terms, not {p.chunks.longest}")
        self.excess = blocks * MATCHED_TERMS
        self.block_of, self.groups_of = 2 * self.excess, 2 * self.excess + blocks
        self.count = self.groups_of + blocks
        self.size = -(-(self.count + 1) // LANES) * LANES


class TurnedRows:
    """The rows of a tile, in the order of the positions of a panel. array: the turns of all panels."""

    def __init__(self, k: KernelBuilder, p: Problem, rows: int, array: Array):
        self.k, self.turns, self.array = k, Turns(p), array
        pitch = ROOM_OF_PANELS * self.turns.excess + TURNED_PAD_BYTES
        self.rows = Rows(k.scratch("turned", uint8, rows * pitch), pitch, 4, False)

    def fill(self, rows: int, a: Rows, base: Expr, depth: Expr, at: Expr) -> Expr:
        """Turns `rows` rows of `a`, from element `base` on, of `depth` groups, by the turns from element `at` on. Returns how many groups they
        have, with those of excess."""
        k, t, turns = self.k, self.turns, self.k.read(self.array)
        whole = k.let(depth * 4)  # bytes of a row

        def turn(order: Expr, source: Expr, to: Expr) -> None:
            mask = k.load(turns, order, LANES)
            for j in range(rows):
                x = k.load(a.buffer, base + source + j * a.by_row, LANES)
                k.store(self.rows.buffer, to + j * self.rows.by_row, swizzle(x, mask))

        with k.loop(0, whole, MATCHED_TERMS, name="block") as i:
            turn(at + i, i, i)
        to = k.var(whole)
        with k.loop(0, cast(k.load(turns, at + t.count), int64), name="excess") as i:
            source = k.let(cast(k.load(turns, at + i + t.block_of), int64) * MATCHED_TERMS)
            turn(at + i * MATCHED_TERMS + t.excess, source, to.value)
            to.set(to.value + cast(k.load(turns, at + i + t.groups_of), int64) * 4)
        return k.let(to.value // 4)


def matched(lo: Lowering, p: Problem, t: Tile) -> tuple[Array, Array]:
    """b packed in pairs that fit, as [g, panel, group, column], and the turns of its panels, as [g, panel, chunk, byte]; made once where it is
    used again."""
    axes, made = packed_axes(p), list[Array]()
    how = ("match", len(axes), len(p.n), tuple((x.extent, x.b) for x in (*axes, *p.n, *p.k)), p.chunks, t.columns, p.biased)

    def make() -> Array:
        packed, turns = _Matching(lo, p, t).launch()
        made.append(turns)
        return packed

    return lo.once(p.b, how, make), lo.once(p.b, (*how, "turns"), lambda: made[0])


class _Matching:
    """Writes the kernel that matches the positions of a constant b, which was packed in groups before."""

    def __init__(self, lo: Lowering, p: Problem, t: Tile):
        self.lo, self.p, self.plain = lo, p, replace(p, format=dot_of_bytes(uint8))
        self.source, axes = pack_b(lo, self.plain, t), extents(packed_axes(p))
        panels, count, self.turns = as_expr(cdiv(p.columns, t.columns)), p.chunks.count, Turns(p)
        rows = p.packed_at(count, p.chunks.positions) * ROOM_OF_PANELS
        self.packed = lo.temp(uint32, (*axes, panels, rows, t.columns))
        self.order = lo.temp(uint8, (*axes, panels, count, self.turns.size))
        self.k = k = lo.kernel(f"{p.name}_match")
        piece = k.split(product(axes) * panels * count)
        self.place = unflatten(k, piece, (*axes, panels, count))
        self.wide, self.vectors = t.columns, range(0, t.columns, LANES)
        self.weights = k.scratch("weights", int32, MATCHED_TERMS * self.wide)  # of each position, in every column
        self.excess = k.scratch("excess", int32, MATCHED_TERMS * self.wide)  # of the places in the groups of a block's excess
        self.sides = [
            k.scratch("side", int16, MATCHED_TERMS * self.wide) for _ in (1, -1)
        ]  # magnitudes of the weights of either sign
        self.partners = k.scratch("partners", int32, MATCHED_TERMS)  # bits: the positions that each fits with
        self.pairs = k.scratch("pairs", int64, MATCHED_TERMS)

    def launch(self) -> tuple[Array, Array]:
        """Writes and launches it; returns the packed b and its turns."""
        k, p, t = self.k, self.p, self.turns
        *panel, c = self.place
        start, stop = (k.let(x) for x in p.chunks.bounds(c))
        source, (dst, to), (order, at) = self.places(panel, c, start)
        # What is read by nobody is zeros too, so that equal weights have equal bytes.
        with k.loop(0, t.size, LANES) as i:
            k.store(order, at + i, const(0, uint8, LANES))
        if p.biased:  # what sums begin with
            for v in self.vectors:
                k.store(dst, to + (v - 2 * self.wide), const(0, uint32, LANES))
                k.store(dst, to + (v - self.wide), k.load(k.read(self.source), source + (v - self.wide), LANES))
        depth, blocks = k.let(self.plain.depth(stop - start)), k.let(p.depth(stop - start) // BLOCK_GROUPS)
        moves, groups = k.var(const(0)), k.var(blocks * BLOCK_GROUPS)
        with k.loop(0, blocks, name="block") as b:
            self.read(source, b, depth)
            self.compare()
            more = k.let(at + moves.value * MATCHED_TERMS + t.excess)
            k.store(order, more, const(NO_POSITION, uint8, LANES))
            some = self.match(order, k.let(at + b * MATCHED_TERMS), more)
            self.write(dst, to, b, groups.value, some)
            with k.if_(some > 0):
                k.store(order, at + moves.value + t.block_of, cast(b, uint8))
                k.store(order, at + moves.value + t.groups_of, cast(some, uint8))
                moves.set(moves.value + 1)
                groups.set(groups.value + some)
        room = k.let((p.packed_at(c + 1, stop) - p.packed_at(c, start) - int(p.biased)) * ROOM_OF_PANELS)
        with k.loop(groups.value * self.wide, room * self.wide, LANES) as i:
            k.store(dst, to + i, const(0, uint32, LANES))
        k.store(order, at + t.count, cast(moves.value, uint8))
        self.lo.launch(k)
        return self.packed, self.order

    def places(self, panel: list[Index], c: Index, start: Expr) -> tuple[Expr, tuple[Buffer, Expr], tuple[Buffer, Expr]]:
        """Where the panel's chunk begins: in the plain b; in the packed one, and its buffer; in the turns, and their buffer."""
        k, p = self.k, self.p
        index = lambda a, *rest: k.let(as_expr(a.index((*panel, *rest))))
        packed = k.write(self.packed), index(self.packed, p.packed_at(c, start) * ROOM_OF_PANELS, 0)
        return index(self.source, self.plain.packed_at(c, start), 0), packed, (k.write(self.order), index(self.order, c, 0))

    def read(self, source: Expr, b: Expr, depth: Expr) -> None:
        """The weights of a block, zeros behind the last group of the chunk, and their magnitudes."""
        k = self.k
        with k.loop(0, BLOCK_GROUPS, name="group") as g:
            row = k.let(b * BLOCK_GROUPS + g)
            there = k.let(select(row < depth, const(LANES), const(0)))
            for v in self.vectors:
                words = bitcast(k.load(k.read(self.source), source + (row * self.wide + v), LANES, there), int32)
                for i in range(4):
                    w = k.let((words << const(24 - 8 * i, int32)) >> const(24, int32))
                    at = k.let((g * 4 + i) * self.wide + v)
                    k.store(self.weights, at, w)
                    for side, x in zip(self.sides, (w, const(0, int32, LANES) - w)):
                        k.store(side, at, cast(maximum(x, 0), int16))

    def compare(self) -> None:
        """Which positions fit with which."""
        k = self.k
        k.store(self.partners, 0, const(0, int32, LANES))
        bit = lambda i: const(1, int32) << cast(i, int32)
        with k.loop(0, MATCHED_TERMS, name="one") as i, k.loop(i + 1, MATCHED_TERMS, name="other") as j:
            part = lambda side, x, v: k.load(side, x * self.wide + v, LANES)
            sums = [part(side, i, v) + part(side, j, v) for side in self.sides for v in self.vectors]
            fits = k.let(fold("max", reduce(maximum, sums)) <= const(GREATEST_PAIR, int16))
            for one, other in ((i, j), (j, i)):
                k.store(self.partners, one, k.load(self.partners, one) | select(fits, bit(other), const(0, int32)))

    def match(self, order: Buffer, at: Expr, more: Expr) -> Expr:
        """The pairs, and the order of positions, from element `at` on; that of excess from `more` on. Returns how many groups of excess there
        are."""
        k, lanes, none = self.k, cast(ramp(), int32), 1 << 12
        free, taken = k.var(const((1 << MATCHED_TERMS) - 1, int32)), k.var(const(0))
        with k.loop(0, MATCHED_TERMS * self.wide, LANES) as at_excess:
            k.store(self.excess, at_excess, const(0, int32, LANES))
        with k.loop(0, BLOCK_PAIRS, name="pair") as n:
            partners = k.let(_ones(k, k.load(self.partners, 0, LANES) & splat(free.value)))
            rank = k.let(
                select(partners > 0, partners, MATCHED_TERMS + 1) * LANES + lanes
            )  # those that fit with none come last
            least = k.let(fold("min", select(_has(free.value, lanes), rank, none)))
            i, fits = k.let(least & const(LANES - 1, int32)), k.let(least < (MATCHED_TERMS + 1) * LANES)
            rest = k.let(free.value & ~(const(1, int32) << i))
            others = k.let(select(fits, k.load(self.partners, cast(i, int64)) & rest, rest))
            j = k.let(fold("min", select(_has(others, lanes), rank, none)) & const(LANES - 1, int32))
            free.set(rest & ~(const(1, int32) << j))
            for place, x in enumerate((i, j)):
                k.store(self.pairs, n * 2 + place, cast(x, int64))
                k.store(order, at + n * 2 + place, cast(x, uint8))
            with k.if_(~fits):
                place = self.move(cast(i, int64), cast(j, int64), taken)
                k.store(order, more + place, cast(j, uint8))
        return k.let((taken.value + 3) // 4)

    def move(self, i: Expr, j: Expr, taken: Variable) -> Expr:
        """What the weights of position `j` have too much beside those of `i` becomes excess: beside the excess before it, where that is the
        first of a pair and they fit. taken: how many places of excess there are, which grows. Returns its place."""
        k, parts, sums = self.k, [], []
        before = k.let(maximum(taken.value - 1, 0))
        for v in self.vectors:
            w = k.load(self.weights, j * self.wide + v, LANES)
            both = k.let(w + k.load(self.weights, i * self.wide + v, LANES))
            part = k.let(both - minimum(maximum(both, -GREATEST_PAIR), GREATEST_PAIR))
            k.store(self.weights, j * self.wide + v, w - part)
            parts.append(part)
            sums.append(unary("abs", part + k.load(self.excess, before * self.wide + v, LANES)))
        second = k.let(taken.value & 1)
        fits = fold("max", reduce(maximum, sums)) <= const(GREATEST_PAIR, int32)
        place = k.let(select(fits, taken.value, taken.value + second))
        for v, part in zip(self.vectors, parts):
            k.store(self.excess, place * self.wide + v, part)
        taken.set(place + 1)
        return place

    def write(self, dst: Buffer, to: Expr, b: Expr, groups: Expr, some: Expr) -> None:
        """The groups of block `b`, and `some` of its excess behind the `groups` before them."""
        k = self.k
        byte = lambda x, i: (x & const(0xFF, int32)) << const(8 * i, int32)
        with k.loop(0, BLOCK_GROUPS, name="group") as g:
            places = [k.let(k.load(self.pairs, g * 4 + i) * self.wide) for i in range(4)]
            for v in self.vectors:
                word = reduce(or_, (byte(k.load(self.weights, at + v, LANES), i) for i, at in enumerate(places)))
                k.store(dst, to + ((b * BLOCK_GROUPS + g) * self.wide + v), bitcast(word, uint32))
        with k.loop(0, some, name="group") as g:
            for v in self.vectors:
                word = reduce(or_, (byte(k.load(self.excess, (g * 4 + i) * self.wide + v, LANES), i) for i in range(4)))
                k.store(dst, to + ((groups + g) * self.wide + v), bitcast(word, uint32))


def _has(bits: Expr, lanes: Expr) -> Expr:
    """In which lanes a number has the bit of the lane's number."""
    return equal((splat(bits) >> lanes) & const(1, int32), 1)


def _ones(k: KernelBuilder, x: Expr) -> Expr:
    """How many of the low 16 bits are set, in each lane."""
    for shift, mask in ((1, 0x5555), (2, 0x3333), (4, 0x0F0F), (8, 0x00FF)):
        x = k.let((x & const(mask, int32)) + ((x >> const(shift, int32)) & const(mask, int32)))
    return x
