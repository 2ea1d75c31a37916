"""Rows times a matrix of integers in groups, where the rows become integers of 8 bits themselves: products are exact in int32.

    codes[row, k], steps[row, group] = x[row, k] rounded to 127ths of the largest magnitude of its group     # a kernel of its own
    for each piece = (some rows, tile of columns):
        for group:
            total[row][v] = begin[row, group]                  # makes up for what was added to the integers of the matrix
            for word of the group:                             # four products in each lane, or by `dot2h` twice two, first added in int16
                total[row][v] += dot(integers[word, vector v], codes[row, word])
            acc[row][v] += float32(total[row][v]) (steps[row, group] scale[group, vector v])
        out[row, v] = acc[row][v]

Totals are exact in any order, and the few operations of float32 have one: which instruction multiplies changes no bit.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from tengen.base.dtype import float32, int8, int16, int32, uint32
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.grouped_weights import Product
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import Machine
from tengen.kernels.pointwise import PIECE_ELEMENTS
from tengen.loops.builder import as_expr
from tengen.loops.dots import dot2h, dot2i, dot4i, dot4n, dot4u
from tengen.loops.lang import LANES, Expr, as_int, bitcast, cast, cdiv, const, fold, maximum, minimum, ramp, splat, unary

HEADER_WORDS = 2  # words before the integers of a row's group
UNROLLED_WORDS = 4  # of each column: enough to hide what a loop costs. Of one row, which costs what reading the words costs, half as many,
# and less than a group: LLVM loads those of an iteration in any order, and a processor reads ahead where addresses follow each other.


@record(frozen=True)
class Dots:
    """How integers of some bits are multiplied. op: of the kernel language. size: bits of an operand's element. bits: of an integer in
    the matrix. added: to it, in an operand."""

    op: str
    size: int
    bits: int

    @property
    def added(self) -> int:
        """What an operand has more than the integer that it stands for."""
        return 0 if self.bits == 8 and self.op in ("dot4i", "dot4n") else 1 << self.bits - 1

    @property
    def elements(self) -> int:
        """How many an operand has."""
        return 32 // self.size

    @property
    def parts(self) -> int:
        """How many operands a word is taken apart into."""
        return self.size // self.bits

    def operands(self, k: KernelBuilder, word: Expr) -> list[Expr]:
        """A word's integers as operands: number e parts + j is element e of operand j."""
        number = lambda n: const(n, uint32, LANES)
        if self.bits == 8 and self.added:
            word = k.let(word ^ number(0x80808080))
        mask = sum((1 << self.bits) - 1 << at for at in range(0, 32, self.size))
        shifted = [word >> number(j * self.bits) if j else word for j in range(self.parts)]
        return [word] if self.parts == 1 else [k.let(w & number(mask)) for w in shifted]

    def add(self, total: Expr, weights: Expr, x: Expr) -> Expr:
        """The total plus the products of two operands."""
        return {"dot4u": dot4u, "dot4i": dot4i, "dot4n": dot4n, "dot2h": dot2h, "dot2i": dot2i}[self.op](total, weights, x)


def _dots(target: Machine | None, bits: int) -> Dots:
    """By the instructions that a target has."""
    four = [op for op in ("dot4i", "dot4u", "dot2h" if bits < 8 else "dot4n") if target is None or target.computes(op)]
    return Dots(four[0], 8, bits) if four else Dots("dot2i", 16, bits)


def grouped_integers(
    lo: Lowering, x: Array, codes: Array, scale: Array, out: Array, bits: int, group: int, epilogue=None
) -> None:
    """What `grouped_weights` computes, of rows that are rounded to integers of 8 bits in groups. Shapes: as there."""
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Integers(lo, x, codes, scale, out, bits, group, epilogue).launch()


class _Integers(Product):
    name = "linear_grouped_int8"

    def launch(self) -> None:
        """See `Product.launch`."""
        self.dots = _dots(self.lo.target, self.bits)
        self.quantised = self.lo.once(self.x, ("quantised", self.group, self.dots), self.quantise)
        super().launch()

    def quantise(self) -> Array:
        """Launches a kernel that makes integers of the rows.

        Result: int8 or int16, (rows, groups, HEADER_WORDS words and a group's integers)

        The first word of a group is what 1 of its integers stands for, a float32; the second what its totals begin with, int32: minus
        what is added to the integers of the matrix times the sum of the row's. Integers have the order in which `Dots.operands` have
        those of the matrix.
        """
        lo, x, group, dots = self.lo, self.x, self.group, self.dots
        groups = cdiv(self.terms, group)
        each, number = max(PIECE_ELEMENTS // group, 1), as_expr(product(self.lead)) * groups
        out = lo.temp(int8 if dots.size == 8 else int16, (number // groups, groups, HEADER_WORDS * dots.elements + group))
        k = lo.kernel("quantise_rows")
        first = k.let(k.split(cdiv(number, each)) * each)
        dst = k.write(out)
        with k.loop(first, k.let(minimum(first + each, number)), name="group") as i:
            row, g = k.let(i // groups), k.let(i % groups)
            to = k.let(as_expr(out.index((row, g, 0))))
            at = k.let(as_expr(x.index((*(unflatten(k, row, self.lead) if self.lead else []), g * group))))
            vectors = self._loaded(k, at, k.let(as_expr(self.terms) - g * group))
            most = reduce(maximum, [unary("abs", v) for v in vectors])
            step = k.let(maximum(fold("max", most), numerics.LEAST_ROUNDED) / const(numerics.LARGEST_ROUNDED, float32))
            integers = [k.let(cast(unary("rint", v / splat(step)), int32)) for v in vectors]
            begin = fold("add", reduce(add, integers)) * const(-dots.added, int32)
            for j, word in enumerate((bitcast(step, uint32), bitcast(begin, uint32))):
                for e in range(dots.elements):
                    part = cast(word >> const(e * dots.size, uint32), f"uint{dots.size}")
                    k.store(dst, to + (j * dots.elements + e), bitcast(part, out.dtype))
            for j, q in enumerate(integers):
                k.store(dst, to + (HEADER_WORDS * dots.elements + j * self.lanes), cast(q, out.dtype), self.lanes)
        lo.launch(k)
        return out

    @property
    def block(self) -> int:
        """Words of a column whose terms lie together in a row's group: their first ones, as operands have them, then their second ones, ...
        Sums of so few by `dot2h` fit in int16: 16 products of 15 by 127 of 4 bits, 32 of 3 by 127 of 2 bits."""
        return min(self.group // self.in_a_word, LANES // self.dots.elements)

    @property
    def lanes(self) -> int:
        """Terms of a block that are elements of the same operands: those of a vector, or fewer in a small group."""
        return self.block * self.dots.elements

    def _loaded(self, k: KernelBuilder, at: Expr, left: Expr) -> list[Expr]:
        """A group of a row, from index `at` on, in the order of its integers: of each block vectors of every term in so many as a word has
        operands. Zeros behind the `left` elements that the row has."""
        src, parts, whole = k.read(self.x), self.dots.parts, as_int(self.terms % self.group) == 0
        stride, found = self.x.strides[-1], []
        for first in range(0, self.group, parts * self.lanes):
            for j in range(first, first + parts):
                count = self.lanes if whole else maximum(minimum((left - j + (parts - 1)) // parts, self.lanes), 0)
                dense = parts == 1 and as_int(stride) == 1
                found.append(k.load(src, at + j if dense else at + (ramp() * parts + j) * stride, LANES, count))
        return found

    def totals(self, coords: list) -> list:
        """See `Product.totals`."""
        k, acc, q = self.k, self.zeros(), self.quantised
        with k.loop(0, as_expr(self.scale.shape[1]), name="group") as g:
            at = [k.let(as_expr(q.index((row, g, 0)))) for row in self.rows]
            sums = self.group_sums(g, at)
            scale = self.scales(g)
            for here, line, more in zip(at, acc, sums):
                step = splat(bitcast(k.load_group(k.read(q), here), float32))
                for a, total, s in zip(line, more, scale):
                    a.set(a.value + cast(total.value, float32) * (step * s))
        return acc

    def group_sums(self, g: Expr, at: list[Expr]) -> list:
        """The exact sums of a group, int32 variables. at: where the rows' groups lie."""
        k, dots, words, block = self.k, self.dots, self.group // self.in_a_word, self.block
        operand = lambda here, i: k.load_group(k.read(self.quantised), here + i * dots.elements)
        sums = [
            [k.var(start, name="total") for _ in range(self.wide)]
            for start in (splat(bitcast(operand(here, 1), int32)) for here in at)
        ]

        def add_word(first: Expr, i: Expr, sums: list) -> None:
            """Word number `i` of the block whose first one is `first`."""
            place = lambda j: HEADER_WORDS + first * dots.parts + (j * block + i)
            xs = [[splat(operand(here, place(j))) for here in at] for j in range(dots.parts)]
            for v, word in enumerate(self.words(g * words + (first + i))):
                for x, weights in zip(xs, dots.operands(k, word)):
                    for row, line in zip(x, sums):
                        line[v].set(dots.add(line[v].value, weights, row))

        halves = dots.op == "dot2h"
        unrolled = min(block, UNROLLED_WORDS) if self.high > 1 else max(1, min(block, UNROLLED_WORDS) // 2)
        with k.loop(0, words, block, name="first") as first:
            some = [[k.var(const(0, uint32, LANES), name="pairs") for _ in line] for line in sums] if halves else sums
            with k.loop(0, block, unrolled, name="word") as i:
                for j in range(unrolled):
                    add_word(first, i + j, some)
            ones = const(1 << 16 | 1, uint32, LANES)  # two int16
            for line, pairs in zip(sums, some) if halves else ():
                for total, pair in zip(line, pairs):
                    total.set(dot2i(total.value, pair.value, ones))
        return sums
