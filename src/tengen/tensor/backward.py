"""The walk from a result back to the leaves that it was computed from: `backward`, `grad`, `retain_grad` of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from tengen.base.errors import GradientError
from tengen.ops.define import REGISTRY
from tengen.tensor.hooks import after_of, called, hooks_of
from tengen.tensor.nodes import SPENT, TapeNode, leaf_of, leaves, node_of, on_tape
from tengen.tensor.recording import tracing
from tengen.tensor.tape import Arrived, Place, check_outputs, gradients
from tengen.tensor.tensor import Tensor


class _Asker:
    """Who asks for gradients of leaves that are to be differentiated again: the walk is recorded, since it is not their own level's."""

    owed: tuple = ()
    awaited: tuple = ()

    def __init__(self, order: int):
        self.order = order


def _below(ts: Sequence[Tensor], ends: Sequence[Tensor] = ()) -> list[tuple[TapeNode, Tensor | None]]:
    """The leaves that results were computed from: (start node, tensor), None for one that nobody holds any more, in the order of their use.
    What `ends` were computed from is left out.

    Errors: GradientError where a walk has let go of what the gradient needs
    """
    found: dict[int, tuple[TapeNode, Tensor | None]] = {}
    passed = {id(node_of(t)[0]) for t in ends}
    stack = [n for t in ts if (n := node_of(t)[0]) is not None]
    seen = {id(n) for n in stack}
    while stack:
        n = stack.pop()
        if id(n) in passed:
            continue
        if n.attrs is SPENT:
            raise GradientError(
                f"{ts[0]._layout.type!r} was computed from results that backward() has passed already, which let go of what their gradients "
                f"need (of {n.op.name!r}); help: retain_graph=True in the first backward(), or y.detach() to end the gradient there"
            )
        if n.op is None and isinstance(n.attrs, ref):
            found[id(n)] = (n, n.attrs())
        for m in n.parents():
            if id(m) not in seen:
                seen.add(id(m))
                stack.append(m)
    return list(found.values())


def _found(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], places: Sequence[Place], retain: bool | None, create: bool,
    arrived: Arrived | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """Gradients by the leaves' level, of which what was owed to other processes is paid then."""
    level = leaves.level
    assert level is not None
    try:
        return gradients(outputs, seeds, places, _Asker(level.order) if create else level, create if retain is None else retain, arrived)
    finally:
        level.owed, level.awaited = [], []


def _check(outputs: Sequence[Tensor], seeds: Sequence[Tensor | None]) -> None:
    check_outputs(outputs, seeds)
    for y, seed in zip(outputs, seeds):
        if seed is None and y.size != 1:
            raise GradientError(f"backward() of {y._layout.type!r}, which has more than one element; help: y.sum(), or gradient=, of its shape")
        if not on_tape(y):
            raise GradientError(
                f"{y._layout.type!r} was not computed from tensors that require gradients, or an earlier backward() has let go what it needs; "
                "help: net.requires_grad_() once, or with tengen.pytorch nothing; retain_graph=True to walk twice; with a GradManager "
                "gm.backward(loss)"
            )
    if tracing.recorder is not None:
        tracing.recorder.walks_to_leaves()


def backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Adds the gradient of this tensor to ``grad`` of every leaf that it was computed from: PyTorch's method. See `requires_grad`.

    Args:
        gradient: of this tensor, of its shape; default: 1, for a tensor of one element. retain_graph: whether what the walk needs is kept
            for another one; default: create_graph. create_graph: whether the gradients can be differentiated themselves. inputs: the
            leaves that get a gradient; default: all.
    Errors: GradientError for a tensor of several elements without gradient=, and one that was not computed from leaves.

    >>> from tengen import Parameter
    >>> w = Parameter([1.0, 2.0]).requires_grad_()
    >>> (w * w).sum().backward()
    >>> w.grad.tolist()
    [2.0, 4.0]
    """
    _check([self], [gradient])
    reached = _below([self])
    if inputs is not None:
        wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        reached = [(n, t) for n, t in reached if t is not None and any(t is w for w in wanted)]
        if len(reached) < len(wanted):
            raise GradientError(f"backward(inputs=): {len(wanted) - len(reached)} of the {len(wanted)} tensors are no leaves of this result")
    if not reached:
        raise GradientError(
            f"{self._layout.type!r} was computed from tensors of a GradManager alone; help: gm.backward(loss); after optimizer.zero_grad(), "
            "which begins to record, optimizer.backward(loss); net.requires_grad_() once for this method"
        )

    def arrived(i: int, g: Tensor) -> None:
        t = reached[i][1]
        if t is None:
            return
        finish(t, tracing.recorder.stand_ins.get(id(t), []) if tracing.recorder is not None else [], (), g)

    early = arrived if any(t is not None and after_of(t) for _, t in reached) else None
    for i, g in enumerate(_found([self], [gradient], [(n, 0) for n, _ in reached], retain_graph, create_graph, early)):
        if g is not None:
            arrived(i, g)


def finish(t: Tensor, stand_ins: Sequence[Tensor], callbacks: Sequence[Callable], g: Tensor) -> None:
    """A tensor's gradient is there: it goes through callbacks and hooks, is added to those that the tensor has, and is shown to the hooks
    that come after."""
    shown = stand_ins[0] if stand_ins else t  # a traced function knows its argument by what stands in for it
    for callback in callbacks:
        r = callback(shown, g)
        g = g if r is None else r
    for hook in list(hooks_of(t).values()):
        g = called(hook, g)
    accumulate(t, stand_ins, g)
    for hook in list(after_of(t).values()):
        hook(shown)


def accumulate(t: Tensor, stand_ins: Sequence[Tensor], g: Tensor) -> None:
    """Adds a gradient to those that a tensor has; inside of a trace to those of what stands in for it."""
    shown = stand_ins[0] if stand_ins else t  # a traced function knows its argument by what stands in for it
    g = g if shown.grad is None else REGISTRY["add"](shown.grad, g)
    for x in stand_ins or [t]:
        x.grad = g


def grad(
    outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the sum of outputs with respect to inputs, which are leaves or results of theirs: PyTorch's `torch.autograd.grad`.

    Args: grad_outputs: gradients of the outputs; default: 1 of those of one element. retain_graph, create_graph: see `backward`.
        allow_unused: whether None may stand for an input that no output depends on.
    Errors: GradientError, as of `backward`, and for an input that is not used.

    >>> from tengen import Tensor
    >>> x = Tensor([3.0]).requires_grad_()
    >>> (first,) = grad((x * x * x).sum(), x, create_graph=True)
    >>> first.tolist(), grad(first.sum(), x)[0].tolist()
    ([27.0], [18.0])
    """
    ys, xs = ([v] if isinstance(v, Tensor) else list(v) for v in (outputs, inputs))
    given = [None] * len(ys) if grad_outputs is None else [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    _check(ys, given)
    for x in xs:
        if not on_tape(x):
            raise GradientError(f"grad(): the input {x._layout.type!r} requires no gradient; help: x.requires_grad_() before it is used")
    _below(ys, xs)
    found = _found(ys, given, [node_of(x) for x in xs], retain_graph, create_graph)
    for i, (x, g) in enumerate(zip(xs, found)):
        for hook in list(hooks_of(x).values()) if g is not None else ():
            found[i] = called(hook, found[i])
    if not allow_unused and None in found:
        at = found.index(None)
        raise GradientError(f"grad(): no output depends on the input at position {at}; help: allow_unused=True gives None for it")
    return tuple(found)


def retain_grad(self: Tensor) -> None:
    """Makes `backward` keep the gradient of this result in its ``grad``, as it does for leaves. Errors: GradientError for one that
    requires none."""
    if not on_tape(self):
        raise GradientError(
            f"retain_grad() of {self._layout.type!r}, for which no gradient is recorded; help: x.requires_grad_() before it is computed"
        )
    node, index = node_of(self)
    if leaf_of(self) is not None:
        return
    kept = ref(self)

    def keep(g: Tensor) -> None:
        if (t := kept()) is not None:
            accumulate(t, [], g)

    if not hasattr(node, "hooks"):
        node.hooks = {}
    node.hooks[-1 - index] = (index, keep)
