"""`torch.optim.Optimizer`: the base of optimizers that programs write themselves, with a `step()` over `param_groups` and `state`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tengen import optimizer as own
from tengen.jit.options import exclude_from_trace
from tengen.optimizer.optimizer import REQUIRED, ParamGroup
from tengen.tensor import Tensor

required = REQUIRED  # older programs give it for a setting that each group must say


class _AnyOptimizer(type):
    """`Optimizer` below stands for every optimizer."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, own.Optimizer) if cls.__dict__.get("_stands_for_all") else super().__instancecheck__(x)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, own.Optimizer) if cls.__dict__.get("_stands_for_all") else super().__subclasscheck__(other)


class WithTensors(own.Optimizer):
    """What optimizers have in PyTorch's words."""

    def state_dict(self, keep_var: bool = True) -> dict[str, Any]:
        """Hyperparameters, and the states by position of the parameter: the optimizer's own tensors, which its steps change, as in PyTorch;
        `copy.deepcopy` keeps those of now. keep_var: False gives arrays.

        >>> from tengen.pytorch import nn, optim
        >>> optim.SGD(nn.Linear(1, 1).parameters(), momentum=0.9).state_dict()["state"][0]["momentum_buffer"].shape
        (1, 1)
        """
        return super().state_dict(keep_var)


class Optimizer(WithTensors, metaclass=_AnyOptimizer):
    """The base of a program's own optimizers. Every optimizer of Tengen's is an instance of it.

    Args: params: parameters, or groups of them. defaults: what a group has where it does not say otherwise.
    Attributes: state: a dict for each parameter, empty at first, in which `step()` keeps what it likes.

    >>> import tengen.pytorch as torch
    >>> class Descent(Optimizer):
    ...     def __init__(self, params, lr):
    ...         super().__init__(params, dict(lr=lr))
    ...     @torch.no_grad()
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 if p.grad is not None:
    ...                     state = self.state[p]
    ...                     state["step"] = state.get("step", 0) + 1
    ...                     p.add_(p.grad, alpha=-group["lr"] / state["step"])
    >>> w = torch.ones(1, requires_grad=True)
    >>> (w * 2).sum().backward()
    >>> Descent([w], 0.25).step()
    >>> w.tolist()
    [0.5]
    """

    _stands_for_all = True
    takes_any_setting = True
    unread = own.Optimizer.unread | {"_state"}  # no part of a traced function is recorded in `step`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])

    def _create_state(self, p: Any, group: ParamGroup) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave. Errors: ValueError where the groups do not fit"""
        sizes = [[len(g["params"]) for g in groups] for groups in (state["param_groups"], self.param_groups)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"{type(self).__name__}: groups of {sizes[0]} parameters do not fit groups of {sizes[1]}")
        saved = state["state"]
        for group, theirs in zip(self.param_groups, state["param_groups"]):
            for p, i in zip(group["params"], theirs["params"]):
                found = saved.get(i, saved.get(str(i), {}))
                self._state[p] = {k: Tensor(v) if hasattr(v, "dtype") else v for k, v in found.items()}
            group.update({k: v for k, v in theirs.items() if k != "params"})


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step()` between the hooks of the optimizer. In a traced function it runs in every call as it is written, between the programs of
    what comes before and behind it: what it keeps begins at its first call, and may be numbers of Python."""

    @functools.wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with exclude_from_trace():
            for hook in tuple(self._pre_hooks.values()):
                hook(self, args, kwargs)
            out = step(self, *args, **kwargs)
            for hook in tuple(self._post_hooks.values()):
                hook(self, args, kwargs)
        return out

    return call


__all__ = ["Optimizer", "required"]
