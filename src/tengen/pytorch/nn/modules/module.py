"""`torch.nn.modules.module`: where `Module` stands in PyTorch's files, and hooks of all modules."""

from __future__ import annotations

from collections.abc import Callable

from tengen.module.hooks import forward_hook
from tengen.module.module import EVERYWHERE
from tengen.pytorch.nn.module import Module
from tengen.tensor.hooks import HookHandle, put


def register_module_forward_pre_hook(hook: Callable) -> HookHandle:
    """Calls hook(module, inputs) before the forward of every module, and before the module's own hooks; what it returns, if anything,
    replaces the inputs. Returns: what takes it off, by `remove()` or as a context."""
    return put(EVERYWHERE["_forward_pre_hooks"], hook)


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> HookHandle:
    """Calls hook(module, inputs, outputs) after the forward of every module; what it returns, if anything, replaces the outputs.

    Args: with_kwargs: it is called as hook(module, inputs, kwargs, outputs). always_call: also where a forward raises an error, with None as
        the outputs. Returns: what takes it off.

    >>> from tengen.pytorch import nn, ones
    >>> seen = []
    >>> with register_module_forward_hook(lambda m, inputs, out: seen.append(type(m).__name__)):
    ...     y = nn.Sequential(nn.Linear(2, 3), nn.ReLU())(ones(1, 2))
    >>> seen
    ['Linear', 'ReLU', 'Sequential']
    """
    return put(EVERYWHERE["_forward_hooks"], forward_hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable) -> HookHandle:
    """Calls hook(module, grad_output) when the gradients of any module's outputs are there; what it returns, if anything, takes their place.
    Returns: what takes it off."""
    return put(EVERYWHERE["_backward_pre_hooks"], hook)


def register_module_full_backward_hook(hook: Callable) -> HookHandle:
    """Calls hook(module, grad_input, grad_output) when the gradients of any module's inputs are there; what it returns, if anything, takes
    the place of grad_input. Returns: what takes it off."""
    return put(EVERYWHERE["_backward_hooks"], hook)


__all__ = [
    "Module", "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]  # fmt: skip
