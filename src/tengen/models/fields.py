"""The settings of a config.json, read with their types; and what a family of Hugging Face's is described by.

In: the object of a config.json. Out: numbers, flags and names, or a FileFormatError that says which setting is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tengen.base.errors import FileFormatError
from tengen.base.record import record
from tengen.module import Module

MOST = 1 << 31  # of a count
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
NAMES = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}


def fail(message: str) -> NoReturn:
    """FileFormatError."""
    raise FileFormatError(message)


class Fields:
    """The settings of a config.json, read with their types."""

    def __init__(self, table: Mapping[str, Any], where: str):
        self.table, self.where = table, where

    def _wrong(self, name: str, want: str) -> NoReturn:
        fail(f"{self.where}: {name} is {str(self.table.get(name))[:60]!r}, which is not {want}")

    def count(self, name: str, default: int | None = None) -> int:
        x = self.table.get(name)
        if x is None and default is not None:
            return default
        if type(x) is not int or not 0 < x <= MOST:
            self._wrong(name, f"a number of 1 to {MOST}")
        return x

    def number(self, name: str, default: float) -> float:
        x = self.table.get(name, default)
        if type(x) not in (int, float) or not 0 <= x < 1e30:
            self._wrong(name, "a number of at least 0")
        return float(x)

    def flag(self, name: str, default: bool) -> bool:
        x = self.table.get(name, default)
        if type(x) is not bool:
            self._wrong(name, "true or false")
        return x

    def counts(self, name: str, default: list[int] | None = None) -> list[int]:
        x = self.table.get(name, default)
        if not isinstance(x, list) or not 0 < len(x) <= 1000 or any(type(n) is not int or not 0 < n <= MOST for n in x):
            self._wrong(name, "a list of numbers above 0")
        return x

    def choice(self, name: str, among: Mapping[str, Any], default: str) -> Any:
        x = self.table.get(name, default)
        if not isinstance(x, str) or x not in among:
            self._wrong(name, f"one of {', '.join(among)}")
        return among[x]

    def needs(self, **settings: Any) -> None:
        """FileFormatError unless each is what it is said to be, or not there."""
        for name, want in settings.items():
            if name in self.table and self.table[name] != want:
                fail(f"{self.where}: {name} is {str(self.table[name])[:60]!r}; Tengen's network computes what {want!r} says, and nothing else")

    def below(self, name: str) -> Fields:
        x = self.table.get(name)
        if x is not None and not isinstance(x, dict):
            self._wrong(name, "an object")
        return Fields(x or {}, f"{self.where}: {name}")

    def classes(self) -> int:
        labels = self.table.get("id2label")
        if labels is None:
            return self.count("num_labels", 2)
        if not isinstance(labels, dict) or not labels:
            self._wrong("id2label", "a table of labels")
        return len(labels)


@record(frozen=True)
class Kind:
    """A family of Hugging Face's. read: a config's fields -> arguments. write: a network -> the settings of a config. least: arguments ->
    how many numbers a network of them has at least. architecture: the class that transformers loads it with."""

    build: Callable[..., Module]
    read: Callable[[Fields], dict[str, Any]]
    write: Callable[[Any], dict[str, Any]]
    least: Callable[[dict[str, Any]], int]
    architecture: str
