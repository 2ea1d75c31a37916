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
from typing import NamedTuple

import numpy as np

from tengen.codegen.targets.architecture import Architecture, Linking

_SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<i8"), ("address", "<i8"), ("offset", "<i8"), ("size", "<i8"),
    ("link", "<u4"), ("info", "<u4"), ("align", "<i8"), ("entry", "<i8"),
])  # fmt: skip
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<i8"), ("size", "<i8")])
_RELOCATION = np.dtype([("offset", "<i8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_DATA, _SYMBOLS, _RELOCATIONS, _ZEROS = 1, 2, 4, 8  # types of sections
_WRITE, _ALLOC, _THREAD_LOCAL = 1, 2, 0x400  # flags of sections
_FUNCTION = 2  # type of symbols
_STUB_BYTES = 8  # room for a jump through a word of a table: libraries may lie farther than a call reaches
_READ_EXECUTE = 5
_SEVERAL = b"tengen objects\0\0"


class Code(NamedTuple):
    """Machine code in this process. addresses: of its global symbols. memory: goes with the last reference. cells: where the
    address stands to which each replaceable function jumps; it may be written at any time."""

    addresses: dict[str, int]
    memory: mmap.mmap
    cells: dict[str, int]


def load(
    data: bytes, architecture: Architecture, find: Callable[[str], int | None], replaceable: bool = False
) -> Code | None:
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
        return _linked(data, np.frombuffer(data, _SECTION, count, table), linking, find, replaceable)
    except (ValueError, IndexError, OverflowError, OSError, struct.error):
        return None  # damaged; a linker says what is wrong


def _linked(
    data: bytes, sections: np.ndarray, linking: Linking, find: Callable[[str], int | None], replaceable: bool
) -> Code | None:
    (table,) = sections[sections["type"] == _SYMBOLS]
    symbols = np.frombuffer(data, _SYMBOL, int(table["size"]) // _SYMBOL.itemsize, int(table["offset"]))
    strings = int(sections[table["link"]]["offset"])
    names = {
        i: data[strings + int(at) : data.index(b"\0", strings + int(at))].decode()
        for i, at in enumerate(symbols["name"]) if symbols["info"][i] >> 4 and i
    }  # fmt: skip
    others = {i: find(name) for i, name in names.items() if not symbols["section"][i]}
    places = _places(sections, linking)
    if places is None or None in others.values():
        return None
    at, end = places  # of sections; where the code ends and the stubs begin
    own = [i for i in names if replaceable and symbols["section"][i] and symbols["info"][i] & 15 == _FUNCTION]
    stubs = {i: end + _STUB_BYTES * n for n, i in enumerate([*others, *own])}
    words = end + _STUB_BYTES * len(stubs)  # the table: a word for each symbol
    fixed = -(-(words + 8 * len(symbols)) // mmap.PAGESIZE) * mmap.PAGESIZE
    writable = (sections["flags"] & _WRITE > 0) & (at >= 0)
    at[writable] += fixed
    cells = -(-max(fixed, *(at + sections["size"])[at >= 0], 1) // 8) * 8  # a word for each function that can be replaced
    size = cells + 8 * len(own)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    image = np.frombuffer(memory, np.uint8)
    base = image.ctypes.data
    for s, where in zip(sections, at):
        if where >= 0 and s["type"] == _DATA:
            image[where : where + s["size"]] = np.frombuffer(data, np.uint8, int(s["size"]), int(s["offset"]))
    lies = (symbols["section"] > 0) & (symbols["section"] < len(sections))
    home = at[np.where(lies, symbols["section"], 0)]
    known = np.where(lies & (home >= 0), base + home + symbols["value"], -1)
    called = known.copy()
    for i, address in others.items():
        known[i], called[i] = address, base + stubs[i]
    image[cells : cells + 8 * len(own)].view("<i8")[:] = known[own]
    known[own] = called[own] = [base + stubs[i] for i in own]
    for i, where in [*((i, words + 8 * i) for i in others), *((i, cells + 8 * n) for n, i in enumerate(own))]:
        stub = np.frombuffer(linking.stub(where - stubs[i]), np.uint8)
        image[stubs[i] : stubs[i] + len(stub)] = stub
    image[words : words + 8 * len(symbols)].view("<i8")[:] = known
    meant = {
        linking.relative: known,
        linking.absolute: known,
        linking.call: called,
        **dict.fromkeys(linking.table, base + words + 8 * np.arange(len(symbols))),
    }
    for s in sections[sections["type"] == _RELOCATIONS]:
        if at[s["info"]] >= 0:
            found = np.frombuffer(data, _RELOCATION, int(s["size"]) // _RELOCATION.itemsize, int(s["offset"]))
            if not _relocated(image, base, int(at[s["info"]]), found, known, meant, linking.absolute):
                return None
    if _protect(base, fixed, _READ_EXECUTE):
        return None
    addresses = {name: int(known[i]) for i, name in names.items() if lies[i] and known[i] >= 0}
    return Code(addresses, memory, {names[i]: base + cells + 8 * n for n, i in enumerate(own)})


def _places(sections: np.ndarray, linking: Linking) -> tuple[np.ndarray, int] | None:
    """Where each section goes: those that stay as they are from zero, those that are written from zero as well (they come after),
    -1 for what is not loaded; and where the first kind ends. None for a section of a kind that is not known here."""
    at, ends = np.full(len(sections), -1, np.int64), [0, 0]
    for i, s in enumerate(sections):
        kind, flags = int(s["type"]), int(s["flags"])
        if not flags & _ALLOC or kind == linking.unwind:  # nothing is thrown through kernels, so nobody unwinds their frames
            continue
        if kind not in (_DATA, _ZEROS) or flags & _THREAD_LOCAL:
            return None
        align = max(int(s["align"]), 8)
        start = -(-ends[flags & _WRITE] // align) * align
        at[i], ends[flags & _WRITE] = start, start + int(s["size"])
    return at, -(-ends[0] // 8) * 8


def _relocated(
    image: np.ndarray, base: int, start: int, found: np.ndarray, known: np.ndarray, meant: dict[int, np.ndarray], absolute: int
) -> bool:
    """Writes what the relocations of the section at `start` ask for; False where one cannot be had. absolute: the kind that is
    an address of 64 bits."""
    for kind in set(found["type"].tolist()):
        some = found[found["type"] == kind]
        if kind not in meant or (known[some["symbol"]] < 0).any():
            return False
        where = start + some["offset"]
        value = meant[kind][some["symbol"]] + some["addend"]
        if kind != absolute:
            value -= base + where
            if (value != value.astype(np.int32)).any():
                return False
        width = 8 if kind == absolute else 4
        image[where[:, None] + np.arange(width)] = value.astype(f"<i{width}").view(np.uint8).reshape(-1, width)
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
