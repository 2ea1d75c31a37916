"""Hooks on the gradients that pass through a module: its inputs and outputs go through functions that change nothing, and whose gradients
the hooks are given.

In: a module's positional inputs, its outputs. Out: the same tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tengen.autodiff import Function
from tengen.base.errors import GradientError
from tengen.tensor import Tensor
from tengen.tensor.nodes import on_tape


class WithKeywords(functools.partial):
    """A hook that is called with the keyword arguments of the module's call, too: a partial, so that traces see what the hook reads."""


class Always(functools.partial):
    """A forward hook that is called, with None as the outputs, where forward raises an error, too."""


class AlwaysWithKeywords(WithKeywords):
    """`Always` and `WithKeywords`."""


def forward_hook(hook: Callable, with_kwargs: bool, always_call: bool) -> Callable:
    """The hook as `Module.register_forward_hook` keeps it."""
    kinds = {(True, True): AlwaysWithKeywords, (True, False): WithKeywords, (False, True): Always}
    kind = kinds.get((with_kwargs, always_call))
    return hook if kind is None else kind(hook)


def call_in_spite_of(error: Exception, hooks: Sequence[Callable], module: Any, inputs: tuple, kwargs: dict) -> None:
    """Calls the forward hooks that are to be called always, where forward has raised an error; that notes what they raise."""
    for hook in hooks:
        if isinstance(hook, (Always, AlwaysWithKeywords)):
            try:
                hook(module, inputs, *([kwargs] if isinstance(hook, WithKeywords) else ()), None)
            except Exception as other:
                error.add_note(f"then a forward hook of {type(module).__name__} raised {type(other).__name__}: {other}")


class BackwardWatch:
    """One call of a module with backward hooks.

    Attributes:
        grad_output: the gradients of the outputs, once the walk has come there.
    """

    def __init__(self, module: Any, hooks: Sequence[Callable], before: Sequence[Callable] = ()):
        self.module, self.hooks, self.before = module, hooks, before
        self.grad_output: tuple = ()
        self._inputs = 0
        self._waits = False  # for gradients of inputs

    def entering(self, inputs: tuple) -> tuple:
        """The inputs, watched."""
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        self._inputs, self._waits = len(tensors), any(on_tape(x) for x in tensors)
        return _through(self.of_inputs, inputs) if self._waits else inputs

    def leaving(self, out: Any) -> Any:
        """The outputs, watched: a tensor, or a tuple or a list of them."""
        if isinstance(out, (tuple, list)) and not hasattr(out, "_fields"):
            return type(out)(_through(self.of_outputs, tuple(out)))
        return _through(self.of_outputs, (out,))[0]

    def of_outputs(self, *grads: Tensor | None) -> tuple:
        """The gradients of the outputs are there: asks the hooks that come before the walk through the module for others."""
        for hook in self.before:
            grads = self._changed(grads, hook(self.module, grads))
        self.grad_output = grads
        if not self._waits:
            self.of_inputs(*[None] * self._inputs)
        return grads

    def of_inputs(self, *grads: Tensor | None) -> tuple:
        """The gradients of the inputs are there: asks the hooks for others."""
        for hook in self.hooks:
            grads = self._changed(grads, hook(self.module, grads, self.grad_output))
        return grads

    def _changed(self, grads: tuple, new: Any) -> tuple:
        """The gradients that a hook has returned; those that there were where it has returned None."""
        if new is None:
            return grads
        new = new if isinstance(new, tuple) else (new,)
        types = lambda gs: [None if g is None else getattr(g, "_layout", g) and g._layout.type for g in gs]
        if not all(g is None or isinstance(g, Tensor) for g in new) or types(new) != types(grads):
            raise GradientError(
                f"a backward hook of {type(self.module).__name__} made {_said(new)} of the gradients {_said(grads)}; help: as many, of "
                "the same shapes and dtypes, or None for no change"
            )
        return new


def _said(gs: Sequence) -> str:
    return f"({', '.join(repr(g._layout.type) if isinstance(g, Tensor) else repr(g) for g in gs)})"


class _Same(Function):
    _is_recorded = False  # a hook is called in every backward

    def __init__(self, seen: Callable):
        self.seen = seen

    def _name(self) -> str:
        return "a module's backward hook"

    def forward(self, *xs: Any) -> Any:
        return xs if len(xs) > 1 else xs[0]

    def backward(self, *grads: Any) -> Any:
        return self.seen(*grads)


def _through(seen: Callable, values: tuple) -> tuple:
    """The values; what is a float tensor among them goes through a function whose gradient `seen` is given."""
    floats = [x for x in values if isinstance(x, Tensor) and x.dtype.is_float]
    if not floats:
        return values
    made = _Same(seen)(*floats)
    rest = iter(made if isinstance(made, tuple) else (made,))
    return tuple(next(rest) if isinstance(x, Tensor) and x.dtype.is_float else x for x in values)
