"""Flatbuffers by the forms of `schema.py`: bytes to records, every offset of which was looked at, and records to bytes.

Any bytes give a `Record` or one `FileFormatError`. Vectors of numbers are views of the bytes; tables, offsets and texts are counted, so
that a file whose tables lie over one another takes no more memory than its size warrants.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.interop.tflite.schema import Field, Form, form, names_of, package

MOST_PARTS = 60_000  # tables and offsets of a small file; each takes some hundred bytes here
BYTES_OF_PART = 512  # in large files one more for so many bytes


class Record(Mapping):
    """A table: its fields by name. Numbers that are not there have the schema's defaults, vectors are empty, tables None."""

    __slots__ = ("form", "given")

    def __init__(self, form: Form, given: dict[str, Any]):
        self.form, self.given = form, given

    def __getitem__(self, name: str) -> Any:
        if name in self.given:
            return self.given[name]
        f = self.form.fields[name]
        return {"number": f.default, "numbers": (), "tables": (), "texts": (), "text": ""}.get(f.kind)

    def __iter__(self):
        return iter(self.form.fields)

    def __len__(self) -> int:
        return len(self.form.fields)


class Bytes:
    """Reads one flatbuffer.

    Attributes:
        data: all of it. left: how many more tables and offsets it may have.
    """

    def __init__(self, data: Any):
        self.data = memoryview(data)
        self.size = len(self.data)
        self.left = MOST_PARTS + self.size // BYTES_OF_PART
        self.known: dict[tuple[str, int], Any] = {}

    def root(self, name: str, identifier: bytes) -> Record:
        """The outermost table."""
        if self.size < 8 or bytes(self.data[4:8]) != identifier:
            raise FileFormatError(
                f"this is no TFLite model: its bytes 4 to 8 are {bytes(self.data[4:8])!r}, and not {identifier!r}"
            )
        return self.table(self.number("<I", 0), name)

    def number(self, code: str, at: int) -> int:
        """An integer, at a place that its width divides."""
        width = struct.calcsize(code)
        if not 0 <= at <= self.size - width or at % width:
            raise FileFormatError(f"an offset leads to byte {at} of {self.size}, where no number of {width} bytes lies")
        return struct.unpack_from(code, self.data, at)[0]

    def part(self, count: int = 1) -> None:
        """Counts what takes memory."""
        self.left -= count
        if self.left < 0:
            raise FileFormatError(f"more tables and offsets than {self.size} bytes may hold")

    def table(self, at: int, name: str) -> Record:
        """The table at a place; the same place gives the same record."""
        key = (name, at)
        if key not in self.known:
            self.part()
            self.known[key] = self._table(at, form(name))
        return self.known[key]

    def _table(self, at: int, of: Form) -> Record:
        vtable = at - self.number("<i", at)
        size, width = self.number("<H", vtable), self.number("<H", vtable + 2)
        if size < 4 or size % 2 or vtable + size > self.size or width < 4 or at + width > self.size:
            raise FileFormatError(
                f"the table {of.name} at byte {at} of {self.size} is {width} bytes long, with {size} bytes of offsets"
            )
        given: dict[str, Any] = {}
        unions = []
        for f in of.fields.values():
            off = self.number("<H", vtable + f.slot) if f.slot < size else 0
            if not off:
                continue
            need = f.dtype.itemsize if f.kind == "number" and f.dtype is not None else 4
            if off < 4 or off + need > width:
                raise FileFormatError(f"the field {of.name}.{f.name} lies outside of its table, at byte {off} of {width}")
            if f.kind == "union":
                unions.append((f, at + off))
            else:
                given[f.name] = self.field(f, at + off)
        made = Record(of, given)
        for f, place in unions:
            which = names_of(f.table).get(made[f"{f.name}Type"])
            if which is None:
                raise FileFormatError(f"the field {of.name}.{f.name} holds a table of the unknown kind {made[f'{f.name}Type']}")
            if which != "NONE":
                given[f.name] = self.table(self.behind(place), which)
        return made

    def behind(self, at: int) -> int:
        """Where an offset leads."""
        return at + self.number("<I", at)

    def field(self, f: Field, at: int) -> Any:
        """What a field is; at: where it lies, or its offset."""
        if f.kind == "number":
            assert f.dtype is not None
            if at % f.dtype.itemsize:
                raise FileFormatError(f"the field {f.name} at byte {at} is not aligned")
            return np.frombuffer(self.data, f.dtype, 1, at)[0].item()
        to = self.behind(at)
        if f.kind == "table":
            return self.table(to, f.table)
        if f.kind == "text":
            return self.text(to)
        key = (f.kind + f.table + str(f.dtype), to)
        if key not in self.known:
            self.known[key] = self.vector(f, to)
        return self.known[key]

    def vector(self, f: Field, at: int) -> Any:
        """The vector at a place: a NumPy array of numbers, or a tuple."""
        count = self.number("<I", at)
        width = f.dtype.itemsize if f.dtype is not None else 4
        if at + 4 + count * width > self.size:
            raise FileFormatError(f"the vector {f.name} at byte {at} of {self.size} has {count} elements of {width} bytes")
        self.part()
        if f.kind == "numbers":
            if (at + 4) % width:
                raise FileFormatError(f"the vector {f.name} at byte {at} is not aligned")
            return np.frombuffer(self.data, f.dtype, count, at + 4) if count else np.empty(0, f.dtype)
        self.part(count)
        places = [self.behind(at + 4 + 4 * i) for i in range(count)]
        return tuple(self.text(p) if f.kind == "texts" else self.table(p, f.table) for p in places)

    def text(self, at: int) -> str:
        """The text at a place; bytes that are no UTF-8 stay visible."""
        length = self.number("<I", at)
        if at + 4 + length > self.size:
            raise FileFormatError(f"a text at byte {at} of {self.size} is {length} bytes long")
        self.part(1 + length // 64)
        return bytes(self.data[at + 4 : at + 4 + length]).decode("utf-8", "surrogateescape")


# -- writing -----------------------------------------------------------------------------------------------------------------
WIDE = 16  # bytes to which the data of buffers are aligned


def write(name: str, given: Mapping[str, Any], identifier: bytes) -> bytes:
    """A table with all that it holds as a flatbuffer: mappings for tables (of a union: a pair of the table's name and a mapping),
    sequences and arrays for vectors."""
    package()
    import flatbuffers

    b = flatbuffers.Builder(1 << 16)
    b.Finish(_written(b, form(name), given), identifier)
    return bytes(b.Output())


def _written(b: Any, of: Form, given: Mapping[str, Any]) -> int:
    """Writes a table, after what it leads to; gives its place."""
    places: dict[str, int] = {}
    values = dict(given)
    for key in given:
        f = of.fields[key]
        if f.kind == "union":
            which, inner = given[key]
            values[f"{key}Type"] = next(n for n, name in names_of(f.table).items() if name == which)
            places[key] = _written(b, form(which), inner)
        elif f.kind != "number":
            places[key] = _reference(b, f, given[key])
    b.StartObject(max((f.slot for f in of.fields.values()), default=2) // 2 - 1)
    for key, value in values.items():
        f = of.fields[key]
        index = (f.slot - 4) // 2
        if f.kind == "number":
            assert f.dtype is not None
            word = "Bool" if f.dtype.kind == "b" else f.dtype.name.capitalize()
            getattr(b, f"Prepend{word}Slot")(index, f.dtype.type(value).item(), f.default)
        else:
            b.PrependUOffsetTRelativeSlot(index, places[key], 0)
    return b.EndObject()


def _reference(b: Any, f: Field, value: Any) -> int:
    """Writes what a field leads to; gives its place."""
    if f.kind == "text":
        return b.CreateString(value)
    if f.kind == "table":
        return _written(b, form(f.table), value)
    if f.kind == "numbers":
        a = np.ascontiguousarray(value, f.dtype)
        if f.name != "Data":
            return b.CreateNumpyVector(a)
        b.StartVector(1, a.size, WIDE)  # a tensor's bytes
        b.head = b.head - a.size
        b.Bytes[b.head : b.head + a.size] = a.tobytes()
        return b.EndVector()
    entries: Sequence[int] = [b.CreateString(v) if f.kind == "texts" else _written(b, form(f.table), v) for v in value]
    b.StartVector(4, len(entries), 4)
    for place in reversed(entries):
        b.PrependUOffsetTRelative(place)
    return b.EndVector()
