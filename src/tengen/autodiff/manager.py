"""GradManager: records what happens to attached tensors, and walks back."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary, ref

from tengen.base.changes import changed
from tengen.base.errors import GradientError, UsageWarning, warn_once
from tengen.tensor import Tensor, tracing
from tengen.tensor.backward import finish
from tengen.tensor.hooks import after_of, hooked, hooks_of
from tengen.tensor.nodes import Level
from tengen.tensor.tape import Place, check_outputs, gradients


class _Attached:
    """One attached tensor, which is held weakly."""

    __slots__ = ("tensor", "callbacks", "place", "stand_ins")

    def __init__(self, tensor: ref[Tensor]):
        self.tensor = tensor
        self.callbacks: list[Callable] = []
        self.place: Place = (None, 0)  # on the tape, while the manager records
        self.stand_ins: list[Tensor] = []  # for an argument of a function that is being traced

_managers: WeakValueDictionary[int, GradManager] = WeakValueDictionary()  # all that there are, by their ids


def attached_elsewhere(tensors: Iterable[Tensor], own: GradManager | None) -> bool:
    """Whether one of the tensors is attached to another manager than `own`."""
    others = [m for r in _managers.valuerefs() if (m := r()) is not None and m is not own and m._attached]  # other threads make some
    return bool(others) and any(id(t) in m._attached for t in tensors for m in others)


class GradManager:
    """Computes gradients of what is calculated in its ``with`` block with respect to attached tensors, but for parameters whose
    ``requires_grad`` is False.

    The gradient is added to each tensor's ``grad`` (None before the first). Managers and `autodiff.grad` nest: each gets the
    gradients of what was calculated in its own block, and where blocks lie in one another, gradients of the inner one can be
    differentiated by the outer one. A manager does not keep the attached tensors alive.

    >>> from tengen import Tensor, autodiff
    >>> x = Tensor([1.0, 2.0])
    >>> gm = autodiff.GradManager().attach([x])
    >>> with gm:
    ...     gm.backward((x * x).sum())
    >>> x.grad.tolist()
    [2.0, 4.0]
    """

    def __init__(self) -> None:
        self._attached: dict[int, _Attached] = {}
        self.level: Level | None = None  # while it records
        self._times = 0  # that something was attached
        _managers[id(self)] = self

    def attach(self, tensors: Tensor | Iterable[Tensor], callbacks: Callable | Sequence[Callable] | None = None) -> GradManager:
        """Tensors whose gradients are wanted; each callback gets (tensor, gradient) and may return another gradient.

        While the manager records, a tensor counts from then on: what was calculated of it before gives it no gradient, unless it is
        itself a result of the block.

        Errors: TypeError for what is no Tensor; GradientError for one of integers
        """
        if not isinstance(tensors, (Tensor, Iterable)):
            raise TypeError(f"attach() takes tensors, got a {type(tensors).__name__}; help: net.parameters()")
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        calls = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
        self._times += 1
        for t in tensors:
            if not isinstance(t, Tensor):
                raise TypeError(f"attach() takes tensors, got a {type(t).__name__}")
            if not t.dtype.is_inexact:
                raise GradientError(f"a tensor of {t.dtype} has no gradient; help: attach float tensors")
            entry = self._attached.get(id(t))
            if entry is None:

                def forget(_, entries=self._attached, key=id(t)):
                    entries.pop(key, None)

                entry = self._attached[id(t)] = _Attached(ref(t, forget))
            entry.callbacks.extend(calls)
            changed()
            if self.level is not None and entry.place[0] is None and not getattr(t, "frozen", False):
                self._start(t, entry)
        return self

    @property
    def version(self) -> int:
        """Another number where other tensors, callbacks or hooks are there."""
        return self._times + hooked.times

    def attached_tensors(self) -> list[Tensor]:
        """The tensors whose gradients are wanted, those of them that still exist."""
        return [t for t, _ in self._entries()]

    def _entries(self) -> list[tuple[Tensor, _Attached]]:
        return [(t, a) for a in list(self._attached.values()) if (t := a.tensor()) is not None and not getattr(t, "frozen", False)]

    def callbacks_of(self, t: Tensor) -> tuple[Callable, ...] | None:
        """The callbacks that a tensor was attached with, and its hooks; None where it is not attached."""
        entry = self._attached.get(id(t))
        return None if entry is None or getattr(t, "frozen", False) else (*entry.callbacks, *hooks_of(t).values(), *after_of(t).values())

    def _start(self, t: Tensor, entry: _Attached) -> None:
        if tracing.recorder is not None:
            entry.stand_ins = tracing.recorder.stand_ins.get(id(t), [])
        entry.place = self.level.start(t, *entry.stand_ins)

    def record(self) -> GradManager:
        """Starts recording; `backward` or `release` ends it. ``with gm:`` does both.

        Errors: GradientError while it records already
        """
        if self.level is not None:
            raise GradientError("this GradManager records already; help: call backward() or release() first")
        if tracing.recorder is not None:
            tracing.recorder.managers[id(self)] = self
        self.level = Level(alone=True)
        for t, entry in self._entries():
            self._start(t, entry)
        return self

    def release(self) -> None:
        """Stops recording and forgets what was recorded."""
        if self.level is None:
            return
        self.level.end()
        self.level = None
        for entry in list(self._attached.values()):
            entry.place, entry.stand_ins = (None, 0), []

    def backward(self, y: Tensor | Sequence[Tensor] | None = None, dy: Tensor | Sequence[Tensor] | None = None) -> None:
        """Adds the gradients of y to the attached tensors' ``grad``; ends recording.

        Args:
            y: a tensor of any shape, or several. dy: the gradient of each y, of its shape; default: ones, so that the gradient of a
                y of several elements is that of its sum.

        What calls had kept for their gradients is let go meanwhile, unless another gradient that is being recorded may need it.

        Errors: `GradientError` when nothing is being recorded, for a y that is no float tensor, and for a dy of another shape.
        """
        if self.level is None:
            raise GradientError("nothing is being recorded; help: compute inside `with gm:`, or call gm.record() first")
        if tracing.recorder is not None:
            tracing.recorder.walks(self)
        ys = [] if y is None else [y] if isinstance(y, Tensor) else list(y)
        seeds: list[Any] = [None] * len(ys) if dy is None else list(dy) if isinstance(dy, (list, tuple)) else [dy]
        check_outputs(ys, seeds)
        lost = [i for i, y in enumerate(ys) if y._node is None] if len(ys) > 1 else []
        entries = [(t, list(e.stand_ins), list(e.callbacks), e.place) for t, e in self._entries()]
        level, early = self.level, []

        def arrived(i: int, g: Tensor) -> None:
            early.append(i)
            t, stand_ins, callbacks, _ = entries[i]
            finish(t, stand_ins, callbacks, g)

        after = arrived if any(after_of(t) for t, *_ in entries) else None
        found = gradients(ys, seeds, [place for *_, place in entries], level, arrived=after)
        self.release()
        if all(g is None for g in found) and not early and not level.awaited:
            _nothing_found(ys, len(entries))
        elif lost:
            warn_once(
                f"backward(): of {len(ys)} results, that at position {lost[0]} ({ys[lost[0]]._layout.type!r}) was not computed from attached "
                "tensors, and adds no gradient; help: leave it out; what goes through numpy(), item() or detach() has no gradient",
                UsageWarning,
            )
        for (t, stand_ins, callbacks, _), g in zip(entries, found):
            if g is not None:
                finish(t, stand_ins, callbacks, g)

    def __or__(self, other: GradManager | GradManagers) -> GradManagers:
        """``with gm | other:`` records for both, as ``with gm, other:`` does."""
        return GradManagers([self]) | other

    def __enter__(self) -> GradManager:
        return self.record()

    def _said(self) -> str:
        tensors = self.attached_tensors()
        count = f"{len(tensors)} {'tensor' if len(tensors) == 1 else 'tensors'} attached, {sum(t.size for t in tensors):,} numbers"
        there = sum(getattr(t, "_grad", None) is not None for t in tensors)
        return f"{count}, {there} with a gradient; {'recording' if self.level is not None else 'not recording'}"

    def __repr__(self) -> str:
        """What is attached, and whether it records."""
        return f"<GradManager: {self._said()}>"

    def _repr_html_(self) -> str:
        """The same for notebooks, with the first few tensors."""
        tensors = self.attached_tensors()
        rows = "".join(f"<li><code>{html.escape(f'{t.name or type(t).__name__}: {t._layout.type!r}')}</code></li>" for t in tensors[:20])
        rows += f"<li>&hellip; {len(tensors) - 20} more</li>" if len(tensors) > 20 else ""
        return f"<div><code>GradManager</code> {self._said()}" + (f"<details><ul>{rows}</ul></details></div>" if rows else "</div>")

    def __exit__(self, *exc) -> None:
        self.release()


class GradManagers:
    """What ``gm | other`` gives: managers that record together in one ``with`` block.

    >>> from tengen import Tensor, autodiff
    >>> x = Tensor([1.0, 2.0])
    >>> gm, other = (autodiff.GradManager().attach([x]) for _ in range(2))
    >>> with gm | other:
    ...     y = x * x
    ...     gm.backward(y)
    ...     other.backward(y)
    >>> x.grad.tolist()
    [4.0, 8.0]
    """

    def __init__(self, managers: Iterable[GradManager]) -> None:
        self.managers = list(managers)

    def __or__(self, other: GradManager | GradManagers) -> GradManagers:
        if not isinstance(other, (GradManager, GradManagers)):
            return NotImplemented
        return GradManagers([*self.managers, *(other.managers if isinstance(other, GradManagers) else [other])])

    def __enter__(self) -> GradManagers:
        for at, gm in enumerate(self.managers):
            try:
                gm.record()
            except BaseException:
                for begun in self.managers[:at]:
                    begun.release()
                raise
        return self

    def __exit__(self, *exc) -> None:
        for gm in reversed(self.managers):
            gm.release()


def _nothing_found(ys: Sequence[Tensor], attached: int) -> None:
    """Warns that a walk reached none of the attached tensors."""
    types = ", ".join(repr(y._layout.type) for y in ys)
    if attached == 0:
        why, cure = "nothing is attached to this GradManager", "gm.attach(net.parameters())"
    else:
        why = f"none of the {attached} attached tensors has a part in it"
        cure = "compute it from them inside of `with gm:`; what goes through numpy(), item() or detach() has no gradient"
    warn_once(f"backward({types}) added no gradient, because {why}; help: {cure}", UsageWarning)
