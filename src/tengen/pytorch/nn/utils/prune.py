"""`torch.nn.utils.prune`: weights of which some elements are 0 and stay 0. ``module.weight`` is ``weight_orig * weight_mask``, computed
each time it is read; `weight_orig` is trained, `weight_mask` a buffer."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.module import Module
from tengen.pytorch.nn.utils import computed
from tengen.random import permutation
from tengen.tensor import Parameter, Tensor


def _count(amount: float, n: int) -> int:
    """How many of n an amount is: a share of them, or their number. Errors: ValueError for one that is out of range."""
    if isinstance(amount, float) and not 0 <= amount <= 1:
        raise ValueError(f"prune: amount={amount} is no share; help: a float from 0 to 1, or an int")
    k = round(amount * n) if isinstance(amount, float) else operator.index(amount)
    if not 0 <= k <= n:
        raise ValueError(f"prune: amount={amount} of {n} that can be pruned")
    return k


class BasePruningMethod:
    """What decides which elements become 0. Subclasses have `compute_mask(t, default_mask)`, and `PRUNING_TYPE`: "unstructured" ones get those
    elements of the importances that are still there, as a vector, with a mask of ones; "structured" ones all, with the mask so far.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of ones and zeros for importances t. Errors: NotImplementedError: subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} needs compute_mask(t, default_mask)")

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> BasePruningMethod:
        """Prunes the parameter of this name by cls(*args, **kwargs), which is returned; again, if it was pruned before.

        Errors: ValueError where there is no such parameter, or scores have another shape
        """
        method = cls(*args, **kwargs)
        original = getattr(module, f"{name}_orig", None) if name in computed.names(module) else module.__dict__.get(name)
        if not isinstance(original, Parameter):
            raise ValueError(f"prune: {type(module).__name__} has no parameter {name!r}")
        before = getattr(module, f"{name}_mask", None)
        before = F.ones_like(original.detach()) if before is None else before
        scores = original.detach() if importance_scores is None else importance_scores.detach()
        if scores.shape != original.shape:
            raise ValueError(f"prune: importance_scores have shape {scores.shape}, {name} has {original.shape}")
        mask = method._whole_mask(scores, before)
        if name not in computed.names(module):
            setattr(module, f"{name}_orig", original)
            computed.put(module, name, lambda m: getattr(m, f"{name}_orig") * getattr(m, f"{name}_mask"))
        module.register_buffer(f"{name}_mask", Tensor(mask.astype(original.dtype)))
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """t with its pruned elements 0."""
        before = F.ones_like(t) if default_mask is None else default_mask
        return t * self._whole_mask(t if importance_scores is None else importance_scores, before).astype(t.dtype)

    def _whole_mask(self, scores: Tensor, before: Tensor) -> Tensor:
        if self.PRUNING_TYPE == "structured":
            return self.compute_mask(scores, before) * before
        left = np.flatnonzero(before.numpy().reshape(-1))
        mask = before.numpy().reshape(-1).copy()
        mask[left] = self.compute_mask(Tensor(scores.numpy().reshape(-1)[left]), Tensor(mask[left])).numpy()
        return Tensor(mask.reshape(before.shape))


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the mask."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Elements at random. Args: amount: a share of those that are left (float), or a number (int)."""

    def __init__(self, amount: float):
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        mask = default_mask.numpy().copy()
        mask[permutation(t.size).numpy()[: _count(self.amount, t.size)]] = 0
        return Tensor(mask)


class L1Unstructured(RandomUnstructured):
    """The elements of the least magnitude. Args: as of `RandomUnstructured`."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        mask = default_mask.numpy().copy()
        mask[np.argsort(np.abs(t.numpy()), kind="stable")[: _count(self.amount, t.size)]] = 0
        return Tensor(mask)


class RandomStructured(BasePruningMethod):
    """Slices along an axis at random. Args: amount: a share of all slices (float), or a number (int). dim: the axis."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1):
        self.amount, self.dim = amount, dim

    def _scores(self, t: np.ndarray) -> np.ndarray:
        return np.argsort(permutation(t.shape[self.dim]).numpy()).astype(np.float64)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axes = tuple(i for i in range(t.ndim) if i != self.dim % t.ndim)
        there = default_mask.numpy().any(axes)
        scores = np.where(there, self._scores(t.numpy()), np.inf)
        mask = np.ones(t.shape[self.dim], default_mask.numpy().dtype)
        mask[np.argsort(scores, kind="stable")[: _count(self.amount, int(there.sum()))]] = 0
        return Tensor(default_mask.numpy() * np.expand_dims(mask, axes))


class LnStructured(RandomStructured):
    """The slices of the least norm. Args: n: of the norm. The others: as of `RandomStructured`."""

    def __init__(self, amount: float, n: float, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: np.ndarray) -> np.ndarray:
        return np.linalg.norm(np.moveaxis(t, self.dim, 0).reshape(t.shape[self.dim], -1), self.n, 1)


class CustomFromMask(BasePruningMethod):
    """What a mask says."""

    PRUNING_TYPE = "structured"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * Tensor(self.mask).astype(default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Makes the parameter one that can be pruned, with a mask of ones. Returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Sets elements at random to 0: a share of them (float) or a number (int). Returns the module.

    Errors: ValueError as of `l1_unstructured`
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Sets the elements of the least magnitude to 0. Returns the module.

    Args: amount: a share of those that are left (float), or a number (int). importance_scores: in place of the values.
    Errors: ValueError where there is no such parameter, and for an amount that is out of range

    >>> from tengen.pytorch import nn
    >>> layer = l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
    >>> int((layer.weight == 0).sum()), [name for name, _ in layer.named_buffers()]
    (4, ['weight_mask'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Sets slices along an axis at random to 0. Returns the module. Errors: ValueError as of `l1_unstructured`."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None) -> Any:
    """Sets the slices along an axis with the least n-norm to 0. Returns the module. Errors: ValueError as of `l1_unstructured`."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Sets the elements to 0 where a mask is. Returns the module. Errors: ValueError where there is no such parameter."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]], pruning_method: type[BasePruningMethod], importance_scores: dict | None = None, **kwargs: Any
) -> None:
    """Prunes several parameters as if they were one vector. Args: parameters: pairs (module, name); pruning_method: `L1Unstructured` or
    `RandomUnstructured`, with its arguments.

    Errors: TypeError for a method of slices
    """
    if pruning_method.PRUNING_TYPE == "structured":
        raise TypeError(f"global_unstructured: {pruning_method.__name__} prunes slices; help: L1Unstructured or RandomUnstructured")
    some = list(parameters)
    for m, name in some:
        identity(m, name)
    originals = [getattr(m, f"{name}_orig").detach() for m, name in some]
    scores = [(importance_scores or {}).get(pair, value) for pair, value in zip(some, originals)]
    flat = lambda ts: Tensor(np.concatenate([t.numpy().reshape(-1) for t in ts]))
    masks = [getattr(m, f"{name}_mask") for m, name in some]
    whole, at = pruning_method(**kwargs)._whole_mask(flat(scores), flat(masks)).numpy(), 0
    for (m, name), mask in zip(some, masks):
        m.register_buffer(f"{name}_mask", Tensor(whole[at : at + mask.size].reshape(mask.shape)))
        at += mask.size


def remove(module: Any, name: str) -> Any:
    """Makes the parameter one again, with its zeros. Returns the module. Errors: ValueError where it was not pruned."""
    if name not in computed.names(module) or not hasattr(module, f"{name}_mask"):
        raise ValueError(f"prune.remove: {name!r} of {type(module).__name__} was not pruned")
    original, value = getattr(module, f"{name}_orig"), getattr(module, name).detach()
    computed.take(module, name)
    delattr(module, f"{name}_orig")
    delattr(module, f"{name}_mask")
    original._reset(value)  # the parameter that optimizers have
    setattr(module, name, original)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside, is pruned."""
    return any(hasattr(m, f"{name}_mask") for m in module.modules() for name in computed.names(m))


__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "RandomStructured", "RandomUnstructured",
    "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured", "random_structured",
    "random_unstructured", "remove",
]  # fmt: skip
