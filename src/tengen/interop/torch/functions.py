"""Gradients across the border: a Tengen function inside of a PyTorch model, and the other way round."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tengen import random
from tengen.autodiff import Function, no_grad, vjp
from tengen.base.errors import ArgumentError, TraceError
from tengen.interop.torch.load import package
from tengen.interop.torch.sharing import from_torch, to_torch
from tengen.module import Module
from tengen.tensor import Parameter, Tensor, tracing
from tengen.tensor.nodes import is_live_elsewhere, on_tape, walking


def as_torch_function(function: Callable[..., Any]) -> Any:
    """A Tengen function or `Module` as a part of PyTorch models: gradients go through it, by Tengen's rules.

    Args: function: of Tengen tensors, to a tensor or a tuple of tensors. PyTorch's tensors are arguments by position or by name, not inside of
        lists; other arguments are handed on.
    Returns: of a function, a function of PyTorch tensors. Of a module, an ``nn.Module`` whose parameters are PyTorch's, with the Tengen
        module's names and copies of its values: PyTorch's optimizers train them. ``module.load_state_dict(from_torch(made.state_dict()))``
        takes them back. Buffers (running statistics) stay the Tengen module's; ``train()`` and ``eval()`` are handed on.
    Numerics: bits are Tengen's. Memory is shared in both directions, and a parameter that is written between the call and the backward walk is
        PyTorch's usual error. Gradients of gradients (``create_graph=True``) run the function once more, with the same random numbers and a
        module's buffers as they were.

    >>> import torch
    >>> from tengen import functional as F
    >>> from tengen.interop.torch import as_torch_function
    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> as_torch_function(lambda x: F.square(x) * 2)(x).backward()
    >>> x.grad
    tensor([12.])
    """
    package()
    if isinstance(function, Module):
        return _module_class()(function)

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return _through(function, args, kwargs, [], [])

    return call


@functools.cache
def _call_class() -> Any:
    """The autograd function behind every call."""
    torch = package()
    base: Any = torch.autograd.Function

    class TengenCall(base):
        """run: a Tengen function of the tensors, to a list."""

        @staticmethod
        def forward(ctx: Any, run: Callable[..., list[Tensor]], *tensors: Any) -> Any:
            xs = [from_torch(t) for t in tensors]
            which = [i for i, x in enumerate(xs) if ctx.needs_input_grad[i + 1] and x.dtype.is_inexact]
            others: list[Any] = []

            def floats(*given: Tensor) -> list[Tensor]:
                full = list(xs)
                for i, x in zip(which, given):
                    full[i] = x
                others[:] = run(*full)
                return [o for o in others if o.dtype.is_inexact]

            if which:
                made, ctx.pull = vjp(floats, *(xs[i] for i in which))
            else:
                with no_grad():
                    made, ctx.pull = floats(*()), None
            rest = iter(made)
            outs = [to_torch(next(rest) if o.dtype.is_inexact else o) for o in others]
            ctx.run, ctx.which, ctx.count, ctx.kinds = run, which, len(tensors), [o.dtype.is_inexact for o in others]
            ctx.like = [(tuple(o.shape), t.dtype) for o, t in zip(others, outs)]
            ctx.save_for_backward(*tensors)  # so that PyTorch notices who writes them before the backward walk
            ctx.mark_non_differentiable(*(t for t, kind in zip(outs, ctx.kinds) if not kind))
            given = {t.data_ptr() for t in tensors if t.numel()}
            return tuple(t.clone() if t.data_ptr() in given else t for t in outs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            tensors = ctx.saved_tensors
            given = [
                torch.zeros(shape, dtype=dtype) if g is None else g
                for g, kind, (shape, dtype) in zip(grads, ctx.kinds, ctx.like)
                if kind
            ]
            if torch.is_grad_enabled():  # somebody may ask for a gradient of this gradient
                made = TengenCall.apply(functools.partial(_pulled, ctx.run, ctx.count, ctx.which), *tensors, *given)
            else:
                made = [to_torch(g) for g in ctx.pull([from_torch(g.detach()) for g in given])]
            found = dict(zip(ctx.which, made))
            return None, *(found.get(i) for i in range(ctx.count))

    return TengenCall


def _pulled(run: Callable[..., list[Tensor]], count: int, which: Sequence[int], *given: Tensor) -> list[Tensor]:
    """The gradients of run's results by its tensors number `which`, as a function of its `count` tensors and the results' gradients."""

    def floats(*xs: Tensor) -> list[Tensor]:
        full = list(given[:count])
        for i, x in zip(which, xs):
            full[i] = x
        return [o for o in run(*full) if o.dtype.is_inexact]

    return list(vjp(floats, *(given[i] for i in which))[1](list(given[count:])))


@contextlib.contextmanager
def _as_at_first(function: Any, first: list[Any]) -> Iterator[None]:
    """A module's buffers, and the generator of random numbers, as they were when this was first entered with the same list, which notes it;
    afterwards they are as they are now."""
    buffers = list(function.buffers()) if isinstance(function, Module) else []
    now = [(b._data, b._layout, b._node) for b in buffers], random.get_state()
    if not first:
        first.append(now)
        yield
        return
    try:
        _put(buffers, first[0][0])
        random.set_state(first[0][1])
        yield
    finally:
        _put(buffers, now[0])
        random.set_state(now[1])


def _put(tensors: Sequence[Tensor], values: Sequence[tuple]) -> None:
    """Gives tensors values, and places on the tape."""
    for t, (data, layout, node) in zip(tensors, values):
        t._data, t._layout, t._node = data, layout, node


@contextlib.contextmanager
def _standing_for(parameters: Sequence[Parameter], values: Sequence[Tensor]) -> Iterator[None]:
    """Parameters with the values, and the places on the tape, of other tensors for a while."""
    before = [(p._data, p._layout, p._node) for p in parameters]
    try:
        _put(parameters, [(x._data, x._layout, x._node) for x in values])
        yield
    finally:
        _put(parameters, before)


def _through(function: Callable, args: tuple, kwargs: dict[str, Any], parameters: list[Parameter], weights: list[Any]) -> Any:
    """A call of a Tengen function with PyTorch's tensors among its arguments."""
    torch = package()
    places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    names = [k for k, a in kwargs.items() if isinstance(a, torch.Tensor)]
    several: list[Any] = [None]
    first: list[Any] = []

    def run(*xs: Tensor) -> list[Tensor]:
        full, by_name = list(args), dict(kwargs)
        for i, x in zip(places, xs):
            full[i] = x
        by_name.update(zip(names, xs[len(places) :]))
        with _as_at_first(function, first), _standing_for(parameters, xs[len(places) + len(names) :]):
            out = function(*full, **by_name)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if wrong := [type(o).__name__ for o in outs if not isinstance(o, Tensor)]:
            raise ArgumentError(
                f"a Tengen function in a PyTorch model must return a tensor or a tuple of tensors, not a {wrong[0]}"
            )
        several[0] = type(out) if isinstance(out, (tuple, list)) else None
        return outs

    given = [*(args[i] for i in places), *(kwargs[k] for k in names), *weights]
    made = _call_class().apply(run, *given)
    return made[0] if several[0] is None else several[0](made)


@functools.cache
def _module_class() -> Any:
    """The nn.Module of a Tengen module."""
    torch = package()
    base: Any = torch.nn.Module

    class TengenModule(base):
        """A Tengen module in a PyTorch model. tengen: the module, which computes with this one's parameters."""

        def __init__(self, module: Module):
            super().__init__()
            self.tengen = module
            self._names = [name for name, _ in module.named_parameters()]
            for name, p in module.named_parameters():
                *path, last = name.split(".")
                owner: Any = self
                for part in path:
                    if part not in owner._modules:
                        owner.add_module(part, torch.nn.Module())
                    owner = owner._modules[part]
                owner.register_parameter(last, torch.nn.Parameter(to_torch(p).clone(), requires_grad=p.dtype.is_inexact))
            self.training = module.training

        def train(self, mode: bool = True) -> Any:
            self.tengen.train(mode)
            return super().train(mode)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            owned, own = dict(self.named_parameters()), dict(self.tengen.named_parameters())
            return _through(self.tengen, args, kwargs, [own[n] for n in self._names], [owned[n] for n in self._names])

    return TengenModule


def from_torch_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function or ``nn.Module`` of PyTorch's as a Tengen function: it is called with PyTorch tensors over the memory of its arguments, and
    gradients go through it, by PyTorch's rules, and gradients of gradients. Parameters of an ``nn.Module`` get theirs in their own ``grad``,
    when a gradient is taken that is not differentiated again.

    Tensors are arguments by position or by name, not inside of lists. It runs eagerly, since no program can call PyTorch. `to_module` makes a
    module that is traced and shipped.

    Errors: TraceError inside of a trace or a dump; ArgumentError for a result that is no tensor, or no tuple of tensors.

    >>> import torch
    >>> from tengen import Tensor, autodiff
    >>> from tengen.interop.torch import from_torch_function
    >>> square = from_torch_function(lambda x: x * x)
    >>> autodiff.grad(lambda x: square(x).sum())(Tensor([3.0])).tolist()
    [6.0]
    """
    package()

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None or tracing.recorder is not None:
            name = getattr(function, "__name__", type(function).__name__)
            raise TraceError(
                f"{name} is a function of PyTorch's, which a program cannot call; help: call it outside of the trace, or make a Tengen "
                "module of it with tengen.interop.torch.to_module"
            )
        names = [k for k, v in kwargs.items() if isinstance(v, Tensor)]
        rest = {k: v for k, v in kwargs.items() if k not in names}
        every = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        return TorchCall(function, len(args), names, rest, any(on_tape(x) for x in every))(*args, *(kwargs[k] for k in names))

    return call


class TorchCall(Function):
    """One call of a PyTorch function.

    Attributes:
        count: how many arguments were given by position; those behind have `names`. rest: arguments by name that are no tensors. recorded:
            whether a gradient is asked for.
    """

    def __init__(self, function: Callable, count: int, names: list[str], rest: dict[str, Any], recorded: bool):
        self.function, self.count, self.names, self.rest, self.recorded = function, count, names, rest, recorded

    def forward(self, *inputs: Any) -> Any:
        torch = package()
        given = [to_torch(x) if isinstance(x, Tensor) else x for x in inputs]
        self.inputs = [x for x in inputs if isinstance(x, Tensor)]
        self.leaves = [t for x, t in zip(inputs, given) if isinstance(x, Tensor)]
        if self.recorded:
            for t in self.leaves:
                t.requires_grad_(t.is_floating_point() or t.is_complex())
        with torch.set_grad_enabled(self.recorded):
            named = dict(zip(self.names, given[self.count :]))
            out = self.function(*given[: self.count], **named, **self.rest)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if wrong := [type(o).__name__ for o in outs if not isinstance(o, torch.Tensor)]:
            raise ArgumentError(f"a PyTorch function must return a tensor or a tuple of tensors here, not a {wrong[0]}")
        self.outs = outs if self.recorded else []
        made = tuple(from_torch(o) for o in outs)
        return made if isinstance(out, (tuple, list)) else made[0]

    def backward(self, *grads: Any) -> Any:
        torch = package()
        if is_live_elsewhere((*self.inputs, *(g for g in grads if g is not None)), walking.level):
            found = TorchGradient(self, [g is not None for g in grads])(*self.inputs, *(g for g in grads if g is not None))
            return tuple(g if t.requires_grad else None for g, t in zip(found, self.leaves))
        pairs = [(o, to_torch(g)) for o, g in zip(self.outs, grads) if g is not None and o.requires_grad]
        for t in self.leaves:
            t.grad = None
        if pairs:
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs], retain_graph=True)
        return tuple(None if t.grad is None else from_torch(t.grad) for t in self.leaves)


class TorchGradient(TorchCall):
    """The gradient of such a call, as a function of its inputs and of the gradients of its outputs that are there: PyTorch's graph of it."""

    def __init__(self, call: TorchCall, there: list[bool]):
        super().__init__(call.function, 0, [], {}, True)
        self.call, self.there = call, there

    def forward(self, *inputs: Any) -> Any:
        torch, call = package(), self.call
        self.inputs = list(inputs)
        grads = [to_torch(g).requires_grad_() for g in inputs[len(call.leaves) :]]
        self.leaves = [*call.leaves, *grads]
        pairs = [(o, g) for o, g in zip((o for o, there in zip(call.outs, self.there) if there), grads) if o.requires_grad]
        asked = [t for t in call.leaves if t.requires_grad]
        with torch.enable_grad():
            ends, seeds = [o for o, _ in pairs], [g for _, g in pairs]
            found = iter(torch.autograd.grad(ends, asked, seeds, create_graph=True, allow_unused=True) if pairs else [None] * len(asked))
            outs = [next(found) if t.requires_grad else None for t in call.leaves]
            self.outs = [torch.zeros_like(t) if g is None else g for g, t in zip(outs, call.leaves)]
        return tuple(from_torch(g) for g in self.outs)
