"""PyTorch modules whose Python code decides by values: the code runs at each call, and what it computes is computed by Tengen.

`torch.export` runs a module's Python code with tensors that have no values, which detectors do not allow: how many boxes there are decides
what comes next. Here the code runs with tensors that stand for Tengen's, and each operator that PyTorch dispatches goes to the table of `ops/`.
What touches none of the network's tensors (anchors, sizes of images) is computed by PyTorch.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.autodiff import no_grad
from tengen.base.errors import ArgumentError, TengenError
from tengen.base.record import record
from tengen.interop.torch.load import in_mode, package
from tengen.interop.torch.network import TorchState, Weight
from tengen.interop.torch.ops import OPS
from tengen.interop.torch.reader import array_of, bound, op_name, plain
from tengen.interop.torch.sharing import from_torch
from tengen.tensor import Tensor


class TorchCode(TorchState):
    """A PyTorch module that Tengen computes, while Python runs its code. It takes and returns what the PyTorch module does, with Tengen's
    tensors (or arrays) in place of PyTorch's. `train` and `eval` are the module's."""

    def __init__(self, module: Any, state: Mapping[str, Weight]):
        super().__init__(state)
        self._code = _Code(copy.deepcopy(module).to("meta"))  # its code, and what is no parameter or buffer
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the code. Parameters, buffers and tensors among the arguments have what it wrote into them, or assigned to them, afterwards."""
        torch, module = package(), self._code.module
        held = dict((*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)))
        names = list(held)
        own = {id(t): standing(t) for t in map(self.tensor, names)}
        state = {n: own[id(self.tensor(n))] for n in names}
        given: list[tuple[Any, Any]] = []

        def stand_for(v: Any) -> Any:
            given.append((v, standing(v if isinstance(v, Tensor) else Tensor(v))))
            return given[-1][1]

        args, kwargs = (nest(x, stand_for, (Tensor, np.ndarray)) for x in (args, kwargs))
        after = dict(state)  # PyTorch puts there what the code has assigned to the names
        with in_mode(module, bool(self.training)), torch.enable_grad(), without_onednn(torch), mode_class()():
            made = torch.func.functional_call(module, after, args, kwargs)
        for name in names:
            self._take_over(name, state[name], state[name] if after[name] is held[name] else after[name])  # a module's second name
        for v, stood in given:
            if stood.writes and isinstance(v, Tensor):
                v._reset(tengens(stood.now()))
        return nest(made, lambda v: tengens(v.now() if isinstance(v, standing_class()) else v), torch.Tensor)

    def _take_over(self, name: str, before: Any, after: Any) -> None:
        """Gives a parameter or buffer what the code wrote into it, or put in its place.

        Errors: ArgumentError for what is no tensor of its shape and dtype.
        """
        if after is before and not before.writes:
            return
        t = self.tensor(name)
        if not isinstance(after, standing_class()) or tuple(after.shape) != tuple(before.shape) or after.dtype != before.dtype:
            said = f"{after.dtype}{list(after.shape)}" if hasattr(after, "shape") else type(after).__name__
            raise ArgumentError(f"the module's code puts {said} in the place of {name}, which is and stays {before.dtype}{list(before.shape)}")
        t._reset(tengens(after.now()).detach())


@record(frozen=True)
class _Code:
    """A PyTorch module. A walk over a Tengen module does not look inside."""

    module: Any


def interpret(module: Any) -> TorchCode:
    """A PyTorch module as a Tengen `Module` that runs its Python code at each call, with Tengen's operators: for modules that
    `torch.export`, and so `to_module`, does not take, since values decide what their code does (whole detectors).

    Args: module: an ``nn.Module``; it is not changed, and its weights are copied.
    Returns: a `Module` with PyTorch's names of parameters and buffers. It takes and returns what the module does, Tengen's tensors (or
        arrays) in place of PyTorch's; gradients go through it, `train` and `eval` choose the module's mode. Under `trace` it is compiled
        in parts, between what the code asks for; no file holds it.
    Errors: ArgumentError for an operator that has no meaning here, when the code comes to it; for a write into a tensor that is no part of the
        module.
    Numerics: as PyTorch's within float rounding. Decisions by values (which boxes are kept) are those of Tengen's values.

    >>> import torch
    >>> from tengen import Tensor
    >>> from tengen.interop.torch import interpret
    >>> class Halved(torch.nn.Module):
    ...     def forward(self, x):
    ...         while x.max() > 1:
    ...             x = x / 2
    ...         return x[x > 0.5]
    >>> interpret(Halved())(Tensor([3.0, 1.0, -2.0])).tolist()
    [0.75]
    """
    torch = package()
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"interpret takes an nn.Module, got a {type(module).__name__}")
    trained = {name for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    saved, found, first = list(module.state_dict()), {}, {}
    every = dict((*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)))
    for name in dict.fromkeys([n for n in saved if n in every] + list(every)):
        same = first.setdefault(id(every[name]), name)
        value = array_of(every[name]) if same == name else found[same].value
        found[name] = Weight(value, name in trained, name in saved, None if same == name else same)
    return TorchCode(module, found)


@contextlib.contextmanager
def without_onednn(torch: Any) -> Iterator[None]:
    """For a while, PyTorch takes recurrent layers apart, where it would give them to oneDNN whole."""
    before, torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled, False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def nest(x: Any, f: Callable[[Any], Any], kind: Any) -> Any:
    """A nest of dicts, lists and tuples with f of what it holds of some kind; results with fields become dicts."""
    if isinstance(x, kind):
        return f(x)
    if isinstance(x, Mapping):
        return {k: nest(v, f, kind) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(nest(v, f, kind) for v in x))
    return type(x)(nest(v, f, kind) for v in x) if isinstance(x, (list, tuple)) else x


# ---- tensors that stand for others -----------------------------------------------------------------------------------------


@functools.cache
def standing_class() -> Any:
    """The class of tensors that stand for others."""
    torch = package()
    base: Any = torch.Tensor

    class Standing(base):
        """To PyTorch a tensor with a shape and a dtype and without memory.

        Attributes:
            held: a Tengen tensor, or one of PyTorch's that depends on none. writes: how often it was written. view_of: None, or of which
                tensor it is a view and how: (tensor, operator, further arguments, those by name, which part of several). seen: the
                writes of that tensor that `held` shows.
        """

        held: Any
        writes: int
        view_of: Any
        seen: int
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, value: Any, view: Any = None) -> Any:
            shape = tuple(int(d) for d in value.shape)
            dtype = value.dtype if isinstance(value, torch.Tensor) else getattr(torch, value.dtype.name)
            made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
            made.held, made.writes, made.view_of, made.seen = value, 0, view, 0 if view is None else view[0].writes
            return made

        def __init__(self, *_: Any):
            pass

        def now(self) -> Any:
            """The value, also after the tensor of which this is a view was written."""
            if self.view_of is not None:
                whole = self.view_of[0]
                whole.now()
                if self.seen != whole.writes:
                    self.held, self.seen = viewed(self.view_of), whole.writes
                    self.writes += 1
            return self.held

        def write(self, value: Any) -> None:
            """Gives it, and what it is a view of, another value. What is written under no_grad keeps the gradient of what was there."""
            if not torch.is_grad_enabled() and self.dtype.is_floating_point:
                value = F.straight_through(tengens(value), tengens(self.held))
            self.held, self.writes = value, self.writes + 1
            if self.view_of is not None:
                whole = self.view_of[0]
                whole.write(put_back(self.view_of, value))
                self.seen = whole.writes

        def __repr__(self, **_: Any) -> str:
            return f"Standing({self.held!r})"

        def tolist(self) -> Any:
            return self.now().tolist()

        def numpy(self, **_: Any) -> Any:
            return self.now().detach().numpy()

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return dispatched(func, args, kwargs or {})

    return Standing


def standing(value: Any) -> Any:
    """The tensor that stands for a value."""
    return standing_class()(value)


def tengens(value: Any) -> Tensor:
    """A value as a Tengen tensor."""
    return value if isinstance(value, Tensor) else from_torch(value)


@functools.cache
def mode_class() -> Any:
    """The mode in which PyTorch gives every operator here, those of new tensors too."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return dispatched(func, args, kwargs or {})

    return Mode


# ---- operators ---------------------------------------------------------------------------------------------------------------

RESHAPED = ("view", "_unsafe_view", "_reshape_alias", "unsqueeze", "squeeze", "alias", "detach")  # views of all elements in their order
WRITERS = {  # -> what they write
    "_index_put_impl_": "index_put", "zero_": "zeros_like", "fill_": "fill", "bernoulli_": "bernoulli", "normal_": "normal_functional",
}  # fmt: skip
RUNNING = ("native_batch_norm", "_native_batch_norm_legit")  # they write running statistics, which their schemas do not always say


def dispatched(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operator gives: tensors that stand for Tengen's, or for PyTorch's where no operand is one of Tengen's."""
    torch, kind = package(), standing_class()
    name = func._schema.name.split("::")[1]
    if name in RUNNING:
        return batch_norm(args)
    given = lambda x: nest(x, lambda t: t.now() if isinstance(t, kind) else t, torch.Tensor)
    if func._schema.is_mutable:
        target = args[0]
        rest = [x for x in torch.utils._pytree.arg_tree_leaves(*args[1:], **kwargs) if isinstance(x, kind)]
        if not isinstance(target, kind) and not rest:
            return func(*args, **kwargs)
        if not isinstance(target, kind) or not name.endswith("_"):
            raise ArgumentError(f"{op_name(func)} writes a tensor that the network does not make; help: register_buffer keeps it in the module")
        target.write(after(func, name, given(tuple(args)), given(dict(kwargs))))
        return target
    made = compute(func, given(tuple(args)), given(dict(kwargs)))
    if not func.is_view:
        return nest(made, standing, (torch.Tensor, Tensor))
    whole = args[0] if isinstance(args[0], kind) else standing(args[0])
    rest, named = given(tuple(args[1:])), given(dict(kwargs))
    if isinstance(made, (torch.Tensor, Tensor)):
        return kind(made, (whole, func, rest, named, None))
    return [kind(part, (whole, func, rest, named, i)) for i, part in enumerate(made)]


def viewed(view: tuple) -> Any:
    """What a view shows of the tensor that it is of."""
    whole, func, rest, named, part = view
    made = compute(func, (whole.now(), *rest), named)
    return made if part is None else made[part]


def put_back(view: tuple, value: Any) -> Any:
    """The tensor that a view is of, with another value at the view's places.

    Errors: ArgumentError for a view that says nothing of them here.
    """
    whole, func, rest, named, part = view
    base, aten = whole.now(), package().ops.aten
    args, _ = bound(func, (base, *rest), named)
    match func._schema.name.split("::")[1]:
        case name if name in RESHAPED:
            return compute(aten.view.default, (value, list(base.shape)), {})
        case "slice" | "select" | "diagonal" as name:
            return compute(getattr(aten, f"{name}_scatter").default, (base, value, *args[1:]), {})
        case "unbind":
            return compute(aten.select_scatter.default, (base, value, args[1], part), {})
        case "t" | "transpose" as name:
            return compute(func, (value, *args[1:]), {})
        case "permute":
            return compute(func, (value, np.argsort([d % value.ndim for d in args[1]]).tolist()), {})
    raise ArgumentError(f"a view by {op_name(func)} is written, which has no meaning here; help: write what it is a view of")


def after(func: Any, name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """The value of a tensor after an operator that writes it: that of the operator of the same name that gives a new one."""
    aten, old = package().ops.aten, args[0]
    if name == "copy_":
        made = args[1]
    else:
        packet = getattr(aten, WRITERS.get(name, name[:-1]), None)
        overload = {"bernoulli_": "p", "_index_put_impl_": "default"}.get(name, func._overloadname)
        pure = getattr(packet, overload, None)
        if pure is None:
            raise ArgumentError(f"{op_name(func)} writes its operand, and has no meaning here")
        made = compute(pure, args[:4] if name == "_index_put_impl_" else args, {k: v for k, v in kwargs.items() if k != "generator"})
    made = compute(aten._to_copy.default, (made,), {"dtype": dtype_of(old)})
    return compute(aten.expand.default, (made, list(old.shape)), {})


def dtype_of(value: Any) -> Any:
    """PyTorch's dtype of a value."""
    return getattr(package(), value.dtype.name) if isinstance(value, Tensor) else value.dtype


def batch_norm(args: Sequence[Any]) -> tuple[Any, ...]:
    """(Result, mean, 1 / deviation); in training mode the running statistics get their new values."""
    kind = standing_class()
    values = [None if v is None else tengens(v.now()) if isinstance(v, kind) else v for v in args]
    y, mean, inverse, new_mean, new_var = OPS["aten._native_batch_norm_legit_functional"](*values)
    if args[5] and args[3] is not None:
        args[3].write(new_mean.detach())
        args[4].write(new_var.detach())
    return tuple(None if v is None else standing(v) for v in (y, mean, inverse))


def compute(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """The result of an operator of values: Tengen's where one of them is, or where random numbers are drawn.

    Errors: ArgumentError for an operator that has no meaning here, and no decomposition into such that have.
    """
    torch = package()
    every = torch.utils._pytree.arg_tree_leaves(*args, **kwargs)
    if not any(isinstance(v, Tensor) for v in every) and torch.Tag.nondeterministic_seeded not in func.tags:
        with outside(torch):  # contiguous: what stands for it says so to PyTorch's checks of views
            return nest(func(*args, **kwargs), lambda t: t.contiguous(), torch.Tensor)
    name = op_name(func)
    if name not in OPS:
        found = definition(func)
        if found is None:
            raise ArgumentError(f"{name} has no meaning here; help: enter it in tengen.interop.torch.registry.OPS")
        stood = lambda x: nest(x, standing, (torch.Tensor, Tensor))
        return nest(found(*stood(args), **stood(dict(kwargs))), lambda t: t.now(), standing_class())
    mine = lambda x: nest(plain(None, x), tengens, torch.Tensor)
    positional, named = bound(func, mine(args), mine(dict(kwargs)))
    f = OPS[name]
    more = {"wanted": frozenset(range(8))} if f.wants else {}
    try:
        with contextlib.nullcontext() if torch.is_grad_enabled() else no_grad():
            made = f(*map(mine, positional), **{k: mine(v) for k, v in named.items()}, **more)
    except TengenError as e:
        e.add_note(f"in PyTorch's operator {name}")
        raise
    return made


def definition(func: Any) -> Callable[..., Any] | None:
    """PyTorch's definition of an operator by others; None for one that has none. Definitions themselves call operators that PyTorch
    takes apart in C++, which come here whole."""
    has_parts = package()._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return decompositions().get(func) or (func.decompose if has_parts else None)


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's definitions of operators by others: those of its core operators, then those of every other (losses and the like)."""
    decomp = package()._decomp
    return {**decomp.decomposition_table, **decomp.core_aten_decompositions()}


def outside(torch: Any) -> Any:
    """Without the mode: PyTorch computes."""
    return torch.utils._python_dispatch._disable_current_modes()
