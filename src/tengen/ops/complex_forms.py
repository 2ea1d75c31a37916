"""The form of an op for complex numbers: a composite on their parts, by the op's rule "complex".

In: a call of an op. Out: what computes it, the op itself where nothing is complex. The rules are in `complex_rules.py` and
`complex_functions.py`, which are loaded when the first call has to do with complex numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tengen.base.dtype import DType
from tengen.ir.types import TensorType
from tengen.ops.define import REGISTRY, Op, dispatch
from tengen.ops.rules import Rules


def formed(op: Op, types: Sequence[TensorType | None], attrs: Sequence) -> tuple[Op, tuple]:
    """What computes a call (op, attributes): itself, or for complex numbers the op's form for them and its one attribute.

    Errors: DTypeError where the op has no meaning for complex numbers; those of the op for shapes that do not fit.
    """
    if not any([t is not None and t.dtype.kind == "c" for t in types]) and not any(
        [type(a) is DType and a.kind == "c" for a in attrs]
    ):
        return op, tuple(attrs)
    if (
        op.kind == "view" or op.optional is None or op.name == "complex" or op.has_bodies
    ):  # whole; made of such a form; of parts; inside
        return op, tuple(attrs)
    load_rules()
    if op.rules.complex is None:
        raise op.not_complex(types, dict(zip(op.attrs, attrs)))
    given = op.canonical(types, attrs)
    if op.rules.infer is not None:  # the form's graph has open extents, of which shapes that do not fit are not told
        part = lambda d: d.part if d.kind == "c" else d
        halves = [None if t is None else TensorType(t.shape, part(t.dtype)) for t in types]
        op.infer_of_any(halves, {k: part(a) if type(a) is DType else a for k, a in given.items()}, types)
    return form(op), (tuple(given.items()),)


@functools.cache
def load_rules() -> None:
    """Registers the rules of ops for complex numbers, which most processes never ask for."""
    from tengen.ops import complex_functions  # noqa: F401  (and with it `complex_rules`)


def form(op: Op) -> Op:
    """The composite that computes an op by its rule "complex". Its operands are the op's; its attribute `of` holds the op's own."""
    name = f"{op.name}.complex"
    if name in REGISTRY:
        return REGISTRY[name]
    rule, slope = op.rules.complex, op.rules.slope
    assert rule is not None

    def body(*args: Any, of: tuple) -> Any:
        return rule(*args, **dict(of))

    def vjp(g: Any, *xs: Any, of: tuple) -> Any:
        slopes = slope(*xs, **dict(of))
        several = slopes if isinstance(slopes, tuple) else (slopes,)
        return tuple(
            (lambda s=s: REGISTRY["mul"](g, REGISTRY["conj"](s() if callable(s) and not hasattr(s, "dtype") else s)))
            for s in several
        )

    made = Op.__new__(Op)
    made.fn, made.kind, made.name, made.doc = body, "composite", name, f"`{op.name}` of complex numbers."
    made.rules, made.samples, made.why_no_vjp = Rules(), [], op.why_no_vjp
    made.tensors, made.attrs, made.variadic = ("args",), ("of",), True
    made.call = lambda *a, of: dispatch.run(made, a, (of,))
    if slope is not None:
        made.vjp(vjp)
    made.known(lambda arrays, of: op.known_extents(arrays, dict(of)))
    made.named(lambda arrays, of: op.named_extents(arrays, dict(of)))
    REGISTRY[name] = made
    return made
