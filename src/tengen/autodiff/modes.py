"""`no_grad` and `enable_grad`: whether what is computed in a block is recorded for the gradients around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

from tengen.tensor.nodes import levels, limits, new_limit


class _Mode:
    """A block, as ``with mode():``, or a function, as ``@mode`` or ``@mode()``."""

    def __new__(cls, function: Callable | None = None) -> Any:
        made = super().__new__(cls)
        made._before = []
        return made if function is None else made(function)

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return run

    def _set(self, limit: int | None) -> None:
        self._before.append(limits.get(get_ident()))
        _put(limit)

    def __exit__(self, *exc: object) -> None:
        before = self._before.pop()
        if before is not None and not any(level.order > before for level in levels):
            before = new_limit()  # what an `enable_grad` has recorded inside of a `no_grad` is hidden from what follows
        _put(before)


def _put(limit: int | None) -> None:
    if limit is None:
        limits.pop(get_ident(), None)
    else:
        limits[get_ident()] = limit


class no_grad(_Mode):
    """A block, or a function, in which nothing is recorded for the gradients around it: PyTorch's name.

    Results are off the tape, as if each had been detached, and keep nothing in memory; an attached tensor that is written stays
    attached. Outside of ``with gm:`` nothing is recorded anyway. A gradient that begins inside of the block (`grad`, a
    `GradManager`) is whole. It holds for the calling thread, and nests with `enable_grad`.

    >>> from tengen import Tensor, autodiff
    >>> x = Tensor([2.0])
    >>> with autodiff.GradManager().attach(x) as gm:
    ...     y = x * x
    ...     with autodiff.no_grad():
    ...         target = y * 10.0
    ...     gm.backward((y * target).sum())
    >>> x.grad.tolist()
    [160.0]
    """

    def __enter__(self) -> None:
        self._set(new_limit())


def unless_recorded() -> enable_grad | None:
    """Inside of a `no_grad`, a block in which calls are recorded; None elsewhere."""
    return enable_grad() if limits.get(get_ident()) else None


class enable_grad(_Mode):
    """A block, or a function, inside of `no_grad` in which calls are recorded again: PyTorch's name. It begins no recording by itself;
    ``with gm:`` does.

    >>> from tengen import Tensor, autodiff
    >>> def f(x):
    ...     with autodiff.no_grad():
    ...         a = x * x
    ...         with autodiff.enable_grad():
    ...             return (x * a).sum()
    >>> autodiff.grad(f)(Tensor([3.0])).tolist()
    [9.0]
    """

    def __enter__(self) -> None:
        self._set(None)
