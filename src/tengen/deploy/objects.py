"""Object files as they lie in files: how much machine code one holds, which symbols it defines and which it needs.

In: the bytes of a relocatable object of ELF (32 and 64 bits), COFF, Mach-O or WebAssembly. Out: an `Object`. Only what LLVM writes is
read, little-endian; other bytes are a `FileFormatError`.

Sources: System V ABI, generic part, chapters 4 and 5; Microsoft's PE format; Apple's loader.h and nlist.h; WebAssembly's tool
conventions (Linking.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tengen.base.errors import FileFormatError
from tengen.base.record import record
from tengen.codegen.targets import ARCHITECTURES


@record(frozen=True)
class Object:
    """An object file.

    Attributes:
        format: as `System.format`. machine: the format's number of the architecture. code_bytes: of machine code.
        defined, needed: its global symbols, as C spells them.
    """

    format: str
    machine: int
    code_bytes: int
    defined: frozenset[str]
    needed: frozenset[str]


def read_object(data: bytes) -> Object:
    """What an object file holds. Errors: FileFormatError for other bytes."""
    try:
        if data[:4] == b"\x7fELF" and data[4] in (1, 2) and data[5] == 1:
            return _elf(data, 64 if data[4] == 2 else 32)
        if data[:4] == b"\0asm":
            return _wasm(data)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return _macho(data)
        if data[:2] == b"\x64\x86":
            return _coff(data)
    except (ValueError, struct.error, IndexError):
        raise FileFormatError("a damaged object file") from None
    raise FileFormatError(f"not an object file for {' or '.join(ARCHITECTURES)}")


def _made(format: str, machine: int, code: int, symbols: Iterator[tuple[str, bool]]) -> Object:
    known = list(symbols)
    defined, needed = ({name for name, there in known if there == which} for which in (True, False))
    return Object(format, machine, code, frozenset(defined), frozenset(needed - {""}))


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _elf(data: bytes, bits: int) -> Object:
    head, at, row, entry = ("<Q", 40, "<IIQQQQI", "<IBBHQQ") if bits == 64 else ("<I", 32, "<IIIIIII", "<IIIBBH")
    (table,) = struct.unpack_from(head, data, at)
    size, count = struct.unpack_from("<HH", data, 58 if bits == 64 else 46)
    rows = [struct.unpack_from(row, data, table + i * size) for i in range(count)]
    code = sum(length for _, _, flags, _, _, length, _ in rows if flags & 4)

    def symbols() -> Iterator[tuple[str, bool]]:
        for _, kind, _, _, start, length, link in rows:
            if kind != 2:  # the symbol table
                continue
            for fields in struct.iter_unpack(entry, data[start : start + length]):
                info, section = (fields[1], fields[3]) if bits == 64 else (fields[3], fields[5])
                if info >> 4:  # global or weak
                    yield _text(data, rows[link][4] + fields[0]), bool(section)

    return _made("elf", struct.unpack_from("<H", data, 18)[0], code, symbols())


def _coff(data: bytes) -> Object:
    machine, sections, _, table, count, optional, _ = struct.unpack_from("<HHIIIHH", data)
    rows = [struct.unpack_from("<8sIIIIIIHHI", data, 20 + optional + 40 * i) for i in range(sections)]
    code = sum(row[3] for row in rows if row[9] & 0x20000000)

    def symbols() -> Iterator[tuple[str, bool]]:
        i = 0
        while i < count:
            name, _, section, _, kind, more = struct.unpack_from("<8sIhHBB", data, table + 18 * i)
            i += 1 + more
            if kind == 2:  # external
                long = struct.unpack("<II", name)
                yield _text(data, table + 18 * count + long[1]) if long[0] == 0 else name.rstrip(b"\0").decode(), section != 0

    return _made("coff", machine, code, symbols())


def _macho(data: bytes) -> Object:
    _, machine, _, _, commands, _, _, _ = struct.unpack_from("<8I", data)
    at, code, found = 32, 0, []
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == 0x19:  # a segment of 64 bits
            (sections,) = struct.unpack_from("<I", data, at + 64)
            rows = [struct.unpack_from("<16s16sQQIIIII", data, at + 72 + 80 * i) for i in range(sections)]
            code += sum(row[3] for row in rows if row[8] & 0x80000400)
        if command == 2:  # the symbol table
            table, count, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for i in range(count):
                name, kind, *_ = struct.unpack_from("<IBBHQ", data, table + 16 * i)
                if kind & 1 and not kind & 0xE0:  # external, and not for debuggers
                    found.append((_text(data, strings + name).removeprefix("_"), kind & 0xE != 0))
        at += size
    return _made("mach-o", machine, code, iter(found))


class _Bytes:
    """A place in WebAssembly's bytes, which moves on."""

    def __init__(self, data: bytes, at: int = 0):
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """An unsigned LEB128."""
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return value

    def name(self) -> str:
        n = self.number()
        self.at += n
        return self.data[self.at - n : self.at].decode()

    def limits(self) -> None:
        more = self.byte() & 1
        self.number()
        if more:
            self.number()


def _wasm(data: bytes) -> Object:
    code, imports, symbols = 0, [], []
    at = 8
    while at < len(data):
        b = _Bytes(data, at)
        kind, size = b.byte(), b.number()
        at = b.at + size
        if kind == 10:
            code = size
        elif kind == 2:
            imports = _imports(b)
        elif kind == 0 and b.name() == "linking":
            b.number()  # the version
            while b.at < at:
                sub, length = b.byte(), b.number()
                end = b.at + length
                if sub == 8:
                    symbols = _wasm_symbols(b, imports)
                b.at = end
    return _made("wasm", 0, code, iter(symbols))


def _imports(b: _Bytes) -> list[tuple[int, str]]:
    """(kind, name) of what is imported."""
    found = []
    for _ in range(b.number()):
        b.name()
        name, kind = b.name(), b.byte()
        found.append((kind, name))
        if kind == 0:
            b.number()
        elif kind == 3:
            b.byte(), b.byte()
        else:
            if kind == 1:
                b.byte()
            b.limits()
    return found


def _wasm_symbols(b: _Bytes, imports: list[tuple[int, str]]) -> list[tuple[str, bool]]:
    found = []
    imported = {0: 0, 2: 3, 5: 1}  # kinds of symbols -> kinds of imports
    for _ in range(b.number()):
        kind, flags = b.byte(), b.number()
        there = not flags & 0x10
        name = ""
        if kind == 1:
            name = b.name()
            if there:
                b.number(), b.number(), b.number()
        elif kind in imported:
            index = b.number()
            of_kind = [n for k, n in imports if k == imported[kind]]
            name = b.name() if there or flags & 0x40 else of_kind[index]
        else:  # of a section
            b.number()
        if not flags & 2 and name:  # not local
            found.append((name, there))
    return found
