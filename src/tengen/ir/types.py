"""The type of a tensor in a program: its logical shape and its dtype. Layout is not here; it is the lowering's business."""

from __future__ import annotations

from collections.abc import Iterable

from tengen.base.dtype import DType, dtype, int64
from tengen.base.errors import SizeError, VerifyError
from tengen.loops.lang import Expr, Index, var
from tengen.loops.parse import ExprParser, Line, split_lines
from tengen.loops.text import print_expr

MOST_BYTES = 1 << 60  # of a tensor, and of the temporaries of a program
Dim = Index  # an int, or an int64 expression over named symbols


class TensorType:
    """An interned pair of shape and dtype: equal types are the same object. Prints as ``f32[N,3,224,224]``.

    >>> TensorType((2, 3), "float32")
    f32[2,3]
    """

    __slots__ = ("shape", "dtype")
    shape: tuple[Dim, ...]
    dtype: DType
    _table: dict = {}

    def __new__(cls, shape: Iterable[Dim], dt):
        if type(shape) is tuple and type(dt) is DType and (t := cls._table.get((shape, dt))) is not None:
            return t
        key = (tuple(_dim(d) for d in shape), dtype(dt))
        t = cls._table.get(key)
        if t is None:
            t = super().__new__(cls)
            t.shape, t.dtype = key
            t._check_size()
            cls._table[key] = t
        return t

    def _check_size(self) -> None:
        """SizeError for negative extents, and for more bytes than any machine has: then positions in it, and sizes rounded up, fit
        the int64 that kernels compute in, even where the elements are a view of few."""
        n = self.dtype.size
        for d in self.shape:
            if isinstance(d, int):
                n *= max(d, 1)
                if d < 0:
                    raise SizeError(f"{self!r} has a negative extent")
        if n >= MOST_BYTES:
            raise SizeError(f"a tensor {self!r}: {n} bytes are more than any machine has")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __reduce__(self):
        return (TensorType, (self.shape, self.dtype))

    def __repr__(self) -> str:
        dims = (print_expr(d) if isinstance(d, Expr) else str(d) for d in self.shape)
        return f"{self.dtype.short}[{','.join(dims)}]"


def _dim(d: Dim) -> Dim:
    if isinstance(d, Expr):
        if d.dtype is not int64 or d.lanes != 1:
            raise VerifyError(f"the extent {d!r} is not an int64")
        return d.attr if d.op == "const" else d  # type: ignore[return-value]
    return int(d)


def read_type(line: Line) -> TensorType:
    """The type that comes next on a line: ``f32[N,3,2 * N]``. Names are int64 symbols."""
    dt = line.dtype()
    line.expect("[")
    dims: list[Dim] = []
    at = line.peek()
    while not line.accept("]"):
        if dims:
            line.expect(",")
        at = line.peek()
        dims.append(read_dim(line))
    try:
        return TensorType(dims, dt)
    except (SizeError, VerifyError) as e:
        line.fail(str(e), at)


def read_dim(line: Line) -> Expr:
    """The extent that comes next on a line."""
    return ExprParser(var).parse(line)


def parse_type(text: str) -> TensorType:
    """The type that `repr` wrote. VerifyError for any other text.

    >>> parse_type("f32[N,3]").shape[1]
    3
    """
    lines = split_lines(text)
    if len(lines) != 1:
        raise VerifyError("expected one type")
    t = read_type(lines[0])
    lines[0].done()
    return t
