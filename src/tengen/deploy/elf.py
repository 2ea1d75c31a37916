"""The sections of an object file: how much machine code it holds, and for which machine."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tengen.base.errors import FileFormatError
from tengen.codegen.targets import ARCHITECTURES


class Section(NamedTuple):
    """One section. executable: it holds machine code."""

    name: str
    size: int
    executable: bool


def sections(data: bytes) -> list[Section]:
    """The sections of a 64-bit little-endian ELF object. FileFormatError for other bytes.

    Source: System V ABI, generic part, chapter 4 (object files).
    """
    try:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError
        table, size, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HHH", data, 58)
        rows = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
        strings = rows[names][4]
        found = []
        for name, _, flags, _, _, n in rows:
            end = data.index(b"\0", strings + name)
            found.append(Section(data[strings + name : end].decode(), n, bool(flags & 4)))
        return found
    except (ValueError, struct.error, IndexError):
        raise FileFormatError("not an object file of a 64-bit little-endian machine") from None


def machine(data: bytes) -> str:
    """The architecture that an object file is for, as `Target.arch` names it. FileFormatError for other bytes."""
    number = struct.unpack_from("<H", data, 18)[0] if data[:6] == b"\x7fELF\x02\x01" and len(data) > 20 else 0
    for a in ARCHITECTURES.values():
        if a.elf_machine == number:
            return a.name
    raise FileFormatError(f"not an object file for {' or '.join(ARCHITECTURES)}")
