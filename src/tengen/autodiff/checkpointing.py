"""`checkpoint`: a function whose values are not kept for its gradient, but computed again when that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import ref

from tengen.base.errors import GradientError
from tengen.compiler.arrays import array_over
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, eviction, tensor_over, tracing
from tengen.tensor.casting import casting, casts, casts_from_before
from tengen.tensor.nodes import Level, TapeNode, is_live, levels, limits, node_of, on_tape, visible_node, walking
from tengen.tensor.tape import FunctionOp, gradients
from tengen.tensor.tensor import Buffer, assign
from tengen.tensor.writes import Written

Triple = tuple[Any, Any, Any]  # what a `TapeNode` saves of an input: memory, layout, place on the tape


def checkpoint(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs), of which only the arguments and results are kept for the gradient: the rest is computed once more when
    the gradient is. A network of n equal blocks that are checkpointed needs the memory of n arguments and one block, and a third
    more time.

    Args:
        function: of tensors, which may stand in tuples, lists and dicts, and of anything else; it may use tensors around it
            (parameters of a module), and gradients reach those too. It is called a second time for each gradient that is taken of it.

    Returns: what the function returns: tensors, or tuples, lists and dicts of them.

    State that the function changes (the numbers of dropout, the statistics of a batch norm) is for the second call what it was before
    the first, and then again what it was, and `amp.autocast` casts as it did; so values and gradients have the bits that they have without
    `checkpoint`. It nests with itself and with all other transformations, and works in a `trace`, whose program computes twice. Inside of
    `vmap` it is for gradients that are taken inside too; those around keep everything.

    Errors: `GradientError` where the second call does not compute the same: it uses other tensors, returns others, or a tensor
        around it
    was changed in between.

    Source: Chen et al., arXiv 1604.06174

    >>> from tengen import autodiff, functional as F, module as M
    >>> blocks, x = M.Sequential(*(M.Linear(8, 8) for _ in range(4))), F.ones((2, 8))
    >>> gm = autodiff.GradManager().attach(blocks.parameters())
    >>> with gm:
    ...     y = x
    ...     for block in blocks:
    ...         y = autodiff.checkpoint(lambda y, block=block: F.gelu(block(y)), y)
    ...     gm.backward(y.sum())
    >>> blocks[0].weight.grad.shape
    (8, 8)
    """
    if not levels:
        return function(*args, **kwargs)
    given = (args, kwargs)
    return _Checkpoint(function, given).first(list(_tensors(given)))


_HOLE = tensor_over(None, None)


class _Checkpoint:
    """A function and its arguments.

    Attributes:
        changes: what the first call changed, with the value before. outside: the places on the tape that it used, besides its
            arguments. cast: how autocast casts its calls, and the parameters that it has cast: a backward walk is
            outside of it. recorder: what recorded the first call; None where nothing did.
    """

    def __init__(self, function: Callable, given: tuple):
        self.function, tensors = function, list(_tensors(given))
        self.given = _rebuilt(given, lambda _: _HOLE)  # the tape keeps their values
        self.taped = [x.dtype.is_inexact and on_tape(x) for x in tensors]
        self.recorder = None if tracing.recorder is None else ref(tracing.recorder)
        self.cast = casting.rule, casting.high, casting.key, casting.made
        self.changes: list[tuple[Tensor, Tensor]] = []
        self.outside: list[Triple] = []

    def first(self, tensors: list[Tensor]) -> Any:
        """The first call: its results, with one node on the tape for all of it."""
        with casts_from_before(), Level() as level, Written() as table:
            copies = [level.copy(x) if t else x for x, t in zip(tensors, self.taped)]
            out = self._call(copies)
            outs = [o for o in _tensors(out) if o.dtype.is_inexact]
            self.outside = _outside(outs, level)
            own = {id(x) for x in (*copies, *outs)}
        self.types = [o._layout.type for o in outs]
        self.changes = [(t, before) for t, before in table.alive() if id(t) not in own]
        if not any(self.taped) and not self.outside:
            return out
        results = [o._off_tape() for o in outs]
        node = (visible_node if limits else TapeNode)(self._rule(len(results)), tuple(map(_placed, tensors)), ())
        if node is None:
            return out
        node.saved += self.outside
        for i, r in enumerate(results):
            r._node = node if len(results) == 1 else (node, i)
        left = iter(results)
        return _rebuilt(out, lambda o: next(left) if o.dtype.is_inexact else o)

    def _call(self, tensors: Sequence[Tensor]) -> Any:
        left = iter(tensors)
        args, kwargs = _rebuilt(self.given, lambda _: next(left))
        return self.function(*args, **kwargs)

    def _rule(self, n_outs: int) -> Any:
        """What the backward walk asks of an op."""
        return FunctionOp("checkpoint", self._again, n_outs)

    def _again(self, grads: Any, *inputs: Tensor, **attrs: Any) -> tuple:
        """The gradients of arguments and of what lies outside, by a second call."""
        seeds = grads if isinstance(grads, tuple) else (grads,)
        now = [(t, t.detach()) for t, _ in self.changes]
        for t, before in self.changes:
            assign(t, _apart(before))
        try:
            xs = [_apart(x) for x in inputs[: len(self.taped)]]
            with Level() as level:
                level.within = walking.level
                copies = [level.copy(x) if t else x for x, t in zip(xs, self.taped)]
                starts = [node_of(x) for x, t in zip(copies, self.taped) if t]
                with casts(*self.cast):
                    made = self._call(copies)
                outs = [o for o in _tensors(made) if o.dtype.is_inexact]
                outside = self._same(outs, level)
                pairs = [(o, s) for o, s in zip(outs, seeds) if s is not None and o._node is not None]
                wanted = [*starts, *map(_place, outside)]
                terms: list[list] = [[] for _ in wanted]  # a tensor may be used several times: each is added by itself, as without this
                gradients([o for o, _ in pairs], [s for _, s in pairs], wanted, level, terms=terms)
        finally:
            for t, value in now:
                assign(t, value)
        each = iter(terms)
        return (*(next(each) if t else None for t in self.taped), *each)

    def _same(self, outs: list[Tensor], level: Level) -> list[Triple]:
        """The places of this call that are those of the first one, in their order. Errors: GradientError where it is not the same."""
        types = [o._layout.type for o in outs]
        if types != self.types:
            raise GradientError(f"checkpoint: the function returned {self.types!r}, and {types!r} when it was called again")
        by_place = {_key(s): s for s in _outside(outs, level)}
        wanted = [_key(s) for s in self.outside]
        if by_place.keys() != set(wanted):
            raise GradientError(
                f"checkpoint: the function used {len(set(wanted))} tensors around it whose gradient is recorded, and "
                f"{len(by_place)}, or others, when it was called again; help: pass what changes as an argument"
            )
        for first, key in zip(self.outside, wanted):
            if not _equal(first, by_place[key]):
                if tracing.recorder is not None and tracing.recorder is not (self.recorder or bool)():
                    tracing.recorder.late = True  # a program of the gradient alone would read what the tensor is then
                    break
                raise GradientError(
                    f"checkpoint: a tensor {first[1].type!r} that the function uses was changed before its gradient was computed; help: "
                    "compute gradients before you update parameters, or pass it as an argument"
                )
        return [by_place[key] for key in wanted]


def _tensors(x: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (tuple, list, dict)):
        for v in x.values() if isinstance(x, dict) else x:
            yield from _tensors(v)


def _rebuilt(x: Any, f: Callable[[Tensor], Any]) -> Any:
    """The same nest with f of its tensors, in the order of `_tensors`."""
    if isinstance(x, Tensor):
        return f(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_rebuilt(v, f) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)([_rebuilt(v, f) for v in x])
    return {k: _rebuilt(v, f) for k, v in x.items()} if isinstance(x, dict) else x


def _placed(x: Tensor) -> Tensor:
    """The tensor with its value of now and its place on the tape."""
    t = x._off_tape()
    t._node = x._node
    return t


def _apart(x: Tensor) -> Tensor:
    """The tensor; while a trace is recorded a copy on the same place, so that what is computed of it is not found to be what the first
    call has computed, and kept."""
    return x if tracing.recorder is None else REGISTRY["copy"](x)


def _outside(outs: Sequence[Tensor], level: Level) -> list[Triple]:
    """What calls since the level began used that was on the tape before: each place once."""
    found: dict[tuple, Triple] = {}
    seen: set[int] = set()
    todo = [n for o in outs if (n := node_of(o)[0]) is not None and n.order > level.order]
    for o in outs:
        node = node_of(o)[0]
        if node is not None and node.order < level.order and is_live(node):  # a tensor from outside is returned as it is
            found.setdefault(_key((None, None, o._node)), (o._data, o._layout, o._node))
    while todo:
        node = todo.pop()
        if id(node) in seen or (node.op is None and node.level is level):
            continue
        seen.add(id(node))
        for s in node.saved:
            if s is None or s[2] is None:
                continue
            below = s[2][0] if isinstance(s[2], tuple) else s[2]
            if below.order > level.order:
                todo.append(below)
            elif is_live(below):
                found.setdefault(_key(s), s)
    return list(found.values())


def _place(s: Triple) -> tuple[TapeNode, int]:
    return s[2] if isinstance(s[2], tuple) else (s[2], 0)


def _key(s: Triple) -> tuple[int, int]:
    """A place, as the gradients that are still recorded see it: the start of one that has ended stands for the place below it."""
    node, index = _place(s)
    while node.op is None and node.saved and not (node.level is not None and node.level.active):
        node, index = _place(node.saved[0])
    return id(node), index


def _equal(a: Triple, b: Triple) -> bool:
    """Whether two saved inputs have the same bits."""
    a, b = (eviction.there(a), eviction.there(b)) if eviction.ever else (a, b)
    if a[0] is b[0] or a[0] is None or b[0] is None:
        return True
    if type(a[0]) is not Buffer or type(b[0]) is not Buffer or a[1].type is not b[1].type:
        return False
    return array_over(*a[:2]).tobytes() == array_over(*b[:2]).tobytes()
