"""Whether gradients are recorded, under PyTorch's names."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from tengen.autodiff import enable_grad, no_grad
from tengen.base.arguments import flags_of_functions
from tengen.tensor.nodes import limits, new_limit


def is_grad_enabled() -> bool:
    """Whether what this thread computes is recorded for gradients.

    >>> with no_grad():
    ...     is_grad_enabled()
    False
    """
    return get_ident() not in limits


def _record(mode: bool) -> int | None:
    """Sets whether this thread records; returns what was set before."""
    before = limits.get(get_ident())
    if mode:
        limits.pop(get_ident(), None)
    elif before is None:
        limits[get_ident()] = new_limit()
    return before


class set_grad_enabled:
    """Sets at once whether gradients are recorded; as a context manager, until the end of the block.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self._before = _record(self.mode)

    def __enter__(self) -> None:
        """The mode is set already."""

    def __exit__(self, *exc: object) -> None:
        _record(self._before is None)


def inference_mode(mode: Any = True) -> Any:
    """`no_grad`, as a block or a decorator; with mode=False a block that changes nothing."""
    if callable(mode):
        return no_grad(mode)
    return no_grad() if mode else enable_grad()


def is_inference_mode_enabled() -> bool:
    """Whether nothing is recorded: here as `is_grad_enabled` says."""
    return not is_grad_enabled()


__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled"]
flags_of_functions(globals(), __all__)
