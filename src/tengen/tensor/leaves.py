"""Leaves: tensors that require gradients by themselves, as PyTorch's do. `backward.py` has the walk back to them.

A `GradManager` records what happens to its tensors inside of its block. A leaf is recorded wherever it is used, outside of `no_grad`: all
leaves are start nodes of one level, which never ends. A result keeps what its gradient needs for as long as it lives, or until
`backward` has walked through it.

Parameters are no leaves at first, so that what is computed outside of a manager's block keeps nothing. ``p.requires_grad = True``,
``net.requires_grad_()`` and `Leaves.of_parameters`, which `tengen.pytorch` calls, make them so.
"""

from __future__ import annotations

from tengen.base.arguments import check_flag
from tengen.base.errors import GradientError
from tengen.tensor.hooks import hooked
from tengen.tensor.nodes import TapeNode, leaf_of, leaves, node_of, on_tape
from tengen.tensor.tensor import Tensor


def set_requires_grad(t: Tensor, value: bool) -> None:
    """``t.requires_grad = value``. Errors: GradientError for a tensor of integers, and for False of a computed one."""
    check_flag("requires_grad", "requires_grad", value)
    if value and not t.dtype.is_inexact:
        raise GradientError(f"a tensor of {t.dtype} has no gradient; help: only tensors of floats require one")
    node = node_of(t)[0]
    if node is not None and node.op is not None and on_tape(t):
        if not value:
            raise GradientError(f"{t._layout.type!r} was computed from tensors that require gradients; help: t = t.detach()")
        return
    if hasattr(t, "frozen"):  # a Parameter
        t.frozen = not value
    if value and leaf_of(t) is None:
        leaves.start(t)
    elif not value and leaf_of(t) is not None:
        t._node = None
    hooked.again()  # managers ask anew whose gradients are wanted


def requires_grad(t: Tensor) -> bool:
    """Whether a gradient is recorded for the tensor; of a Parameter, whether it is to be trained.

    A Parameter's is True unless somebody set it to False; managers and `backward` then leave it out. To set it to True makes a leaf:
    what is computed of it is recorded outside of managers too, for `Tensor.backward`.

    >>> from tengen import Parameter, Tensor
    >>> x = Tensor([1.0, 2.0])
    >>> x.requires_grad = True
    >>> (x * x).sum().backward()
    >>> x.grad.tolist(), Parameter([1.0]).requires_grad
    ([2.0, 4.0], True)
    """
    frozen = getattr(t, "frozen", None)
    return on_tape(t) if frozen is None else not frozen and t.dtype.is_inexact


def requires_grad_(t: Tensor, requires_grad: bool = True) -> Tensor:
    """Sets `requires_grad`; returns the tensor."""
    set_requires_grad(t, requires_grad)
    return t


def is_leaf(t: Tensor) -> bool:
    """Whether the tensor is no result of recorded calls."""
    node = node_of(t)[0]
    return node is None or node.op is None or not on_tape(t)


def grad_fn(t: Tensor) -> TapeNode | None:
    """The recorded call whose result the tensor is; None of a leaf."""
    return None if is_leaf(t) else node_of(t)[0]
