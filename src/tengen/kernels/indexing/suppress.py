"""Non-maximum suppression: of boxes in order, each is kept unless one that was kept before overlaps it too much.

    one piece:
        keep[:] = true
        for i in order: if keep[i]:
            for vector j of the boxes behind: keep[j] = keep[j] and (union(i, j) < 0 or not intersection(i, j) > threshold * union(i, j))
"""

from __future__ import annotations

from tengen.base.dtype import bool_
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import At, Literal, broadcast
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, cast, const, maximum, minimum, splat


def suppress(lo: Lowering, boxes: Array, threshold: float, keep: Array, name: str = "suppress") -> None:
    """Launches keep (N, bool, dense) for boxes (N, 4) of x1, y1, x2, y2 in descending order of their scores.

    Numerics: area = (x2 - x1) * (y2 - y1); the intersection's sides are at least 0; area + area - intersection is the union. NaN
    overlaps nothing, and no more do two boxes whose union is negative, as corners in the wrong order make it.
    """
    pointwise(lo, [broadcast(Literal(True, bool_), keep.shape)], [keep], f"{name}_base")
    if as_int(boxes.shape[0]) == 0:
        return
    k = lo.kernel(name)
    k.split(1)
    n, y, d = as_expr(boxes.shape[0]), k.write(keep), boxes.dtype.compute
    with k.loop(0, n, name="box") as i:
        alive = k.load(y, keep.index((i,)))
        with k.if_(alive):
            mine = [splat(e) for e in _corners(k, boxes, At((i, 0)))]
            area = k.let(_area(mine))
            for j, count in k.vector_loop(i + 1, n, "other"):
                others = _corners(k, boxes, At((j, 0), 0, count))
                sides = [
                    k.let(maximum(minimum(mine[a + 2], others[a + 2]) - maximum(mine[a], others[a]), const(0, d, LANES)))
                    for a in (0, 1)
                ]
                both = k.let(sides[0] * sides[1])
                union = k.let(area + _area(others) - both)
                old = k.load(y, keep.index((j,)), LANES, count)
                apart = union < const(0, d, LANES)
                k.store(y, keep.index((j,)), old & (apart | ~(both > union * const(threshold, d, LANES))), count)
    lo.launch(k)


def _corners(k: KernelBuilder, boxes: Array, at: At) -> list[Expr]:
    return [cast(At((at.coords[0], c), at.vec, at.count).load(k, boxes), boxes.dtype.compute) for c in range(4)]


def _area(corners: list[Expr]) -> Expr:
    x1, y1, x2, y2 = corners
    return (x2 - x1) * (y2 - y1)
