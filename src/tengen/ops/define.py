"""How an op is defined: once, in one place, and everything else derives from it.

    @elementwise                          a scalar expression; gradient, fusion and kernel follow from it
    @primitive                            rules are added below: .infer, .lower | .source | .view, .vjp, .reference, .cases
    @composite                            a plain function over ops; shape, gradient and kernel follow from its body
    @shorthand                            a plain function over ops that is not seen in graphs: other forms of views

An `Op` knows its user signature (which parameters are tensors, which are attributes, and what those may be: `attributes.py`),
and `op.call`, the function that users see (`calls.py`): it hands over to `dispatch`, which `tengen.tensor` installs (eager
execution, recording, tracing).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tengen.base.dtype import DType, bool_, float32, promote
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TengenError, Undecided, VerifyError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, Source, broadcast
from tengen.loops.derive import derive
from tengen.loops.lang import NO_VALUE, Expr, as_int, cast, const, is_const, substitute, var
from tengen.ops.attributes import Kind, kind, shown
from tengen.ops.calls import dispatch, make_call, signature_of, tensors_and_attributes, with_line

REGISTRY: dict[str, Op] = {}


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Case:
    """Sample inputs, from which the tests of an op are made. `inputs(rng)` gives NumPy arrays (float64 where they stand for
    any float), `grad` says whether finite differences are meaningful there."""

    inputs: Callable[[Any], tuple]
    attrs: dict = field(default_factory=dict)
    grad: bool = True
    rtol: float = 1e-5
    atol: float = 1e-6


class Op:
    """One operation.

    Attributes:
        name: the registered name, which files keep.
        tensors: names of the tensor parameters; `variadic` when the first is a list of tensors.
        attrs: names of the other parameters, in order; notes: what their annotations say. optional: the tensors that may be
            None.
        kind: "elementwise", "primitive", "view", "composite" or "shorthand".
        own: tensor operands (indices, conditions) whose dtype has nothing to do with the others': numbers among the
            operands do not take it, and a number in their place keeps its own.
    """

    optional: frozenset[str] | None = None  # of an op that was not made from a signature: nobody knows

    own: tuple[int, ...] = ()

    older: dict[str, Any] = {}  # attributes that an older file may lack, and what it means

    notes: dict[str, str] = {}

    def __init__(self, fn: Callable, kind: str, name: str | None = None):
        self.fn, self.kind = fn, kind
        self.name = name or fn.__name__.rstrip("_")
        self.doc = inspect.getdoc(fn) or ""
        self.rules: dict[str, Callable] = {}
        self.samples: list[Case] = []
        self.why_no_vjp: str | None = None
        self.extents: tuple[str, ...] = ()  # attributes that are shapes: one eager program serves all of them
        parameters = signature_of(fn)
        self.tensors, self.attrs, self.variadic, self.optional = tensors_and_attributes(parameters, kind)
        self.notes = {p.name: p.note for p in parameters if p.name in self.attrs}
        self.call = with_line(fn) if kind == "shorthand" else make_call(self, fn, parameters)
        if self.name in REGISTRY:
            raise TengenError(f"op {self.name!r} is defined twice")
        REGISTRY[self.name] = self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *args, **kw):
        return self.call(*args, **kw)

    def __reduce__(self):
        return (lookup, (self.name,))

    # -- rules -------------------------------------------------------------------------------------------------------
    def _rule(self, slot: str, f: Callable) -> Callable:
        self.rules[slot] = f
        return f

    def canon(self, f):
        """(types, **attrs) -> attrs in one form (axes counted from the front, tuples), with errors for bad ones."""
        return self._rule("canon", f)

    def infer(self, f):
        """(*types, **attrs) -> the output's TensorType, or a tuple of them."""
        return self._rule("infer", f)

    def lower(self, f):
        """(lo, inputs: list of Array, outs: list of Array, **attrs): launches kernels that compute the outputs."""
        return self._rule("lower", f)

    def source(self, f):
        """(inputs: list of Source, out: TensorType, **attrs) -> Source: for ops that fuse into their consumer."""
        return self._rule("source", f)

    def view(self, f):
        """(array, out: TensorType, **attrs) -> Array sharing the same memory, or None when that cannot be."""
        self.kind = "view"
        return self._rule("view", f)

    def layout(self, f):
        """(arrays, out: TensorType, **attrs) -> order of the output's axes in memory, outermost first; default: logical."""
        return self._rule("layout", f)

    def parts(self, f):
        """(types, **attrs) -> for each operand, for each of its axes: the axis of the results of which a part needs only the same
        part of the operand, along this axis, and does not depend on its extent; None: all of it is needed. An axis of the results
        that is not named is never cut. An attribute `shape` is the result's. Without the rule nothing is cut; elementwise ops
        have it."""
        return self._rule("parts", f)

    def axes_of_parts(self, types: Sequence[TensorType | None], attrs: dict) -> Sequence[Sequence[int | None]] | None:
        """What the rule "parts" says of these operands; None without one."""
        return self.rules["parts"](types, **attrs) if "parts" in self.rules else None

    def check(self, f):
        """(inputs as tensors, **attrs) -> `Violation`s: what values must not be (indices out of range). An eager call looks
        before it runs, a recorded program afterwards."""
        return self._rule("check", f)

    def checks(self, f):
        """types -> whether `check` has anything to look at in operands of these types; default: always."""
        return self._rule("checks", f)

    def violations(self, inputs: Sequence, types: Sequence[TensorType | None], attrs: dict) -> Iterable[Violation]:
        """What is to be checked in a call with these operands."""
        if "check" not in self.rules or ("checks" in self.rules and not self.rules["checks"](types)):
            return ()
        return self.rules["check"](inputs, **_canonical_again(self, tuple(types), tuple(attrs)))

    def vjp(self, f):
        """(g, *inputs, [out,] **attrs) -> gradient of each input, None where there is none; an entry may be a function
        without arguments, which is called only when that gradient is wanted."""
        return self._rule("vjp", f)

    def no_vjp(self, why: str) -> None:
        """Declares that the op has no gradient, and why; it is then a constant for differentiation."""
        self.why_no_vjp = why

    def reference(self, f):
        """An independent NumPy meaning: (*arrays, **attrs) -> array or tuple, used by the tests alone."""
        return self._rule("reference", f)

    def cases(self, *cases: Case) -> None:
        """Sample inputs for the generated tests."""
        self.samples += cases

    # -- what the floors above ask ------------------------------------------------------------------------------------
    @functools.cached_property
    def kinds(self) -> dict[str, Kind | None]:
        """What each attribute may be, as its annotation declares it."""
        return {name: kind(note) for name, note in self.notes.items()}

    def plain(self, attrs: Sequence) -> tuple:
        """The attributes of a call, in whatever form users may give them, as plain data of their declared kinds; an error says
        which one is not of its kind."""
        kinds = self.kinds
        return tuple([a if (k := kinds.get(n)) is None else k.plain(a, n, dispatch.known) for n, a in zip(self.attrs, attrs)])

    def canonical(self, types: Sequence[TensorType | None], attrs: Sequence) -> dict[str, Any]:
        """The attributes as a dictionary in canonical form: plain data of their kinds, in one form by the rule "canon". Calls of
        users and nodes of files are checked here alike, operands included."""
        return self._told(self._canonical, types, dict(zip(self.attrs, attrs)), types, attrs)

    def _canonical(self, types: Sequence[TensorType | None], attrs: Sequence, **_: Any) -> dict[str, Any]:
        self.check_operands(types)
        values = dict(zip(self.attrs, self.plain(attrs)))
        return self.rules["canon"](types, **values) if "canon" in self.rules else values

    def check_operands(self, operands: Sequence) -> None:
        """ArgumentError unless there are as many operands as the op has, and None among them only where one may be absent."""
        if self.optional is None:
            return
        least = len(self.tensors) - self.variadic
        if len(operands) < least or (len(operands) > least and not self.variadic):
            raise ArgumentError(f"takes {'at least ' * self.variadic}{least} tensors, got {len(operands)}")
        if all(x is not None for x in operands):
            return
        names = self.tensors if not self.variadic else (*self.tensors[:1] * (len(operands) - least), *self.tensors[1:])
        for name, x in zip(names, operands):
            if x is None and name not in self.optional:
                raise ArgumentError(f"needs a tensor for {name}, got None")

    def infer_types(self, types: Sequence[TensorType | None], attrs: dict) -> tuple[TensorType, ...]:
        """The output types; an error names the op and its arguments."""
        if "infer" not in self.rules:
            raise TengenError(f"{self.name} is a {self.kind}: it has no node of its own in a graph of primitives")
        out = self._told(self.rules["infer"], types, attrs, *types)
        out = out if isinstance(out, tuple) else (out,)
        for t in out:
            self._check_size(t, types, attrs)
        return out

    def _check_size(self, t: TensorType, types: Sequence[TensorType | None], attrs: dict) -> None:
        """MemoryError for a result whose bytes 63 bits do not count, ShapeError for an extent below 0."""
        n = t.dtype.size
        for d in t.shape:
            if type(d) is int:
                if d < 0:
                    raise ShapeError(f"{self.signature(types, attrs)}: the result would have the shape {t.shape}")
                n *= max(d, 1)
        if n >= 1 << 63:
            raise MemoryError(f"{self.signature(types, attrs)}: {n} bytes of {t!r} are more than any machine has")

    def _told(self, rule: Callable, types: Sequence[TensorType | None], attrs: dict, *args):
        """Asks a rule; its errors name the op and its arguments."""
        try:
            return rule(*args, **attrs)
        except Undecided:
            raise
        except TengenError as e:
            if str(e).startswith(f"{self.name}(") or hasattr(e, "_told"):  # dispatch completes the message of an inner call
                raise
            raise type(e)(f"{self.signature(types, attrs)}: {e}") from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as e:
            what = f"does not take these arguments ({type(e).__name__}: {e}); help: see help() of the function"
            raise ArgumentError(f"{self.signature(types, attrs)}: {what}") from e

    def signature(self, types: Sequence[TensorType | None], attrs: dict | None = None) -> str:
        """How a call looks in messages: ``matmul(f32[4,3], f32[4,5])``."""
        extra = [f"{k}={shown(v)}" for k, v in (attrs or {}).items()]
        return f"{self.name}({', '.join([*('none' if t is None else str(t) for t in types), *extra])})"

    def lower_to(self, lo: Lowering, ins: Sequence[Array | None], outs: Sequence[Array], attrs: dict) -> None:
        """Launches what computes `outs` from stored inputs."""
        if "lower" in self.rules:
            return self.rules["lower"](lo, list(ins), list(outs), **attrs)
        out = TensorType(outs[0].shape, outs[0].dtype)
        pointwise(lo, [self.make_source([None if a is None else Leaf(a) for a in ins], out, attrs)], outs, self.name)

    def make_source(self, ins: Sequence[Source | None], out: TensorType, attrs: dict) -> Source:
        """The op as a value at coordinates, over the values of its inputs."""
        return self.rules["source"](list(ins), out, **attrs)

    def known(self, arrays: Sequence[Array | None], attrs: dict) -> frozenset[int]:
        """The extents that an eager program is compiled for, rather than taking them at run time: by the rule "known"."""
        return frozenset(self.rules["known"](arrays, **attrs)) if "known" in self.rules else frozenset()

    @property
    def fuses(self) -> bool:
        """Whether the op is a value at coordinates, so that it can be computed inside its consumer."""
        return "source" in self.rules

    @property
    def saves_output(self) -> bool:
        """Whether the gradient rule asks for the output."""
        rule = self.rules.get("vjp")
        return rule is not None and _takes_out(rule)


@functools.lru_cache(4096)  # what is checked is looked at in every call, and was plain and in order at the first
def _canonical_again(op: Op, types: tuple, attrs: tuple) -> dict[str, Any]:
    return op.canonical(types, attrs)


@functools.cache  # asked at every call that goes on the tape, and looking costs more than the call
def _takes_out(rule: Callable) -> bool:
    return "out" in inspect.signature(rule).parameters


def with_epilogue(op: Op) -> Callable:
    """For a lowering that can send each element of its result through pointwise ops before storing it: gives `op` its rules
    "lower"
    and "epilogue". The function takes (lo, inputs, outs, epilogue, **attrs), epilogue being None or
    (kernel, value, place in the result) -> value to store."""

    def put(f: Callable) -> Callable:
        op.lower(lambda lo, ins, outs, **attrs: f(lo, ins, outs, None, **attrs))
        op.rules["epilogue"] = f
        return f

    return put


def primitive(fn: Callable) -> Op:
    """An op whose rules are given below it. Parameters annotated `Tensor` are tensors, the others attributes."""
    return Op(fn, "primitive")


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
            elif as_int(d) is None or as_int(s[j]) is None:
                raise Undecided(f"axis {i - ndim} has extents {d} and {s[j]}, which only a run can compare")
            else:
                raise ShapeError(f"axis {i - ndim} has extents {d} and {s[j]}; help: extents must be equal, or 1")
        out.append(d)
    return tuple(out)


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


def elementwise(fn: Callable | None = None, *, result: str = "same", kinds: str = "fiu", own: int = 0, domain=(-2.0, 2.0)):
    """An op that is one scalar expression over its tensor parameters (those without annotation).

    `result`: "same" (the promoted dtype), "float" (integers and bools give float32) or "bool". `kinds`: the kinds of promoted
    dtypes that it takes. `own`: so many operands come first that keep their own dtype (the condition of `where`).
    `domain`: where the tests sample, one interval for all operands or a list of one for each.
    """
    if fn is None:
        return lambda f: elementwise(f, result=result, kinds=kinds, own=own, domain=domain)
    op = Op(fn, "elementwise")
    op.domain, op.own = domain, tuple(range(own))  # type: ignore[attr-defined]
    _elementwise_rules(op, fn, result, kinds)
    op.vjp(_derived_vjp(op, fn, result))
    return op


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
            values = [cast(v, (v.dtype if i < own else common).compute) for i, v in enumerate(values)]
            r = body(*values, **attrs)
            if type(r) is bool:
                raise VerifyError(f"{op.name} returned {r} in place of an expression; {NO_VALUE}")
            if not isinstance(r, Expr):
                r = const(r, out.dtype.compute)
            return cast(r, out.dtype)

        return Elementwise(fn, [broadcast(s, out.shape) for s in ins], out.shape, out.dtype)

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
        d = derive(body(*xs, **attrs), xs[i])
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
    exec(f"def d({params}):\n    return _body({call})", scope)  # noqa: S102
    fn = scope["d"]
    fn.__doc__ = f"The gradient of `{op.name}` with respect to its parameter {op.tensors[i]}, times g."
    fn.__name__ = name
    fn.__module__ = op.fn.__module__
    d = Op(fn, "elementwise", name)
    _elementwise_rules(d, fn, "float", "fiub")
    d.vjp(_derived_vjp(d, fn, "float"))
    return needed, d


# ---- composites ------------------------------------------------------------------------------------------------------


def composite(fn: Callable) -> Op:
    """A plain function over ops. It stays one named node in a graph; eagerly it runs as one fused program. Its gradient is
    that of
    its body, unless `.vjp` says better."""
    return Op(fn, "composite")


def shorthand(fn: Callable) -> Op:
    """A plain function over ops that leaves no node of its own: what it calls is what is run, recorded and traced. For other
    forms of
    views (a composite would copy), for several outputs that are views, and for what is decided in Python."""
    op = Op(fn, "shorthand")
    fn.op = op.call.op = op  # type: ignore[attr-defined]
    return op


def lookup(name: str) -> Op:
    """The op of this name, as files name it; derived gradient ops are made on demand."""
    if name not in REGISTRY and ".d" in name:
        _derive(name)
    if name not in REGISTRY:
        raise TengenError(f"no op named {name!r}")
    return REGISTRY[name]


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
