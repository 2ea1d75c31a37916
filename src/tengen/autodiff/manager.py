"""GradManager: records what happens to attached tensors, and walks back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any

from tengen.base.changes import changed
from tengen.base.errors import GradientError
from tengen.ops.define import REGISTRY
from tengen.tape import gradients, leaf
from tengen.tensor import Tensor, _restored

_active: list[GradManager] = []


def _nested() -> bool:
    """Whether the calling thread records with more than one manager, so that a backward walk is itself to be recorded."""
    return sum(m._thread == get_ident() for m in _active) > 1


class GradManager:
    """Computes gradients of what is calculated in its ``with`` block with respect to attached tensors.

    The gradient is added to each tensor's ``grad`` (None before the first).

    >>> from tengen import Tensor, autodiff
    >>> x = Tensor([1.0, 2.0])
    >>> gm = autodiff.GradManager().attach([x])
    >>> with gm:
    ...     gm.backward((x * x).sum())
    >>> x.grad.tolist()
    [2.0, 4.0]
    """

    def __init__(self) -> None:
        self._attached: dict[int, tuple[Tensor, list[Callable]]] = {}
        self._before: list[tuple[Tensor, Any]] | None = None
        self._leaves: dict[int, Tensor] = {}
        self._thread = 0

    def attach(self, tensors: Tensor | Iterable[Tensor], callbacks: Callable | Sequence[Callable] | None = None) -> GradManager:
        """Tensors whose gradients are wanted; each callback gets (tensor, gradient) and may return another gradient."""
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        calls = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
        for t in tensors:
            if not isinstance(t, Tensor):
                raise TypeError(f"attach() takes tensors, got a {type(t).__name__}")
            if not t.dtype.is_float:
                raise GradientError(f"a tensor of {t.dtype} has no gradient; help: attach float tensors")
            self._attached.setdefault(id(t), (t, []))[1].extend(calls)
            changed()
            if self._before is not None and not any(x is t for x, _ in self._before):
                self._start(t)
        return self

    def attached_tensors(self) -> list[Tensor]:
        """The tensors whose gradients are wanted."""
        return [t for t, _ in self._attached.values()]

    def callbacks_of(self, t: Tensor) -> tuple[Callable, ...] | None:
        """What is called with an attached tensor's gradient; None for a tensor that is not attached."""
        return tuple(self._attached[id(t)][1]) if id(t) in self._attached else None

    def _start(self, t: Tensor) -> None:
        self._before.append((t, t._node))  # type: ignore[union-attr]
        if t._node is None:
            leaf(t)
        self._leaves[id(t)] = _restored(None, t._layout, t._node)  # its place on the tape, should it be changed in place

    def record(self) -> GradManager:
        """Starts recording; `backward` or `release` ends it. ``with gm:`` does both."""
        if self._before is not None:
            raise GradientError("this GradManager records already; help: call backward() or release() first")
        self._before, self._thread = [], get_ident()
        _active.append(self)
        for t, _ in self._attached.values():
            self._start(t)
        return self

    def release(self) -> None:
        """Stops recording and forgets what was recorded."""
        if self._before is None:
            return
        for t, node in self._before:
            t._node = node
        self._before = None
        self._leaves = {}
        _active.remove(self)

    def backward(self, y: Tensor | Sequence[Tensor] | None = None, dy: Tensor | Sequence[Tensor] | None = None) -> None:
        """Adds the gradients of y (weighted by dy; 1 for a y of one element) to the attached tensors' ``grad``; ends recording.

        What calls had kept for their gradients is let go meanwhile, unless another manager records this walk.

        Errors: `GradientError` when nothing is being recorded, or a y of several elements comes without dy.
        """
        if self._before is None:
            raise GradientError("nothing is being recorded; help: compute inside `with gm:`, or call gm.record() first")
        ys = [] if y is None else [y] if isinstance(y, Tensor) else list(y)
        seeds: list[Any] = [None] * len(ys) if dy is None else [dy] if isinstance(dy, Tensor) else list(dy)
        if len(seeds) != len(ys):
            raise GradientError(f"{len(ys)} outputs and {len(seeds)} gradients")
        tensors = self.attached_tensors()
        found = gradients(ys, seeds, [self._leaves[id(t)] for t in tensors], create_graph=_nested())
        self.release()
        for t, g in zip(tensors, found):
            for callback in self._attached[id(t)][1]:
                if g is not None:
                    r = callback(t, g)
                    g = g if r is None else r
            if g is not None:
                t.grad = g if t.grad is None else REGISTRY["add"](t.grad, g)

    def __enter__(self) -> GradManager:
        return self.record()

    def __exit__(self, *exc) -> None:
        self.release()
