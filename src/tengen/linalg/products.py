"""Products, norms, and parts of matrices, with the signatures of the array API; and the matrix exponential."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tengen.base.errors import ArgumentError, DTypeError, ShapeError
from tengen.linalg.parts import Matrix, as_tensor, matrices
from tengen.linalg.spectra import svdvals
from tengen.linalg.systems import solve
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.ops.linalg_factor import identity_like
from tengen.ops.shape import normalize_axes, normalize_axis
from tengen.ops.widths import narrowed, rounded_once, widened
from tengen.tensor import Tensor


def matmul(x1: Matrix, x2: Matrix, /) -> Tensor:
    """The product of matrices over the last two axes; see `tengen.functional.matmul`.

    >>> from tengen import Tensor, linalg
    >>> linalg.matmul(Tensor([[1, 2]]), Tensor([[3], [4]])).tolist()
    [[11]]
    """
    return REGISTRY["matmul"](as_tensor(x1), as_tensor(x2))


def matrix_transpose(x: Matrix, /) -> Tensor:
    """Rows and columns exchanged: (..., m, n) -> (..., n, m), a view.

    >>> from tengen import Tensor, linalg
    >>> linalg.matrix_transpose(Tensor([[1, 2]])).tolist()
    [[1], [2]]
    """
    return REGISTRY["swapaxes"](matrices("matrix_transpose", x, floats=False), -1, -2)


def diagonal(x: Matrix, /, *, offset: int = 0) -> Tensor:
    """The elements (i, i + offset) of matrices: (..., m, n) -> (..., d), a view.

    >>> from tengen import Tensor, linalg
    >>> linalg.diagonal(Tensor([[1, 2], [3, 4]]), offset=1).tolist()
    [2]
    """
    return REGISTRY["last_diagonal"](matrices("diagonal", x, floats=False), offset)


def trace(x: Matrix, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the elements (i, i + offset) of matrices: (..., m, n) -> (...).

    Args: dtype: of the sum; default x's for floats, int64 (uint64) for integers

    >>> from tengen import Tensor, linalg
    >>> linalg.trace(Tensor([[1, 2], [3, 4]])).item()
    5
    """
    d = diagonal(x, offset=offset)
    if dtype is None and d.dtype.kind in "iub":
        dtype = "uint64" if d.dtype.kind == "u" else "int64"
    return REGISTRY["sum"](d if dtype is None else REGISTRY["astype"](d, dtype), -1)


def outer(x1: Matrix, x2: Matrix, /) -> Tensor:
    """Each element of one vector times each of the other: (m,), (n,) -> (m, n).

    Errors: ShapeError for what are no vectors

    >>> from tengen import Tensor, linalg
    >>> linalg.outer(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: both must have one axis, got shapes {tuple(x1.shape)} and {tuple(x2.shape)}")
    return REGISTRY["expand_dims"](x1, 1) * REGISTRY["expand_dims"](x2, 0)


@rounded_once
def cross(x1: Matrix, x2: Matrix, /, *, axis: int = -1) -> Tensor:
    """The vector product of vectors of three elements along `axis`; other axes broadcast.

    Errors: ShapeError for vectors of another length than 3

    >>> from tengen import Tensor, linalg
    >>> linalg.cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    shape = broadcast_shapes(x1.shape, x2.shape)
    if axis >= 0:  # counted from the front of the result
        axis -= len(shape)
    sizes = [x.shape[axis] if -x.ndim <= axis else 0 for x in (x1, x2)]
    if sizes != [3, 3]:
        raise ShapeError(f"cross: 3 elements are needed along axis {axis}, got shapes {tuple(x1.shape)} and {tuple(x2.shape)}")
    (a, b, c), (d, e, f) = ([REGISTRY["squeeze"](x, axis) for x in REGISTRY["split"](t, 3, axis)] for t in (x1, x2))
    return REGISTRY["stack"]([b * f - c * e, c * d - a * f, a * e - b * d], axis)


def vecdot(x1: Matrix, x2: Matrix, /, *, axis: int = -1) -> Tensor:
    """The inner products along `axis`, of complex numbers with the first conjugated; other axes broadcast.

    Errors: ShapeError for vectors that are not equally long

    >>> from tengen import Tensor, linalg
    >>> linalg.vecdot(Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
    [3, 7]
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if min(x1.ndim, x2.ndim) == 0 or x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(f"vecdot: axis {axis} of shapes {tuple(x1.shape)} and {tuple(x2.shape)} must be equally long")
    product = REGISTRY["conj"](x1) * x2
    if axis >= 0:  # as many axes from the end as in the operand that has the most
        axis -= max(x1.ndim, x2.ndim)
    total = REGISTRY["sum"](product, axis)
    return total if product.dtype.is_float else REGISTRY["astype"](total, product.dtype)


def tensordot(x1: Matrix, x2: Matrix, /, *, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sum of products over some axes of both.

    Args:
        axes: (axes of x1, axes of x2), in pairs; a number stands for so many last axes of x1 and first axes of x2.
    Shapes: the other axes of x1, then those of x2
    Errors: ShapeError for axes that do not fit each other

    >>> from tengen import Tensor, linalg
    >>> linalg.tensordot(Tensor([[1, 2], [3, 4]]), Tensor([[1, 0], [0, 1]])).item()
    5
    """
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError(f"tensordot: axes={axes} does not fit shapes {tuple(x1.shape)} and {tuple(x2.shape)}")
        first, second = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        first, second = (tuple(normalize_axis(a, x.ndim) for a in some) for some, x in zip(axes, (x1, x2)))
    if [x1.shape[a] for a in first] != [x2.shape[a] for a in second]:
        raise ShapeError(f"tensordot: axes {first} and {second} of shapes {tuple(x1.shape)} and {tuple(x2.shape)} differ in length")
    rest1, rest2 = ([a for a in range(x.ndim) if a not in some] for x, some in ((x1, first), (x2, second)))
    m, n, k = (math.prod(x.shape[a] for a in some) for x, some in ((x1, rest1), (x2, rest2), (x1, first)))
    a = REGISTRY["reshape"](REGISTRY["permute"](x1, (*rest1, *first)), (m, k))
    b = REGISTRY["reshape"](REGISTRY["permute"](x2, (*second, *rest2)), (k, n))
    shape = (*(x1.shape[a] for a in rest1), *(x2.shape[a] for a in rest2))
    return REGISTRY["reshape"](REGISTRY["matmul"](a, b), shape)


def vector_norm(x: Matrix, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The p-norm of all elements along `axis` (default: all axes), as one vector.

    Args:     ord: p; 2, 1, inf, -inf, 0 (how many are not 0), or any other number
    Gradient: 0 where the norm is 0, and of orders below 1 to elements that are 0
    Numerics: of the Euclidean norm, elements are divided by the largest magnitude, so squares neither overflow nor underflow
    Errors: DTypeError for integers and bools

    >>> from tengen import Tensor, linalg
    >>> linalg.vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    x = as_tensor(x)
    if not (x.dtype.is_float or x.dtype.is_complex):
        raise DTypeError(f"vector_norm: takes floats or complex numbers, got {x.dtype}; help: cast with .astype('float32')")
    axes = tuple(range(x.ndim)) if axis is None else normalize_axes(axis, x.ndim)
    if x.dtype.compute is not x.dtype:  # powers leave float16's range
        return narrowed(vector_norm(widened(x), axis=axes, keepdims=keepdims, ord=ord), x)
    op = REGISTRY
    size = op["abs"](x)
    total = lambda v: op["sum"](v, axes, keepdims) if axes else v
    if ord == 0:
        return total(op["astype"](op["not_equal"](x, 0), size.dtype))
    if ord == 1:
        return total(size)
    if math.isinf(ord):
        if ord > 0 and x.size == 0:
            return total(size)
        return op["max" if ord > 0 else "min"](size, axes, keepdims)
    if ord == 2 and x.dtype.is_complex:
        y = _euclidean(op["view_as_real"](x), (*axes, x.ndim), keepdims)
        return op["squeeze"](y, [x.ndim]) if keepdims else y
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    each = op["pow"](size, float(ord)) if ord > 1 else _powers_below_1(size, float(ord))
    powers = total(each)
    nothing = op["equal"](powers, 0)  # where the root has no derivative
    return op["where"](nothing, 0.0 if ord > 0 else math.inf, op["pow"](op["where"](nothing, 1.0, powers), 1.0 / ord))


def _powers_below_1(size: Tensor, ord: float) -> Tensor:
    """Magnitudes to a power below 1, whose slope at 0 is infinite and taken to be 0."""
    op = REGISTRY
    zero = op["equal"](size, 0)
    return op["where"](zero, 0.0 if ord > 0 else math.inf, op["pow"](op["where"](zero, 1.0, size), ord))


def _euclidean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    op = REGISTRY
    if x.size == 0:
        return op["sum"](x, axes, keepdims)
    largest = op["max"](op["abs"](x.detach()), axes, True)
    usable = op["logical_and"](op["greater"](largest, 0), op["isfinite"](largest))
    scale = op["where"](usable, largest, op["ones_like"](largest))
    y = x / scale
    squares = op["sum"](y * y, axes, True)
    nothing = op["equal"](squares, 0)
    root = op["where"](nothing, op["zeros_like"](squares), op["sqrt"](op["where"](nothing, op["ones_like"](squares), squares))) * scale
    return root if keepdims else op["squeeze"](root, list(axes)) if axes else root


def matrix_norm(x: Matrix, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro") -> Tensor:
    """A norm of matrices: (..., m, n) -> (...), or (..., 1, 1) with keepdims.

    Args:
        ord: "fro" (None): the Euclidean norm of all elements. "nuc": the sum of singular values. 2, -2: the largest, the smallest singular
            value. 1, -1: the largest, the smallest sum of magnitudes of a column; inf, -inf: of a row.
    Errors: ArgumentError for another `ord`

    >>> from tengen import Tensor, linalg
    >>> linalg.matrix_norm(Tensor([[1.0, -2.0], [3.0, 4.0]]), ord=1).item()
    6.0
    """
    x = matrices("matrix_norm", x)
    if ord is None or ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        how = "sum" if ord == "nuc" or (ord == 2 and s.shape[-1] == 0) else "max" if ord == 2 else "min"
        found = REGISTRY[how](s, -1)
        return REGISTRY["expand_dims"](found, (-2, -1)) if keepdims else found
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"matrix_norm: ord={ord!r} must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    along, across = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = REGISTRY["sum"](REGISTRY["abs"](x), along, True)
    found = sums.sum(across, True) if ord > 0 and 0 in sums.shape[-2:] else REGISTRY["max" if ord > 0 else "min"](sums, across, True)
    return found if keepdims else REGISTRY["squeeze"](found, [-2, -1])


# Higham, "The scaling and squaring method for the matrix exponential revisited", 2005: the Pade approximant of degree 13 is accurate to
# eps of float64 for matrices of a norm up to this one. Its coefficients follow.
_LARGEST_NORM = 5.371920351148152
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_MOST_SQUARINGS = 16


def norm(
    x: Matrix, ord: float | Literal["fro", "nuc"] | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Tensor:
    """A norm of vectors or matrices, as NumPy's `linalg.norm` takes it.

    Args:
        ord: None: the Euclidean norm of all elements; else an order of `vector_norm`, along one axis, or of `matrix_norm`, over two.
        axis: one axis for vectors, two for matrices; None: all elements, or with an `ord` the one or two axes that there are.
    Errors: ShapeError where an order is asked for, and axes are neither one nor two

    >>> from tengen import Tensor, linalg
    >>> linalg.norm(Tensor([3.0, 4.0])).item(), linalg.norm(Tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc").item()
    (5.0, 7.0)
    """
    x = as_tensor(x)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axes(axis, x.ndim)
    if ord is None or len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(f"norm({x._layout.type!r}, ord={ord!r}, axis={axis!r}): one axis is needed, of vectors, or two, of matrices")
    rows_and_columns = axes if axis is None else tuple(axis)  # in the order given, which says what a row is
    y = matrix_norm(REGISTRY["moveaxis"](x, rows_and_columns, (-2, -1)), ord=ord)
    return REGISTRY["expand_dims"](y, axes) if keepdims else y


def multi_dot(tensors: Sequence[Matrix]) -> Tensor:
    """The product of matrices in the order that takes the fewest multiplications; the first and the last may be vectors.

    Errors: ShapeError for fewer than two

    >>> from tengen import functional as F, linalg
    >>> linalg.multi_dot([F.ones((2, 3)), F.ones((3, 4)), F.ones(4)]).tolist()
    [12.0, 12.0]
    """
    some = [as_tensor(x) for x in tensors]
    if len(some) < 2:
        raise ShapeError(f"multi_dot: at least two matrices are needed, got {len(some)}")
    first, last = some[0], some[-1]
    sizes = [first.shape[0] if first.ndim > 1 else 1, *(x.shape[-1] for x in some[:-1]), last.shape[1] if last.ndim > 1 else 1]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(some))}
    for width in range(1, len(some)):
        for i in range(len(some) - width):
            j = i + width
            cost = lambda k, i=i, j=j: best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1]
            best[i, j] = min((cost(k), k) for k in range(i, j))

    def product(i: int, j: int) -> Tensor:
        return some[i] if i == j else REGISTRY["matmul"](product(i, best[i, j][1]), product(best[i, j][1] + 1, j))

    return product(0, len(some) - 1)


def cond(x: Matrix, p: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition of matrices: their norm times that of their inverse. Args: p: an order of `matrix_norm`; None: 2.

    >>> from tengen import Tensor, linalg
    >>> linalg.cond(Tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    x = as_tensor(x)
    if p in (None, 2, -2):
        s = svdvals(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    one = identity_like(x)
    return matrix_norm(x, ord=p) * matrix_norm(solve(x, one), ord=p)


@rounded_once
def matrix_exp(x: Matrix, /) -> Tensor:
    """The exponential of matrices, the sum of x^k / k!: (..., n, n) -> (..., n, n).

    Numerics: scaling and squaring with a Pade approximant of degree 13 (Higham, 2005). There are always 16 squarings to choose from, so
        that matrices of a batch do not depend on each other; norms from 3.5e5 on give NaN

    >>> from tengen import Tensor, linalg
    >>> linalg.matrix_exp(Tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    op, x = REGISTRY, matrices("matrix_exp", x, square=True)
    if x.size == 0:
        return op["copy"](x)
    norm = matrix_norm(x.detach(), ord=1, keepdims=True)
    power = op["maximum"](op["ceil"](op["log2"](op["maximum"](norm, 1e-30) / _LARGEST_NORM)), 0)
    fits = op["less_equal"](power, _MOST_SQUARINGS)
    a = x * op["exp2"](-op["where"](fits, power, op["zeros_like"](power)))
    a = op["where"](fits, a, op["full_like"](a, math.nan))
    times = op["matmul"]
    one = op["broadcast_to"](op["eye"](x.shape[-1], dtype=x.dtype), x.shape)
    a2 = times(a, a)
    a4 = times(a2, a2)
    a6 = times(a4, a2)
    b = [c / _PADE[0] for c in _PADE]
    odd = times(a6, a6 * b[13] + a4 * b[11] + a2 * b[9]) + a6 * b[7] + a4 * b[5] + a2 * b[3] + one * b[1]
    even = times(a6, a6 * b[12] + a4 * b[10] + a2 * b[8]) + a6 * b[6] + a4 * b[4] + a2 * b[2] + one
    odd = times(a, odd)
    result = solve(even - odd, even + odd)
    for i in range(_MOST_SQUARINGS):
        more = op["greater"](power, i)
        some = op["where"](more, result, op["zeros_like"](result))  # so that what is not used neither overflows nor has a gradient
        result = op["where"](more, times(some, some), result)
    return result


__all__ = [
    "cond", "cross", "diagonal", "matmul", "matrix_exp", "matrix_norm", "matrix_transpose", "multi_dot", "norm", "outer", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip
all_with_line(globals(), __all__)
