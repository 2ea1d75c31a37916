"""`torch.autograd.gradcheck`: gradients against differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.arguments import flags_of_functions
from tengen.base.errors import ArgumentError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.backward import grad


class GradcheckError(RuntimeError):
    """What `gradcheck` raises where a gradient is not the function's."""


def _outputs(found: Any) -> list[Tensor]:
    return [y for y in (found if isinstance(found, (tuple, list)) else [found]) if isinstance(y, Tensor) and y.requires_grad]


def _slopes(f: Callable, xs: list[Any], at: int, which: int, eps: float) -> np.ndarray:
    """The derivatives of output `which` by the elements of input `at`: (elements of x, elements of y)."""
    x = xs[at].detach().numpy()
    rows = []
    for i in range(x.size):
        ends = []
        for step in (eps, -eps):
            moved = x.astype("float64").reshape(-1)
            moved[i] += step
            given = Tensor(moved.reshape(x.shape), dtype=xs[at].dtype).requires_grad_()
            ends.append(_outputs(f(*xs[:at], given, *xs[at + 1 :]))[which].detach().numpy().astype("float64").reshape(-1))
        rows.append((ends[0] - ends[1]) / (2 * eps))
    return np.array(rows).reshape(x.size, -1)


def gradcheck(
    func: Callable, inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True, **how: Any
) -> bool:
    """Whether the gradients that are recorded of a function agree with central differences of its values.

    Args: inputs: a tensor or a sequence; those that require gradients should be float64. eps: the step. atol, rtol: what two numbers may
        differ by. raise_exception: whether a difference is an error, or False. Others are PyTorch's, and accepted.
    Errors: ArgumentError where no input requires a gradient; GradcheckError where numbers differ

    >>> gradcheck(lambda x: x * x, Tensor([1.0, 2.0], dtype="float64").requires_grad_())
    True
    """
    xs: list[Any] = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    wanted = [i for i, x in enumerate(xs) if isinstance(x, Tensor) and x.requires_grad]
    if not wanted or any(xs[i].dtype.is_complex for i in wanted):
        raise ArgumentError("gradcheck: give at least one input of real numbers with requires_grad=True")
    for which, y in enumerate(_outputs(func(*xs))):
        found = [np.zeros((xs[i].size, y.size)) for i in wanted]
        for j in range(y.size):
            seed = np.zeros(y.shape, y.dtype)
            seed.reshape(-1)[j] = 1
            gradients = grad([y], [xs[i] for i in wanted], [Tensor(seed)], True, False, True)
            for into, g in zip(found, gradients):
                into[:, j] = 0 if g is None else g.detach().numpy().reshape(-1)
        for i, got in zip(wanted, found):
            want = _slopes(func, xs, i, which, eps)
            if not np.allclose(got, want, rtol, atol, equal_nan=True):
                if not raise_exception:
                    return False
                worst = np.unravel_index(np.argmax(np.abs(got - want)), got.shape)
                raise GradcheckError(
                    f"the gradient of output {which} by input {i} is {got[worst]:.6g} where element {worst[0]} of the input and element "
                    f"{worst[1]} of the output meet; the difference of values says {want[worst]:.6g} (dtype {xs[i].dtype}, eps {eps})"
                )
    return True


def gradgradcheck(
    func: Callable, inputs: Any, grad_outputs: Any = None, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, **how: Any,
) -> bool:  # fmt: skip
    """`gradcheck` of the function's gradients.

    Args: grad_outputs: what the gradients begin with: tensors like the outputs (default: draws of a fixed seed). Others as in `gradcheck`.
    Errors: ArgumentError where no input requires a gradient; GradcheckError where numbers differ
    """
    xs: list[Any] = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    wanted = [i for i, x in enumerate(xs) if isinstance(x, Tensor) and x.requires_grad]
    ys, rng = _outputs(func(*xs)), np.random.default_rng(0)
    if grad_outputs is None:
        seeds = [Tensor(rng.standard_normal(y.shape), dtype=y.dtype) for y in ys]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradients(*inner: Any) -> tuple[Tensor, ...]:
        found = grad(_outputs(func(*inner)), [inner[i] for i in wanted], seeds, None, True, True)
        return tuple(REGISTRY["zeros_like"](inner[i]) if g is None else g for i, g in zip(wanted, found))

    return gradcheck(gradients, xs, eps, atol, rtol, raise_exception)


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
flags_of_functions(globals(), __all__)
