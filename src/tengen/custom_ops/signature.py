"""Signatures of operators: which tensors they take and give, in the type language of graphs.

    x: f32[n, m], w: f32[m] -> y: f32[n], total: f32[]

In: such a text, and the types and attributes of a call. Out: the types of the results, and what each name stands for. A name is an
extent: an operand has it as an axis of its own, and wherever it stands again it is the same number; an attribute that is an int may
be one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tengen.base.dtype import BY_SHORT
from tengen.base.errors import CustomOpError, DTypeError, ShapeError, VerifyError
from tengen.base.record import record
from tengen.ir.types import Dim, TensorType, read_type
from tengen.loops.lang import Expr, as_int, const, var
from tengen.loops.parse import Line, split_lines
from tengen.loops.rewriting import substitute
from tengen.ops.define import differ

Operand = tuple[str, TensorType]


@record(frozen=True)
class Signature:
    """One form of an operator.

    Attributes:
        text: as it was written. inputs, outputs: (name, type). names: of the extents. attributes: those names that are attributes.
    """

    text: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    names: tuple[str, ...]
    attributes: tuple[str, ...]

    def match(self, types: Sequence[TensorType | None], attrs: Mapping[str, Any]) -> dict[str, Dim]:
        """What each name stands for in a call. Errors: DTypeError or ShapeError, with the reason, where the call has another form."""
        known: dict[str, Dim] = {a: attrs[a] for a in self.attributes}
        for (name, wanted), t in zip(self.inputs, types):
            assert t is not None
            if t.dtype is not wanted.dtype:
                raise DTypeError(f"{name} is {t.dtype.short}, not {wanted.dtype.short}")
            if t.ndim != wanted.ndim:
                raise ShapeError(f"{name} has {t.ndim} axes, not {wanted.ndim}")
            for axis, (want, have) in enumerate(zip(wanted.shape, t.shape)):
                own = _name(want)
                if own is not None:
                    first = known.setdefault(own, have)
                    if differ(first, have):
                        raise ShapeError(f"axis {axis} of {name} is {have}, and {own} is {first}")
        for (name, wanted), t in zip(self.inputs, types):
            assert t is not None
            for axis, (want, have) in enumerate(zip(wanted.shape, t.shape)):
                if differ(meant := _value(want, known), have):
                    raise ShapeError(f"axis {axis} of {name} is {have}, not {want} = {meant}")
        return known

    def results(self, known: Mapping[str, Dim]) -> tuple[TensorType, ...]:
        """The types of the results. Errors: ShapeError for an extent below 0."""
        made = []
        for name, t in self.outputs:
            shape = tuple(_value(d, known) for d in t.shape)
            if any((n := as_int(d)) is not None and n < 0 for d in shape):
                raise ShapeError(f"the result {name} would have the shape {shape}")
            made.append(TensorType(shape, t.dtype))
        return tuple(made)


def read_signature(text: str, tensors: Sequence[str], attributes: Sequence[str]) -> Signature:
    """The signature that a text describes.

    Args:
        tensors: names of the operator's tensor parameters, which are its inputs in order. attributes: those that are ints.

    Errors: CustomOpError for any other text.
    """
    try:
        lines = split_lines(text)
        if len(lines) != 1:
            raise VerifyError("it is one line")
        inputs, outputs = _operands(lines[0]), ()
        lines[0].expect("->")
        outputs = _operands(lines[0])
        lines[0].done()
    except VerifyError as e:
        raise CustomOpError(f"the signature {text!r}: {e}; help: write it as 'x: f32[n, m], w: f32[m] -> y: f32[n]'") from None
    if [name for name, _ in inputs] != list(tensors):
        raise CustomOpError(f"the signature {text!r} takes {[n for n, _ in inputs]}, and the function's tensor parameters are {list(tensors)}")
    if not outputs:
        raise CustomOpError(f"the signature {text!r} has no result")
    names = {own: None for _, t in inputs for d in t.shape if (own := _name(d)) is not None}
    every = {v for _, t in (*inputs, *outputs) for d in t.shape for v in _variables(d)}
    unknown = every - set(names) - set(attributes)
    if unknown:
        raise CustomOpError(
            f"the signature {text!r}: nothing says what {min(unknown)} is; help: a name stands alone as an axis of an input, or is an "
            "attribute that is an int"
        )
    if len({n for n, _ in (*inputs, *outputs)}) < len(inputs) + len(outputs):
        raise CustomOpError(f"the signature {text!r} has two tensors of one name")
    return Signature(text, inputs, outputs, (*names, *sorted(every - set(names))), tuple(sorted(every & set(attributes))))


def _operands(line: Line) -> tuple[Operand, ...]:
    found: list[Operand] = []
    while line.peek().kind != "end" and line.peek().text != "->":
        if found:
            line.expect(",")
        name = line.name("a tensor's name")
        line.expect(":")
        if line.peek().text not in BY_SHORT:
            line.fail(f"expected a dtype, one of {', '.join(BY_SHORT)}")
        found.append((name, read_type(line)))
    return tuple(found)


def _name(d: Dim) -> str | None:
    return str(d.attr) if isinstance(d, Expr) and d.op == "var" else None


def _variables(d: Dim) -> set[str]:
    found: set[str] = set()
    stack = [d]
    while stack:
        e = stack.pop()
        if isinstance(e, Expr):
            found |= {str(e.attr)} if e.op == "var" else set()
            stack.extend(e.args)
    return found


def _value(d: Dim, known: Mapping[str, Dim]) -> Dim:
    if not isinstance(d, Expr):
        return d
    values = {var(n): x if isinstance(x, Expr) else const(x) for n, x in known.items()}
    e = substitute(d, values)
    n = as_int(e)
    return e if n is None else n
