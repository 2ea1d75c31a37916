"""`nn.Module` and the containers: Tengen's, whose state dicts hold tensors in the order of their making, as PyTorch's do.

Every module of Tengen's is an instance of this `Module`: ``isinstance(tengen.models.resnet18(), nn.Module)``.
"""

from __future__ import annotations

from abc import ABCMeta
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from tengen import module as M
from tengen.base.device import Device
from tengen.module.module import HOOKS, LoadedKeys, parts_of
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.tensor import Parameter, Tensor


class _AnyModule(ABCMeta):
    """`Module` below stands for every module."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, M.Module) if cls.__dict__.get("_stands_for_all") else super().__instancecheck__(x)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, M.Module) if cls.__dict__.get("_stands_for_all") else super().__subclasscheck__(other)


class _Members(MutableMapping):
    """The modules, parameters or buffers that a module itself holds, by name, as they are now; what is written is set on the module.

    Args: module: whose. fits: which of its attributes.
    """

    def __init__(self, module: M.Module, fits: Callable[[Any], bool]):
        self._module, self._fits = module, fits

    def _now(self) -> dict[str, Any]:
        return {name: value for name, value in self._module._attributes() if "." not in name and self._fits(value)}

    def __getitem__(self, name: str) -> Any:
        return self._now()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._now():
            raise KeyError(name)
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return repr(self._now())


class Module(M.Module, metaclass=_AnyModule):
    """Tengen's `Module` with PyTorch's arguments. Its own parameters come first, then its buffers, then
    those of the modules inside, each in the order in which it was set.

    >>> class Net(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w, self.a = Parameter([2.0]), Parameter([3.0])
    >>> [(name, value.tolist()) for name, value in Net().state_dict().items()]
    [('w', [2.0]), ('a', [3.0])]
    """

    _stands_for_all = True

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        every = [part for name, value in self.__dict__.items() if name not in HOOKS for part in parts_of(value, name)]
        yield from (part for part in every if isinstance(part[1], Parameter))
        yield from (part for part in every if isinstance(part[1], Tensor) and not isinstance(part[1], Parameter))
        yield from (part for part in every if not isinstance(part[1], Tensor))

    @property
    def _modules(self) -> _Members:
        """The modules that it holds itself, by name: programs walk through them, and put others in their place."""
        return _Members(self, lambda x: isinstance(x, M.Module))

    @property
    def _parameters(self) -> _Members:
        return _Members(self, lambda x: isinstance(x, Parameter))

    @property
    def _buffers(self) -> _Members:
        return _Members(self, lambda x: isinstance(x, Tensor) and not isinstance(x, Parameter))

    def _module_info_string(self) -> str:
        return self.extra_repr()

    def extra_repr(self) -> str:
        """What `repr` says of the module's settings."""
        return super()._module_info_string()

    def named_parameters(  # type: ignore[override]  # PyTorch's arguments, and Tengen's by name
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True, **mge: Any
    ) -> Iterator[Any]:
        """The parameters with their dotted names, each once. Args: recurse: those of modules inside too."""
        return super().named_parameters(prefix, mge.get("recursive", recurse))

    def parameters(  # type: ignore[override]  # PyTorch's arguments, and Tengen's by name
        self, recurse: bool = True, **mge: Any
    ) -> Iterator[Parameter]:
        """The parameters, each once."""
        return super().parameters(mge.get("recursive", recurse))

    def named_buffers(  # type: ignore[override]  # PyTorch's arguments, and Tengen's by name
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True, **mge: Any
    ) -> Iterator[Any]:
        """The tensors that are no parameters, with their dotted names."""
        return super().named_buffers(prefix, mge.get("recursive", recurse))

    def buffers(  # type: ignore[override]  # PyTorch's arguments, and Tengen's by name
        self, recurse: bool = True, **mge: Any
    ) -> Iterator[Tensor]:
        """The tensors that are no parameters."""
        return super().buffers(mge.get("recursive", recurse))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or sets them to zeros."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad * 0

    def type(self, dst_type: Any) -> Module:
        """The module itself with its floats cast to a dtype."""
        return self.to(dst_type)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name. Errors: AttributeError where there is none."""
        for name, t in self.named_buffers():
            if name == target:
                return t
        raise AttributeError(f"{type(self).__name__} has no buffer {target!r}")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False, **mge: Any) -> dict[str, Any]:
        """The tensors by dotted name, in the order of their making; one that has two names stands under both.

        They are off the tape, and what is written to one in place is written to the module: ``sd[name].copy_(x)``. keep_vars: the
        parameters themselves.
        """
        found = OrderedDict() if destination is None else destination
        keep = keep_vars or mge.get("keep_var", False)
        for name, m, t in _every_tensor(self, prefix.rstrip(".")):
            shape = m._state_shape(name, t)
            found[name] = t if keep else t.data if shape == t.shape else t.detach().reshape(shape)
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> LoadedKeys:
        """Takes values by name; see Tengen's `Module.load_state_dict`. A tensor that has two names takes the value of either.

        Errors: RuntimeError, as in PyTorch, for names that are missing or not known with `strict`, and for another shape.
        """
        if isinstance(state_dict, Mapping):
            first: dict[int, str] = {}
            known = {name: first.setdefault(id(t), name) for name, _, t in _every_tensor(self, "")}
            state_dict = {known.get(name, name): value for name, value in state_dict.items()}
        try:
            return super().load_state_dict(state_dict, strict)
        except (KeyError, ValueError) as e:
            raise RuntimeError(e.args[0]) from None


def _every_tensor(m: M.Module, prefix: str) -> Iterator[tuple[str, M.Module, Tensor]]:
    """(Dotted name, owner, tensor) of all that is saved; one with two names twice."""
    for n, v in m._attributes():
        full = f"{prefix}.{n}" if prefix else n
        if not isinstance(v, Tensor):
            yield from _every_tensor(v, full)
        elif n not in m.__dict__.get("_not_saved", ()):
            yield full, m, v


def finished(m: M.Module, device: Any, dtype: Any) -> None:
    """What a constructor's `device` and `dtype` say. Errors: DeviceError for a device that is not here."""
    Device.named(device)
    wanted = get_default_dtype() if dtype is None else dtype
    if wanted != "float32":
        m.to(wanted)


class Sequential(Module, M.Sequential):
    """`tengen.module.Sequential`."""

    def __getitem__(self, i: Any) -> Any:
        found = super().__getitem__(i)
        return Sequential(OrderedDict((k, getattr(found, k)) for k in found.layer_keys)) if isinstance(i, slice) else found


class ModuleList(Module, M.ModuleList):
    """`tengen.module.ModuleList`."""

    def __init__(self, modules: Any = None):
        super().__init__(modules or ())


class ModuleDict(Module, M.ModuleDict):
    """`tengen.module.ModuleDict`."""

    def __init__(self, modules: Any = None):
        super().__init__(modules or ())

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from (part for part in Module._attributes(self) if not part[0].startswith("_held."))
        yield from self._held.items()  # in the order in which they were added


class ParameterList(Module, M.ParameterList):
    """`tengen.module.ParameterList`."""

    def __init__(self, values: Any = None):
        super().__init__(values or ())


class ParameterDict(Module, M.ParameterDict):
    """`tengen.module.ParameterDict`."""

    def __init__(self, values: Any = None):
        plain = type(values) is dict
        super().__init__({k: values[k] for k in sorted(values)} if plain else values or ())


class Identity(Module):
    """The input itself, whatever it was built with."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input
