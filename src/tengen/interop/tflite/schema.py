"""The tables of TFLite's files as data: what fields each has, of what kind, with what defaults.

In: the accessor classes of the package ``tflite``, which are generated from TFLite's schema. Each accessor is called once with a stand-in
for the table, which notes what it asks for; so the package's schema is used without a byte of a file going through its code, which
checks no offset. Out: a `Form` for each table, by which `flat.py` reads and writes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tengen.base import extras
from tengen.base.record import record

UNIONS = {  # field -> the enumeration that tells which table it holds, by the number in the field "<field>Type"
    "BuiltinOptions": "BuiltinOptions", "BuiltinOptions2": "BuiltinOptions2", "Details": "QuantizationDetails",
    "ArraySegments": "SparseIndexVector", "ArrayIndices": "SparseIndexVector",
}  # fmt: skip


@record(frozen=True)
class Field:
    """A field of a table.

    Attributes:
        slot: the place of its offset in the table's vtable. kind: "number", "text", "table", "union"; "numbers", "texts" and "tables"
            are vectors. dtype: of numbers. table: the name of the form of what is there, or of a union's enumeration.
        default: what a number is that is not there.
    """

    name: str
    slot: int
    kind: str
    dtype: np.dtype | None = None
    table: str = ""
    default: Any = None


@record(frozen=True)
class Form:
    """A kind of table, with its fields by name."""

    name: str
    fields: Mapping[str, Field]


@functools.lru_cache(1)
def package() -> ModuleType:
    """The package tflite. Errors: ArgumentError where it is not installed, or something else has its name."""
    return extras.package("tflite", "Model", "TFLite files need")


def numbers_of(enumeration: str) -> dict[str, int]:
    """An enumeration of the schema: name -> number."""
    return {k: v for k, v in vars(getattr(package(), enumeration)).items() if isinstance(v, int) and not k.startswith("_")}


@functools.lru_cache(64)
def names_of(enumeration: str) -> dict[int, str]:
    """An enumeration of the schema: number -> name; of two names for one number the first, which is the older."""
    found: dict[int, str] = {}
    for k, v in numbers_of(enumeration).items():
        found.setdefault(v, k)
    return found


class Asked:
    """Stands for a table of the package flatbuffers, and notes what an accessor asks for. there: whether it says that the field is there."""

    Bytes, Pos = b"", 0

    def __init__(self, there: bool):
        self.there, self.slot, self.calls, self.dtype = there, 0, [], None

    def Offset(self, slot: int) -> int:
        """Where a field lies; this tells which field it is."""
        self.slot = self.slot or slot
        return 4 if self.there else 0

    def Get(self, flags: Any, off: int) -> Any:
        """A number."""
        self.calls.append("number")
        self.dtype = self.dtype or np.dtype(
            flags.py_type if flags.py_type is bool else flags.__name__.removesuffix("Flags").lower()
        )
        return flags.py_type(0)

    def Vector(self, off: int) -> int:
        """A vector's elements."""
        self.calls.append("vector")
        return 0

    def Indirect(self, off: int) -> int:
        """A table behind an offset."""
        self.calls.append("table")
        return 0

    def String(self, off: int) -> bytes:
        """A text."""
        self.calls.append("text")
        return b""

    def Union(self, table: Any, off: int) -> None:
        """A table of one of several forms."""
        self.calls.append("union")


def _field(cls: type, name: str) -> Field:
    """What an accessor of a class reads."""

    def ask(there: bool) -> tuple[Asked, Any]:
        table = cls()
        table._tab = asked = Asked(there)
        accessor = getattr(table, name)
        return asked, accessor(0) if accessor.__func__.__code__.co_argcount == 2 else accessor()

    asked, made = ask(True)
    match asked.calls:
        case ["number", *_]:  # the package's accessor of an operator's code looks at the older field too
            return Field(name, asked.slot, "number", asked.dtype, default=ask(False)[1])
        case ["vector", "number"]:
            return Field(name, asked.slot, "numbers", asked.dtype)
        case ["text"] | ["vector", "text"]:
            return Field(name, asked.slot, "text" if len(asked.calls) == 1 else "texts")
        case ["table"] | ["vector", "table"]:
            return Field(name, asked.slot, "table" if len(asked.calls) == 1 else "tables", table=type(made).__name__)
        case ["union"]:
            return Field(name, asked.slot, "union", table=UNIONS[name])
    raise NotImplementedError(f"{cls.__name__}.{name} of the package tflite reads {asked.calls}, which is not known here")


@functools.lru_cache(256)
def form(name: str) -> Form:
    """The form of a table by its name in the schema, as "Model"."""
    cls = getattr(package(), name)
    given = [k for k, v in vars(cls).items() if k[0].isupper() and not isinstance(v, classmethod) and k != "Init"]
    about = {f"{k}{end}" for k in given for end in ("AsNumpy", "Length", "IsNone")}
    return Form(name, {k: _field(cls, k) for k in given if k not in about})
