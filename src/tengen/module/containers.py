"""`ModuleList` and `ModuleDict`: modules in a list or a dict, under PyTorch's names. A plain list or dict as an attribute does as well:
modules in it are found too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tengen.base.errors import UnknownName
from tengen.module.module import Module


def _module(m: object) -> Module:
    if not isinstance(m, Module):
        raise TypeError(f"a container holds modules, got a {type(m).__name__}")
    return m


class ModuleList(Module):
    """A list of modules, named 0, 1, ...; what it computes is said by whoever holds it.

    >>> from tengen import module as M
    >>> layers = M.ModuleList(M.Linear(4, 4) for _ in range(3))
    >>> len(layers), [name for name, _ in layers.named_parameters()][:2]
    (3, ['0.bias', '0.weight'])
    """

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        self._count = 0
        self.extend(modules)

    def _key(self, i: int) -> str:
        if not -self._count <= i < self._count:
            raise IndexError(f"index {i} of a ModuleList of {self._count}")
        return str(i % self._count)

    def _set_all(self, modules: list[Module]) -> ModuleList:
        for i in range(len(modules), self._count):
            delattr(self, str(i))
        self._count = len(modules)
        for i, m in enumerate(modules):
            setattr(self, str(i), _module(m))
        return self

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end; returns self."""
        return self._set_all([*self, module])

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end; returns self."""
        return self._set_all([*self, *modules])

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before another."""
        every = list(self)
        every.insert(index, module)
        self._set_all(every)

    def pop(self, index: int = -1) -> Module:
        """Takes a module out."""
        every = list(self)
        m = every.pop(index)
        self._set_all(every)
        return m

    def __getitem__(self, i: int | slice):
        return type(self)(list(self)[i]) if isinstance(i, slice) else getattr(self, self._key(i))

    def __setitem__(self, i: int, module: Module) -> None:
        setattr(self, self._key(i), _module(module))

    def __delitem__(self, i: int | slice) -> None:
        every = list(self)
        del every[i]
        self._set_all(every)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Module]:
        return (getattr(self, str(i)) for i in range(self._count))

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def _attributes(self):
        """What a subclass sets besides; then the modules: 10 comes behind 9."""
        yield from (part for part in super()._attributes() if not part[0].isdigit())
        yield from ((str(i), m) for i, m in enumerate(self))


class ModuleDict(Module):
    """A dict of modules.

    >>> from tengen import module as M
    >>> heads = M.ModuleDict({"a": M.Linear(4, 2), "b": M.Linear(4, 3)})
    >>> sorted(heads), heads["b"].out_features, heads.a.out_features
    (['a', 'b'], 3, 2)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()):
        super().__init__()
        self._held: dict[str, Module] = {}
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules, or puts others in their place."""
        for k, m in dict(modules).items():
            self[k] = m

    def __getitem__(self, key: str) -> Module:
        return self._held[key]

    def __getattr__(self, name: str) -> Module:
        """A module by its name: ``heads.a``. Methods come first."""
        if name in (held := self.__dict__.get("_held", ())):
            return held[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """A module that is set is added, or takes the place of another."""
        if isinstance(value, Module):
            self[name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._held:
            del self[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._held]

    def __setitem__(self, key: str, module: Module) -> None:
        if not isinstance(key, str) or not key or "." in key:
            raise UnknownName(f"a module's name must be a text without dots, got {key!r}")
        self._held = {**self._held, key: _module(module)}

    def __delitem__(self, key: str) -> None:
        self._held = {k: m for k, m in self._held.items() if k != self._known(key)}

    def _known(self, key: str) -> str:
        if key not in self._held:
            raise KeyError(key)
        return key

    def pop(self, key: str) -> Module:
        """Takes a module out."""
        m = self[key]
        del self[key]
        return m

    def keys(self):
        """The names, in the order in which they were added."""
        return self._held.keys()

    def values(self):
        """The modules."""
        return self._held.values()

    def items(self):
        """Names and modules."""
        return self._held.items()

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def _attributes(self):
        """What a subclass sets besides; then the modules."""
        yield from (part for part in super()._attributes() if not part[0].startswith("_held."))
        yield from ((k, self._held[k]) for k in sorted(self._held))
