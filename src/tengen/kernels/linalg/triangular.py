"""Triangular systems of equations, solved by substitution.

    for each piece = LANES columns of the right sides of a matrix:
        for row i, from the first for a lower triangle, from the last for an upper one:
            x[i] = (x[i] - sum of a[i, s] * x[s] over the rows s before, by fma in the order of rows) / a[i, i]
"""

from __future__ import annotations

from tengen.kernels.axes import unflatten
from tengen.kernels.linalg.stacks import in_tiles, known, subtract_products, tile_rows
from tengen.kernels.lowering import Array, Lowering, product
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, cdiv, fma, minimum, splat


def triangular_solve(lo: Lowering, a: Array, x: Array, lower: bool, unit: bool = False) -> None:
    """Launches x = a^-1 x, where a holds a triangle in its lower (upper) half; the other half is not read.

    Shapes: a (..., n, n) with any strides, x (..., n, k) dense.
    Args:
        unit: the diagonal is 1, and not read.
    """
    lead, n, columns = x.shape[:-2], as_expr(x.shape[-2]), as_expr(x.shape[-1])
    if not known(*x.shape):
        return
    k = lo.kernel("triangular_solve")
    chunks = cdiv(columns, LANES)
    piece = k.split(product(lead) * chunks)
    b, first = k.let(piece // chunks), k.let(piece % chunks * LANES)
    count = k.let(minimum(columns - first, LANES))
    coords = unflatten(k, b, lead) if lead else []
    source, target = k.read(a), k.write(x)
    corner, base = k.let(as_expr(a.index((*coords, 0, 0)))), k.let(b * n * columns + first + x.offset)
    down, right = a.strides[-2:]
    row = (lambda r: r) if lower else (lambda r: n - 1 - r)
    at = lambda i, j: k.load(source, corner + i * down + j * right)
    get = lambda i: k.load(target, base + i * columns, LANES, count)

    def some(r: Expr, rows: int) -> None:
        places = [k.let(row(r + q)) for q in range(rows)]
        sums = [k.var(get(i), name="x") for i in places]
        subtract_products(k, sums, (0, r), lambda s: [at(i, row(s)) for i in places], lambda s: get(row(s)))
        done: list[Expr] = []
        for q, i in enumerate(places):
            value = sums[q].value
            for p, x_p in enumerate(done):
                value = fma(-splat(at(i, places[p])), x_p, value)
            done.append(k.let(value if unit else value / splat(at(i, i))))
            k.store(target, base + i * columns, done[-1], count)

    in_tiles(k, 0, n, tile_rows(x.dtype, lo.target), some)
    lo.launch(k)
