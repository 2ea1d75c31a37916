"""The backward walk: from recorded nodes to gradients.

Gradient rules are written in ops, so the walk is itself eager code: inside a trace it is recorded. Where it runs through what
other levels may ask for (`tengen.tensor.nodes`), it goes on the tape, and they differentiate it again.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

from tengen.base.errors import DTypeError, GradientError, ShapeError
from tengen.loops.decisions import decisions
from tengen.loops.lang import Expr, Index, equal
from tengen.ops.calls import negative_zero
from tengen.ops.complex_forms import formed
from tengen.ops.define import REGISTRY, Op, Rules, dispatch
from tengen.tensor import eviction
from tengen.tensor.casting import casting, casts
from tengen.tensor.hooks import called
from tengen.tensor.nodes import SPENT, Level, TapeNode, is_live, leaves, lives_for_others, node_of, unpacking, walking
from tengen.tensor.tensor import Tensor, tensor_on_tape

Place = tuple[TapeNode | None, int]  # a node and which of its outputs: what `node_of` gives
Arrived = Callable[[int, Tensor], None]


def gradients(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], wanted: Sequence[Place], level: Level, again: bool = False,
    arrived: Arrived | None = None, terms: Sequence[list] | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of sum(output * seed) with respect to the `wanted` places; None where no output depends on one.

    Args:
        outputs: recorded tensors. seeds: their gradients; None stands for ones. wanted: places that `level` has started, or older ones.
        again: whether the same walk may be asked for once more. If not, what a call has saved for its gradient is freed as soon
            as that is computed, unless another level may need it. arrived: is given (position in wanted, gradient) as soon as all
            calls that used a wanted start node have been passed; None is returned for those. terms: a list for each wanted place, which gets
            what would be added to its gradient, in order, Tensors and `SliceGrad`s; None is returned then.

    The walk is the same inside autocast and outside: gradients have the dtypes of what they are gradients of.
    """
    if casting.rule is None:
        return _gradients(outputs, seeds, wanted, level, again, arrived, terms)
    with casts(None, None, None):
        return _gradients(outputs, seeds, wanted, level, again, arrived, terms)


def _gradients(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], wanted: Sequence[Place], level: Level, again: bool,
    arrived: Arrived | None, terms: Sequence[list] | None,
) -> list[Tensor | None]:  # fmt: skip
    asked, starts = len(wanted), [*outputs, *level.owed]
    wanted = [*wanted, *level.awaited]
    walk = _Walk(starts, wanted, level, terms)
    targets, grads, heap = walk.targets, walk.grads, walk.heap
    for t, seed in zip(outputs, seeds, strict=True):
        walk.give(t, _seed(t, seed, level))
    for t in level.owed:
        walk.give(t, REGISTRY["zeros_like"](t._off_tape()))
    result: list[Tensor | None] = [None] * len(wanted)
    uses = {} if arrived is None else _uses(starts, targets, walk.useful, level)

    def passed(below: Sequence[TapeNode]) -> None:
        """A call was walked through whose operands these nodes made."""
        for key in dict.fromkeys(map(id, below)):
            if key in uses:
                uses[key] -= 1
                if not uses[key] and key in grads:
                    slot = walk.final(key)
                    for i, index in targets[key]:
                        if i < asked and index in slot:
                            arrived(i, cut([slot[index]], level)[0])

    while heap:
        _, key = heapq.heappop(heap)
        if key not in grads:  # it has arrived
            continue
        node, slot = walk.nodes[key], walk.final(key)
        for i, index in targets.get(key, ()):
            result[i] = slot.get(index)
        if node.order < level.order or node.attrs is SPENT:  # a wanted place, from which no walk goes on
            continue
        below = node.parents() if uses else ()
        if node.op is not None:
            walk.through(node, slot)
            if not again and key not in walk.others:
                _let_go(node, level)
        elif node.saved:
            walk.give(tensor_on_tape(*node.saved[0]), slot[0])
        passed(below)
    return cut(result[:asked], level)


class _Walk:
    """A walk from outputs to the places whose gradients are wanted: what has been given to the nodes that it has still to pass.

    Attributes:
        level, terms: as `gradients` takes them. targets: id of a node -> [(position in wanted, which output of the node)]. useful, others:
            of `_survey`. grads, slices: by the ids of nodes and the numbers of their outputs, the gradients, and those of slices of them.
            nodes: by ids. heap: of the nodes, the youngest first.
    """

    __slots__ = ("grads", "heap", "level", "nodes", "others", "slices", "targets", "terms", "useful")

    def __init__(self, starts: Sequence[Tensor], wanted: Sequence[Place], level: Level, terms: Sequence[list] | None):
        self.level, self.terms = level, terms
        self.targets: dict[int, list[tuple[int, int]]] = {}
        for i, (node, index) in enumerate(wanted):
            if node is not None:
                self.targets.setdefault(id(node), []).append((i, index))
        self.useful, self.others = _survey(starts, self.targets, level)
        self.grads: dict[int, dict[int, Tensor]] = {}
        self.slices: dict[int, dict[int, list[SliceGrad]]] = {}
        self.nodes: dict[int, TapeNode] = {}
        self.heap: list[tuple[int, int]] = []

    def give(self, t: Tensor, g: Tensor | SliceGrad) -> None:
        """Adds a gradient to that of a tensor, where a target can be reached from it."""
        node, index = node_of(t)
        if node is None or id(node) not in self.useful:
            return
        key = id(node)
        if self.terms is not None and key in self.targets:
            of = next(self.terms[i] for i, at in self.targets[key] if at == index)
            return of.append(g if isinstance(g, SliceGrad) else _fit(g, t))
        slot = self.grads.get(key)
        if slot is None:
            slot = self.grads[key] = {}
            self.nodes[key] = node
            heapq.heappush(self.heap, (-node.order, key))
        if isinstance(g, SliceGrad):
            self.slices.setdefault(key, {}).setdefault(index, []).append(g)
            return
        g = _fit(g, t)
        slot[index] = REGISTRY["add"](slot[index], g) if index in slot else g

    def final(self, key: int) -> dict[int, Tensor]:
        """The gradients of a node's outputs, to which nothing more is added."""
        node, slot = self.nodes[key], self.grads.pop(key)
        for index, parts in self.slices.pop(key, {}).items():
            for g in _joined(parts):
                slot[index] = REGISTRY["add"](slot[index], g) if index in slot else g
        if (hooks := getattr(node, "hooks", None)) is not None:
            for index, hook in list(hooks.values()):
                if index in slot:
                    slot[index] = called(hook, slot[index])
        return slot

    def through(self, node: TapeNode, slot: dict[int, Tensor]) -> None:
        """Gives the operands of a call their gradients."""
        before = walking.go_to(node, self.level)
        try:
            if hasattr(node, "hooks") and (hooks := after_hooks_of(node)):
                _seen_after(node, slot, self.give, hooks, lambda give: _step(node, slot, give, self.useful, self.others))
            else:
                _step(node, slot, self.give, self.useful, self.others)
        finally:
            walking.go_to(*before)


def _let_go(node: TapeNode, level: Level) -> None:
    """A walk has passed a call, and nobody else will. What was computed from leaves stays on the tape: a view's gradient needs no values, nor
    does that of a cast (autocast's of a parameter is used by all calls of a block), and may be asked for again; of another call a second walk
    is told."""
    if level is leaves.level and (node.op.kind == "view" or node.op.name == "astype"):
        node.saved = [None if s is None else (None, *s[1:]) for s in node.saved]
        return
    node.saved, node.outputs, node.level = [], None, None
    if level is leaves.level:
        node.level, node.attrs = level, SPENT


def _uses(starts: Sequence[Tensor], targets: dict, useful: set[int], level: Level) -> dict[int, int]:
    """How many useful nodes use what a wanted start node stands for, by the id of that node."""
    found: dict[int, int] = {}
    stack = [n for t in starts if (n := node_of(t)[0]) is not None and id(n) in useful]
    seen = set(map(id, stack))
    while stack:
        n = stack.pop()
        if n.order < level.order:
            continue
        for m in {id(m): m for m in n.parents() if id(m) in useful}.values():
            if id(m) in targets and m.op is None and not m.saved:
                found[id(m)] = found.get(id(m), 0) + 1
            if id(m) not in seen:
                seen.add(id(m))
                stack.append(m)
    return found


def cut(tensors: Sequence[Any], level: Level) -> list[Any]:
    """The tensors; those through which no other level than `level` may ask for a gradient are taken off the tape."""
    if all(t is None or t._node is None for t in tensors):
        return list(tensors)
    others = _survey([t for t in tensors if t is not None], {}, level)[1]
    return [t if t is None or id(node_of(t)[0]) in others else t._off_tape() for t in tensors]


class SliceGrad:
    """The gradient of a tensor of this shape that is zero outside of a slice: `grad` is its value in the slice, which begins at
    `starts`."""

    __slots__ = ("grad", "shape", "starts")

    def __init__(self, grad: Tensor, shape: tuple[int, ...], starts: tuple[int, ...]):
        self.grad, self.shape, self.starts = grad, shape, starts


def _joined(parts: list[SliceGrad]) -> list[Tensor]:
    """Gradients of slices as gradients of the whole tensor. If the slices tile it along an axis (the steps of a sequence, the
    gates of a cell), that is one tensor, each element of which is written once; otherwise one for each slice, with zeros around
    it."""
    shape = parts[0].shape
    same: dict[tuple, SliceGrad] = {}
    for p in parts:  # a slice that was taken twice
        first = same.setdefault((p.starts, p.grad._layout.type.shape), p)
        if first is not p:
            first.grad = REGISTRY["add"](first.grad, p.grad)
    parts = list(same.values())
    axis, ordered = _tiled(shape, parts) if len(parts) > 1 else (-1, parts)
    if axis >= 0:
        return [REGISTRY["concat"]([p.grad for p in ordered], axis)]
    return [REGISTRY["slice_grad"](p.grad, shape, p.starts, (1,) * len(shape)) for p in parts]


def _tiled(shape: tuple, parts: list[SliceGrad]) -> tuple[int, list[SliceGrad]]:
    """(The axis along which slices tile a tensor, the slices in order along it), or an axis of -1. The answer decides the sign of zeros:
    -0.0 stays, and -0.0 + 0.0 is 0.0. So a program for open extents depends on it; where no program can, extents that are open do not
    tile."""
    lengths = [p.grad._layout.type.shape for p in parts]
    axes = {i for shown in lengths for i, (n, d) in enumerate(zip(shown, shape)) if not _same(n, d)}
    if len(axes) != 1:
        return -1, parts
    (axis,) = axes
    numbers = (shape[axis], *(d for p, shown in zip(parts, lengths) for d in (p.starts[axis], shown[axis])))
    if decisions.decide is None and any(isinstance(d, Expr) for d in numbers):
        return -1, parts
    ordered = sorted(parts, key=cmp_to_key(lambda p, q: -1 if p.starts[axis] < q.starts[axis] else 1))
    ends = [p.starts[axis] + p.grad._layout.type.shape[axis] for p in ordered]
    tiled = all(_same(a, b) for a, b in zip([*(p.starts[axis] for p in ordered), shape[axis]], [0, *ends]))
    return (axis if tiled else -1), ordered


def _same(a: Index, b: Index) -> bool:
    """Whether two extents are equal: where that is not known and no program can depend on it, whether they are the same expression."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return a is b or (decisions.decide is not None and bool(equal(a, b)))


def _seed(t: Tensor, seed: Tensor | None, level: Level) -> Tensor:
    """The gradient of an output."""
    return REGISTRY["broadcast_to"](Tensor(1.0, t.dtype), t.shape) if seed is None else cut([seed], level)[0]


def check_outputs(outputs: Sequence[Any], seeds: Sequence[Any]) -> None:
    """GradientError unless the outputs can have gradients, and the seeds can be theirs."""
    if len(seeds) != len(outputs):
        raise GradientError(f"{len(outputs)} outputs and {len(seeds)} gradients")
    for t, seed in zip(outputs, seeds):
        if not isinstance(t, Tensor) or not t.dtype.is_inexact:
            found = repr(t._layout.type) if isinstance(t, Tensor) else f"a {type(t).__name__}"
            raise GradientError(f"{found} has no gradient; help: only a float tensor has one")
        if seed is None:
            if t.dtype.is_complex:
                what = "is complex, and only a real number can be made smaller; help: abs(), real() or imag() of it, or give dy"
                raise GradientError(f"{t._layout.type!r} {what}")
            continue
        same = isinstance(seed, Tensor) and seed.dtype.is_inexact and seed.ndim == t.ndim
        if not same or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(seed.shape, t.shape)):
            found = repr(seed._layout.type) if isinstance(seed, Tensor) else f"a {type(seed).__name__}"
            raise GradientError(f"the gradient of {t._layout.type!r} is given as {found}; help: dy is a float tensor of its shape")


def _survey(starts: Sequence[Tensor], targets: dict, level: Level) -> tuple[set[int], set[int]]:
    """(ids of the nodes below some tensors from which a target can be reached, ids of those that other levels may walk
    from)."""
    useful: dict[int, bool] = {}
    others: dict[int, bool] = {}
    own, around = {level}, level
    while (around := getattr(around, "within", None)) is not None:
        own.add(around)
    stack = [n for t in starts if (n := node_of(t)[0]) is not None]
    while stack:
        n = stack[-1]
        if id(n) in useful:
            stack.pop()
            continue
        if n.order < level.order:  # the level's own nodes are younger
            useful[id(n)], others[id(n)] = id(n) in targets, is_live(n) and (len(own) == 1 or lives_for_others(n, own))
            stack.pop()
            continue
        below = n.parents()
        todo = [m for m in below if id(m) not in useful]
        if todo:
            stack.extend(todo)
            continue
        useful[id(n)] = id(n) in targets or any([useful[id(m)] for m in below])
        started = n.op is None and n.level is not None and n.level.active and n.level not in own
        others[id(n)] = started or any([others[id(m)] for m in below])
        stack.pop()
    return {k for k, v in useful.items() if v}, {k for k, v in others.items() if v}


class FunctionOp:
    """What stands in a node for the op where the node is a call of a whole function.

    Args: rule: (the gradient of the result, or a tuple of those of the results, None where one has none; the inputs) -> the inputs'
        gradients. n_outputs: how many results are on the tape.
    """

    kind, saves_output, optional = "function", False, None
    __hash__ = None  # so that no cache which is looked up by ops keeps what the call has kept

    def __init__(self, name: str, rule: Callable[..., tuple], n_outputs: int):
        self.name, self.rules, self.n_outputs = name, Rules(vjp=rule), n_outputs

    def canonical(self, types: Sequence, attrs: Sequence) -> dict:
        return {}

    def infer_types(self, types: Sequence, attrs: Mapping) -> tuple:
        return (None,) * self.n_outputs


def _fit_dtype(g: Tensor, t: Tensor) -> Tensor:
    if g.dtype.is_complex and not t.dtype.is_complex:  # what a real operand of a complex call moves
        g = REGISTRY["real_part"](g)
    return g if g.dtype is t.dtype else REGISTRY["astype"](g, t.dtype)


def _fit(g: Tensor, t: Tensor) -> Tensor:
    """A gradient in the shape and dtype of the tensor it belongs to: undoes broadcasting and promotion."""
    g = _fit_dtype(g, t)
    return g if g._layout.type.shape == t._layout.type.shape else REGISTRY["sum_to"](g, t.shape)


@functools.lru_cache(4096)  # each training step asks for the same ops and types
def _call_facts(op: Op, attrs: tuple, types: tuple) -> tuple[Op, dict[str, Any], int | None]:
    """(what computes the call, its attributes in canonical form, how many outputs; None for a composite, which may have any
    number)."""
    op, attrs = formed(op, types, attrs)
    canonical = op.canonical(types, attrs)
    return op, canonical, None if op.kind == "composite" else len(op.infer_types(types, canonical))


def _step(node: TapeNode, slot: dict[int, Tensor], give: Any, useful: set[int], others: set[int]) -> None:
    """Runs one node's gradient rule and passes the results on. The rule is recorded on the tape where it uses tensors that
    other levels may walk from."""
    op: Op = node.op
    if eviction.ever:
        eviction.restored(node)
    kept, made = unpacking[0](node) if unpacking else (node.saved, node.outputs)
    saved = tuple([None if s is None else tensor_on_tape(*s) for s in kept])
    taped = id(node) in others
    inputs = tuple([None if x is None else x if taped and id(node_of(x)[0]) in others else _off(x) for x in saved])
    types = tuple([None if x is None else x._layout.type for x in inputs])
    facts = _call_facts.__wrapped__ if 0.0 in node.attrs and any(map(negative_zero, node.attrs)) else _call_facts  # -0.0 == 0.0
    try:
        op, attrs, n_outs = facts(op, node.attrs, types)
    except TypeError:  # an attribute, or a `FunctionOp`, that has no hash
        op, attrs, n_outs = _call_facts.__wrapped__(op, node.attrs, types)
    wants = tuple([i for i, x in enumerate(saved) if x is not None and x.dtype.is_inexact and id(node_of(x)[0]) in useful])
    n_outs = n_outs or max(slot) + 1
    g: Any = slot[0] if n_outs == 1 else tuple(slot.get(i) for i in range(n_outs))
    if op.rules.vjp is None and op.has_bodies:
        from tengen.tensor import control  # noqa: F401  (it gives loops and branches their gradients)
    if op.rules.vjp is None:
        same = op.rules.same or op  # a composite that computes the same has a gradient
        if same.kind != "composite":
            raise GradientError(
                f"{op.signature(types, attrs)} has no gradient rule; help: add @{op.name}.vjp below its definition"
            )
        results = dict(zip(wants, composite_vjp(same, g, inputs, attrs, wants)))
    else:
        if op.saves_output:
            results = tuple(_output(o, node, i) for i, o in enumerate(made)) if taped else made
            attrs = attrs | {"out": results[0] if len(results) == 1 else results}
        if op.name == "strided_slice" and all(s == 1 for s in attrs["steps"]):  # parts that tile a whole are joined: `_joined`
            return give(saved[0], SliceGrad(_fit_dtype(g, saved[0]), inputs[0]._layout.type.shape, tuple(attrs["starts"])))
        r = op.rules.vjp(g, *inputs, **attrs)
        results = dict(enumerate(r if isinstance(r, (tuple, list)) else (r,)))
    for i in wants:
        gi = results.get(i)
        gi = gi() if callable(gi) and not isinstance(gi, Tensor) else gi
        for term in gi if isinstance(gi, list) else [gi]:  # a rule that gives a list has what is added one by one
            if term is not None:
                give(saved[i], term)


def after_hooks_of(node: TapeNode) -> list[Callable]:
    """The hooks of a call that see the gradients of its operands: among those of its results they have no index."""
    return [hook for index, hook in list(node.hooks.values()) if index is None]


def _seen_after(node: TapeNode, slot: dict[int, Tensor], give: Any, hooks: list[Callable], step: Callable[[Any], None]) -> None:
    """Runs one node's gradient rule, and each hook with the gradients of its operands and results; what a hook returns takes the place of the
    former. Errors: GradientError for another number of gradients, or another shape or dtype"""
    places = [None if s is None else s[2] for s in node.saved]
    found: dict[int, tuple[Tensor, Tensor]] = {}

    def keep(t: Tensor, g: Tensor | SliceGrad) -> None:
        g = _joined([g])[0] if isinstance(g, SliceGrad) else _fit(g, t)
        mine = [i for i, place in enumerate(places) if place is not None and place == t._node]
        i = next((i for i in mine if i not in found), mine[-1])  # an operand that is given twice
        found[i] = t, (REGISTRY["add"](found[i][1], g) if i in found else g)

    step(keep)
    of_results = tuple(slot.get(i) for i in range(max(slot) + 1))
    for hook in hooks:
        new = hook(tuple(found[i][1] if i in found else None for i in range(len(places))), of_results)
        if new is None:
            continue
        if not isinstance(new, tuple) or len(new) != len(places):
            found_here = f"a tuple of {len(new)}" if isinstance(new, tuple) else f"a {type(new).__name__}"
            raise GradientError(f"a hook of {node.op.name} returned {found_here}; help: a tuple of {len(places)} gradients, or None")
        for i, g in enumerate(new):
            if g is not None and i in found:
                found[i] = found[i][0], called(lambda _, g=g: g, found[i][1])
    for t, g in found.values():
        give(t, g)


def _off(x: Tensor) -> Tensor:
    return x if x._node is None else tensor_on_tape(x._data, x._layout, None)


def composite_vjp(op: Op, g: Any, inputs: Sequence[Tensor | None], attrs: dict, wants: tuple[int, ...]) -> tuple:
    """The gradient of a composite: that of its body, as one derived composite op (so that it, too, is one fused program)."""
    derived = _vjp_op(op)
    gs = g if isinstance(g, tuple) else (g,)
    r = dispatch.run(derived, (*gs, *inputs), (tuple(attrs.items()), wants, len(gs)))
    return r if isinstance(r, tuple) else (r,)


def _output(o: Tensor, node: TapeNode, index: int) -> Tensor:
    """A saved output with its place on the tape. The node itself does not have that place: it would be a cycle of
    references."""
    t = o._off_tape()
    t._node = node if len(node.outputs) == 1 else (node, index)
    return t


def call_body(op: Op, inputs: tuple, attrs: dict):
    """Calls a composite's function; what goes wrong inside names the composite too."""
    try:
        return _call_body(op, inputs, attrs)
    except (ShapeError, DTypeError) as e:
        if "." in op.name or str(e).startswith(f"{op.name}(") or hasattr(e, "_told"):  # then dispatch names the composite
            raise
        raise type(e)(f"{op.signature([None if x is None else x._layout.type for x in inputs], attrs)}: {e}") from None


def _call_body(op: Op, inputs: tuple, attrs: dict):
    if not op.variadic:
        return op.fn(**dict(zip(op.tensors, inputs)), **attrs)  # by name: tensors and attributes may come in any order
    if op.tensors == ("args",):
        return op.fn(*inputs, **attrs)
    n = len(inputs) - len(op.tensors) + 1
    return op.fn(list(inputs[:n]), *inputs[n:], **attrs)


def _vjp_op(op: Op) -> Op:
    name = f"{op.name}.vjp"
    if name in REGISTRY:
        return REGISTRY[name]

    def body(*args, of, wants, n_grads):
        gs, xs = args[:n_grads], args[n_grads:]
        with Level() as level:
            copies = [level.copy(x) if i in wants else x for i, x in enumerate(xs)]
            out = call_body(op, tuple(copies), dict(of))
            outs = out if isinstance(out, tuple) else (out,)
            pairs = [(o, s) for o, s in zip(outs, gs) if s is not None and o._node is not None]
            places = [node_of(copies[i]) for i in wants]
            found = gradients([o for o, _ in pairs], [s for _, s in pairs], places, level)
        zeros = [REGISTRY["broadcast_to"](Tensor(0.0, copies[i].dtype), copies[i].shape) for i in wants]
        r = tuple(z if f is None else f for f, z in zip(found, zeros))
        return r if len(r) != 1 else r[0]

    made = Op.__new__(Op)
    made.fn, made.kind, made.name, made.doc = body, "composite", name, f"The gradient of `{op.name}`."
    made.rules, made.samples, made.why_no_vjp = Rules(), [], None
    made.tensors, made.attrs, made.variadic = ("args",), ("of", "wants", "n_grads"), True
    made.call = lambda *a, **k: dispatch.run(made, a, tuple(k[n] for n in made.attrs))
    made.known(lambda arrays, of, wants, n_grads: op.known_extents(arrays[n_grads:], dict(of)))
    made.named(lambda arrays, of, wants, n_grads: op.named_extents(arrays[n_grads:], dict(of)))
    REGISTRY[name] = made
    return made
