"""Clipping of gradients: MegEngine's names, and PyTorch's, which end in an underscore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from tengen import functional as F
from tengen.base.arguments import flags_of_functions
from tengen.base.errors import DistributedError
from tengen.tensor import Tensor, tracing


class Shared(Protocol):
    """What shares parameters, or their gradients, out among processes: a pipeline, a sharded optimizer."""

    def pieces(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What has this process's part of the gradients of some parameters, as `grad`."""
        ...

    def norms(self, tensors: Sequence[Tensor], norm: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """The norms of the whole gradients of some parameters, and of what other processes have beside them."""
        ...

    def anywhere(self, flag: Tensor) -> Tensor:
        """Whether a 0-d bool is true in any process."""
        ...


SHARED: WeakValueDictionary[int, Shared] = WeakValueDictionary()  # by the id of a parameter, which it keeps alive


def owner_of(tensors: Sequence[Tensor]) -> Shared | None:
    """Who shares these parameters out; None where nobody does. Errors: DistributedError where it is true of some of them, or of several
    owners."""
    owners = [SHARED.get(id(t)) for t in tensors]
    if not any(o is not None for o in owners):
        return None
    if any(o is not owners[0] for o in owners):
        raise DistributedError("other processes have parts of some of these parameters' gradients; help: the parameters of one network")
    return owners[0]


def _with_grad(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [t for t in ([tensors] if isinstance(tensors, Tensor) else list(tensors)) if t.grad is not None]


def clip_grad_norm(tensors: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scales all gradients by one factor, at most 1, so that the norm of all of them together is at most `max_norm`. Returns
    that norm before clipping, a 0-d tensor; in a trace nothing is decided by its value.

    Errors: ValueError for a negative max_norm
    """
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm: max_norm={max_norm} must not be negative or NaN")
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    owner, norm = owner_of(tensors), lambda g: F.norm(g.reshape(-1), ord)
    params = _with_grad(tensors if owner is None else owner.pieces(tensors))
    norms = [norm(t.grad) for t in params] if owner is None else owner.norms(tensors, norm)
    if not norms:
        return Tensor(0.0)
    total = F.norm(F.stack(norms), ord)
    scale = F.minimum(max_norm / (total + 1e-6), 1.0)
    for t in params:
        t.grad = t.grad * scale
    return total


def clip_grad_value(tensors: Tensor | Iterable[Tensor], lower: float, upper: float) -> None:
    """Each element of each gradient is brought into [lower, upper]."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    owner = owner_of(tensors)
    for t in _with_grad(tensors if owner is None else owner.pieces(tensors)):
        t.grad = F.clip(t.grad, lower, upper)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """`clip_grad_norm` under PyTorch's name and with its arguments.

    Args: error_if_nonfinite: RuntimeError, before anything is scaled, where the norm is infinite or a NaN; not in a trace with
        symbolic=True, which does not know. foreach: accepted; it changes no number.
    """
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not error_if_nonfinite:
        return clip_grad_norm(params, max_norm, norm_type)
    if tracing.recorder is not None and not tracing.recorder.answers:
        raise RuntimeError("clip_grad_norm_: error_if_nonfinite decides by a value, which a trace does not know; help: leave it out")
    owner = owner_of(params)
    holders = params if owner is None else owner.pieces(params)
    before = [t.grad for t in holders]
    total = clip_grad_norm(params, max_norm, norm_type)
    if not F.isfinite(total).item():
        for t, g in zip(holders, before):
            t.grad = g
        raise RuntimeError(f"clip_grad_norm_: the norm of the gradients is {total.item()}")
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """`clip_grad_value` under PyTorch's name: each element is brought into [-clip_value, clip_value].

    Errors: ValueError for a negative bound
    """
    if clip_value < 0:
        raise ValueError(f"clip_grad_value_: clip_value={clip_value} must not be negative")
    clip_grad_value(parameters, -clip_value, clip_value)


flags_of_functions(globals(), ["clip_grad_norm_", "clip_grad_value_"])
