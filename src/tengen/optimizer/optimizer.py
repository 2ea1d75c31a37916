"""The base of optimizers: groups of parameters with hyperparameters, and state per parameter.

A learning rate lives in a tensor, so a traced step reads its present value and a scheduler can change it between steps.
"""

from __future__ import annotations

import difflib
import functools
import html
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tengen.autodiff import GradManager, no_grad
from tengen.autodiff.manager import attached_elsewhere
from tengen.base.arguments import Checked
from tengen.base.changes import Watched, WatchedDict, WatchedList, changed, same, telling
from tengen.base.dtype import DType, complex128, float32, float64, promote
from tengen.base.errors import TraceError, UsageWarning, warn_once
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ops.define import REGISTRY
from tengen.optimizer.states import AnyStates, States
from tengen.tensor import Parameter, Tensor, tensor_over, tracing
from tengen.tensor.elsewhere import Placed
from tengen.tensor.hooks import HookHandle, put
from tengen.tensor.nodes import leaf_of, leaves


@telling("__delitem__", "clear", "pop", "popitem")
class ParamGroup(Watched, dict):
    """Hyperparameters and "params". Setting "lr" also sets the tensor that steps read (`rate`); another value of any other key is told to
    the recordings of `trace`, whose programs have the numbers in them.

    Attributes: lr: the learning rate as a tensor: float32, or float64 where a parameter is; the one that was given where "lr" is a tensor."""

    in_tensors = frozenset({"lr"})
    unread = frozenset({"_lr_read", "_complete", "_any"})
    _lr_read = False  # whether a recording asked for the number, and not for the tensor
    _complete = False  # whether every key is there that the optimizer reads
    _any = False  # whether other keys may be read, too

    def __init__(self, values: dict, takes_any: bool = False):
        super().__init__()
        self._any = takes_any
        self.lr = _state_of(0.0, float64 if any(_is_wide(p) for p in values.get("params", ())) else float32)
        self.update(values)
        self._complete = True

    def rate(self, p: Tensor) -> Tensor:
        """The learning rate for a parameter: a 0-d tensor of float32, or float64 for parameters of float64."""
        if self.lr.dtype is float32 and _is_wide(p) and not isinstance(super().__getitem__("lr"), Tensor):  # it has become one
            super().__setattr__("lr", _state_of(super().__getitem__("lr"), float64))
        return REGISTRY["astype"](self.lr, float32) if self.lr.dtype is not float32 and not _is_wide(p) else self.lr

    def schedule(self, lr: float) -> None:
        """Sets the learning rate; a tensor that was given for it takes the number."""
        given = super().get("lr")
        if isinstance(given, Tensor):
            given._reset(Tensor(np.asarray(lr, given.dtype.numpy)))
        else:
            self["lr"] = lr

    def __setattr__(self, name, value):
        if self._complete and name not in self.unread:
            raise AttributeError(f"a group has no attribute {name!r} to set; help: group[{name!r}] = {value!r}")
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        old = super().get(key, self)
        if self._complete and "params" in self and old is self and key not in _FREE and not self._any:
            known = [k for k in self if k != "params"]
            warn_once(f"group[{key!r}] = {value!r} is read by nothing; help: {nearest(str(key), known)}", UsageWarning)
        super().__setitem__(key, value)
        tensor = key == "lr" and isinstance(value, Tensor)
        if tensor or (key == "lr" and isinstance(old, Tensor)):
            super().__setattr__("lr", value if tensor else _state_of(value, self.lr.dtype))
        elif key == "lr" and (not self._any or isinstance(value, (int, float, np.number))):
            self.lr._reset(Tensor(np.asarray(value, self.lr.dtype.numpy)))
        if (key != "lr" or self._lr_read or tensor or isinstance(old, Tensor)) and not same(old, value):
            changed()

    def __getitem__(self, key):
        if key == "lr" and tracing.active is not None and (recorder := tracing.recorder) is not None:
            recorder.numbers.add(id(self))
            self._lr_read = True
        return super().__getitem__(key)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args, **kwargs):
        for k, v in dict(*args, **kwargs).items():
            self[k] = v

    def __ior__(self, other):
        self.update(other)
        return self

    def __reduce__(self):
        return ParamGroup, (dict(self), self._any)


def _named(p: Any) -> bool:
    """Whether it is a name and what has it, as `named_parameters()` gives them."""
    return isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str)


def _is_wide(p: Tensor) -> bool:
    return p.dtype is float64 or p.dtype is complex128


def _state_of(value: float, d: DType) -> Tensor:
    """A number that steps read, as if it had been made before a trace that is being recorded."""
    return tensor_over(new_buffer(np.array(value, d.numpy)), Layout((), d))


class Optimizer(Checked, Watched):
    """Base class. Subclasses give `_create_state(p, group)` and `_update(p, grad, state, group)`. They get complex parameters, gradients
    and states as pairs of floats, (..., 2). Or, as in MegEngine, `_create_state(param_group)`, which calls `_add_state`, and
    `_updates(param_group)`, which updates all parameters of a group that have a gradient.

    Args:
        params: parameters, pairs of a name and a parameter (`named_parameters()`), or dicts with "params" and hyperparameters of their own.
        defaults: hyperparameters. Their "lr" is a number, or a tensor of one, which each step reads and a schedule writes.
        how: options of PyTorch's optimizers: maximize, which goes up in place of down; foreach, fused and capturable, which
            change no number and are accepted; differentiable, which is not there.
    Attributes: elementwise: whether the update of an element depends on no other one, so that parts of a parameter can be updated apart.
    Errors: TypeError for arguments that it does not have; ValueError for no parameters
    """

    unread = frozenset({"defaults", "_manager"})
    elementwise = True
    _updates: Callable[..., None] | None = None
    takes_any_setting = False  # whether groups may have settings of any name and value: the update is a program's own

    def __init__(self, params, defaults: dict, how: Mapping[str, Any] | None = None):
        for name in how or ():
            if name not in _HOW:
                hint = nearest(name, [*defaults, *_HOW])
                raise TypeError(f"{type(self).__name__} takes no argument {name!r}; help: {hint}")
        if how and how.get("differentiable"):
            refuse(self, "differentiable=True: an update is not differentiated")
        self.defaults = {**defaults, "maximize": bool(how.get("maximize"))} if how else defaults
        self.param_groups: list[ParamGroup] = WatchedList()
        self._state = AnyStates() if self.takes_any_setting else States()
        self._manager: GradManager | None = None
        self._pre_hooks: dict[int, Callable] = WatchedDict()
        self._post_hooks: dict[int, Callable] = WatchedDict()
        groups = [params] if isinstance(params, Tensor) else list(params)
        if not groups:
            raise ValueError(f"{type(self).__name__} got no parameters; help: pass module.parameters()")
        for g in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(g)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy and a pickle hold: states beside their parameters, which are other objects there."""
        return vars(self) | {"_manager": None}

    def __setstate__(self, found: dict[str, Any]) -> None:
        self.__dict__.update(found)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("defaults", ()):
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be set: each group has its own; help: for group in opt.param_groups: "
                f"group[{name!r}] = {value!r}"
            )
        super().__setattr__(name, value)

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters with hyperparameters of their own.

        Errors: TypeError for what is neither a Parameter nor a tensor that requires a gradient by itself;
            ValueError for a parameter given twice, for names of some parameters alone, and for hyperparameters that are not there or
            out of range. Where PyTorch's dialect is loaded, and of a group of another optimizer, those that are not there are kept
            and not read
        """
        known = [*self.defaults, "params", *_FREE]
        odd = [] if self.takes_any_setting or isinstance(param_group, ParamGroup) else [name for name in param_group if name not in known]
        if odd and not leaves.parameters:
            refuse(self, f"a group has no {odd[0]!r}; help: {nearest(odd[0], known)}")
        for name in odd:  # PyTorch's programs keep settings of their own in groups
            warn_once(f"{type(self).__name__}: a group's {name!r} is read by nothing of it; help: {nearest(name, known)}", UsageWarning)
        if "params" not in param_group:
            refuse(self, f"a group needs 'params', got {sorted(param_group)}")
        params = param_group["params"]
        given = [params] if isinstance(params, Tensor) else list(params)
        params = [p[1] if _named(p) else p for p in given]
        if any(map(_named, given)) and not all(map(_named, given)):
            raise ValueError(f"{type(self).__name__} got parameters with names and without; help: net.named_parameters(), or net.parameters()")
        own: set[int] = set()
        others = {id(p) for p, _ in self._params()}
        for p in params:
            if not isinstance(p, Parameter) and (not isinstance(p, Tensor) or leaf_of(p) is None):
                raise TypeError(f"an optimizer updates Parameters, got a {type(p).__name__}")
            if id(p) in others:
                raise ValueError("a parameter is in two groups")
            if id(p) in own:
                raise ValueError(f"a parameter of shape {p.shape} is given twice; help: module.parameters() gives each once")
            own.add(id(p))
        for name, default in self.defaults.items():
            if default is REQUIRED and name not in param_group:
                raise ValueError(f"{type(self).__name__} needs {name}")
        values = {**self.defaults, **param_group, "params": WatchedList(params)}
        for name in ("lr", "momentum", "weight_decay", "eps", "lr_decay", "momentum_decay", "rho", "alpha"):
            value = 0.0 if self.takes_any_setting else values.get(name, 0.0)
            value = value.item() if name == "lr" and isinstance(value, Tensor) and value.size == 1 else value
            if not isinstance(value, (int, float, np.number)) or not 0 <= value < math.inf:
                raise ValueError(f"{type(self).__name__}: {name}={value!r} must be a finite number, and must not be negative")
        group = ParamGroup(values, self.takes_any_setting or any(name not in known for name in values))
        self.param_groups.append(group)
        if self._updates:
            self._create_state(group)
        else:
            for p in params:
                self._states_of(p, group)

    def _create_state(self, *of: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs _create_state()")

    def _update(self, p: Parameter, grad: Tensor, state: dict[str, Tensor], group: ParamGroup) -> None:
        raise NotImplementedError(f"{type(self).__name__} needs _update()")

    def _add_state(self, param: Tensor, state_name: str, initializer: Any = None) -> None:
        """MegEngine's: what `_updates` finds as ``self._state[param][state_name]``: zeros of the parameter's shape and dtype, or the number
        or array that is given, in float32."""
        first = REGISTRY["zeros_like"](param.detach()) if initializer is None else Tensor(initializer, dtype=float32)
        self._state.setdefault(param, WatchedDict())[state_name] = first

    def _params(self) -> Iterable[tuple[Parameter, ParamGroup]]:
        return ((p, g) for g in self.param_groups for p in g["params"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient; returns self, so that ``opt.step().clear_grad()`` reads well.

        Where a `tengen.amp.GradScaler` found a gradient that is not finite, parameters and state stay what they are.

        Args:
            closure: called before the update, as in PyTorch: it computes the gradients and returns the loss, which is then
                returned in place of self.
        """
        for hook in self._pre_hooks.values():
            hook(self, () if closure is None else (closure,), {})
        loss, updated = None if closure is None else closure(), False
        with no_grad():
            for group in self.param_groups:
                updating = [p for p in group["params"] if p.grad is not None]
                if updating and self._updates:
                    self._unless_overflowed(updating, functools.partial(self._updates, group))
                for p in () if self._updates else updating:
                    grad = -p.grad.detach() if group.get("maximize") else p.grad.detach()
                    states = self._states_of(p, group)
                    self._unless_overflowed([p], functools.partial(self._update_real, p, grad, states, group))
                updated = updated or bool(updating)
        if not updated:
            self._nothing_to_do()
        for hook in self._post_hooks.values():
            hook(self, () if closure is None else (closure,), {})
        return self if closure is None else loss

    @property
    def state(self) -> MutableMapping[Any, dict[str, Any]]:
        """The states of each parameter by name, as PyTorch has them: ``opt.state[p]["exp_avg"]``. A program that puts another parameter
        into a group may give it states; without them the next step makes new ones."""
        return self._state

    @state.setter
    def state(self, states: Mapping[Any, dict[str, Any]]) -> None:
        self._state = AnyStates() if self.takes_any_setting else States()
        self._state.update(states)

    def _states_of(self, p: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        """The states of a parameter, new ones for one that has been put into its group since."""
        if p in self._state or self.takes_any_setting or self._updates:  # a program's own optimizer makes what it keeps
            return self._state.get(p, {})
        made = self._create_state(as_real(p), group)
        if made and tracing.recorder is not None:
            raise TraceError(
                f"{type(self).__name__}.step(): the parameter {p.name or ''}{list(p.shape)} was put into its group and has no states yet, "
                "which a traced step cannot make; help: opt.add_param_group({'params': [p]}) makes them"
            )
        self._state[p] = made
        return self._state[p]

    def register_step_pre_hook(self, hook: Callable[[Any, tuple, dict], Any]) -> HookHandle:
        """Calls hook(optimizer, args, kwargs) before each step, with the step's arguments."""
        return put(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[[Any, tuple, dict], Any]) -> HookHandle:
        """Calls hook(optimizer, args, kwargs) behind each step."""
        return put(self._post_hooks, hook)

    def _nothing_to_do(self) -> None:
        """Warns of a step before which no parameter got a gradient."""
        warn_once(
            f"{type(self).__name__}.step(): no parameter that it was given has a gradient, so nothing was updated; help: attach "
            "the same parameters to the GradManager, and call gm.backward(loss) before step()",
            UsageWarning,
        )

    def _unless_overflowed(self, params: Sequence[Tensor], update: Callable[[], None]) -> None:
        """Updates parameters, unless a gradient of theirs overflowed. A trace cannot decide, and selects between old and new."""
        flags = {id(p.overflow): p.overflow for p in params if getattr(p, "overflow", None) is not None}  # no Parameter may lack it
        skip = functools.reduce(REGISTRY["logical_or"], flags.values()) if flags else None
        if skip is None or tracing.recorder is None:
            if skip is None or not skip.item():
                update()
            return
        mine = [t for p in params for t in (p, *self._state.get(p, {}).values())]
        before = [t.detach() for t in mine]
        update()
        for t, old in zip(mine, before):
            t._reset(REGISTRY["where"](skip, old, t.detach()))

    def _update_real(self, p: Parameter, grad: Tensor, state: dict[str, Tensor], group: ParamGroup) -> None:
        """One parameter's update; a complex one is updated as the pairs of floats that it holds, as in PyTorch."""
        if not p.dtype.is_complex:
            return self._update(p, grad, state, group)
        pairs = as_real(p.detach())
        self._update(pairs, as_real(grad), state, group)
        p._reset(REGISTRY["view_as_complex"](pairs))

    def clear_grad(self) -> None:
        """Forgets all gradients."""
        for p, _ in self._params():
            p.grad = None
            if isinstance(p, Parameter):
                p.overflow = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients. As in MegEngine 1.0 it also starts recording for `backward`, unless the parameters are recorded by
        themselves (`Tensor.requires_grad`), as in PyTorch, or are attached to a GradManager. set_to_none: whether a gradient becomes None,
        or zeros."""
        if not set_to_none:
            for p, _ in self._params():
                p.grad = None if p.grad is None else REGISTRY["zeros_like"](p.grad)
        else:
            self.clear_grad()
        if self._manager is not None:
            self._manager.release()
        params = [p for p, _ in self._params()]
        if all(leaf_of(p) is not None or getattr(p, "frozen", False) for p in params) or attached_elsewhere(params, self._manager):
            return
        if self._manager is None:
            self._manager = GradManager().attach(params)
        self._manager.record()

    def backward(self, loss: Tensor) -> None:
        """MegEngine 1.0: computes the gradients of what has been calculated since `zero_grad`.

        Errors: RuntimeError without `zero_grad`
        """
        if self._manager is None:
            raise RuntimeError("backward() without zero_grad(); help: call opt.zero_grad() before the forward pass")
        self._manager.backward(loss)

    # -- for people ------------------------------------------------------------------------------------------------------
    def _said(self) -> list[tuple[str, str]]:
        """(A group's name, its hyperparameters and how many parameters it has) for each group."""
        found = []
        for i, g in enumerate(self.param_groups):
            values = ", ".join(f"{k}={v!r}" for k, v in g.items() if k not in ("params", "name") and not (k == "maximize" and not v))
            count = f"{len(g['params'])} {'parameter' if len(g['params']) == 1 else 'parameters'}"
            found.append((str(g.get("name") or f"group {i}"), f"{values}; {count}, {sum(p.size for p in g['params']):,} numbers"))
        return found

    def __repr__(self) -> str:
        """Its groups, a line each."""
        return f"{type(self).__name__}(\n" + "".join(f"  {name}: {text}\n" for name, text in self._said()) + ")"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        rows = "".join(f"<li>{html.escape(name)}: <code>{html.escape(text)}</code></li>" for name, text in self._said())
        return f"<div><code>{type(self).__name__}</code><ul>{rows}</ul></div>"

    def bcast_param(self) -> NoReturn:
        """MegEngine 1.0; as there since, an error that names what to use."""
        raise NotImplementedError("bcast_param() is gone; help: distributed.bcast_list_(module.tensors()) before training")

    # -- state -----------------------------------------------------------------------------------------------------------
    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors that it keeps, each with a name for a file: ``fc.weight.momentum_buffer``; ``lr`` (of several groups
        ``lr0``, ``lr1``).

        Args:
            names: of parameters, by their id. One that has none there is called by its own name, or ``param`` and its position.
        """
        for i, group in enumerate(self.param_groups):
            yield "lr" if len(self.param_groups) == 1 else f"lr{i}", group.lr
        for i, (p, group) in enumerate(self._params()):
            for kind, t in self._states_of(p, group).items():
                yield f"{names.get(id(p)) or p.name or f'param{i}'}.{kind}", t

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Hyperparameters and state by position of the parameter; arrays are NumPy's (Tensors with keep_var)."""
        return self._states_as(lambda t: t if keep_var else t.numpy().copy())

    def _state_views(self) -> dict[str, Any]:
        """`state_dict` whose arrays are read-only views of the tensors' memory."""
        return self._states_as(Tensor.numpy)

    def _states_as(self, form: Callable[[Tensor], Any]) -> dict[str, Any]:
        numbers = {id(p): i for i, (p, _) in enumerate(self._params())}
        groups = [
            {k: v.item() if k == "lr" and isinstance(v, Tensor) else v for k, v in g.items() if k != "params"}
            | {"params": [numbers[id(p)] for p in g["params"]]}
            for g in self.param_groups
        ]
        value = lambda t: form(t) if isinstance(t, Tensor) else t
        state = {i: {k: value(t) for k, t in self._states_of(p, group).items()} for i, (p, group) in enumerate(self._params())}
        return {"param_groups": groups, "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave: the groups' settings, and the states that belong to them. A parameter of which it has none, as
        PyTorch's have none before their first update, begins with new ones.

        Errors: ValueError where it does not fit the groups, the parameters' shapes, or the kind of optimizer; nothing is
            changed then.
        """
        if not isinstance(state, Mapping) or not {"param_groups", "state"} <= state.keys():
            raise ValueError(f"{type(self).__name__}.load_state_dict: {_told(state)} is no state of an optimizer; help: what state_dict() gave")
        if len(state["param_groups"]) != len(self.param_groups):
            raise ValueError(f"{len(state['param_groups'])} groups do not fit {len(self.param_groups)}")
        values: list[tuple[Tensor, np.ndarray]] = []
        others: list[tuple[Tensor, dict[str, Tensor]]] = []  # states that saved settings add or take away: a momentum, say
        for group, saved in zip(self.param_groups, state["param_groups"]):
            if len(saved["params"]) != len(group["params"]):
                raise ValueError(f"a group of {len(saved['params'])} parameters does not fit one of {len(group['params'])}")
            for p, i in zip(group["params"], saved["params"]):
                mine = self._states_of(p, group)
                theirs = state["state"].get(i, state["state"].get(str(i), NEVER_UPDATED))
                if mine.keys() != theirs.keys() and not self._updates:
                    settings = {k: v for k, v in saved.items() if k != "params"}
                    mine = self._create_state(as_real(p), ParamGroup(group | settings))
                    others.append((p, mine))
                if theirs is NEVER_UPDATED and not self._updates:
                    continue
                if mine.keys() != theirs.keys():
                    raise ValueError(f"state {sorted(theirs)} does not fit {type(self).__name__}'s {sorted(mine)}")
                for k, t in mine.items():
                    a = np.asarray(theirs[k], t.dtype.numpy)
                    if a.shape != t.shape and not a.size == t.size == 1:
                        raise ValueError(f"{k} of shape {a.shape} does not fit a parameter's of shape {t.shape}")
                    values.append((t, a.reshape(t.shape)))
        for group, saved in zip(self.param_groups, state["param_groups"]):
            group.update({k: v for k, v in saved.items() if k != "params"})
        for p, mine in others:
            self._state[p] = mine
        for t, a in values:
            t._reset(Tensor(a))


REQUIRED = object()
NEVER_UPDATED: Mapping[str, Any] = {}  # the states of a parameter of which a file says nothing: PyTorch saves none before its first update
_HOW = ("maximize", "foreach", "fused", "capturable", "differentiable")
_FREE = ("name", "maximize", "initial_lr")  # keys that each group may have; schedules begin with the last


def as_real(t: Tensor) -> Any:
    """Complex numbers as pairs of floats, along one axis more; what is not complex, as it is."""
    return REGISTRY["view_as_real"](t) if t.dtype.is_complex else t


def _told(x: Any) -> str:
    """What was given in a state's place: its class, or a dict's keys."""
    return f"a dict of {', '.join(map(repr, list(x)[:3])) or 'nothing'}" if isinstance(x, Mapping) else f"a {type(x).__name__}"


def refuse(optimizer: Optimizer, what: str) -> NoReturn:
    """ValueError about an optimizer's argument."""
    raise ValueError(f"{type(optimizer).__name__}: {what}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was meant, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"


def check_betas(optimizer: Optimizer, betas: Iterable[float]) -> None:
    """ValueError unless they are two numbers of [0, 1)."""
    betas = tuple(betas) if isinstance(betas, Iterable) else (betas,)
    if len(betas) != 2 or not all(0 <= b < 1 for b in betas):
        refuse(optimizer, f"betas={betas} are out of range: two numbers, 0 <= beta < 1")


def filled(p: Tensor, value: Any, least: DType | None = None) -> Tensor:
    """State of a parameter's shape and dtype, or `least` where that is wider, as if it had been made before a trace that is
    being recorded: a state of it, not a constant."""
    if type(p._layout) is Placed:
        return p._layout.owner.like(p, filled(p._data, value, least))
    d = p.dtype if least is None else promote(p.dtype, least)
    return tensor_over(new_buffer(np.full(p.shape, value, d.numpy), p.device), Layout(p.shape, d, None, p.device))


def zeros(p: Tensor, least: DType | None = None) -> Tensor:
    """The same of zeros."""
    return filled(p, 0, least)


def counter(first: float = 0.0, p: Tensor | None = None) -> Tensor:
    """State that counts or multiplies: a 0-d float32, or float64 for a parameter of float64 that is given."""
    return _state_of(first, float64 if p is not None and _is_wide(p) else float32)
