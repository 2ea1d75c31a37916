"""What PyTorch has in `torch.nn.utils`: clipping of gradients, parameters as one vector, reparametrisations, `rnn`."""

from __future__ import annotations

from collections.abc import Iterable

from tengen.base.errors import ShapeError
from tengen.base.lazy import modules_of
from tengen.module.reparametrise import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from tengen.ops.define import REGISTRY
from tengen.optimizer.clip import clip_grad_norm_, clip_grad_value_
from tengen.tensor import Parameter, Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of parameters, one after another, as a vector.

    >>> from tengen import module as M
    >>> M.utils.parameters_to_vector(M.Linear(3, 2).parameters()).shape
    (8,)
    """
    return REGISTRY["concat"]([REGISTRY["reshape"](p, (-1,)) for p in parameters], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Parameter]) -> None:
    """Gives parameters the elements of a vector, in the order of `parameters_to_vector`.

    Errors: ShapeError where it has more or fewer elements
    """
    every = list(parameters)
    if vec.ndim != 1 or vec.size != (wanted := sum(p.size for p in every)):
        raise ShapeError(f"vector_to_parameters: vec has shape {vec.shape}; help: ({wanted},) is expected, as the parameters have")
    first = 0
    for p in every:
        p._reset(REGISTRY["reshape"](vec[first : first + p.size], p.shape).detach().astype(p.dtype))
        first += p.size


__getattr__ = modules_of(__name__)
__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
