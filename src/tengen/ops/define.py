"""How an op is defined: once, in one place, and everything else derives from it.

    @elementwise                          a scalar expression; gradient, fusion and kernel follow from it
    @primitive                            rules are added below: .infer, .lower | .source | .view, .vjp, .reference, .cases
    @composite                            a plain function over ops; shape, gradient and kernel follow from its body
    @shorthand                            a plain function over ops that is not seen in graphs: other forms of views

Each takes what else is to be said of the op, as `@primitive(functional="math", methods="sum", autocast="high")`: see `Op`
(`op.py`). The rules are in `rules.py`.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from typing import Any, overload

from tengen.base.dtype import DType, bool_, float32, promote
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TengenError, Undecided, VerifyError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.source import Elementwise, broadcast
from tengen.loops.decisions import decisions
from tengen.loops.derive import derive
from tengen.loops.lang import NO_VALUE, Expr, as_int, cast, const, equal, is_const, var
from tengen.loops.rewriting import substitute
from tengen.ops.calls import dispatch
from tengen.ops.op import REGISTRY, SUBMODULES, Case, Op, each_op
from tengen.ops.rules import Rules, Violation

__all__ = [
    "REGISTRY", "SUBMODULES", "Case", "Op", "Rules", "Violation", "broadcast_shapes", "check_floats", "check_shape",
    "composite", "differ", "dispatch", "each_op", "elementwise", "lookup", "primitive", "same_axes", "same_extent", "shorthand",
]  # fmt: skip


@overload
def primitive(fn: Callable, /) -> Op: ...


@overload
def primitive(**said: Any) -> Callable[[Callable], Op]: ...


def primitive(fn: Callable | None = None, **said: Any) -> Op | Callable[[Callable], Op]:
    """An op whose rules are given below it. Parameters annotated `Tensor` are tensors, the others attributes."""
    return _defined("primitive", fn, said)


def _defined(kind: str, fn: Callable | None, said: dict[str, Any]) -> Op | Callable[[Callable], Op]:
    return Op(fn, kind, **said) if fn is not None else lambda f: Op(f, kind, **said)


# ---- elementwise -----------------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """NumPy's broadcasting of shapes; ShapeError when they do not fit.

    >>> broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    if shapes and all(s is shapes[0] for s in shapes):  # types are interned, and so are their shapes
        return tuple(shapes[0])
    ndim = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(ndim):
        d: Dim = 1
        for s in shapes:
            j = i - ndim + len(s)
            if j < 0 or as_int(s[j]) == 1:
                continue
            if as_int(d) == 1:
                d = s[j]
            elif d is s[j] or (isinstance(d, int) and d == s[j]):
                continue
            elif (as_int(d) is None or as_int(s[j]) is None) and compared(d, s[j], f"axis {i - ndim} has extents {d} and {s[j]}"):
                continue
            else:
                raise ShapeError(f"axis {i - ndim} has extents {d} and {s[j]}; help: extents must be equal, or 1")
        out.append(d)
    return tuple(out)


def same_extent(a: Dim, b: Dim, what: str = "extents") -> bool:
    """Whether two extents are equal; Undecided where only a run can tell."""
    if a is b or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    return compared(a, b, f"the {what} are {a} and {b}")


def compared(a: Dim, b: Dim, told: str) -> bool:
    """Whether two extents, of which one is open, are equal for the numbers at hand; Undecided where there are none."""
    if decisions.equal is not None:
        return decisions.equal(equal(a, b))
    raise Undecided(f"{told}, which only a run can compare", equal=(a, b))


def differ(a: Dim, b: Dim) -> bool:
    """Whether two extents are known to differ; of open ones the numbers of a run are looked at."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def check_shape(what: str, shape: Sequence[Dim], wanted: Sequence[Dim]) -> None:
    """ShapeError unless a tensor has the shape that it must have, as far as that is known."""
    if len(shape) != len(wanted) or any(map(differ, shape, wanted)):
        raise ShapeError(f"{what} has the shape {tuple(shape)}, it must have {tuple(wanted)}")


def check_floats(*types: TensorType | None) -> DType:
    """What the operands that are there promote to; DTypeError unless all are floats."""
    d = None
    for t in types:
        if t is not None:
            if not t.dtype.is_float:
                raise DTypeError(f"takes floats, got {t}; help: cast with .astype('float32')")
            d = t.dtype if d is None else promote(d, t.dtype)
    if d is None:
        raise ArgumentError("has no operand")
    return d


@overload
def elementwise(fn: Callable, /) -> Op: ...


@overload
def elementwise(*, result: str = ..., kinds: str = ..., own: int = ..., **said: Any) -> Callable[[Callable], Op]: ...


def elementwise(
    fn: Callable | None = None, *, result: str = "same", kinds: str = "fiu", own: int = 0, **said: Any
) -> Op | Callable[[Callable], Op]:
    """An op that is one scalar expression over its tensor parameters (those without annotation).

    `result`: "same" (the promoted dtype), "float" (integers and bools give float32) or "bool". `kinds`: the kinds of promoted
    dtypes that it takes. `own`: so many operands come first that keep their own dtype (the condition of `where`).
    """

    def define(f: Callable) -> Op:
        op = Op(f, "elementwise", own=range(own), **said)
        install_elementwise(op, f, result, kinds)
        return op

    return define if fn is None else define(fn)


def install_elementwise(op: Op, body: Callable, result: str, kinds: str) -> None:
    """Gives an op the rules that follow from its scalar expression; arguments as `elementwise` has them."""
    _elementwise_rules(op, body, result, kinds)
    Op.vjp(op, _derived_vjp(op, body, result))


_KIND_EXAMPLE = {"f": "float32", "i": "int32", "u": "uint32", "b": "bool"}


def _common(types: Sequence[TensorType], result: str) -> DType:
    d = types[0].dtype
    for t in types[1:]:
        d = promote(d, t.dtype)
    return float32 if result == "float" and not d.is_float else d


def same_axes(shape: Sequence[Dim], out: Sequence[Dim]) -> list[int | None]:
    """For each axis of an operand the axis of the result that it is, None where it is repeated along that."""
    behind = len(out) - len(shape)
    return [i + behind if d == out[i + behind] else None for i, d in enumerate(shape)]


def _elementwise_rules(op: Op, body: Callable, result: str, kinds: str) -> None:
    own = len(op.own)

    @op.infer
    def _(*types, **attrs):
        common = _common(types[own:], result)
        if common.kind not in kinds:
            raise DTypeError(f"does not take {common}; help: cast it, for example with .astype('{_KIND_EXAMPLE[kinds[0]]}')")
        return TensorType(broadcast_shapes(*(t.shape for t in types)), bool_ if result == "bool" else common)

    @op.source
    def _(ins, out, **attrs):
        common = _common([TensorType((), s.dtype) for s in ins[own:]], result)

        def fn(*values: Expr) -> Expr:
            operands = [cast(v, (v.dtype if i < own else common).compute) for i, v in enumerate(values)]
            r = body(*operands, **attrs)
            if type(r) is bool:
                raise VerifyError(f"{op.name} returned {r} in place of an expression; {NO_VALUE}")
            if not isinstance(r, Expr):
                r = const(r, out.dtype.compute)
            return cast(r, out.dtype)

        return Elementwise(fn, [broadcast(s, out.shape) for s in ins], out.shape, out.dtype)

    element_by_element(op)


def element_by_element(op: Op) -> None:
    """The rules about axes of an op whose operands broadcast and whose result has an element for each of theirs. An operand may be None."""

    @op.parts
    def _(types, **attrs):
        shape = broadcast_shapes(*(t.shape for t in types if t is not None))
        return [[] if t is None else same_axes(t.shape, shape) for t in types]

    @op.layout
    def _(arrays, out, **attrs):
        for a in arrays:
            if a is not None and a.ndim == len(out.shape) and a.shape == out.shape:
                return memory_order(a)
        return list(range(len(out.shape)))


def _derived_vjp(op: Op, body: Callable, result: str) -> Callable:
    """The gradient of an elementwise op: for each input an elementwise op of its own, made by differentiating the body."""
    made: dict[tuple, Any] = {}

    def partial(i: int, attrs: tuple):
        """(positions of the inputs it needs, the op) for d/d input i; or a number when the derivative is one."""
        key = (i, attrs)
        if key not in made:
            xs = [var(f"x{j}", float32) for j in range(len(op.tensors))]
            e = body(*xs, **dict(zip(op.attrs, attrs)))
            d = derive(e, xs[i]) if isinstance(e, Expr) and e.dtype is float32 else None
            made[key] = None if d is None else d.attr if is_const(d) else _partial_op(op, body, i, _used(d, xs))
        return made[key]

    def vjp(g, *inputs, **attrs):
        values = tuple(attrs[a] for a in op.attrs)

        def gradient(i: int):
            p = partial(i, values)
            if p is None:
                return None
            if isinstance(p, float):
                return g if p == 1.0 else REGISTRY["neg"](g) if p == -1.0 else REGISTRY["mul"](g, p)
            needed, dop = p
            return dop(g, *(inputs[j] for j in needed), **attrs)

        return tuple((lambda i=i: gradient(i)) for i in range(len(inputs)))

    return vjp


def _used(e: Expr, xs: Sequence[Expr]) -> tuple[int, ...]:
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            stack.extend(x.args)
    return tuple(j for j, x in enumerate(xs) if x in seen)


def _partial_op(op: Op, body: Callable, i: int, needed: tuple[int, ...]) -> tuple[tuple[int, ...], Op]:
    name = f"{op.name}.d{i}" + ("" if len(needed) == len(op.tensors) else "_" + "".join(map(str, needed)))
    if name in REGISTRY:
        return needed, REGISTRY[name]

    def grad_body(g: Expr, *some: Expr, **attrs) -> Expr:
        xs: list[Expr] = [var(f"_unused{j}", g.dtype, g.lanes) for j in range(len(op.tensors))]
        fresh = [var(f"_x{j}", g.dtype, g.lanes) for j in range(len(op.tensors))]
        for j in needed:
            xs[j] = fresh[j]
        e = body(*xs, **attrs)
        d = derive(e, xs[i]) if e.dtype.is_float else None  # a truth value has none, whatever bits it looks at
        if d is None:
            return const(0.0, g.dtype)
        return g * substitute(d, dict(zip((fresh[j] for j in needed), some)))

    g = "g"  # a gradient of a gradient has parameters of this name already
    while g in op.tensors:
        g += "_"
    notes = [f"{a}: {op.notes[a]}" for a in op.attrs]  # not evaluated, as in this file
    params = ", ".join([g, *(op.tensors[j] for j in needed), *notes])
    scope: dict[str, Any] = {"_body": grad_body}
    call = ", ".join([g, *(op.tensors[j] for j in needed), *(f"{a}={a}" for a in op.attrs)])
    exec(f"def d({params}):\n    return _body({call})", scope)
    fn = scope["d"]
    fn.__doc__ = f"The gradient of `{op.name}` with respect to its parameter {op.tensors[i]}, times g."
    fn.__name__ = name
    fn.__module__ = op.fn.__module__
    d = Op(fn, "elementwise", name)
    _elementwise_rules(d, fn, "float", "fiub")
    d.vjp(_derived_vjp(d, fn, "float"))
    return needed, d


# ---- composites ------------------------------------------------------------------------------------------------------


@overload
def composite(fn: Callable, /) -> Op: ...


@overload
def composite(**said: Any) -> Callable[[Callable], Op]: ...


def composite(fn: Callable | None = None, **said: Any) -> Op | Callable[[Callable], Op]:
    """A plain function over ops. It stays one named node in a graph; eagerly it runs as one fused program. Its gradient is
    that of its body, unless `.vjp` says better."""
    return _defined("composite", fn, said)


@overload
def shorthand(fn: Callable, /) -> Op: ...


@overload
def shorthand(**said: Any) -> Callable[[Callable], Op]: ...


def shorthand(fn: Callable | None = None, **said: Any) -> Op | Callable[[Callable], Op]:
    """A plain function over ops that leaves no node of its own: what it calls is what is run, recorded and traced. For other
    forms of views (a composite would copy), for several outputs that are views, and for what is decided in Python."""

    def define(f: Callable) -> Op:
        op = Op(f, "shorthand", **said)
        f.op = op.call.op = op  # type: ignore[attr-defined]  # the op, for the one who reads the function
        op.call.aliases = op.aliases  # type: ignore[attr-defined]  # for who asks how its parameters may be spelled
        return op

    return define if fn is None else define(fn)


def lookup(name: str) -> Op:
    """The op of this name, as files name it; derived gradient ops are made on demand."""
    if name not in REGISTRY and ".d" in name:
        _derive(name)
    if name not in REGISTRY:
        raise TengenError(f"no op named {name!r}")
    return REGISTRY[name]


copyreg.pickle(Op, lambda op: (lookup, (op.name,)))  # an op is its name: derived ones are made where they are read


MOST_DERIVATIVES = 8  # of an op by its name: an expression grows with each


def _derive(name: str) -> None:
    """Makes the gradient op of this name, if there is one: ``op.d0``, or ``op.d0_1`` that takes operand 1 alone."""
    base, _, tail = name.rpartition(".d")
    index, _, given = tail.partition("_")
    digits = index + given
    if name.count(".d") > MOST_DERIVATIVES or not (digits.isascii() and digits.isdigit()) or tail.endswith("_"):
        return
    op = lookup(base)
    needed = tuple(map(int, given)) if given else tuple(range(len(op.tensors)))
    if op.kind != "elementwise" or int(index) >= len(op.tensors) or not set(needed) <= set(range(len(op.tensors))):
        return
    xs = [var(f"x{j}", float32) for j in range(len(op.tensors))]
    attrs = {a: k.example for a, k in op.kinds.items() if k is not None}
    try:
        e = op.fn(*xs, **attrs)
        d = derive(e, xs[int(index)]) if isinstance(e, Expr) and e.dtype is float32 else None
    except TengenError:  # the op takes no floats
        return
    used = () if d is None else _used(d, xs)
    if list(needed) == sorted(set(needed)) and set(used) <= set(needed):
        _partial_op(op, op.fn, int(index), needed)
