"""Rows of packed keys sorted digit by digit, the lowest first, where rows are long: a few moves of each element, where merging takes one
for each doubling of the runs' length.

    for each piece = some rows:
        for digit:  counts[digit][value] = how many elements have it                  # all digits in one pass
        for digit:  counts[digit][value] = where the first of them goes
            for element in order: other half of the memory[counts[digit][its value]++] = element
    # an even number of digits: the sorted rows lie in the first half of the memory

Each pass keeps the order of elements whose digits are equal, so the position in the lower half of a packed key needs no pass.

Source: Knuth, "The Art of Computer Programming", volume 3, 5.2.5, algorithm R, with counts (Seward, 1954).
"""

from __future__ import annotations

from tengen.base.dtype import int64
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, cdiv, const, maximum, minimum

KEY_BITS = 32  # of a packed key, above as many of the position
SORT_DIGIT_BITS = 8
DIGITS, DIGIT_COUNTS = KEY_BITS // SORT_DIGIT_BITS, 1 << SORT_DIGIT_BITS
LEAST_ELEMENTS = 512  # of a row, from which on this takes less time than merging


def sort_rows(lo: Lowering, memory: Array, rows: Expr, n: Expr, name: str) -> None:
    """Launches the kernel that sorts all rows of n packed keys in the first half of the memory, by means of the second."""
    k = lo.kernel(name)
    keys, counts = k.write(memory), k.scratch("counts", int64, DIGITS * DIGIT_COUNTS)
    half = k.let(rows * n)
    per = maximum(const(1), 2048 // maximum(const(1), n))
    piece = k.split(cdiv(rows, per))

    def place(key: Expr, digit: Expr | int) -> Expr:
        """Where the count of a key's digit lies. The sign of a key is turned: as a digit, the lowest keys have the lowest."""
        turned = key ^ const(-(1 << 63), int64)
        value = (turned >> (as_expr(digit) * SORT_DIGIT_BITS + KEY_BITS)) & const(DIGIT_COUNTS - 1, int64)
        return k.let(value + as_expr(digit) * DIGIT_COUNTS)

    with k.loop(piece * per, minimum(piece * per + per, rows), name="row") as r:
        base = k.let(r * n)
        with k.loop(0, DIGITS * DIGIT_COUNTS, LANES, name="value") as i:
            k.store(counts, i, const(0, int64, LANES))
        with k.loop(0, n, name="i") as i:
            key = k.load(keys, base + i)
            for digit in range(DIGITS):
                at = place(key, digit)
                k.store(counts, at, k.load(counts, at) + 1)
        with k.loop(0, DIGITS, name="digit") as digit:
            source, target = k.let(base + digit % 2 * half), k.let(base + (digit + 1) % 2 * half)
            first = k.var(const(0), name="first")
            with k.loop(0, DIGIT_COUNTS, name="value") as i:
                at = k.let(digit * DIGIT_COUNTS + i)
                count = k.load(counts, at)
                k.store(counts, at, first.value)
                first.set(first.value + count)
            with k.loop(0, n, name="i") as i:
                key = k.load(keys, source + i)
                at = place(key, digit)
                to = k.load(counts, at)
                k.store(keys, target + to, key)
                k.store(counts, at, to + 1)
    lo.launch(k)
