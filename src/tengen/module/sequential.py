"""`Sequential`: modules one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from tengen.module.module import Module


class Sequential(Module):
    """Calls its modules in order. Children are named 0, 1, ..., or by an OrderedDict's keys.

    Errors: TypeError for what is no module

    >>> from tengen import module as M
    >>> len(M.Sequential(M.Linear(4, 3), M.ReLU()))
    2
    """

    def __init__(self, *args, **kwargs):
        super().__init__(**kwargs)
        named = (
            args[0] if len(args) == 1 and isinstance(args[0], dict) else OrderedDict((str(i), m) for i, m in enumerate(args))
        )
        if odd := [k for k, m in named.items() if not callable(m)]:
            raise TypeError(f"Sequential takes modules, got {named[odd[0]]!r} for {odd[0]!r}; help: Sequential(*layers) of a list")
        self.layer_keys = tuple(named)
        for k, m in named.items():
            setattr(self, k, m)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return Sequential(OrderedDict((k, getattr(self, k)) for k in self.layer_keys[i]))
        return getattr(self, self.layer_keys[i])

    def __setitem__(self, i: int, m: Module) -> None:
        setattr(self, self.layer_keys[i], m)

    def __delitem__(self, i: int | slice) -> None:
        """Takes modules out; the others keep their names."""
        keys = self.layer_keys[i] if isinstance(i, slice) else (self.layer_keys[i],)
        for k in keys:
            delattr(self, k)
        self.layer_keys = tuple(k for k in self.layer_keys if k not in keys)

    def add_module(self, name: str, module: Module | None) -> None:
        """Puts a module behind the last one, under a name; one that has the name already gives way to it.

        Errors: KeyError for what is no name of an attribute, TypeError for what is no module.

        >>> from tengen import module as M
        >>> net = M.Sequential(M.Linear(4, 3))
        >>> net.add_module("act", M.ReLU())
        >>> len(net)
        2
        """
        if not callable(module):
            raise TypeError(f"Sequential takes modules, got {module!r} for {name!r}")
        super().add_module(name, module)
        if name not in self.layer_keys:
            self.layer_keys = (*self.layer_keys, name)

    register_module = add_module

    def append(self, module: Module) -> Sequential:
        """Puts a module behind the last one, under the next number; returns the Sequential."""
        self.add_module(str(len(self.layer_keys)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Sequential:
        """`append` for each of these; returns the Sequential."""
        for m in modules:
            self.append(m)
        return self

    def __len__(self) -> int:
        return len(self.layer_keys)

    def __iter__(self) -> Iterator[Module]:
        return (getattr(self, k) for k in self.layer_keys)

    @property
    def layer_values(self) -> list[Module]:
        """The modules, in order."""
        return list(self)

    def forward(self, x):
        for m in self:
            x = m(x)
        return x
