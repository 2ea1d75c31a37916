"""What the functions that build networks have in common: weights from a checkpoint of others.

In: such a function. Out: the same with the arguments `weights` and `layout`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tengen import interop
from tengen.module.init import undrawn

OWN = "tengen"  # the layout with our own names, which needs nothing of `interop`


def network(build: Callable) -> Callable:
    """A function that builds a network, with two arguments more: `weights`, what `tengen.interop.weights.load` takes (a safetensors file,
    a folder, a dict), and `layout`, whose names it has. What the layout's networks have that ours have not by default is set."""
    family = build.__annotations__["return"]

    @functools.wraps(build)
    def built(*args: Any, weights: Any = None, layout: str = OWN, **options: Any) -> Any:
        settings = options if layout == OWN else {**interop.weights.options(family, layout), **options}
        if weights is None:
            net = build(*args, **settings)
            if layout != OWN:
                interop.weights.check(net, layout)
            return net
        with undrawn():
            net = build(*args, **settings)
        return interop.weights.load(net, weights, layout)

    more = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in (("weights", None), ("layout", OWN))]
    signature = inspect.signature(build)
    own = list(signature.parameters.values())
    at = len(own) - (bool(own) and own[-1].kind is inspect.Parameter.VAR_KEYWORD)
    built.__signature__ = signature.replace(parameters=[*own[:at], *more, *own[at:]])
    return built
