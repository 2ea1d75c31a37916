"""Machine code into this process without LLVM, whose library costs a process more than everything else a first operation does.

In: an object file as LLVM writes it, position independent, and a way to find the addresses of symbols that others
define. Out: where its own are, in memory that can be executed and no longer written. What the file may ask for is
little: its sections in one stretch, calls, and addresses relative to the code. For everything else (an architecture
without `Linking`, a relocation that is not in it, a symbol that nobody knows) the answer is None, and LLVM links.

Source: System V ABI, generic part, chapters 4 and 5; the numbers of relocations are in `codegen/targets/`.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import struct
from collections.abc import Callable
from typing import TypeVar

from tengen.base.record import NamedTuple
from tengen.codegen.targets.architecture import Architecture, Linking

Row = TypeVar("Row", "_Section", "_Symbol")


class _Section(NamedTuple):
    """A row of the table of sections."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    """A row of the table of symbols."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


_FORMATS = {_Section: struct.Struct("<IIqqqqIIqq"), _Symbol: struct.Struct("<IBBHqq")}
_RELOCATION = struct.Struct("<qIIq")  # where in the section, what kind, which symbol, a number that is added to its address
_LONG, _INT = struct.Struct("<q"), struct.Struct("<i")
_DATA, _SYMBOLS, _RELOCATIONS, _ZEROS = 1, 2, 4, 8  # kinds of sections
_WRITE, _ALLOC, _THREAD_LOCAL = 1, 2, 0x400  # flags of sections
_FUNCTION = 2  # kind of symbols
_STUB_BYTES = 8  # room for a jump through a word of a table: libraries may lie farther than a call reaches
_READ_EXECUTE = 5
_SEVERAL = b"tengen objects\0\0"


class Code(NamedTuple):
    """Machine code in this process. addresses: of its global symbols. memory: goes with the last reference. cells: where the
    address stands to which each replaceable function jumps; it may be written at any time."""

    addresses: dict[str, int]
    memory: mmap.mmap
    cells: dict[str, int]


def load(data: bytes, architecture: Architecture, find: Callable[[str], int | None], replaceable: bool = False) -> Code | None:
    """An object file's code, ready to be called; None where it wants what only a whole linker can do.

    Args:
        data: the file. architecture: of this process. find: the address of a symbol that the file does not define; None if
            there is none. replaceable: whether global functions are reached, from outside and from one another, through jumps
            that can be turned to other code (the ELF term is symbol interposition).
    """
    linking = architecture.linking
    if linking is None or data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    if struct.unpack_from("<H", data, 18)[0] != architecture.elf_machine:
        return None
    try:
        table, _, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        return _linked(data, _rows(_Section, data, table, count), linking, find, replaceable)
    except (ValueError, IndexError, OverflowError, OSError, struct.error):
        return None  # damaged; a linker says what is wrong


def _part(data: bytes, offset: int, size: int) -> bytes:
    """Some bytes of the file. Errors: ValueError where it has none there."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ValueError(f"the file has {len(data)} bytes, not {size} from {offset} on")
    return data[offset : offset + size]


def _rows(kind: type[Row], data: bytes, offset: int, count: int) -> list[Row]:
    """The rows of a table. Errors: those of `_part`."""
    form = _FORMATS[kind]
    return [kind(*row) for row in form.iter_unpack(_part(data, offset, count * form.size))]


def _linked(
    data: bytes, sections: list[_Section], linking: Linking, find: Callable[[str], int | None], replaceable: bool
) -> Code | None:
    (table,) = [s for s in sections if s.kind == _SYMBOLS]
    symbols = _rows(_Symbol, data, table.offset, table.size // _FORMATS[_Symbol].size)
    strings = sections[table.link].offset
    text = lambda s: _part(data, strings + s.name, data.index(b"\0", strings + s.name) - strings - s.name).decode()
    names = {i: text(s) for i, s in enumerate(symbols) if s.info >> 4 and i}
    others = {i: find(name) for i, name in names.items() if not symbols[i].section}
    places = _places(sections, linking)
    if places is None or None in others.values():
        return None
    at, end = places  # of sections; where the code ends and the stubs begin
    own = [i for i in names if replaceable and symbols[i].section and symbols[i].info & 15 == _FUNCTION]
    stubs = {i: end + _STUB_BYTES * n for n, i in enumerate([*others, *own])}
    words = end + _STUB_BYTES * len(stubs)  # the table: a word for each symbol
    fixed = -(-(words + 8 * len(symbols)) // mmap.PAGESIZE) * mmap.PAGESIZE
    at = [where + fixed if where >= 0 and s.flags & _WRITE else where for s, where in zip(sections, at)]
    ends = [where + s.size for s, where in zip(sections, at) if where >= 0]
    cells = -(-max(fixed, *ends) // 8) * 8  # a word for each function that can be replaced
    memory = mmap.mmap(-1, cells + 8 * len(own), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for s, where in zip(sections, at):
        if where >= 0 and s.kind == _DATA:
            memory[where : where + s.size] = _part(data, s.offset, s.size)
    lies = [0 < s.section < len(sections) and at[s.section] >= 0 for s in symbols]
    known = [base + at[s.section] + s.value if there else -1 for s, there in zip(symbols, lies)]
    called = known.copy()
    for i, address in others.items():
        known[i], called[i] = address, base + stubs[i]
    struct.pack_into(f"<{len(own)}q", memory, cells, *(known[i] for i in own))
    for i in own:
        known[i] = called[i] = base + stubs[i]
    for i, where in [*((i, words + 8 * i) for i in others), *((i, cells + 8 * n) for n, i in enumerate(own))]:
        stub = linking.stub(where - stubs[i])
        memory[stubs[i] : stubs[i] + len(stub)] = stub
    struct.pack_into(f"<{len(symbols)}q", memory, words, *known)
    entries = [base + words + 8 * i for i in range(len(symbols))]
    meant = {linking.relative: known, linking.absolute: known, linking.call: called, **dict.fromkeys(linking.table, entries)}
    for s in sections:
        if s.kind == _RELOCATIONS and at[s.info] >= 0:
            found = _part(data, s.offset, s.size // _RELOCATION.size * _RELOCATION.size)
            if not _relocated(memory, base, at[s.info], found, known, meant, linking.absolute):
                return None
    if _protect(base, fixed, _READ_EXECUTE):
        return None
    addresses = {name: known[i] for i, name in names.items() if lies[i] and known[i] >= 0}
    return Code(addresses, memory, {names[i]: base + cells + 8 * n for n, i in enumerate(own)})


def _places(sections: list[_Section], linking: Linking) -> tuple[list[int], int] | None:
    """Where each section goes: those that stay as they are from zero, those that are written from zero as well (they come after),
    -1 for what is not loaded; and where the first kind ends. None for a section of a kind that is not known here."""
    at, ends = [-1] * len(sections), [0, 0]
    for i, s in enumerate(sections):
        if not s.flags & _ALLOC or s.kind == linking.unwind:  # nothing is thrown through kernels, so nobody unwinds their frames
            continue
        if s.kind not in (_DATA, _ZEROS) or s.flags & _THREAD_LOCAL:
            return None
        align = max(s.align, 8)
        at[i] = -(-ends[s.flags & _WRITE] // align) * align
        ends[s.flags & _WRITE] = at[i] + s.size
    return at, -(-ends[0] // 8) * 8


def _relocated(
    memory: mmap.mmap, base: int, start: int, found: bytes, known: list[int], meant: dict[int, list[int]], absolute: int
) -> bool:
    """Writes what the relocations of the section at `start` ask for; False where one cannot be had. absolute: the kind that is
    an address of 64 bits."""
    for offset, kind, symbol, addend in _RELOCATION.iter_unpack(found):
        if kind not in meant or known[symbol] < 0 or offset < 0:
            return False
        where = start + offset
        value = meant[kind][symbol] + addend
        if kind == absolute:
            _LONG.pack_into(memory, where, value)
        elif -(1 << 31) <= (distance := value - base - where) < 1 << 31:
            _INT.pack_into(memory, where, distance)
        else:
            return False
    return True


def join(objects: list[bytes]) -> bytes:
    """Object files as one entry."""
    return b"".join([_SEVERAL, struct.pack(f"<{len(objects) + 1}Q", len(objects), *map(len, objects)), *objects])


def objects_of(data: bytes) -> list[bytes]:
    """The object files of an entry of `join`; any other data is one."""
    if not data.startswith(_SEVERAL):
        return [data]
    try:
        (n,) = struct.unpack_from("<Q", data, len(_SEVERAL))
        sizes = struct.unpack_from(f"<{n}Q", data, len(_SEVERAL) + 8)
    except (struct.error, MemoryError, OverflowError):
        return [data]
    ends = list(itertools.accumulate(sizes, initial=len(_SEVERAL) + 8 * (n + 1)))
    return [data[a:b] for a, b in itertools.pairwise(ends)] if ends[-1] == len(data) else [data]


_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
