"""The table of all ops by name. A file of this folder that defines ops is loaded when one of them is first named: a process uses few
families of ops, and starts sooner without the others.

In: the name of an op. Out: the op. Which file defines which op is written down in `names.py`, which `python docs/generate.py` makes.
"""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

from tengen.base.errors import TengenError

if TYPE_CHECKING:
    from tengen.ops.op import Op


class Registry(dict[str, "Op"]):
    """Ops by name. Who asks for an op by its name has its file loaded; who goes through all of them, or counts them, all files.

    Args: files: {module: names of the ops that it defines, as words}.
    """

    def __init__(self, files: Mapping[str, str]):
        super().__init__()
        self._later = {name: module for module, names in files.items() for name in names.split()}

    def __missing__(self, name: str) -> Op:
        module = self._later.get(name)
        if module is None:
            raise KeyError(name)
        importlib.import_module(module)
        if name in self._later:
            raise TengenError(f"{module} does not define the op {name!r} when it is named; help: run python docs/generate.py")
        return super().__getitem__(name)

    def __setitem__(self, name: str, op: Op) -> None:
        self._later.pop(name, None)
        super().__setitem__(name, op)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._later

    def get(self, name: str, default: Any = None) -> Any:
        """The op of this name, or the default."""
        return self[name] if name in self else default

    def defined_elsewhere(self, name: str, module: str) -> bool:
        """Whether another definition has a name that a module gives an op now."""
        return super().__contains__(name) or self._later.get(name, module) != module

    def loaded(self) -> list[Op]:
        """The ops whose files are loaded."""
        return list(super().values())

    def load_all(self) -> None:
        """Loads every file that defines ops."""
        for module in dict.fromkeys(self._later.values()):
            importlib.import_module(module)

    def __iter__(self) -> Iterator[str]:
        self.load_all()
        return super().__iter__()

    def __len__(self) -> int:
        self.load_all()
        return super().__len__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # the views of a dict are final
        """The names of all ops."""
        self.load_all()
        return super().keys()

    def values(self) -> ValuesView[Op]:  # type: ignore[override]  # as above
        """All ops."""
        self.load_all()
        return super().values()

    def items(self) -> ItemsView[str, Op]:  # type: ignore[override]  # as above
        """All ops with their names."""
        self.load_all()
        return super().items()
