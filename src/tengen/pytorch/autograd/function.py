"""`torch.autograd.Function`: static methods forward(ctx, ...) and backward(ctx, ...), called by `apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import autodiff
from tengen.base.errors import ArgumentError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.nodes import on_tape
from tengen.tensor.parts import reset
from tengen.tensor.saved import Packed, kept, packing
from tengen.tensor.tensor import tensor_over


class Context:
    """What `forward` keeps for `backward`: any attribute, and tensors by `save_for_backward`."""

    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple = ()
    _fixed: tuple = ()
    _dirty: tuple = ()
    _layouts: list | None = None
    _zeros = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors, inputs or outputs, as `saved_tensors`; inside of `saved_tensors_hooks` as these say."""
        self._saved = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` was given."""
        return tuple([tensor_over(*t.memory(of)) if isinstance(t, Packed) else t for t, of in zip(self._saved, self._layouts or self._saved)])

    def _pack(self) -> None:
        self._layouts = [getattr(t, "_layout", None) for t in self._saved]
        self._saved = tuple([kept(t) if isinstance(t, Tensor) else t for t in self._saved])

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Says which outputs require no gradient, whatever the inputs do."""
        self._fixed = outputs

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Says which inputs `forward` has written and returns: outside of it too they are these outputs from now on."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients of outputs that nobody uses are zeros rather than None."""
        self._zeros = bool(value)


def _place(x: Any, among: tuple) -> int | None:
    return next((i for i, y in enumerate(among) if y is x), None)


def _origin(t: Any, outs: tuple, inputs: tuple) -> tuple[str, int] | None:
    """Which output or input of a call a saved tensor is; None for another tensor."""
    of = [("output", i) for i, o in enumerate(outs) if o is t] + [("input", i) for i, x in enumerate(inputs) if x is t]
    return of[0] if of and isinstance(t, Tensor) else None


class _Applied(autodiff.Function):
    """One call of a PyTorch Function as one of Tengen's."""

    def __init__(self, owner: type[Function], needs: tuple[bool, ...]):
        super().__init__()
        self.owner, self.context = owner, Context()
        self.context.needs_input_grad = needs
        self._written: list = []  # (position among the inputs, position among the outputs) of what `mark_dirty` was given

    def _name(self) -> str:
        return self.owner.__name__

    def forward(self, *inputs: Any) -> Any:
        if "setup_context" not in vars(self.owner):
            out = self.owner.forward(self.context, *inputs)
        else:
            out = self.owner.forward(*inputs)
            self.owner.setup_context(self.context, inputs, out)
        outs = out if isinstance(out, tuple) else (out,)
        self._outputs = [o.shape for o in outs]
        self._dtypes = [o.dtype for o in outs]
        self._differentiable = [not any(o is f for f in self.context._fixed) for o in outs]
        self._written = [(_place(x, inputs), _place(x, outs)) for x in self.context._dirty]
        if any(None in places for places in self._written):
            raise ArgumentError(f"{self._name()}: forward() has to return what it gives to ctx.mark_dirty, which are inputs")
        self._origins = [_origin(t, outs, inputs) for t in self.context._saved]
        if packing:
            self.context._pack()
        return out

    def _on_tape(self, outs: tuple[Tensor, ...], inputs: tuple, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        made = super()._on_tape(outs, inputs, tensors)
        return tuple([o if differs else o._off_tape() for o, differs in zip(made, self._differentiable)])

    def _rule(self, n_outs: int, inputs: tuple) -> Any:
        """The rule of the call. While a gradient of the gradient is recorded, saved inputs are those on the tape, and saved outputs are
        computed from them once more."""
        node = super()._rule(n_outs, inputs)
        plain = node.rules.vjp

        def rule(g: Any, *xs: Tensor, **attrs: Any) -> tuple:
            if not any(map(on_tape, xs)):
                return plain(g, *xs, **attrs)
            rest, kept = iter(xs), self.context._saved
            given = tuple(next(rest) if isinstance(x, Tensor) else x for x in inputs)
            made: Any = self.owner.apply(*given) if any(o is not None and o[0] == "output" for o in self._origins) else ()
            by = {"input": given, "output": made if isinstance(made, tuple) else (made,)}
            self.context._saved = tuple(t if o is None else by[o[0]][o[1]] for t, o in zip(kept, self._origins))
            try:
                return plain(g, *xs, **attrs)
            finally:
                self.context._saved = kept

        node.rules.vjp = rule
        return node

    def backward(self, *grads: Any) -> Any:
        if self.context._zeros:
            of = zip(grads, self._outputs, self._dtypes)
            grads = tuple(REGISTRY["zeros"](s, d) if g is None else g for g, s, d in of)
        found = self.owner.backward(self.context, *grads)
        return found


class Function:
    """An operation with a gradient of the user's own: static methods ``forward(ctx, *inputs)``, or ``forward(*inputs)`` with
    ``setup_context(ctx, inputs, output)``, and ``backward(ctx, *grads)``, which returns a gradient or None for each input.

    >>> class Double(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         return dy * 100
    >>> x = Tensor([1.0]).requires_grad_()
    >>> Double.apply(x).backward()
    >>> x.grad.tolist()
    [100.0]
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    setup_context: Callable[..., Any]

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """The call, recorded with its gradient.

        Errors: ArgumentError where `mark_dirty` was given what is no input, or no output; GradientError for a leaf among these
        """
        needs = tuple(isinstance(x, Tensor) and on_tape(x) for x in inputs)
        call = _Applied(cls, needs)
        out = call(*inputs)
        if not call._written:
            return out
        outs = list(out) if isinstance(out, tuple) else [out]
        for i, o in call._written:
            reset(inputs[i], outs[o])
            outs[o] = inputs[i]
        return tuple(outs) if isinstance(out, tuple) else outs[0]


def once_differentiable(fn: Callable) -> Callable:
    """The function itself."""
    return fn


FunctionCtx = Context  # PyTorch's name, for type hints

__all__ = ["Context", "Function", "FunctionCtx", "once_differentiable"]
