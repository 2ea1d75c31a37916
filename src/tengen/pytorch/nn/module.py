"""`nn.Module` and the containers: Tengen's, whose state dicts hold tensors in the order of their making, as PyTorch's do.

Every module of Tengen's is an instance of this `Module`: ``isinstance(tengen.models.resnet18(), nn.Module)``.
"""

from __future__ import annotations

from abc import ABCMeta
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from tengen import module as M
from tengen.base.device import Device
from tengen.module.module import HOOKS, parts_of
from tengen.pytorch.functions.compiled import CompiledFunction
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.pytorch.nn.states import WithStates
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
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            self._module.register_buffer(name, value)
        else:
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


class Module(WithStates, metaclass=_AnyModule):
    """Tengen's `Module` with PyTorch's arguments. Its own parameters come first, then its buffers, then
    those of the modules inside, each in the order in which it was set.

    As in PyTorch, a class registers what belongs to its module: by an attribute that is a `Parameter` or a module, and by
    `register_buffer`. Other tensors, and lists, tuples and dicts, whatever is in them, are neither saved nor trained nor cast.

    >>> class Net(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w, self.a = Parameter([2.0]), Parameter([3.0])
    >>> [(name, value.tolist()) for name, value in Net().state_dict().items()]
    [('w', [2.0]), ('a', [3.0])]
    """

    _stands_for_all = True
    _plain: frozenset[str] = frozenset()  # names of attributes that were set and not registered

    def __setattr__(self, name: str, value: Any) -> None:
        _note_registration(self, name, value)
        super().__setattr__(name, value)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """`tengen.module.Module.register_buffer`."""
        super().register_buffer(name, tensor, persistent)
        self.__dict__["_plain"] = self._plain - {name}

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        found = ((name, value) for name, value in self.__dict__.items() if name not in HOOKS and name not in self._plain)
        every = [part for name, value in found for part in parts_of(value, name)]
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

    def train(self, mode: bool = True, recursive: bool = True) -> Module:
        """Training mode (dropout drops, batch norm uses the batch); returns self. The modules inside are asked by their own `train(mode)`,
        which a class may override, as one does whose batch norms stay in evaluation."""
        self.training = mode
        for child in self.children() if recursive else ():
            child.train(mode)
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """The module itself, whose values are no longer promised: here they stay. device, recurse: the processor alone."""
        return self.to(device)

    def set_submodule(self, target: str, module: M.Module, strict: bool = False) -> None:
        """Puts a module in the place of a dotted name. Errors: AttributeError where a module on the way is not there."""
        parent, _, name = target.rpartition(".")
        owner = self.get_submodule(parent)
        if strict and not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no module {name!r}")
        setattr(owner, name, module)

    def compile(self, *args: Any, **how: Any) -> None:
        """Makes `forward` a program for each shape of its inputs, as `torch.compile` does, in place. args, how: accepted."""
        self.forward = CompiledFunction(self.forward)

    def share_memory(self) -> Module:
        """The module itself: `torch.multiprocessing` copies tensors."""
        return self


def _note_registration(m: Module, name: str, value: Any) -> None:
    """Notes whether an attribute that is set belongs to its module's parameters, buffers and modules.

    Errors: TypeError where the name is a parameter's and the value no Parameter, or a buffer's and the value no Tensor, but for None.
    """
    if isinstance(value, (Parameter, M.Module)):
        if name in m._plain and m.__dict__.get(name) is not None:  # a list of modules, say: its place is where it is registered
            del m.__dict__[name]
        m.__dict__["_plain"] = m._plain - {name}
    elif name not in m.__dict__:
        m.__dict__["_plain"] = m._plain | {name}
    elif value is not None and name not in m._plain and isinstance(old := m.__dict__[name], Tensor):
        kind, wanted = ("parameter", "Parameter") if isinstance(old, Parameter) else ("buffer", "Tensor")
        if not isinstance(value, Tensor) or kind == "parameter":
            raise TypeError(
                f"{type(m).__name__}.{name} is a {kind} of shape {tuple(old.shape)} and cannot become a {type(value).__name__}; help: a "
                f"{wanted} or None; m.{name}.copy_(values) under no_grad writes its values; after `del m.{name}` the name is free"
            )


def finished(m: M.Module, device: Any, dtype: Any) -> None:
    """What a constructor's `device` and `dtype` say. Errors: DeviceError for a device that is not here."""
    Device.named(device)
    wanted = get_default_dtype() if dtype is None else dtype
    if wanted != "float32":
        m.to(wanted)


class Sequential(Module, M.Sequential):
    """`tengen.module.Sequential`, whose modules have the numbers of their places again when one was taken out or put between."""

    def __getitem__(self, i: Any) -> Any:
        found = super().__getitem__(i)
        return Sequential(OrderedDict((k, getattr(found, k)) for k in found.layer_keys)) if isinstance(i, slice) else found


    def _renumber(self, modules: Iterable[M.Module]) -> Sequential:
        """Holds these modules, under their numbers."""
        modules = list(modules)
        super().__delitem__(slice(None))
        return self.extend(modules)

    def __delitem__(self, i: int | slice) -> None:
        super().__delitem__(i)
        self._renumber(self)

    def insert(self, index: int, module: M.Module) -> Sequential:
        """Puts a module before the one of a number; returns the Sequential. Errors: IndexError beyond the end"""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Sequential.insert({index}): there are {len(self)} modules")
        modules = list(self)
        modules.insert(index, module)
        return self._renumber(modules)

    def pop(self, key: int | slice) -> M.Module:
        """Takes a module out and returns it; the others have new numbers."""
        module = self[key]
        del self[key]
        return module

    def __add__(self, other: Iterable[M.Module]) -> Sequential:
        return Sequential(*self, *other)

    def __iadd__(self, other: Iterable[M.Module]) -> Sequential:
        return self.extend(list(other))


class ModuleList(Module, M.ModuleList):
    """`tengen.module.ModuleList`."""

    def __init__(self, modules: Any = None):
        super().__init__(modules or ())


class ModuleDict(Module, M.ModuleDict):
    """`tengen.module.ModuleDict`."""

    def __init__(self, modules: Any = None):
        super().__init__(modules or ())

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from Module._attributes(self)
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
