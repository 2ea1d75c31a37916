"""The rules of an op: what it says of itself to the rest of Tengen, one typed field for each.

In: functions and a few plain facts, from the decorators of `Op` (`op.py`), one of the same name for each field. Out: what
plans, passes, tape, files and tests ask. An op has few of them; None, or nothing, means that it does not have the rule.

In a rule's arguments, `**attrs` are the op's attributes by name, in canonical form; an operand that is absent is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tengen.base.record import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Concatenate

    from tengen.ir.types import Dim, TensorType
    from tengen.kernels.lowering import Array, Lowering
    from tengen.kernels.source import Ending, Source
    from tengen.ops.op import Op

    Types = Sequence[TensorType | None]
    Arrays = Sequence[Array | None]
    Operands = list[Array | None]
    Values = list[Any]  # of `Source`, or None for an operand that is absent

    Canon = Callable[Concatenate[Types, ...], dict[str, Any]]
    Infer = Callable[..., TensorType | tuple[TensorType, ...]]
    AsSource = Callable[Concatenate[Values, TensorType, ...], Source]
    View = Callable[Concatenate[Array, TensorType, ...], Array | None]
    Lower = Callable[Concatenate[Lowering, Operands, list[Array], ...], None]
    LowerValues = Callable[Concatenate[Lowering, Values, list[Array], ...], None]
    Epilogue = Callable[Concatenate[Lowering, Operands, list[Array], Ending | None, ...], None]
    ReadOver = Callable[Concatenate[Types, ...], Sequence[Dim] | None]
    Prologue = Callable[Concatenate[Types, ...], int | None]
    Layout = Callable[Concatenate[Arrays, TensorType, ...], Sequence[int]]
    Parts = Callable[Concatenate[Types, ...], Sequence[Sequence[int | None]]]
    Known = Callable[Concatenate[Arrays, ...], Iterable[Any]]
    Named = Callable[Concatenate[Arrays, ...], Iterable[str]]
    Over = Callable[..., Mapping[int, int]]
    Identity = Callable[Concatenate[TensorType, TensorType, ...], bool]
    Check = Callable[Concatenate[Sequence[Any], ...], Iterable["Violation"]]
    Checks = Callable[[Types], bool]
    VJP = Callable[Concatenate[Any, ...], Any]
    Reference = Callable[..., Any]
    Complex = Callable[..., Any]


@record(frozen=True)
class Violation:
    """What is wrong with a call where `bad`, a 0-d bool tensor, is true.

    Attributes:
        error: what is raised, one of `ir.verify.CHECK_ERRORS`. message: with types, without values. found: the message that
            names the value too, which an eager call can.
    """

    bad: Any
    error: type[Exception]
    message: str
    found: Callable[[], str] | None = None


MAKE_NO_PROGRAM = frozenset({"reference", "vjp", "slope", "same", "check", "checks", "over", "typed", "effect"})  # or are plain data about it


@record(slots=True, eq=False, repr=False)
class Rules:
    """The rules of one op. A field that does not exist cannot be set."""

    # -- arguments and types -----------------------------------------------------------------------------------------------
    canon: Canon | None = None
    """(types, **attrs) -> the attributes in one form: axes counted from the front, tuples. They are of their kinds by now;
    what does not fit the operands is an error. Default: as they are."""

    infer: Infer | None = None
    """(*types, **attrs) -> the output's type, or a tuple of types: the only place that knows shapes and dtypes. It relates all
    operands and attributes: what it accepts can be run, whoever wrote it. Composites and shorthands have none."""

    # -- the meaning: a primitive has exactly one of these five ------------------------------------------------------------
    source: AsSource | None = None
    """(sources, out: TensorType, **attrs) -> Source: the result as a value at coordinates, over the values of the operands.
    Such an op fuses into its consumer."""

    view: View | None = None
    """(array, out: TensorType, **attrs) -> Array: other strides on the same memory, or None where that cannot be."""

    lower: Lower | None = None
    """(lo, arrays, outs, **attrs): launches kernels that compute the outputs from stored operands."""

    lower_values: LowerValues | None = None
    """(lo, sources, outs, **attrs): launches kernels that compute the outputs from values that are computed as they are read.
    Pointwise ops in front of such an op (a reduction) become part of its kernel."""

    epilogue: Epilogue | None = None
    """(lo, arrays, outs, epilogue, **attrs): launches kernels that compute the outputs from stored operands, and send each
    element through `epilogue`, the pointwise ops behind, before they store it. None: it is stored as it is."""

    # -- fusion, layout, memory --------------------------------------------------------------------------------------------
    reduced: AsSource | None = None
    """(sources, out: TensorType, **attrs) -> Source: a reduction as a value that is computed once for each row, in a kernel
    that reads the row again (softmax). The attribute `axes` names the axes that are reduced."""

    read_over: ReadOver | None = None
    """(types, **attrs) -> the shape of the operands that are computed as they are read, of an op with `lower_values`; None: all are
    stored before. Default: the result's shape."""

    prologue: Prologue | None = None
    """(types, **attrs) -> the position of the operand that the lowering can compute as it reads it (`Array.prologue`), or
    None: a norm and its activation, which are then not stored."""

    layout: Layout | None = None
    """(arrays, out: TensorType, **attrs) -> the order of the output's axes in memory, outermost first. Default: logical."""

    parts: Parts | None = None
    """(types, **attrs) -> for each operand, for each of its axes: the axis of the results of which a part needs only the same
    part of the operand, along this axis, and does not depend on its extent; None: all of it is needed. An axis of the results
    that is not named is never cut. An attribute `shape` is the result's. Default: nothing is cut."""

    known: Known | None = None
    """(arrays, **attrs) -> the extents that an eager program is compiled for. It takes all others at run time."""

    named: Named | None = None
    """(arrays, **attrs) -> the attributes that are extents of these operands: the eager program takes them at run time, too.
    Beside those that always are (`extents` of the op). Of an op that is derived: attributes of what it is of, which stand in its
    attribute `of`."""

    over: Over | None = None
    """(**attrs) -> {position of a result: position of the operand over which it may be computed}: a place of the operand is not read
    after the same place of the result was written."""

    typed: tuple[int, ...] = ()
    """Positions of the operands of which only the type is used: what would be computed for them alone is not."""

    identity: Identity | None = None
    """(type of the first operand, out: TensorType, **attrs) -> whether the result is the first operand itself, so that a pass
    can leave the op out. Asked only where both types are equal. Default: it is not."""

    effect: bool | None = None
    """Whether a run does more than to compute results: it calls Python. Such a node is ordered by a value that it takes and gives, runs
    once, is never computed again, and does not stand in files."""

    # -- values that must not be -------------------------------------------------------------------------------------------
    check: Check | None = None
    """(operands as tensors, **attrs) -> `Violation`s: what values must not be (an index out of range). An eager call looks
    before it runs; a recorded graph keeps it, and its run looks afterwards."""

    checks: Checks | None = None
    """(types) -> whether `check` has anything to look at in operands of these types. Default: always."""

    # -- gradients ---------------------------------------------------------------------------------------------------------
    vjp: VJP | None = None
    """(g, *inputs, **attrs) -> the gradient of each input, None where there is none; an entry may be a function without
    arguments, which is called only when that gradient is wanted. `g` is the gradient of the output, or a tuple with one (or
    None) for each of several outputs. A rule with a parameter `out` gets the output, or the tuple of them, by that name."""

    same: Op | None = None
    """A composite that computes the same from the same arguments. Its gradient is taken where there is no `vjp`."""

    # -- complex numbers ---------------------------------------------------------------------------------------------------
    complex: Complex | None = None
    """(*operands as tensors, **attrs) -> the results: what the op means where an operand, or the dtype that an attribute names, is
    complex, in ops on real and imaginary parts. Default: a DTypeError. A view needs none: elements stay whole."""

    slope: Complex | None = None
    """(*operands, **attrs) -> the complex derivative by each operand, or one for a single operand, of an op with a rule "complex" that is
    holomorphic. Where there is none, the gradient is that of the rule's ops."""

    # -- tests -------------------------------------------------------------------------------------------------------------
    reference: Reference | None = None
    """(*arrays, **attrs) -> array or tuple: an independent meaning in NumPy, which the tests alone use."""

    def of_programs(self) -> Iterator[Any]:
        """The rules that decide what programs become. An op whose rules of these are Tengen's own means the same in every
        process."""
        for f in fields(self):
            if f.name not in MAKE_NO_PROGRAM and (rule := getattr(self, f.name)) is not None:
                yield rule
