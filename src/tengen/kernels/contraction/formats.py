"""The formats of dot products: how the terms of a sum are stored, and which operation of the kernel language multiplies them.

    total = op(a[k], ..., a[k + group - 1], b[k], ..., b[k + group - 1], total)      # for k in steps of group

In: the dtype of operands, and the precision that an attribute of an op asks for. Out: a row of `FORMATS`. A format is what a
problem says of its products: packing, tiles and the register tile ask the row, and none of them tests for a dtype. Which
instruction of a processor computes the operation is said in `codegen/targets/`; its bits are those of the kernel language
everywhere. A new format is a row here, an operation of the language where none fits, and what packs a group of its elements.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.dtype import ALL, DType, bfloat16, float32, float64, int8, int16, int32, uint8, uint32
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.kernels.machine import Machine
from tengen.loops.dots import dot2, dot2i, dot4i, dot4s, dot4u, quad4i, quad4u
from tengen.loops.lang import Expr, cast, const, fma

BIAS_IN_BYTES = 0x80808080  # four bytes of 128, or of -128: see `DotFormat.biases`
MATCHED_TERMS = 16  # positions of a block of `DotFormat.matched`: lanes of a swizzle

# What each `DotFormat.op` adds to a total: an fma of floats, a wrapping product and sum of integers, the products of two groups.
_OPERATIONS: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "fma": fma,
    "mul": lambda a, b, total: a * b + total,
    "dot2": lambda a, b, total: dot2(total, a, b),
    "dot2i": lambda a, b, total: dot2i(total, a, b),
    "dot4i": lambda a, b, total: dot4i(total, a, b),
    "dot4u": lambda a, b, total: dot4u(total, a, b),
    "dot4s": lambda a, b, total: dot4s(total, a, b),
    "quad4i": lambda a, b, total: quad4i(total, a, b),
    "quad4u": lambda a, b, total: quad4u(total, a, b),
}


@record(frozen=True)
class DotFormat:
    """How the terms of a sum of products are stored and multiplied.

    Attributes:
        name: of the format; where it has a group, problem keys say it, so that another name forgets tuned schedules.
        precision: the value of an op's attribute `precision` that asks for it.
        storage: the dtype that elements are rounded to before they are multiplied; of the first operand, where `second` is another.
        group: how many consecutive terms one operation multiplies.
        operand: the dtype in which a register holds a group of one operand's elements, the first in the lowest bits.
        total: the dtype that is accumulated in.
        op: the operation of the kernel language that adds the products of a group to a total.
        exact: whether a sum has the bits of adding its terms one by one, in logical order, each by an fma (of integers: by a
            wrapping product and sum) of the elements as they are stored.
        second: the dtype of the second operand's elements.
        quads: whether the operation multiplies two rows by two columns, of two groups each, into a quad of totals. The two groups of a
            column lie beside each other in packed operands.
        matched: whether products are added two by two in int16, so that the second operand, a constant, is packed in pairs that fit, and
            rows are brought into their order (`matching.py`).
    """

    name: str
    precision: str
    storage: DType
    group: int
    operand: DType
    total: DType
    op: str
    exact: bool
    second: DType
    quads: bool = False
    matched: bool = False

    @property
    def terms(self) -> int:
        """How many consecutive terms of a row and a column go together: those that one operation multiplies, or a block of them whose pairs
        are matched."""
        return MATCHED_TERMS if self.matched else 2 * self.group if self.quads else self.group

    def multiply_add(self, a: Expr, b: Expr, total: Expr) -> Expr:
        """total + the products of a group of `a` and a group of `b`."""
        return _OPERATIONS[self.op](a, b, total)

    def biases(self, d: DType) -> bool:
        """Whether elements of a first operand of this dtype are integers of 8 bits with a sign, and the format takes those without
        one, or the other way round. 128 is added to them, or taken off, which turns the highest bit; sums begin with what that adds
        to them, negated."""
        return self.group == 4 and d is not self.storage

    def stored(self, x: Expr, d: DType) -> Expr:
        """An element of a first operand of dtype `d`, as it is stored."""
        x = cast(x, self.storage)
        return x ^ const(0x80 if x.dtype is uint8 else -0x80, x.dtype) if self.biases(d) else x


def _one_by_one(d: DType) -> DotFormat:
    """The format in which numbers of a dtype are multiplied one by one, and added in the same dtype."""
    return DotFormat(d.name, "highest", d, 1, d, d, "fma" if d.is_float else "mul", exact=True, second=d)


# fmt: off
FORMATS = (
    _one_by_one(float32),
    _one_by_one(float64),
    *(_one_by_one(d) for d in ALL if d.is_int),
    #         name     precision   storage   group  operand  total    op      exact  second
    DotFormat("pairs", "bfloat16", bfloat16, 2,     uint32,  float32, "dot2", False, bfloat16),
    DotFormat("pairs of int16", "int32", int16, 2,   uint32,  int32,   "dot2i", True, int16),
    DotFormat("uint8 by int8", "int32", uint8, 4,    uint32,  int32,   "dot4u", True, int8),
    DotFormat("int8 by int8", "int32", int8, 4,      uint32,  int32,   "dot4i", True, int8),
    DotFormat("uint8 by int8, 2 x 2", "int32", uint8, 4, uint32, int32, "quad4u", True, int8, quads=True),
    DotFormat("int8 by int8, 2 x 2", "int32", int8, 4, uint32, int32,  "quad4i", True, int8, quads=True),
    DotFormat("uint8 by int8, matched pairs", "int32", uint8, 4, uint32, int32, "dot4s", True, int8, matched=True),
)
# fmt: on
_ROWS = {(f.total, f.precision): f for f in FORMATS if f.group <= 2}
_BYTES = [f for f in FORMATS if f.group == 4 and not f.quads and not f.matched]
MATCHED = next(f for f in FORMATS if f.matched)


def dot_format(dtype: DType, precision: str = "highest", second: DType | None = None, target: Machine | None = None) -> DotFormat:
    """The format of products of numbers of this dtype.

    Args:
        dtype: of the operands; float16 and bfloat16 are multiplied as float32. precision: as of `matmul`; or "int32", of integers
            that int16 holds. second: dtype of the second operand, where it may be another. target: integers of 8 bits are multiplied
            in groups of four where it has an instruction for that, the first as uint8 or int8, whichever they are: one can be made
            of the other (`Problem.biased`).

    Errors: VerifyError where products of this dtype do not have that precision.
    """
    integers = precision == "int32" and dtype.is_int and dtype.size <= int16.size
    if integers and dtype.size == 1 and second is int8 and target is not None:
        there = [f for f in _BYTES if target.computes(f.op)]
        if there:
            return next((f for f in there if f.storage is dtype), there[0])
    found = _ROWS.get((int32 if integers else dtype.compute, precision))
    if found is None:
        raise VerifyError(f"products of {dtype} do not have the precision {precision!r}; help: precision='highest'")
    return found


def dot_of_bytes(d: DType) -> DotFormat:
    """The format of four int8 or uint8 by four int8, whatever the target has instructions for."""
    return next(f for f in _BYTES if f.storage is d)


def other_way(f: DotFormat) -> DotFormat | None:
    """The format of the same bytes that multiplies in quads where `f` does not, or the other way round; None where none does."""
    return None if f.matched else next((q for q in FORMATS if (q.group, q.storage, q.quads) == (4, f.storage, not f.quads)), None)
