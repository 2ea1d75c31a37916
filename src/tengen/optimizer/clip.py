"""Clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable

from tengen import functional as F
from tengen.tensor import Tensor


def _with_grad(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [t for t in ([tensors] if isinstance(tensors, Tensor) else list(tensors)) if t.grad is not None]


def clip_grad_norm(tensors: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scales all gradients by one factor, at most 1, so that the norm of all of them together is at most `max_norm`. Returns
    that norm before clipping, a 0-d tensor; in a trace nothing is decided by its value."""
    if max_norm < 0:
        raise ValueError(f"clip_grad_norm: max_norm={max_norm} must not be negative")
    params = _with_grad(tensors)
    if not params:
        return Tensor(0.0)
    norms = [F.norm(t.grad.reshape(-1), ord) for t in params]  # type: ignore[union-attr]
    total = F.norm(F.stack(norms), ord)  # type: ignore[attr-defined]
    scale = F.minimum(max_norm / (total + 1e-6), 1.0)  # type: ignore[attr-defined]
    for t in params:
        t.grad = t.grad * scale  # type: ignore[operator]
    return total


def clip_grad_value(tensors: Tensor | Iterable[Tensor], lower: float, upper: float) -> None:
    """Each element of each gradient is brought into [lower, upper]."""
    for t in _with_grad(tensors):
        t.grad = F.clip(t.grad, lower, upper)  # type: ignore[attr-defined]
