"""Eager calls: an op and its operands become the call of a plan, and a node on the tape.

Every call of an op goes through `run`: it looks up the plan of (op, layouts, attributes) and calls it; a miss goes to `run_slow`, which
converts operands, makes the plan, or hands the call to the trace that is being recorded. The four operators + - * / between two
tensors have tables of their own, with a shorter key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import DType, bool_, complex64, dtype, float32, float64, int64, promote, promote_scalar
from tengen.base.errors import ArgumentError, DTypeError, TraceError, UsageWarning, told, warn_once
from tengen.base.tables import keep
from tengen.compiler.plans import MOST_PLANS, Layout, Plan, exact_key, forget_programs, make_plan, zero_among
from tengen.loops.lang import Expr
from tengen.ops.complex_forms import formed
from tengen.ops.define import REGISTRY, Op
from tengen.runtime import native
from tengen.tensor.batched import Batched
from tengen.tensor.elsewhere import Elsewhere, Owner, Rows, parts_of, selected_by, whole
from tengen.tensor.nodes import TapeNode, limits, visible_node
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Buffer, Tensor, contiguous, number, scalar, settled, tensor_on_tape, tensor_over

_plans: dict = {}  # (op, attrs, layouts) -> Plan; replaced by an empty one while a trace is recorded, into which nobody enters any
_aside: tuple[dict, dict] | None = None  # the two tables while a thread records, for the threads that do not
_slow_plans: dict = {}  # the same for calls that must not take `run`'s short way: operands are checked first, or one is absent
_new = object.__new__
_NUMBERS = frozenset((bool, int, float, complex))


def run(op: Op, inputs: tuple, attrs: tuple):
    """Runs a call of an op: every `op.call` comes here."""
    try:
        plan = _plans[op, attrs, tuple([x._layout for x in inputs])]
    except (KeyError, AttributeError, TypeError):
        plan = None  # leave the handler first, so that an error below is not reported as one during this one
    if plan is None and (lifted := _with_numbers_lifted(op, inputs, attrs)) is not None:
        plan, inputs = lifted
    if plan is None or (plan.zero and exact_key(attrs) is not attrs):
        return run_slow(op, inputs, attrs)
    r = plan.call(*[x._data for x in inputs])
    out = tensor_over(r, plan.layouts[0]) if len(plan.layouts) == 1 else tuple(map(tensor_over, r, plan.layouts))
    for x in inputs:
        if x._node is not None:
            return put_on_tape(op, inputs, attrs, out)
    return out


def _with_numbers_lifted(op: Op, inputs: tuple, attrs: tuple) -> tuple[Plan, tuple] | None:
    """The plan of a call with Python numbers among its operands, and the operands with tensors in their places: where these have the dtype that
    all tensors have, and such a call was made before. None elsewhere, and for what the slow way has to say something of."""
    if tracing.active is not None or not any([type(x) in _NUMBERS for x in inputs]):
        return None
    first = next((x for i, x in enumerate(inputs) if type(x) not in _NUMBERS and i not in op.own), None)
    try:
        d, device, out = first.dtype, first._layout.device, list(inputs)
        for i, x in enumerate(inputs):
            if type(x) in _NUMBERS:
                if i in op.own or promote_scalar(d, x) is not d:
                    return None
                out[i] = scalar(x, d, device)
            elif x.dtype is not d and i not in op.own:
                return None
        plan = _plans.get((op, attrs, tuple([x._layout for x in out])))
    except Exception:  # the slow way raises it again, and says of which call
        return None
    return None if plan is None else (plan, tuple(out))


def put_on_tape(op: Op, inputs: tuple, attrs: tuple, out):
    """Puts a call on the tape."""
    if op.why_no_vjp is not None:
        return out
    outs = out if isinstance(out, tuple) else (out,)
    made = visible_node if limits else TapeNode
    node = made(op, inputs, attrs, tuple(o._off_tape() for o in outs) if op.saves_output else None)
    if node is None:
        return out
    if len(outs) == 1:
        outs[0]._node = node
    else:
        for i, o in enumerate(outs):
            o._node = (node, i)
    return out


def run_slow(op: Op, inputs: tuple, attrs: tuple):
    """The same without a look at the table of plans: brings the call into order, and makes or finds its plan, or records it."""
    if tracing.active is not None and (recorder := tracing.recorder) is not None and recorder.observer is not None:
        return recorder.observer.call_of_op(_run_in_order, op, inputs, attrs)
    return _run_in_order(op, inputs, attrs)


def _run_in_order(op: Op, inputs: tuple, attrs: tuple):
    if (parts := parts_of(inputs)) is not None:
        return _run_placed(parts, op, inputs, attrs)
    if tracing.active is not None and (rows := selected_by(inputs)) is not None:
        return _run_selected(rows, op, inputs, attrs)
    if tracing.active is not None and (recorder := tracing.recorder) is not None and recorder.answers:
        out = recorder.again(op, inputs, attrs)
        if out is not None:
            return out
    try:
        attrs = op.plain(attrs)
        inputs = _convert(op, inputs)
        op.check_operands(inputs)
        warn_of_float64(op, inputs)
        of, given = formed(op, [None if x is None else x._layout.type for x in inputs], attrs)
        if of is not op:
            return _run_form(op, of, inputs, attrs, given)
        recorder, batched = tracing.recorder, any([x is not None and type(x._layout) is Batched for x in inputs])
        if batched and recorder is not None and recorder.of_a_body:
            inputs = tuple(map(recorder.operand, inputs))
            batched = any([x is not None and type(x._layout) is Batched for x in inputs])
        if batched:
            from tengen.tensor.batching import run_batched

            out = run_batched(op, inputs, attrs)
        elif recorder is not None:
            return recorder.record(op, inputs, attrs)
        else:
            out = _execute(op, inputs, attrs)
    except Exception as e:
        odd = isinstance(e, (AttributeError, KeyError, ArithmeticError, AssertionError)) and not isinstance(e, OverflowError)
        better = ArgumentError(f"does not take these arguments ({type(e).__name__}: {e})") if odd else e
        explain(better, op, inputs, attrs)
        if odd:
            raise better from e
        raise
    if any(x is not None and x._node is not None for x in inputs):
        put_on_tape(op, inputs, attrs, out)
    return out


def _run_selected(owner: Rows, op: Op, inputs: tuple, attrs: tuple):
    """Runs a call of which an operand is a selection by a mask: on all rows, or on those that are selected once they were counted."""
    try:
        attrs = op.plain(attrs)
        inputs = _convert(op, inputs)
        op.check_operands(inputs)
        out = owner.run(op, inputs, attrs)
        if out is not None:
            return out
        inputs = tuple([None if x is None else whole(x) for x in inputs])
    except Exception as e:
        explain(e, op, (), attrs)
        raise
    return _run_in_order(op, inputs, attrs)


def _run_placed(owner: Any, op: Op, inputs: tuple, attrs: tuple):
    """Runs a call of which an operand has its parts in several processes. The gradient of a composite runs its body once more; of one
    whose body has brought bytes from other processes the calls of the body are on the tape instead."""
    try:
        attrs = op.plain(attrs)
        inputs = _convert(op, inputs)
        op.check_operands(inputs)
        taped = any(x is not None and x._node is not None for x in inputs)
        body = taped and op.kind == "composite" and op.rules.vjp is None and op.rules.same is None
        before = owner.moved
        out = owner.run(op, tuple([None if x is None else _entry(x) if body else x._off_tape() for x in inputs]), attrs)
    except Exception as e:
        explain(e, op, inputs, attrs)
        raise
    if taped and not (body and owner.moved > before):
        out = tuple([o._off_tape() for o in out]) if isinstance(out, tuple) else out._off_tape()
        put_on_tape(op, tuple([None if x is None else _as_now(x) for x in inputs]), attrs, out)
    return out


def _entry(x: Tensor) -> Tensor:
    """An operand inside of a body: what the body gives to its gradient is added there, as if the body were one call."""
    t = x._off_tape()
    return t if x._node is None else put_on_tape(REGISTRY["copy"], (_as_now(x),), (), t)


def _as_now(x: Tensor) -> Tensor:
    """Another tensor with the value and the place on the tape that an operand has now."""
    t = x._off_tape()
    return tensor_on_tape(t._data, t._layout, x._node)


def _run_form(op: Op, form: Op, inputs: tuple, attrs: tuple, given: tuple):
    """Runs a call's form for complex numbers; the next call of the same kind finds the form's plan."""
    layouts = tuple(None if x is None else x._layout for x in inputs)
    eager = tracing.recorder is None and not any(type(a) is Batched for a in layouts)
    types = [None if a is None else a.type for a in layouts]
    checked = op.rules.check is not None and (op.rules.checks is None or op.rules.checks(types))
    if eager and checked:  # the form's ops are not looked at once more
        if check_values(op, inputs, types) is None:
            look(op, inputs, types, attrs)
    out = run(form, inputs, given)
    plans = _kept()[0]
    if eager and not checked and (plan := plans.get((form, exact_key(given), layouts))) is not None:
        plan.zero = plan.zero or zero_among(attrs)
        keep(plans, (op, exact_key(attrs), layouts), plan, MOST_PLANS)
    return out


def _convert(op: Op, inputs: tuple) -> tuple:
    """Numbers and arrays among the operands become tensors; a Python number is weak: it takes the others' dtype."""
    if all(isinstance(x, Tensor) or x is None for x in inputs):
        return inputs
    strong = None  # the dtype that the tensors among the operands promote to
    device = None  # of the tensors, and so of the others
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor):
            device = x._layout.device
        if isinstance(x, (Tensor, np.ndarray, np.generic)) and i not in op.own and not isinstance(x, (float, complex)):
            strong = dtype(x.dtype) if strong is None else promote(strong, dtype(x.dtype))
    out: list[Any] = []
    lift = None
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor) or x is None:
            out.append(x)
        elif isinstance(x, Expr):  # an open extent: as weak as the number that it will be
            out.append(REGISTRY["extent_op"](x, promote_scalar(strong, 1) if strong is not None and i not in op.own else int64))
        elif isinstance(x, (bool, int, float, complex)):
            d = promote_scalar(strong, x) if strong is not None and i not in op.own else _default_dtype(x)
            lift = d if strong is not None and d.is_float and not strong.is_float and i not in op.own else lift
            out.append(number(x, d, device))
        elif isinstance(x, (np.ndarray, np.generic, list, tuple)):
            out.append(Tensor(x, device=device))
        else:
            cure = "tengen.from_dlpack(x)" if hasattr(x, "__dlpack__") else "pass a Tensor, an array or a number"
            raise DTypeError(f"{op.name}: a {_type_name(x)} is not a tensor of Tengen's; help: {cure}")
    if lift is not None:  # an int tensor and a Python float give the default float; promoting both as tensors would give float64
        out = [x if x is None or x.dtype.is_float or i in op.own else REGISTRY["astype"](x, lift) for i, x in enumerate(out)]
    return tuple(out)


def _type_name(x: Any) -> str:
    """What an object is in a message; an array of another library with the library's name, since it may be a Tensor too."""
    t = type(x)
    return f"{t.__module__.partition('.')[0]}.{t.__name__}" if hasattr(x, "__dlpack__") else t.__name__


def _default_dtype(x) -> DType:
    return bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else complex64 if isinstance(x, complex) else float32


def warn_of_float64(op: Op, inputs: tuple) -> None:
    """Warns where float64 data meets a float32 parameter: all that follows is computed in float64."""
    for p in inputs:
        if type(p) is Tensor or p is None or p.dtype is not float32 or op.own:
            continue
        for x in inputs:
            if x is not None and x.dtype is float64:
                warn_once(
                    f"{op.name}(): {x._layout.type!r} meets the float32 parameter {p._layout.type!r}, and the result is float64, and "
                    "what follows from it too; help: Tensor(data, dtype='float32') or x.astype('float32')",
                    UsageWarning,
                    of="float64",
                )
                return


def explain(e: Exception, op: Op, inputs: tuple, attrs: tuple) -> None:
    """Completes an error's message: the call that the user made, and the user's line."""
    found = told(e)
    if found is None:
        return
    text, where = found  # the outermost call names itself, around the first text
    types = [x._layout.type if isinstance(x, Tensor) else None if x is None else _type_name(x) for x in inputs]
    call = "" if text.startswith(f"{op.name}(") else f"{op.signature(types, dict(zip(op.attrs, attrs)))}: "
    e.args = (f"{call}{text} [at {where}]",)


# ---- with values -------------------------------------------------------------------------------------------------------


def computed(op: Op, inputs: Sequence[Tensor | None], attrs: dict[str, Any]) -> tuple[Tensor, ...]:
    """The outputs of a node of a graph, off the tape; what must not be in its operands is not looked at. attrs: canonical."""
    given = {"axis": attrs.get("axes"), **attrs}  # reductions name their axes `axis` when they are called
    out = _execute(op, tuple(inputs), tuple([given[name] for name in op.attrs]), looking=False)
    return out if isinstance(out, tuple) else (out,)


def _execute(op: Op, inputs: tuple, attrs: tuple, looking: bool = True):
    """Runs off the tape. looking: whether the operands' values are checked."""
    for x in inputs:
        if x is not None and type(x._data) is not Buffer:
            settled(x)
    layouts = tuple(None if x is None else x._layout for x in inputs)
    types = [None if a is None else a.type for a in layouts]
    if (owner := check_values(op, inputs, types)) is not None:
        return owner.record(op, inputs, attrs)
    checked = op.rules.check is not None and (op.rules.checks is None or op.rules.checks(types))
    plans = _kept()[checked or None in layouts]
    key = (op, exact_key(attrs), layouts)
    plan = plans.get(key)
    if plan is None:
        canonical = op.canonical(types, attrs)
        if op.kind == "view":
            return _view(op, inputs[0], canonical, plans, key)
        plan = planned(op, layouts, canonical)
        plan.zero = zero_among(attrs)
        keep(plans, key, plan, MOST_PLANS)
    if checked and looking:
        look(op, inputs, types, attrs)
    r = plan.call(*[x._data for x in inputs if x is not None])
    return tensor_over(r, plan.layouts[0]) if len(plan.layouts) == 1 else tuple(map(tensor_over, r, plan.layouts))


def check_values(op: Op, inputs: tuple, types: Sequence) -> Owner | None:
    """Who owns the graph that an operand stands for a value of; None if all have values. TraceError for one that has none and never
    will."""
    for x in inputs:
        if x is not None and not settled(x):
            if type(x._layout) is Elsewhere:
                return x._layout.owner
            raise TraceError(
                f"{op.signature(types)}: an operand was made inside a trace that has ended, so it has no value; help: return it "
                "from the traced function instead of keeping it in an attribute or a list"
            )
    return None


def look(op: Op, inputs: tuple, types: Sequence, attrs: tuple) -> None:
    """Checks the operands' values by the op's own rules: raises the error of the first violation."""
    for v in op.violations(inputs, types, attrs):
        if v.bad.item():
            raise v.error(v.found() if v.found else v.message)


def planned(op: Op, layouts: Sequence[Layout | None], attrs: dict, over: tuple[int, ...] = ()) -> Plan:
    if op.kind != "composite" and not op.has_bodies:
        return make_plan(op, layouts, attrs)
    from tengen.tensor.recorder import composite_plan

    return composite_plan(op, layouts, attrs, over)


def slow_plan(key: tuple, make: Callable[[], Any]) -> Any:
    """The plan of a call in `_slow_plans`; `make` makes it if there is none yet."""
    plans = _kept()[1]
    plan = plans.get(key)
    if plan is None:
        plan = make()
        keep(plans, key, plan, MOST_PLANS)
    return plan


def _kept() -> tuple[dict, dict]:
    """The two tables of plans, also while a thread records. They are read before `_aside`, which is set before they are replaced: so a thread
    that computes beside it never enters a plan where the recording looks, which would compute a call in the place of recording it."""
    found = _plans, _slow_plans
    return _aside or found


def _view(op: Op, x: Tensor, attrs: dict, plans: dict, key: tuple | None) -> Tensor:
    """A view shares the buffer: only the layout and the address change. Its plan is entered into `plans`."""
    out = op.infer_types([x._layout.type], attrs)[0]
    a = op.make_view(x._layout.array(0), out, attrs)
    if a is None:
        return _view(op, contiguous(x)._off_tape(), attrs, plans, None)
    layout = Layout(tuple(a.shape), a.dtype, tuple(a.strides), x.device)
    if key is not None:
        offset = a.offset * a.dtype.size
        keep(plans, key, Plan((lambda d: native.view(d, offset)) if offset else _same, (layout,)), MOST_PLANS)
    return tensor_over(native.view(x._data, a.offset * a.dtype.size) if a.offset else x._data, layout)


def _same(data):
    return data


# ---- the four operators ------------------------------------------------------------------------------------------------

# (layout, layout) -> Plan, one table for each operator
_add: dict = {"op": REGISTRY["add"]}
_sub: dict = {"op": REGISTRY["sub"]}
_mul: dict = {"op": REGISTRY["mul"]}
_div: dict = {"op": REGISTRY["div"]}


def _binary(table: dict, a: Tensor, b) -> Tensor:
    try:
        plan = table[a._layout, b._layout]
    except (KeyError, AttributeError):
        plan = None
    if plan is None:
        return _binary_slow(table, a, b)
    out = _new(Tensor)
    out._data = plan.call(a._data, b._data)
    out._layout = plan.layouts[0]
    out._node = None if a._node is None and b._node is None else (visible_node if limits else TapeNode)(table["op"], (a, b), ())
    return out


def _binary_slow(table: dict, a: Tensor, b):
    op = table["op"]
    if isinstance(b, Tensor):
        out = run(op, (a, b), ())
        plan = _plans.get((op, (), (a._layout, b._layout)))
        if plan is not None:
            keep(table, (a._layout, b._layout), plan, MOST_PLANS, fixed=1)  # "op" stands first
        return out
    if not isinstance(b, (int, float, complex, np.ndarray, np.generic, Expr, list, tuple)) and not hasattr(b, "__dlpack__"):
        return NotImplemented  # of an array of another library `run` tells more than Python would
    if isinstance(b, (int, float, complex)):  # as a tensor, one of the last that `scalar` has made, it has a plan
        d = promote_scalar(a.dtype, b)
        b = number(b, d, a._layout.device) if d is a.dtype else b  # where the dtype changes, `_convert` casts both
    return run(op, (a, b), ())


def __add__(self: Tensor, other: Any) -> Tensor: return _binary(_add, self, other)  # fmt: skip


def __sub__(self: Tensor, other: Any) -> Tensor: return _binary(_sub, self, other)  # fmt: skip


def __mul__(self: Tensor, other: Any) -> Tensor: return _binary(_mul, self, other)  # fmt: skip


def __truediv__(self: Tensor, other: Any) -> Tensor: return _binary(_div, self, other)  # fmt: skip


# what `methods.py` puts on Tensor, and the op that each is
OPERATORS = {f.__name__: (f, table["op"]) for f, table in zip((__add__, __sub__, __mul__, __truediv__), (_add, _sub, _mul, _div))}


# ---- the tables of plans -----------------------------------------------------------------------------------------------


def hide_plans(aside: bool = False) -> tuple:
    """Puts empty tables in the place of those of plans, so that each call takes the slow way, which records it. Returns the others. aside: for
    threads that go on computing they stay where they are."""
    global _aside
    saved = _plans, _slow_plans, _add, _sub, _mul, _div
    if aside:
        _aside = saved[:2]
    _exchange({}, {}, *({"op": t["op"]} for t in saved[2:]))
    return saved


def restore_plans(saved: tuple, aside: bool = False) -> None:
    """Undoes `hide_plans`; plans made since are forgotten."""
    global _aside
    _exchange(*saved)
    if aside:
        _aside = None


def _exchange(plans: dict, slow_plans: dict, add: dict, sub: dict, mul: dict, div: dict) -> None:
    global _plans, _slow_plans, _add, _sub, _mul, _div
    _plans, _slow_plans, _add, _sub, _mul, _div = plans, slow_plans, add, sub, mul, div


def forget_plans() -> None:
    """Forgets all plans and the programs behind them: an op has become another one."""
    hide_plans()
    forget_programs()
