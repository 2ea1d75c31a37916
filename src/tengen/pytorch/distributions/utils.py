"""`torch.distributions.utils`: what programs with distributions of their own take from it.

>>> logits_to_probs(probs_to_logits(Tensor([0.25, 0.75]), is_binary=True), is_binary=True).tolist()
[0.25, 0.75]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.ops.define import broadcast_shapes
from tengen.pytorch.functions.dtypes import finfo, get_default_dtype
from tengen.tensor import Tensor


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers in one shape; numbers have the first tensor's dtype, or the default one."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    dtype = tensors[0].dtype if tensors else get_default_dtype()
    made = [v if isinstance(v, Tensor) else Tensor(v, dtype=dtype) for v in values]
    shape = broadcast_shapes(*(v.shape for v in made))
    return tuple(F.broadcast_to(v, shape) for v in made)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities, no nearer to 0 and 1 than the dtype's eps."""
    eps = finfo(probs.dtype).eps
    return F.clip(probs, eps, 1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of log odds (binary), or of logarithms along the last axis."""
    return F.sigmoid(logits) if is_binary else F.softmax(logits, axis=-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The log odds of probabilities (binary), or their logarithms."""
    p = clamp_probs(probs)
    return F.log(p) - F.log1p(-p) if is_binary else F.log(p)


class lazy_property:
    """A method as an attribute that is computed when it is first read."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        self._wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self._wrapped(instance)
        setattr(instance, self._name, value)
        return value


__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits"]
