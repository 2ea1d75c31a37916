"""`torch._foreach_add_` and its like: a function of each tensor of a list, which programs call for exponential averages and in optimizers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.tensor import Tensor


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """The function of that name. Its tensors, and scalars for each, are lists of equal lengths; what is no list is the same for all.

    Errors: AttributeError where there is no such function of one tensor

    >>> xs = [Tensor([1.0]), Tensor([2.0])]
    >>> function("_foreach_mul_")(xs, 3.0)
    >>> [x.tolist() for x in function("_foreach_add")(xs, xs, alpha=10)]
    [[33.0], [66.0]]
    """
    of_one = name.removeprefix("_foreach_")
    if not hasattr(Tensor, of_one) and of_one != "zero_":
        raise NoSuchName("tengen.pytorch", name, lambda: dir(sys.modules["tengen.pytorch"]))
    call = getattr(sys.modules["tengen.pytorch"], of_one, None) or getattr(Tensor, of_one)

    def each(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> list[Tensor] | None:
        found = []
        for i, x in enumerate(tensors):
            own = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
            named = {k: v[i] if isinstance(v, (list, tuple)) else v for k, v in kwargs.items()}
            found.append(call(x, *own, **named))
        return None if of_one.endswith("_") else found

    return each
