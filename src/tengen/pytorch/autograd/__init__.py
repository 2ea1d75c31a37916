"""`torch.autograd`: gradients of results, operations with gradients of the user's own, `functional`."""

from __future__ import annotations

import sys
from typing import Any

from tengen.base.arguments import flags_of_functions
from tengen.base.errors import ArgumentError
from tengen.base.lazy import NoSuchName
from tengen.debug import check_finite
from tengen.ops.define import REGISTRY
from tengen.pytorch.autograd import forward_ad, functional, graph
from tengen.pytorch.autograd.function import Function
from tengen.pytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tengen.pytorch.functions.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from tengen.tensor import Tensor
from tengen.tensor.backward import grad as _grad
from tengen.tensor.parts import as_alias


class _Variable(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)


class Variable(metaclass=_Variable):
    """PyTorch's older name: ``Variable(x, requires_grad=True)`` is x off the tape, as a leaf; every tensor is an instance.

    >>> Variable(Tensor([1.0]), requires_grad=True).requires_grad
    True
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        made = as_alias(data, data.detach())
        return made.requires_grad_() if requires_grad else made


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of the sum of outputs with respect to inputs, which are leaves or results of theirs.

    Args: only_inputs: accepted; it is always so. materialize_grads: zeros in place of None for inputs that no output depends on.
        is_grads_batched: grad_outputs have one axis more, the first: of each row there is a gradient, in a walk of its own, and the results
            have that axis too.

    Errors: ArgumentError for is_grads_batched without rows

    >>> x = Tensor([3.0]).requires_grad_()
    >>> grad((x * x).sum(), x)[0].tolist()
    [6.0]
    """
    unused = materialize_grads if allow_unused is None else allow_unused
    if is_grads_batched:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or ())
        n = next((s.shape[0] for s in seeds if s is not None), 0)
        if n == 0:
            raise ArgumentError("autograd.grad: is_grads_batched=True needs grad_outputs with a first axis of 1 or more")
        rows = []
        for i in range(n):
            row, keep = [None if s is None else s[i] for s in seeds], True if i < n - 1 else retain_graph
            rows.append(grad(outputs, inputs, row, keep, create_graph, only_inputs, unused, False, materialize_grads))
        return tuple(None if g[0] is None else REGISTRY["stack"](list(g), 0) for g in zip(*rows))
    found = _grad(outputs, inputs, grad_outputs, retain_graph, create_graph, unused)
    if not materialize_grads:
        return found
    xs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(REGISTRY["zeros_like"](x.detach()) if g is None else g for g, x in zip(found, xs))


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """`Tensor.backward` of several tensors at once."""
    ys = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    seeds = [grad_tensors] if grad_tensors is None or isinstance(grad_tensors, Tensor) else list(grad_tensors)
    seeds = seeds * len(ys) if len(seeds) == 1 else seeds
    total = None
    for y, seed in zip(ys, seeds):
        part = y.reshape(()) if seed is None else REGISTRY["sum"](y * seed)
        total = part if total is None else total + part
    if total is not None:
        total.backward(retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


def set_detect_anomaly(mode: bool, check_nan: bool = True) -> Any:
    """A block that raises at the first result that is not finite, as `tengen.debug.check_finite`."""
    return detect_anomaly() if mode else no_check()


def detect_anomaly(check_nan: bool = True) -> Any:
    """`tengen.debug.check_finite`: raises at the first result that is not finite."""
    return check_finite()


class no_check:
    """A block that checks nothing."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.autograd", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad", "functional", "grad", "gradcheck", "gradgradcheck",
    "graph", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
flags_of_functions(globals(), __all__)
