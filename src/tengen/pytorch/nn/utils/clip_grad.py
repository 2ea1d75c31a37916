"""`torch.nn.utils.clip_grad`: norms of gradients, and gradients made shorter."""

from __future__ import annotations

from collections.abc import Iterable

from tengen import functional as F
from tengen.optimizer import clip_grad_norm_, clip_grad_value_
from tengen.tensor import Tensor


def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of all tensors together. Args: foreach: accepted; it changes no number.

    Errors: RuntimeError with error_if_nonfinite where it is not finite

    >>> get_total_norm([Tensor([3.0]), Tensor([4.0])]).item()
    5.0
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    total = F.norm(F.stack([F.norm(t.reshape(-1), norm_type) for t in given]), norm_type) if given else Tensor(0.0)
    if error_if_nonfinite and not F.isfinite(total).item():
        raise RuntimeError(f"get_total_norm: the norm of {len(given)} tensors is {total.item()}")
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients by max_norm / total_norm where that is below 1. Args: foreach: accepted; it changes no number."""
    scale = F.minimum(max_norm / (total_norm + 1e-6), 1.0)
    for p in [parameters] if isinstance(parameters, Tensor) else parameters:
        if p.grad is not None:
            p.grad = p.grad * scale


__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]
