"""Reductions and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tengen import ops
from tengen.base.errors import ShapeError
from tengen.functional.arranged import broadcast_tensors
from tengen.functional.export import export
from tengen.ops.calls import all_with_line
from tengen.ops.contract import matmul as _matmul
from tengen.ops.define import REGISTRY
from tengen.ops.reduce import max_, min_, root, sum_
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.tensor import Tensor, tracing
from tengen.tensor.nodes import on_tape

if TYPE_CHECKING:
    from tengen.functional.math_ops import *  # noqa: F403  (a generated stub of the ops that stand here)

_sum, _max, _min = sum_.call, max_.call, min_.call


def matmul(
    inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """Matrix product over the last two axes; leading axes broadcast. `compute_mode` is accepted for MegEngine's sake:
    accumulation is always in float32 or better.

    >>> from tengen import Tensor, functional as F
    >>> F.matmul(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return _matmul(inp1, inp2, transpose_a, transpose_b)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """The inner product of two 1-D tensors, a 0-d tensor.

    Errors: ShapeError for what are no vectors

    >>> from tengen import Tensor, functional as F
    >>> F.dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    if inp1.ndim != 1 or inp2.ndim != 1:
        raise ShapeError(f"dot({inp1.shape}, {inp2.shape}): both must have one axis; help: matmul takes more")
    return _matmul(inp1, inp2)


def _differentiated(x: Tensor) -> bool:
    """Whether a gradient may be asked of what is computed of x. Else nothing need be done for it, which eager calls would take time for."""
    return tracing.recorder is not None or on_tape(x)


def norm(inp: Tensor, ord: float | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The p-norm along `axis`: ord None or 2 Euclidean, 1, inf, -inf, 0 (count of non-zeros), or any p. The gradient is 0 where the norm is 0.

    >>> from tengen import Tensor, functional as F
    >>> F.norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    if inp.dtype.compute is not inp.dtype:  # squares leave float16's range
        return narrowed(norm(widened(inp), ord, axis, keepdims), inp)
    op = REGISTRY
    size = op["abs"](inp)
    inp = size if inp.dtype.is_complex else inp
    if ord is None or ord == 2:
        total = _sum(inp * inp, axis, keepdims)
        return root(total) if _differentiated(total) else op["sqrt"](total)
    if ord == float("inf"):
        return _max(size, axis, keepdims)
    if ord == float("-inf"):
        return _min(size, axis, keepdims)
    if ord == 0:
        return _sum(op["astype"](op["not_equal"](inp, 0), inp.dtype), axis, keepdims)
    if ord == 1:
        return _sum(size, axis, keepdims)
    total = _sum(op["pow"](size, float(ord)), axis, keepdims)
    if ord < 1 or not _differentiated(total):
        return op["pow"](total, 1.0 / ord)
    nothing = op["equal"](total, 0)
    return op["where"](nothing, 0.0, op["pow"](op["where"](nothing, 1.0, total), 1.0 / ord))


def normalize(inp: Tensor, ord: float | None = None, axis: int | Sequence[int] | None = None, eps: float = 1e-12) -> Tensor:
    """inp divided by its norm along `axis`, which is taken to be at least eps."""
    x = widened(inp)
    return narrowed(x / REGISTRY["maximum"](norm(x, ord, axis, True), eps), inp)


def bmm(inp: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices: (B, M, K), (B, K, N) -> (B, M, N). `matmul` takes more.

    Errors: ShapeError for what are no stacks of matrices
    """
    if inp.ndim != 3 or mat2.ndim != 3:
        raise ShapeError(f"bmm({inp.shape}, {mat2.shape}): both must be batches of matrices, (B, M, K) and (B, K, N); help: matmul")
    return _matmul(inp, mat2)


def outer(inp1: Tensor, inp2: Tensor) -> Tensor:
    """Each element of one vector times each of the other: (M,), (N,) -> (M, N).

    Errors: ShapeError for what are no vectors

    >>> from tengen import Tensor, functional as F
    >>> F.outer(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if inp1.ndim != 1 or inp2.ndim != 1:
        raise ShapeError(f"outer({inp1.shape}, {inp2.shape}): both must have one axis")
    return REGISTRY["expand_dims"](inp1, 1) * REGISTRY["expand_dims"](inp2, 0)


@rounded_once
def cross(
    a: Tensor, b: Tensor, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The vector product of vectors of three elements.

    Args: axisa, axisb: where the vectors lie in a and b. axisc: where they shall lie in the result. axis: all three.
    Errors: ShapeError where a or b does not have 3 elements along its axis.

    >>> from tengen import Tensor, functional as F
    >>> F.cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    if a.ndim == 0 or b.ndim == 0 or a.shape[axisa] != 3 or b.shape[axisb] != 3:
        raise ShapeError(f"cross({a.shape}, {b.shape}): 3 elements are needed along axes {axisa} and {axisb}")
    (a0, a1, a2), (b0, b1, b2) = (
        [REGISTRY["squeeze"](x, d) for x in REGISTRY["split"](t, 3, d)] for t, d in ((a, axisa), (b, axisb))
    )
    return REGISTRY["stack"]([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axisc)


def cosine_similarity(x: Tensor, y: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """x . y / (|x| |y|) along `axis`; each norm is taken to be at least eps.

    >>> from tengen import Tensor, functional as F
    >>> round(F.cosine_similarity(Tensor([[3.0, 4.0]]), Tensor([[4.0, 3.0]])).item(), 4)
    0.96
    """
    if x.shape != y.shape:
        x, y = broadcast_tensors(x, y)
    a, b = widened(x), widened(y)
    return narrowed(_sum(normalize(a, 2, axis, eps) * normalize(b, 2, axis, eps), axis), x, y)


def matinv(inp: Tensor) -> Tensor:
    """The inverse matrices: `tengen.linalg.inv` under MegEngine's name.

    >>> from tengen import Tensor, functional as F
    >>> F.matinv(Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    factors, order, _, info = REGISTRY["lu"](inp)
    return REGISTRY["lu_solve"](
        inp, REGISTRY["checked"](factors, info, "matinv: singular"), order, ops.linalg_factor.identity_like(inp)
    )


def svd(inp: Tensor, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with inp = (U * S) @ V, as MegEngine's: `tengen.linalg.svd`, whose V is called Vh.

    Args: compute_uv: without it, U and V are empty.

    >>> from tengen import Tensor, functional as F
    >>> F.svd(Tensor([[0.0, 2.0], [1.0, 0.0]]))[1].tolist()
    [2.0, 1.0]
    """
    if compute_uv:
        return REGISTRY["svd"](inp, full_matrices)
    none = REGISTRY["zeros"]((0,), inp.dtype)
    return none, REGISTRY["svdvals"](inp), none


norm.aliases = normalize.aliases = {"p": "ord"}  # PyTorch's name
__all__ = ["bmm", "cosine_similarity", "cross", "dot", "matinv", "matmul", "norm", "normalize", "outer", "svd", *export(globals(), "math")]
all_with_line(globals(), __all__)
