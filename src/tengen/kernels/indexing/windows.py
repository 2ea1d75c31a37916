"""Pictures of another size: each result is a weighted sum over a small window of pixels, whose rows and columns are weighed apart.

`Windows` is a source, so that any loop nest can ask for its values. For pictures of few channels, which lie beside each other, it has
kernels of its own (`window_kernels.py`), with the elements of a row of results in the lanes, whatever their channels are.
"""

from __future__ import annotations

from tengen.base.dtype import int64
from tengen.kernels.indexing.gather import place
from tengen.kernels.indexing.window_kernels import clamped, fits, launch_windows, total_of
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.source import Leaf, Source
from tengen.loops.lang import Expr, as_int, cast, const, not_equal, select, splat


class Windows(Source):
    """out[n, i, j, c] = the sum over t and s of row_weight[t, i] * column_weight[s, j] * x[n, row[i] + t, column[j] + s, c].

    Shapes: x (N, H, W, C), row (PH), row_weight (T, PH), column (PW), column_weight (S, PW). Result: (N, PH, PW, C) of the weights' dtype.
    joint: the weights are multiplied with each other first; otherwise down the columns (t) is summed first, and then along the rows (s).
    """

    def __init__(self, x: Source, row: Source, row_weight: Source, column: Source, column_weight: Source, joint: bool):
        self.x, self.row, self.row_weight, self.column, self.column_weight = x, row, row_weight, column, column_weight
        self.joint, self.dtype = joint, row_weight.dtype
        self.taps = as_int(row_weight.shape[0]) or 1, as_int(column_weight.shape[0]) or 1
        self.shape = (x.shape[0], row.shape[0], column.shape[0], x.shape[3])

    def value(self, k, at):
        n, _, _, c = at.coords
        wide = (lambda e: splat(e)) if at.lanes > 1 else (lambda e: e)

        def along(axis: int, first: Source, weight: Source) -> list[tuple[Expr, Expr]]:
            """(place, weight) of each tap along an axis."""
            one = lambda s, *lead: s.at(k, place((*lead, at.coords[axis]), len(lead) if at.vec == axis else None, at.count))
            start, taps = k.let(cast(one(first), int64)), self.taps[axis - 1]
            inside = [k.let(clamped(start + t, self.x.shape[axis])) for t in range(taps)]
            return [(i, k.let(cast(one(weight, t), self.dtype.compute))) for t, i in enumerate(inside)]

        def pixel(i: Expr, j: Expr) -> Expr:
            there = place((at.coord(0) if at.vec == 0 else n, i, j, c), 3 if at.vec == 3 else None, at.count)
            return wide(cast(self.x.at(k, there), self.dtype.compute))

        rows, columns = along(1, self.row, self.row_weight), along(2, self.column, self.column_weight)
        values = [[pixel(i, j) for j, _ in columns] for i, _ in rows]
        return cast(self.weighed(k, values, [wide(w) for _, w in rows], [wide(w) for _, w in columns]), self.dtype)

    def weighed(self, k: KernelBuilder, values: list[list[Expr]], rows: list[Expr], columns: list[Expr]) -> Expr:
        """The sum of values[t][s], by the weights of both axes. What has no weight along an axis counts as 0, even if it is a NaN."""
        if self.x.dtype.is_float:
            there = lambda t, s: k.let(not_equal(rows[t], 0.0) & not_equal(columns[s], 0.0))
            zero = const(0, self.dtype.compute, columns[0].lanes)
            values = [[select(there(t, s), v, zero) for s, v in enumerate(line)] for t, line in enumerate(values)]
        if self.joint:
            terms = [(k.let(u * w), v) for u, line in zip(rows, values) for w, v in zip(columns, line)]
            return total_of(k, terms)
        down = [total_of(k, [(u, line[s]) for u, line in zip(rows, values)]) for s in range(len(columns))]
        return total_of(k, list(zip(columns, down)))

    def launch(self, lo, final, out, name):
        if not self.apart(lo, out):
            return False
        launch_windows(lo, self, final, out, name)
        return True

    def apart(self, lo, out):
        return isinstance(self.x, Leaf) and fits(lo, self, self.x.array, out)
