"""What stands in `torch` itself and is about whole programs: files, compilation, threads, switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.arguments import flags_of_functions
from tengen.base.config import config
from tengen.deploy.checkpoint import load as _load
from tengen.deploy.checkpoint import save as _save
from tengen.functional import cond as _cond
from tengen.pytorch.func import vmap
from tengen.pytorch.functions.compiled import CompiledFunction
from tengen.pytorch.functions.creation import from_numpy
from tengen.pytorch.nn.module import Module
from tengen.runtime import native
from tengen.tensor import Tensor
from tengen.tensor.recording import tracing


def save(obj: Any, f: Any, **how: Any) -> None:
    """Writes nested dicts, lists, tensors and numbers to a file, as Tengen does (safetensors; no pickle). A module: its state_dict()."""
    if isinstance(obj, Module):
        raise TypeError("torch.save of a whole module would pickle its code; help: torch.save(net.state_dict(), file)")
    _save(obj, f)


def load(f: Any, map_location: Any = None, weights_only: bool = True, mmap: bool = False, **how: Any) -> Any:
    """Reads what `save` wrote. A pickle of PyTorch's own is an error that says how to convert it. map_location: the processor alone."""
    return _tensors(_load(f, mmap=mmap))


def _tensors(x: Any) -> Any:
    """The values of a file with tensors in place of arrays."""
    if isinstance(x, dict):
        return type(x)((k, _tensors(v)) for k, v in x.items())
    if isinstance(x, (list, tuple)):
        return type(x)(_tensors(v) for v in x)
    return from_numpy(x) if hasattr(x, "dtype") and hasattr(x, "__array__") and not isinstance(x, Tensor) else x


class CompiledModule(Module):
    """What `compile` makes of a module: the module, whose calls run as a program. Its own tensors stand under ``_orig_mod``."""

    def __init__(self, module: Any):
        super().__init__()
        self._orig_mod = module
        vars(self)["_program"] = CompiledFunction(module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.recorder is not None:  # inside of another program
            return self._orig_mod(*args, **kwargs)
        return self._program(*args, **kwargs)

    def train(self, mode: bool = True, recursive: bool = True) -> Any:
        """Sets whether the module trains; returns itself."""
        self._orig_mod.train(mode)
        return super().train(mode, recursive)


def compile(model: Any = None, **how: Any) -> Any:
    """A function or a module as a program for each shape of its inputs: `tengen.trace`. mode, backend, fullgraph, dynamic, options:
    accepted; they change no number.

    A function of a whole training step, with `backward` inside, is one program. Where the gradient of a result is taken outside, a call is
    one program and its gradient another.
    """
    if model is None:
        return lambda f: compile(f, **how)
    if isinstance(model, Module):
        return CompiledModule(model)
    return CompiledFunction(model)


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """``true_fn(*operands)`` where pred is true, else ``false_fn(*operands)``, also inside of a program: `tengen.functional.cond`.

    >>> from tengen import Tensor
    >>> cond(Tensor(True), lambda x: x + 1, lambda x: x - 1, (Tensor(2.0),)).item()
    3.0
    """
    return _cond(pred, true_fn, false_fn, *operands)


def get_num_threads() -> int:
    """How many threads programs use."""
    return config.threads


def set_num_threads(n: int) -> None:
    """`tengen.set_threads`: how many threads programs use; no result depends on it."""
    native.set_threads(n)


def set_printoptions(**how: Any) -> None:
    """NumPy's, which is what prints. sci_mode and profile are accepted; they change nothing."""
    np.set_printoptions(**{k: v for k, v in how.items() if k in ("precision", "threshold", "edgeitems", "linewidth")})


def use_deterministic_algorithms(mode: Any, *, warn_only: Any = False) -> None:
    """Nothing: every result has the same bits each time."""


def are_deterministic_algorithms_enabled() -> Any:
    """True: every result has the same bits each time."""
    return True


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing: products of float32 are computed in float32."""


def get_float32_matmul_precision() -> str:
    """"highest"."""
    return "highest"


__all__ = [
    "are_deterministic_algorithms_enabled", "compile", "cond", "get_float32_matmul_precision", "get_num_threads", "load", "save",
    "set_float32_matmul_precision", "set_num_threads", "set_printoptions", "use_deterministic_algorithms", "vmap",
]  # fmt: skip
flags_of_functions(globals(), __all__)
