"""`torch.utils.checkpoint`: functions whose values are computed again for the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import autodiff
from tengen.base.arguments import flags_of_functions


def checkpoint(function: Callable, *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """function(*args, **kwargs), of which only arguments and results are kept for the gradient: `tengen.autodiff.checkpoint`. Random numbers
    are the same both times. use_reentrant, preserve_rng_state: accepted; they change nothing."""
    for name in ("context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    return autodiff.checkpoint(function, *args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """The functions one after the other, in so many parts, each with `checkpoint`."""
    every = list(functions)
    size = -(-len(every) // segments)
    for start in range(0, len(every), size):
        part = every[start : start + size]

        def run(x: Any, part: Any = part) -> Any:
            for f in part:
                x = f(x)
            return x

        input = checkpoint(run, input)
    return input


__all__ = ["checkpoint", "checkpoint_sequential"]
flags_of_functions(globals(), __all__)
