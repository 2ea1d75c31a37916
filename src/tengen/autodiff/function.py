"""`Function`: an operation with a gradient of the user's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tengen.tape import node_of
from tengen.tensor import Node, Tensor


def _with_node(x: Tensor) -> Tensor:
    t = x.detach()
    t._node = x._node
    return t


class Function:
    """Subclass it with `forward(*inputs)` and `backward(*output_grads)`, and call an instance. `backward` returns the
    gradient of each input, or None; what it needs, `forward` keeps on self.

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
        """Computes the outputs, off the tape."""
        raise NotImplementedError(f"{type(self).__name__} needs forward()")

    def backward(self, *grads: Any) -> Any:
        """Computes the inputs' gradients."""
        raise NotImplementedError(f"{type(self).__name__} needs backward()")

    def __call__(self, *inputs: Any) -> Any:
        off = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
        out = self.forward(*off)
        tensors = tuple(x for x in inputs if isinstance(x, Tensor))
        if not any(node_of(x)[0] is not None for x in tensors):
            return out
        outs = out if isinstance(out, tuple) else (out,)
        outs = tuple(o.detach() for o in outs)
        node = Node(self._rule(len(outs), inputs), tuple(_with_node(x) for x in tensors), ())
        for i, o in enumerate(outs):
            o._node = node if len(outs) == 1 else (node, i)
        return outs if isinstance(out, tuple) else outs[0]

    def _rule(self, n_outs: int, inputs: tuple) -> Any:
        """What the backward walk asks of an op."""
        which = [i for i, x in enumerate(inputs) if isinstance(x, Tensor)]

        def rule(g, *xs, **attrs):
            r = self.backward(*(g if isinstance(g, tuple) else (g,)))
            r = r if isinstance(r, tuple) else (r,)
            return tuple(r[i] for i in which) if len(r) == len(inputs) else r

        return SimpleNamespace(
            name=type(self).__name__, kind="function", rules={"vjp": rule}, saves_output=False, n_outputs=n_outs,
            canonical=lambda types, attrs: {}, infer_types=lambda types, attrs: (None,) * n_outs,
        )  # fmt: skip
