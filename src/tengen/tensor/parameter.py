"""`Parameter`: a tensor that is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.tensor.hooks import HookHandle, put
from tengen.tensor.nodes import leaf_of, leaves
from tengen.tensor.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that modules list among their parameters and optimizers update.

    Attributes:
        name: how files and messages call it. overflow: a 0-d bool that is true where the gradients it belongs to are not finite
            and must not be used, or None; `tengen.amp.GradScaler` sets it. spatial: of a convolution's filter, the axes of
            space (its last ones): what tells a grouped one from one with an axis of space more. None for others. frozen: whether
            `requires_grad` was set to False: no gradient is computed for it.

    >>> Parameter([1.0]).shape
    (1,)
    """

    overflow: Tensor | None = None
    spatial: int | None = None
    frozen = False
    name: Any = None

    def __init__(self, data=None, dtype=None, device=None, is_const=False, no_cache=False, name: str | None = None, format="default"):
        super().__init__(data, dtype, device, is_const, no_cache, name, format)
        self._node = None  # it is nobody's result
        if leaves.parameters and self.dtype.is_inexact:
            leaves.start(self)

    def __copy__(self):
        made = super().__copy__()
        if leaf_of(self) is not None:
            leaves.start(made)
        return made

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Calls hook(gradient) when a `GradManager` has computed the parameter's gradient, before it is added to ``grad``; what it
        returns, if anything, takes the gradient's place. Returns a handle, whose `remove()` takes the hook off.

        >>> from tengen import Parameter, autodiff
        >>> w = Parameter([1.0])
        >>> gm, handle = autodiff.GradManager().attach(w), w.register_hook(lambda g: g * 10.0)
        >>> with gm:
        ...     gm.backward((w * 3.0).sum())
        >>> w.grad.tolist()
        [30.0]
        """
        if not hasattr(self, "_hooks"):
            self._hooks: dict[int, Callable] = {}
        return put(self._hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Calls hook(parameter) when a backward walk has added a gradient to the parameter's ``grad``: PyTorch's method. A parameter
        with such a hook gets its gradient as soon as the walk has passed all calls that used the parameter, while the walk goes on, so
        that a hook that takes ``grad`` away keeps the memory of few gradients. Returns a handle, whose `remove()` takes the hook off.

        >>> from tengen import Parameter, autodiff
        >>> w, norms = Parameter([3.0]), []
        >>> handle = w.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.item()))
        >>> gm = autodiff.GradManager().attach(w)
        >>> with gm:
        ...     gm.backward((w * w).sum())
        >>> norms
        [6.0]
        """
        if not hasattr(self, "_after_hooks"):
            self._after_hooks: dict[int, Callable] = {}
        return put(self._after_hooks, hook)
