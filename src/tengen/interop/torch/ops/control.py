"""Ops with graphs of their own: branches, loops, and parts without gradients. Graphs are given their operands; they read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tengen.functional as F
from tengen.autodiff import no_grad
from tengen.interop.torch.dtypes import tensor
from tengen.interop.torch.registry import SCOPED, op
from tengen.tensor import Tensor, tracing


def higher_order(name: str) -> Callable[[Callable], Callable]:
    """An op with graphs, which is also given `run(graph, inputs)`."""

    def enter(f: Callable) -> Callable:
        SCOPED.add(f)
        return op(name, domain="higher_order")(f)

    return enter


def _recording() -> bool:
    return tracing.active is not None and tracing.recorder is not None


def _tensors(values: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(tensor(v) for v in values)


@higher_order("cond")
def cond(condition: Any, then: Any, otherwise: Any, operands: Sequence[Any] = (), *, run: Callable) -> tuple[Any, ...]:
    """One of two graphs of the operands."""
    if not isinstance(condition, Tensor) or not _recording():
        return tuple(run(then if bool(condition) else otherwise, operands))
    branch = lambda g: lambda *xs: _tensors(run(g, xs))
    return tuple(F.cond(condition.reshape(()), branch(then), branch(otherwise), *operands))


@higher_order("while_loop")
def while_loop(go: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = (), *, run: Callable) -> tuple[Any, ...]:
    """A graph of the state and of further operands as long as another one is true."""
    if not _recording():
        state = list(carried)
        while bool(run(go, [*state, *more])[0] if isinstance(go.outputs, list) else run(go, [*state, *more])):
            state = list(run(body, [*state, *more]))
        return tuple(state)

    def condition(*xs: Tensor) -> Tensor:
        made = run(go, [*xs, *more])
        return (made[0] if isinstance(made, list) else made).reshape(())

    return tuple(F.while_loop(condition, lambda *xs: _tensors(run(body, [*xs, *more])), *_tensors(carried)))


@higher_order("scan")
def scan(combine: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = (), *, run: Callable) -> tuple[Any, ...]:
    """A graph over the slices of sequences, carrying a state: (the last state, what it gave besides, stacked)."""
    count = len(init)

    def once(carried: tuple, now: tuple) -> tuple[tuple, tuple]:
        made = _tensors(run(combine, [*carried, *now, *more]))
        return made[:count], made[count:]

    last, stacked = F.scan(once, _tensors(init), tuple(xs))
    return (*last, *stacked)


@higher_order("wrap_with_set_grad_enabled")
def with_gradients(enabled: bool, graph: Any, *operands: Any, run: Callable) -> tuple[Any, ...]:
    """A part whose results have gradients or not."""
    if enabled:
        return tuple(run(graph, operands))
    with no_grad():
        made = run(graph, operands)
    return tuple(v.detach() if isinstance(v, Tensor) else v for v in made)


@higher_order("wrap_with_autocast")
def with_autocast(
    device: str, dtype: Any, enabled: bool, cache: Any, graph: Any, *operands: Any, run: Callable
) -> tuple[Any, ...]:
    """A part that PyTorch would compute in another precision; here `amp.autocast` decides. Casts of the program are its own nodes."""
    return tuple(run(graph, operands))
