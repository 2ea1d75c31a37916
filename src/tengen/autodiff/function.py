"""`Function`: an operation with a gradient of the user's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tengen.base.errors import GradientError
from tengen.tensor import Tensor
from tengen.tensor.nodes import Level, TapeNode, levels, on_tape
from tengen.tensor.tape import cut


def _with_node(x: Tensor) -> Tensor:
    t = x.detach()
    t._node = x._node
    return t


class Function:
    """Subclass it with `forward(*inputs)` and `backward(*output_grads)`, and call an instance. `backward` returns the
    gradient of each input, or None; what it needs, `forward` keeps on self.

    Gradients of gradients differentiate `backward`, also by what `forward` kept.

    Errors: `GradientError` where `forward` uses a tensor that a gradient is recorded for and that is not among the inputs:
    `backward` has no place for it. Pass it as an input, or `detach()` it. Also for a number of gradients that does not fit.

    >>> from tengen import Tensor, autodiff
    >>> class Clipped(autodiff.Function):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def backward(self, dy):
    ...         return dy * 100
    >>> autodiff.grad(lambda x: Clipped()(x).sum())(Tensor([1.0])).tolist()
    [100.0]
    """

    def forward(self, *inputs: Any) -> Any:
        """Computes the outputs, off the tape of the innermost gradient."""
        raise NotImplementedError(f"{type(self).__name__} needs forward()")

    def backward(self, *grads: Any) -> Any:
        """Computes the inputs' gradients."""
        raise NotImplementedError(f"{type(self).__name__} needs backward()")

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        nested = len(levels) > 1  # what forward() keeps may be differentiated
        given = [x.detach() for x in tensors]
        with Level() as level:
            starts = [level.start(t)[0] for t in given] if nested else []
            rest = iter(given)
            out = self.forward(*(next(rest) if isinstance(x, Tensor) else x for x in inputs))
            outs = out if isinstance(out, tuple) else (out,)
            if any(o._node is not None for o in cut([o for o in outs if isinstance(o, Tensor)], level)):
                raise GradientError(
                    f"{type(self).__name__}.forward() uses a tensor whose gradient is being recorded and that is not among its inputs, "
                    "so that the gradient would be lost; help: pass it as an input, or detach() it"
                )
            for start, x in zip(starts, tensors):  # now they lead to the inputs
                start.saved = [(None, x._layout, x._node)] if x._node is not None else []  # type: ignore[union-attr]
        for t, x in zip(given, tensors):
            t._node = x._node if nested and t._data is x._data else t._node
        if not any(on_tape(x) for x in tensors):
            return out
        outs = tuple(o.detach() for o in outs)
        node = TapeNode(self._rule(len(outs), inputs), tuple(_with_node(x) for x in tensors), ())
        for i, o in enumerate(outs):
            o._node = node if len(outs) == 1 else (node, i)
        return outs if isinstance(out, tuple) else outs[0]

    def _rule(self, n_outs: int, inputs: tuple) -> Any:
        """What the backward walk asks of an op."""
        which = [i for i, x in enumerate(inputs) if isinstance(x, Tensor)]

        def rule(g, *xs, **attrs):
            r = self.backward(*(g if isinstance(g, tuple) else (g,)))
            r = r if isinstance(r, tuple) else (r,)
            if len(r) not in (len(inputs), len(which)):
                raise GradientError(f"{type(self).__name__}.backward() gave {len(r)} gradients for {len(inputs)} inputs")
            return tuple(r[i] for i in which) if len(r) == len(inputs) else r

        return SimpleNamespace(
            name=type(self).__name__, kind="function", rules=SimpleNamespace(vjp=rule), saves_output=False, n_outputs=n_outs,
            canonical=lambda types, attrs: {}, infer_types=lambda types, attrs: (None,) * n_outs,
        )  # fmt: skip
