"""Operators of one's own: the four ways to define one.

    elementwise   a scalar expression of the kernel language: gradient, fusion and broadcasting follow from it
    composite     a function over other operators: gradient and kernels follow from those
    kernel        a kernel of the kernel language, with a signature; its gradient is said below
    c_function    a C function, with a signature; its gradient is said below

In: a Python function, whose parameters are the tensors and the attributes, under a name with a namespace, as "mylib::name". Out: a
`CustomOp`, which is called like a function, and is an operator like Tengen's own: eager, traced, in files and artifacts.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import dtype, float32, float64, int32, int64
from tengen.base.errors import CustomOpError, DTypeError, GradientError, ShapeError, TengenError, tell, user_line
from tengen.custom_ops.c_functions import c_function_of, check_parameters
from tengen.custom_ops.signature import Signature, read_signature
from tengen.ir.types import TensorType
from tengen.jit.recordings import forget_recordings
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import over_dense
from tengen.loops.bind import bound
from tengen.loops.interp import interpret
from tengen.loops.lang import Expr, const, var
from tengen.loops.parse import parse_kernel
from tengen.loops.statements import Kernel
from tengen.loops.verify import verify
from tengen.ops import define
from tengen.ops.attributes import FLOATS, INTS
from tengen.ops.define import REGISTRY, differ, lookup
from tengen.ops.op import Op, forget_op
from tengen.tensor import Tensor, tracing
from tengen.tensor.batched import Batched
from tengen.tensor.eager import forget_plans

NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
NUMBERS = INTS | FLOATS | {"bool"}  # kinds of attributes that a C function takes


class CustomOp(Op):
    """An operator of a user's. It is called like a function. `vjp` and `reference`, as decorators, give it a gradient and an
    independent meaning, which `check_op` compares it with; `no_vjp(why)` says why it has none.

    Attributes:
        signatures: its forms, where it was defined with signatures. returns_code: whether its last result is what its C function
            returned, which users do not see.
    """

    signatures: tuple[Signature, ...] = ()
    returns_code = False
    messages: Mapping[int, str] = {}

    def vjp(self, f: Callable) -> Callable:
        """The gradient: (g, *inputs, [out,] **attributes) -> the gradient of each input, or None. `g` is the gradient of the result, or a
        tuple with one for each of several results. Shapes of what it returns are checked."""
        return super().vjp(_checked_gradient(self, f))


copyreg.pickle(CustomOp, lambda op: (lookup, (op.name,)))


def _define(name: str, kind: str, fn: Callable, replace: bool, **said: Any) -> CustomOp:
    """Registers an operator, in the place of an older one where that is another state of the same definition (a notebook's cell that
    runs again). Errors: CustomOpError for a name that is none, or that is another's."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CustomOpError(f"{name!r} is no name of an operator; help: a namespace and a name, as 'mylib::softclip'")
    old = REGISTRY.get(name)
    if old is not None and not replace and (old.fn.__module__, old.fn.__qualname__) != (fn.__module__, fn.__qualname__):
        raise CustomOpError(
            f"{name} is defined already, by {old.fn.__module__}.{old.fn.__qualname__}; help: another namespace; or replace=True, where this "
            "definition is to take its place"
        )
    if old is not None:
        forget_op(name)
    try:
        op = CustomOp(fn, kind, name, **said)
        _check_parameters(op)
    except TengenError as e:
        REGISTRY.pop(name, None)
        if old is not None:
            REGISTRY[name] = old
        raise e if isinstance(e, CustomOpError) else CustomOpError(f"{name}: {e}") from None
    functools.update_wrapper(op, fn, assigned=("__doc__", "__module__", "__qualname__"), updated=())
    if old is not None:
        _retire(old)
    return op


def _retire(old: Op) -> None:
    """Nothing uses an operator any more that another one has taken the place of."""

    def retired(*args: Any, **kwargs: Any) -> Any:
        raise CustomOpError(
            f"{user_line()}: this is an older definition of {old.name}, which was defined again; help: call the new one, and run again "
            "what refers to the older one"
        )

    old.call = retired
    forget_plans()
    forget_recordings({old.name, *(op.name for op in REGISTRY.loaded() if op.name.startswith(f"{old.name}."))})


def _check_parameters(op: Op) -> None:
    for a in op.attrs:
        if op.kinds[a] is None:
            is_said = f"is annotated {op.notes[a]!r}" if op.notes[a] else "has no annotation"
            raise CustomOpError(
                f"{op.name}: the parameter {a} {is_said}, which is neither a tensor nor a kind of attribute; help: "
                "`x: Tensor`, or int, float, bool, str, tuples of them as `Sequence[int]`"
            )
    if not op.tensors:
        raise CustomOpError(f"{op.name} has no tensor among its parameters; help: annotate them, as `x: Tensor`")
    if op.variadic or op.optional:
        raise CustomOpError(f"{op.name}: a list of tensors, or a tensor that may be None, is no parameter of an operator of one's own")


# ---- expressions and composites ------------------------------------------------------------------------------------------


def elementwise(name: str, *, result: str = "same", kinds: str = "fiu", replace: bool = False) -> Callable[[Callable], CustomOp]:
    """Defines an operator by one scalar expression, which is computed for each element. Operands broadcast and promote as for Tengen's
    own; the gradient is derived from the expression; it fuses with what is before and behind.

    Args:
        name: with a namespace, as "mylib::softclip". result: "same" (the promoted dtype of the operands), "float" (integers give float32)
            or "bool". kinds: of dtypes that it takes: "f" floats, "i" ints, "u" unsigned ones, "b" bools.
        replace: whether it takes the place of an operator of this name that is defined elsewhere.

    The decorated function is given an expression of `tengen.loops.lang` for each parameter without an annotation, and attributes for
    the others; it returns an expression. ``lang.call("exp", x)`` is a function of mathematics.

    Errors: CustomOpError for a function that gives no expression.

    >>> from tengen import Tensor, custom_ops
    >>> from tengen.loops import lang
    >>> @custom_ops.elementwise("doc::softclip")
    ... def softclip(x, limit: float = 1.0):
    ...     return x / lang.unary("sqrt", x * x + limit * limit) * limit
    >>> softclip(Tensor([0.0, 3.0]), 4.0).tolist()
    [0.0, 2.4000000953674316]
    """

    def decorate(fn: Callable) -> CustomOp:
        made = _define(name, "elementwise", fn, replace)
        define.install_elementwise(made, fn, result, kinds)
        d = float32 if "f" in kinds else int32
        values = _examples(made)
        try:
            e = fn(*(var(f"x{i}", d) for i in range(len(made.tensors))), **values)
        except (TengenError, TypeError, ValueError, AttributeError) as error:
            forget_op(name)
            raise CustomOpError(f"{name}: its expression of {d} fails: {error}; help: operators, and functions of tengen.loops.lang") from error
        if not isinstance(e, (Expr, int, float)):
            forget_op(name)
            raise CustomOpError(f"{name}: the function returned {type(e).__name__}, not an expression of its parameters")
        return made

    return decorate


def composite(name: str, *, replace: bool = False) -> Callable[[Callable], CustomOp]:
    """Defines an operator by a function over other operators. It runs as one fused program, eagerly too; its gradient is that of its
    body, unless `.vjp` gives another.

    Args: as `elementwise` has them. Parameters that are tensors are annotated so: ``x: Tensor``.

    >>> from tengen import Tensor, custom_ops, functional as F
    >>> @custom_ops.composite("doc::unit")
    ... def unit(x: Tensor, axis: int = -1):
    ...     return x / F.sqrt((x * x).sum(axis, keepdims=True))
    >>> unit(Tensor([3.0, 4.0])).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    return lambda fn: _define(name, "composite", fn, replace)


def _examples(op: Op) -> dict[str, Any]:
    """A value for each attribute: its default, or one of its kind."""
    defaults = {p.name: p.default for p in inspect.signature(op.fn).parameters.values() if p.default is not inspect.Parameter.empty}
    kinds = op.kinds
    return {a: defaults[a] if a in defaults else k.example for a in op.attrs if (k := kinds[a]) is not None}


# ---- operators with signatures -------------------------------------------------------------------------------------------


def _with_signatures(op: CustomOp, signature: str | Sequence[str], hidden: tuple[TensorType, ...] = ()) -> None:
    """Gives an operator its forms, and the rule for types that follows from them. hidden: types of results that no form names."""
    texts = [signature] if isinstance(signature, str) else list(signature)
    ints = [a for a in op.attrs if op.notes[a] in INTS]
    op.signatures = tuple(read_signature(t, op.tensors, ints) for t in texts)
    if not op.signatures:
        raise CustomOpError(f"{op.name} has no signature")

    @op.infer
    def _(*types, **attrs):
        form, known = _form(op, types, attrs)
        return (*form.results(known), *hidden)


def _form(op: CustomOp, types: Sequence[TensorType | None], attrs: Mapping[str, Any]) -> tuple[Signature, dict]:
    """The form that a call has, and what its names stand for. Errors: those of the forms, all of them."""
    errors: list[DTypeError | ShapeError] = []
    for form in op.signatures:
        try:
            return form, form.match(types, attrs)
        except (DTypeError, ShapeError) as e:
            errors.append(e)
    kind = ShapeError if any(isinstance(e, ShapeError) for e in errors) else DTypeError
    raise kind("; ".join(f"{e}, in the form {form.text!r}" for e, form in zip(errors, op.signatures)))


def kernel(name: str, signature: str | Sequence[str], *, replace: bool = False) -> Callable[[Callable], CustomOp]:
    """Defines an operator by a kernel of the kernel language (`docs/architecture.md`, "The kernel IR").

    Args:
        name: with a namespace. signature: its tensors, as ``"x: f32[n, m] -> y: f32[n]"``, or several forms, of which a call takes the
            first that fits. Results are dense, operands are given to the kernel dense, in logical order.
        replace: as for `elementwise`.

    The decorated function is given the types of its tensors, and its attributes; it returns the kernel, as text or as a `Kernel`, whose
    buffers are the signature's tensors by name, and whose integers are names of the signature. Its gradient is what `.vjp` says.

    Errors: CustomOpError for a kernel that does not fit the signature; VerifyError for a text that is no kernel.

    Numerics: what the kernel says, on every target: nothing is contracted or reordered.

    >>> from tengen import Tensor, custom_ops
    >>> @custom_ops.kernel("doc::running_total", "x: f32[n, m] -> y: f32[n, m]")
    ... def running_total(x: Tensor):
    ...     return '''
    ...     kernel running_total(in x: f32, out y: f32, int n, int m):
    ...         each row of n:
    ...             var total = 0.0f32
    ...             for i in range(row * m, row * m + m, 1):
    ...                 load v: f32 = x[i]
    ...                 set total = total + v
    ...                 store y[i] = total
    ...     '''
    >>> running_total(Tensor([[1.0, 2.0, 3.0]])).tolist()
    [[1.0, 3.0, 6.0]]
    """

    def decorate(fn: Callable) -> CustomOp:
        op = _define(name, "primitive", fn, replace)
        try:
            _with_signatures(op, signature)
            for form in op.signatures:
                _written(op, form, [t for _, t in form.inputs], _examples(op))
        except BaseException:
            forget_op(name)
            raise

        @op.lower
        def _(lo, ins, outs, **attrs):
            over_dense(lo, ins, outs, lambda some, made: _launch(op, lo, some, made, attrs))

        return op

    return decorate


def _written(op: CustomOp, form: Signature, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Kernel:
    """The kernel for these types. Errors: CustomOpError where it does not fit the form."""
    made = op.fn(*types, **attrs)
    if isinstance(made, str):
        made = parse_kernel(made)
    elif not isinstance(made, Kernel):
        raise CustomOpError(f"{op.name}: the function returned {type(made).__name__}, not a kernel or its text")
    verify(made)
    tensors = [(n, t, "in") for n, t in form.inputs] + [(n, t, "out") for n, t in form.outputs]
    wanted = {(n, t.dtype, role) for n, t, role in tensors}
    have = {(b.name, b.dtype, b.role) for b in made.buffers}
    if have != wanted:
        told = lambda some: ", ".join(f"{role} {n}: {d.short}" for n, d, role in sorted(some, key=str))
        raise CustomOpError(f"{op.name}: its kernel has the buffers {told(have)}; by the signature {form.text!r} they are {told(wanted)}")
    if odd := [str(v.attr) for v in made.ints if v.attr not in form.names]:
        raise CustomOpError(f"{op.name}: its kernel takes the integer {odd[0]}, which is no name of the signature {form.text!r}")
    return made


def interpreted(op: CustomOp, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> list[np.ndarray]:
    """What the kernel of an operator means for these operands, by the interpreter, which checks every access. Errors: IndexOutOfRange
    for an index outside of a tensor."""
    types = [TensorType(a.shape, dtype(a.dtype)) for a in arrays]
    form, known = _form(op, types, attrs)
    made = [np.full(t.shape, 0, t.dtype.numpy) for t in form.results(known)]
    kernel = _written(op, form, types, attrs)
    flat = [np.ascontiguousarray(a).reshape(-1) for a in (*arrays, *made)]
    names = [n for n, _ in (*form.inputs, *form.outputs)]
    interpret(kernel, dict(zip(names, flat)), {str(v.attr): int(known[str(v.attr)]) for v in kernel.ints})
    return [a.reshape(m.shape) for a, m in zip(flat[len(arrays) :], made)]


def _launch(op: CustomOp, lo: Lowering, ins: Sequence[Array], outs: Sequence[Array], attrs: Mapping[str, Any]) -> None:
    types = [TensorType(a.shape, a.dtype) for a in ins]
    form, known = _form(op, types, attrs)
    source = _written(op, form, types, attrs)
    arrays = dict(zip((n for n, _ in (*form.inputs, *form.outputs)), (*ins, *outs)))
    k = lo.kernel(op.name)
    places = {b.name: ((k.write if b.role == "out" else k.read)(a := arrays[b.name]), a.offset) for b in source.buffers}
    lo.launch(k, bound(source, k.name, k.ints, known, places))


# ---- C functions ---------------------------------------------------------------------------------------------------------


def c_function(
    name: str,
    signature: str | Sequence[str],
    *,
    function: Any = None,
    source: str | os.PathLike | None = None,
    objects: Mapping[str, str | os.PathLike] | None = None,
    symbol: str | None = None,
    errors: Mapping[int, str] | None = None,
    replace: bool = False,
) -> Callable[[Callable], CustomOp]:
    """Defines an operator by a C function.

        int32_t symbol(const T *input, ..., T *result, ..., const int64_t *shapes, attributes...)

    `shapes` holds for each input and then each result its number of axes and its extents; attributes are ``int64_t`` (int, bool) or
    ``double`` (float). Arrays are dense in logical order, and do not overlap. It returns 0, or the code of an error. It depends on its
    arguments alone and writes its results alone: equal calls may become one, and calls whose result nobody reads are left out. Several
    threads may call it at once. Python's lock is not held.

    Args:
        name, signature, replace: as for `kernel`. function: of `ctypes`, of `cffi`, of Numba's `cfunc`, or an address. source: C text, or
            the path of a ``.c`` file, which is compiled with ``-O2 -ffp-contract=off``. objects: object files by architecture ("x86-64",
            "aarch64"). One of the three is needed here; an artifact needs `source` or an object for its target.
        symbol: its name in C; default: the decorated function's. errors: what codes mean.

    The decorated function says the parameters; its body is not run. Its gradient is what `.vjp` says.

    Errors: CustomOpError where the function is missing, and from a call whose function returns a code other than 0 (in a traced program
        when the run has ended).

    Numerics: the bits are the author's promise. Tengen gives the same arguments in every way of running it.
    """

    def decorate(fn: Callable) -> CustomOp:
        code = c_function_of(symbol or fn.__name__, function, source, objects or {})
        op = _define(name, "primitive", fn, replace)
        op.c_function, op.returns_code, op.messages = code, True, dict(errors or {})
        try:
            _with_signatures(op, signature, (TensorType((), int32),))
            if odd := [a for a in op.attrs if op.notes[a] not in NUMBERS]:
                raise CustomOpError(f"{name}: the attribute {odd[0]} is {op.notes[odd[0]]!r}; a C function takes int, float and bool")
            pointers = len(op.tensors) + len(op.signatures[0].outputs) + 1
            check_parameters(name, function, ["pointer"] * pointers + ["double" if op.notes[a] in FLOATS else "int64_t" for a in op.attrs])
        except BaseException:
            forget_op(name)
            raise

        @op.lower
        def _(lo, ins, outs, **attrs):
            over_dense(lo, ins, outs, lambda some, made: _call(code.symbol, lo, some, made, _numbers(op, attrs)))

        inner = op.call

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            *results, status = inner(*args, **kwargs)
            try:
                _report(op, status)
            except CustomOpError as e:
                tell(e)
                raise
            return results[0] if len(results) == 1 else tuple(results)

        op.call = call
        return op

    return decorate


def _call(symbol: str, lo: Lowering, ins: Sequence[Array], outs: Sequence[Array], numbers: Sequence[Expr]) -> None:
    k = lo.kernel(f"call_{symbol}")
    *results, status = outs
    places = [(k.read(a), a.offset) for a in ins] + [(k.write(a), a.offset) for a in results]
    shapes = [n for a in (*ins, *results) for n in (a.ndim, *a.shape)]
    code = k.external(symbol, places, shapes, numbers)
    k.store(k.write(status), status.offset, code)
    lo.launch(k)


def _numbers(op: CustomOp, attrs: Mapping[str, Any]) -> list[Expr]:
    """The attributes as the C function takes them: by their declared kinds, since a float may be given as an int."""

    def number(name: str, a: Any) -> Expr:
        return a if isinstance(a, Expr) else const(float(a), float64) if op.notes[name] in FLOATS else const(int(a), int64)

    return [number(name, a) for name, a in attrs.items()]


def _report(op: CustomOp, status: Tensor) -> None:
    """Raises the error of a C function that returned a code, or leaves that to the run of what is being recorded."""
    while type(status._layout) is Batched:  # of all examples
        status = status._data
    told = {code: f"{op.name}: {text}" for code, text in op.messages.items() if code}
    other = f"{op.name}: its C function returned an error"
    recorder = tracing.recorder
    if recorder is None:
        codes = status.numpy().ravel()
        for code in codes[codes != 0][:1].tolist():
            raise CustomOpError(told.get(code, f"{other}, {code}"))
        return
    unknown = bad = REGISTRY["not_equal"](status, 0)
    for code, text in told.items():
        bad = REGISTRY["equal"](status, code)
        unknown = REGISTRY["logical_and"](unknown, REGISTRY["not_equal"](status, code))
        _check(recorder, bad, text)
    _check(recorder, unknown, other)


def _check(recorder: Any, bad: Tensor, text: str) -> None:
    recorder.check(REGISTRY["any"](bad) if bad.ndim else bad, CustomOpError.__name__, text, user_line())


# ---- gradients -----------------------------------------------------------------------------------------------------------


def _checked_gradient(op: CustomOp, f: Callable) -> Callable:
    """The user's rule, whose gradients have the shapes of the inputs."""

    def right(i: int, x: Any, g: Any) -> Any:
        if g is None:
            return None
        if not isinstance(g, Tensor):
            raise GradientError(f"the gradient of {op.name} with respect to {op.tensors[i]} is a {type(g).__name__}, not a tensor or None")
        if len(g.shape) != len(x.shape) or any(map(differ, g.shape, x.shape)):
            raise GradientError(
                f"the gradient of {op.name} with respect to {op.tensors[i]} has the shape {tuple(g.shape)}, and {op.tensors[i]} has "
                f"{tuple(x.shape)}; help: its .vjp gives one of each input's shape"
            )
        return g

    @functools.wraps(f)
    def rule(g: Any, *inputs: Any, **attrs: Any) -> tuple:
        if op.returns_code:
            g = g[:-1] if len(g) > 2 else g[0]
            if "out" in attrs:
                attrs["out"] = attrs["out"][:-1] if len(attrs["out"]) > 2 else attrs["out"][0]
        found = f(g, *inputs, **attrs)
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(inputs):
            what = f"{op.name} has {len(inputs)} inputs, and its .vjp gives {len(found)} gradients"
            raise GradientError(f"{what}; help: None where there is none")

        def checked(i: int) -> Any:
            x, made = inputs[i], found[i]
            return (lambda: right(i, x, made())) if callable(made) and not isinstance(made, Tensor) else right(i, x, made)

        return tuple(map(checked, range(len(inputs))))

    return rule


__all__ = ["CustomOp", "c_function", "composite", "elementwise", "kernel"]
