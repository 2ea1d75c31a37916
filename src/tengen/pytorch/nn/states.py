"""State dicts of the dialect's modules: how values go out and come back, and what a program may do in between, by hooks, extra states and
methods of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tengen import module as M
from tengen.base.dtype import dtype
from tengen.module.module import LoadedKeys
from tengen.tensor import Tensor
from tengen.tensor.hooks import HookHandle, put

_EXTRA = "_extra_state"


class WithStates(M.Module):
    """What `Module` has of state dicts."""

    def _hooks_of(self, kind: str) -> dict[int, Callable]:
        """The hooks of a kind, `before_saving`, `saved`, `before_loading` or `loaded`: a dict that hooks are put into."""
        return self.__dict__.setdefault("_state_hooks", {}).setdefault(kind, {})

    def register_state_dict_pre_hook(self, hook: Callable) -> HookHandle:
        """Calls hook(module, prefix, keep_vars) before `state_dict` takes the module's tensors."""
        return put(self._hooks_of("before_saving"), hook)

    def register_state_dict_post_hook(self, hook: Callable) -> HookHandle:
        """Calls hook(module, state_dict, prefix, {}) when the tensors of the module and of those inside are there. What it returns, if
        anything, takes the dict's place."""
        return put(self._hooks_of("saved"), hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> HookHandle:
        """Calls hook(module, state_dict, prefix, {}, strict, missing_keys, unexpected_keys, error_msgs) before values are taken from the dict,
        a copy of what was given, which the hook may change."""
        return put(self._hooks_of("before_loading"), hook)

    def register_load_state_dict_post_hook(self, hook: Callable) -> HookHandle:
        """Calls hook(module, keys) when values were taken; it may change the lists `keys.missing_keys` and `keys.unexpected_keys`."""
        return put(self._hooks_of("loaded"), hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> HookHandle:
        """`register_load_state_dict_pre_hook` of a hook that is not given the module, unless with_module."""
        return self.register_load_state_dict_pre_hook(hook if with_module else lambda module, *args: hook(*args))

    def get_extra_state(self) -> Any:
        """What the state dict has beside tensors, under ``_extra_state``: a subclass that has such says what, and how to take it back."""
        raise NotImplementedError(f"{type(self).__name__}.get_extra_state(): this module has none; help: define it, and set_extra_state(state)")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` gave."""
        raise NotImplementedError(f"{type(self).__name__}.set_extra_state(state): the state dict has an extra state; help: define it")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not WithStates.get_extra_state

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Puts the module's own tensors into a dict; a subclass may put others."""
        for name, t in self._attributes():
            if isinstance(t, Tensor) and name not in self.__dict__.get("_not_saved", ()):
                destination[prefix + name] = _value(self, name, t, keep_vars)
        if self._has_extra_state():
            destination[prefix + _EXTRA] = self.get_extra_state()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Prepares a dict for the module, by its hooks, and takes its extra state. A subclass may change the dict before; tensors are taken
        when all modules have done so."""
        for hook in (*self._hooks_of("before_loading").values(),):
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if self._has_extra_state() or type(self).set_extra_state is not WithStates.set_extra_state:
            if prefix + _EXTRA in state_dict:
                self.set_extra_state(state_dict.pop(prefix + _EXTRA))
            else:
                missing_keys.append(prefix + _EXTRA)

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False, **mge: Any) -> dict[str, Any]:
        """The tensors by dotted name, in the order of their making; one that has two names stands under both.

        They are off the tape, and what is written to one in place is written to the module: ``sd[name].copy_(x)``. keep_vars: the
        parameters themselves.
        """
        destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args) :])
        found = OrderedDict() if destination is None else destination
        keep = keep_vars or mge.get("keep_var", False)
        for hook in (*self._hooks_of("before_saving").values(),):
            hook(self, prefix, keep)
        self._save_to_state_dict(found, prefix, keep)
        for name, m in self.named_children():
            if isinstance(m, WithStates):
                m.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep)
            else:
                found.update({full: _value(of, last, t, keep) for full, last, of, t in _every_tensor(m, f"{prefix}{name}.")})
        for hook in (*self._hooks_of("saved").values(),):
            changed = hook(self, found, prefix, {})
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> LoadedKeys:
        """Takes values by name; see Tengen's `Module.load_state_dict`. A tensor that has two names takes the value of either. Each keeps its
        dtype, as in PyTorch, unless `assign` says that it takes the value's.

        Errors: RuntimeError, as in PyTorch, for names that are missing or not known with `strict`, and for another shape.
        """
        if not isinstance(state_dict, Mapping):
            return super().load_state_dict(state_dict, strict)
        values: dict[str, Any] = OrderedDict(state_dict)
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        for prefix, m in self.named_modules():
            if isinstance(m, WithStates):
                m._load_from_state_dict(values, f"{prefix}." if prefix else "", {}, strict, missing, unexpected, errors)
        first: dict[int, str] = {}
        own = {name: t for name, _, _, t in _every_tensor(self, "")}
        known = {name: first.setdefault(id(t), name) for name, t in own.items()}
        values = {known.get(name, name): value if assign else _in_dtype(value, own.get(name)) for name, value in values.items()}
        after = [(m, hook) for m in self.modules() if isinstance(m, WithStates) for hook in m._hooks_of("loaded").values()]
        try:
            keys = super().load_state_dict(values, strict and not after)
        except (KeyError, ValueError) as e:
            raise RuntimeError(e.args[0]) from None
        keys.missing_keys[:] = [*missing, *(name for name, of in known.items() if of in keys.missing_keys)]
        keys.unexpected_keys.extend(unexpected)
        for m, hook in after:
            hook(m, keys)
        if errors or (strict and (keys.missing_keys or keys.unexpected_keys)):
            lines = [*(f"missing: {n}" for n in keys.missing_keys), *(f"unexpected: {n}" for n in keys.unexpected_keys), *errors]
            raise RuntimeError("\n  ".join([f"the state dict does not fit {type(self).__name__}:", *lines]))
        return keys


def _in_dtype(value: Any, own: Tensor | None) -> Any:
    """A value in the dtype of the tensor that takes it; complex numbers in the place of real ones stay, and are an error."""
    d = getattr(value, "dtype", None)
    if own is None or d is None or d == own.dtype or dtype(d).is_complex > own.dtype.is_complex:
        return value
    return value.astype(own.dtype if isinstance(value, Tensor) else own.dtype.numpy)


def _value(m: M.Module, name: str, t: Tensor, keep: bool) -> Tensor:
    """A module's tensor as its state dict has it."""
    shape = m._state_shape(name, t)
    return t if keep else t.data if shape == t.shape else t.detach().reshape(shape)


def _every_tensor(m: M.Module, prefix: str) -> Iterator[tuple[str, str, M.Module, Tensor]]:
    """(Dotted name, last name, owner, tensor) of all that is saved; one with two names twice."""
    for n, v in m._attributes():
        if not isinstance(v, Tensor):
            yield from _every_tensor(v, f"{prefix}{n}.")
        elif n not in m.__dict__.get("_not_saved", ()):
            yield prefix + n, n, m, v
