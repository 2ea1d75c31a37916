"""The type of a tensor in a program: its logical shape and its dtype. Layout is not here; it is the lowering's business."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tengen.base.dtype import BY_SHORT, DType, dtype, int64
from tengen.base.errors import SizeError, VerifyError
from tengen.base.tables import Interned, intern
from tengen.loops.extents import TERMS, terms
from tengen.loops.lang import Expr, Index, unguarded, var
from tengen.loops.parse import ExprParser, Line, split_lines
from tengen.loops.text import print_expr
from tengen.loops.verify import brief

MOST_BYTES = 1 << 60  # of a tensor, and of the temporaries of a program
Dim = Index  # an int, or an int64 expression over named symbols


class TensorType:
    """An interned pair of shape and dtype: equal types are the same object. Prints as ``f32[N,3,224,224]``.

    >>> TensorType((2, 3), "float32")
    f32[2,3]
    """

    __slots__ = ("shape", "dtype", "_text", "__weakref__")
    shape: tuple[Dim, ...]
    dtype: DType
    _text: str
    _table: dict[tuple, Interned] = {}

    def __new__(cls, shape: Iterable[Dim], dt):
        if type(shape) is tuple and type(dt) is DType and (entry := cls._table.get((shape, dt))) and (t := entry()) is not None:
            return t
        key = (tuple(_dim(d) for d in shape), dtype(dt))
        t = entry() if (entry := cls._table.get(key)) else None
        if t is None:
            check_size(*key)
            t = super().__new__(cls)
            t.shape, t.dtype = key
            t._text = ""
            intern(cls._table, key, t)
        return t

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __reduce__(self):
        return (TensorType, (self.shape, self.dtype))

    def __repr__(self) -> str:
        self._text = self._text or _told(self.shape, self.dtype)  # keys of programs tell the same types many times
        return self._text


def check_size(shape: Sequence[Dim], d: DType) -> None:
    """SizeError for negative extents, for those that are too long to be written down, and for more bytes than any machine has:
    then positions in a tensor, and sizes rounded up, fit the int64 that kernels compute in, even where it is a view of few
    elements."""
    n = d.size
    for extent in shape:
        if isinstance(extent, int):
            n *= max(extent, 1)
            if extent < 0:
                raise SizeError(f"{_told(shape, d)} has a negative extent")
        elif terms(extent) > TERMS:
            raise SizeError(f"an extent {brief(extent)} of more than {TERMS} terms")
    if n >= MOST_BYTES:
        raise SizeError(f"a tensor {_told(shape, d)}: {n} bytes are more than any machine has")


def _told(shape: Sequence[Dim], d: DType) -> str:
    return f"{d.short}[{','.join(print_expr(n) if isinstance(n, Expr) else str(n) for n in shape)}]"


def _dim(d: Dim) -> Dim:
    if isinstance(d, Expr):
        if d.dtype is not int64 or d.lanes != 1:
            raise VerifyError(f"the extent {d!r} is not an int64")
        return d.attr if d.op == "const" else unguarded(d)
    return int(d)


def read_type(line: Line) -> TensorType:
    """The type that comes next on a line: ``f32[N,3,2 * N]``. Names are int64 symbols."""
    dt = line.dtype(BY_SHORT)
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
