"""Clipping of gradients: MegEngine's names, and PyTorch's, which end in an underscore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from tengen import functional as F
from tengen.base.errors import DistributedError
from tengen.tensor import Tensor, tracing


class Shared(Protocol):
    """What shares parameters out among processes, so that each has some of them: a pipeline."""

    def norms_of_all(self, norms: Sequence[Tensor]) -> list[Tensor]:
        """The norms of all processes' gradients, of those of all of this process's parameters that have one."""
        ...

    def parameters(self) -> Sequence[Tensor]:
        """This process's parameters."""
        ...


SHARED: WeakValueDictionary[int, Shared] = WeakValueDictionary()  # by the id of a parameter, which it keeps alive


def _norms_of_all(tensors: Sequence[Tensor], norms: list[Tensor]) -> list[Tensor]:
    """The norms, with those of other processes' gradients where the parameters are shared out."""
    owners = {id(s): s for t in tensors if (s := SHARED.get(id(t))) is not None}
    if not owners:
        return norms
    (owner,) = owners.values() if len(owners) == 1 else (None,)
    if owner is None or {id(t) for t in tensors} != {id(p) for p in owner.parameters()}:
        raise DistributedError(
            "clip_grad_norm: other processes have the rest of these parameters, and wait for the norms of all; help: "
            "clip_grad_norm(pipeline.parameters(), max_norm)"
        )
    return owner.norms_of_all(norms)


def _with_grad(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [t for t in ([tensors] if isinstance(tensors, Tensor) else list(tensors)) if t.grad is not None]


def clip_grad_norm(tensors: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scales all gradients by one factor, at most 1, so that the norm of all of them together is at most `max_norm`. Returns
    that norm before clipping, a 0-d tensor; in a trace nothing is decided by its value.

    Errors: ValueError for a negative max_norm
    """
    if max_norm < 0:
        raise ValueError(f"clip_grad_norm: max_norm={max_norm} must not be negative")
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    params = _with_grad(tensors)
    norms = _norms_of_all(tensors, [F.norm(t.grad.reshape(-1), ord) for t in params])
    if not norms:
        return Tensor(0.0)
    total = F.norm(F.stack(norms), ord)
    scale = F.minimum(max_norm / (total + 1e-6), 1.0)
    for t in params:
        t.grad = t.grad * scale
    return total


def clip_grad_value(tensors: Tensor | Iterable[Tensor], lower: float, upper: float) -> None:
    """Each element of each gradient is brought into [lower, upper]."""
    for t in _with_grad(tensors):
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
    before = [t.grad for t in params]
    total = clip_grad_norm(params, max_norm, norm_type)
    if not F.isfinite(total).item():
        for t, g in zip(params, before):
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
