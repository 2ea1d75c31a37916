"""Packs: programs that were compiled when Tengen was packaged, one file for each generic target, beside this one.

In: a key, 16 bytes that say what a program computes. Out: the bytes that were stored under it: machine code, and before it what
else there is to know of it. A pack is part of Tengen's own code, and trusted like that. It is made for one environment (Tengen's
version and sources, the compiler, the target, knobs: `environment.py`): in any other it is stale and not used. A checksum over
the header and the index, and one for each entry, find damage; what is damaged counts as absent.

The process reads the index once, and an entry when it is asked for, by the file's name: nothing stays open or mapped, so a file
that is replaced or cut short while processes run costs them compiling, and no more.

    file   = MAGIC checksum lengths header dictionary index entries
    lengths = bytes of the header, bytes of the dictionary, number of entries: 32 bits each, little-endian
    header = JSON: what the environment was
    index  = for each entry, in order of keys: key, offset in the file, bytes, checksum of key and bytes
    entry  = the stored bytes by zlib, with the dictionary, which holds what many entries have in common
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Mapping
from typing import Any

from tengen.base.config import config
from tengen.base.digest import blake2b
from tengen.base.files import replacing
from tengen.base.record import record
from tengen.base.version import VERSION
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.codegen.targets.system import LINUX
from tengen.runtime.environment import compiler, environment, knobs, sources

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packs")
MAGIC = b"tengen pack 1\n\0\0"
KEY_BYTES = 16
_LENGTHS = struct.Struct("<III")
_ENTRY = struct.Struct(f"<{KEY_BYTES}sQI{KEY_BYTES}s")
_HEAD_BYTES = len(MAGIC) + KEY_BYTES + _LENGTHS.size
_DICTIONARY_BYTES = 1 << 15  # what zlib can look back


def key(facts: str) -> bytes:
    """The key of what a text describes in full."""
    return blake2b(facts.encode(), digest_size=KEY_BYTES).digest()


RUNTIME = key("the native runtime")  # the key of the machine code of `process.py`


def path_of(target: Target) -> str:
    """Where the pack for a target lies."""
    return os.path.join(FOLDER, f"{target.name}.pack")


def generic_targets() -> list[Target]:
    """All targets that packs are made for: those with a name that Tengen itself runs on, each once, and whose processors lack nothing."""
    named = map(Target.named, TARGET_NAMES[1:])
    return list({t.key: t for t in named if t.hosts and not t.lacks and t.system is LINUX}.values())


def runnable(mine: Target) -> list[Target]:
    """The generic targets all of whose features a target has, the one with the most features first."""
    found = [t for t in generic_targets() if t.arch == mine.arch and all(map(mine.has, t.needs))]
    return sorted(found, key=lambda t: -len(t.needs))


@record(frozen=True)
class Pack:
    """An open pack: its header and index are whole, and its environment is this one, or `why_not` says what is wrong.

    Attributes:
        path: of the file. target: what it was compiled for. bytes, entries: how large it is. environment: as it was.
        index: the index, as in the file. dictionary: of its entries. why_not: why it is not used; "" if it is.
    """

    path: str
    target: Target
    bytes: int = 0
    entries: int = 0
    environment: str = ""
    index: bytes = b""
    dictionary: bytes = b""
    why_not: str = ""

    def get(self, key: bytes) -> bytes | None:
        """What is stored under a key; None if there is nothing, or it is damaged."""
        import bisect  # here: most processes read no pack
        import zlib

        where = lambda i: self.index[i * _ENTRY.size : i * _ENTRY.size + KEY_BYTES]
        i = bisect.bisect_left(range(self.entries), key, key=where)
        if i == self.entries or where(i) != key:
            return None
        _, at, n, checksum = _ENTRY.unpack_from(self.index, i * _ENTRY.size)
        try:
            with open(self.path, "rb", buffering=0) as f:
                data = os.pread(f.fileno(), n, at)
            if _checksum(key, data) != checksum:
                return None
            return zlib.decompressobj(zdict=self.dictionary).decompress(data)
        except (OSError, OverflowError, MemoryError, zlib.error):
            return None

    def keys(self) -> list[bytes]:
        """All keys, in order."""
        return [self.index[i : i + KEY_BYTES] for i in range(0, len(self.index), _ENTRY.size)]


def _checksum(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=KEY_BYTES).digest()


def opened(target: Target) -> Pack | None:
    """The pack for a target, usable or not; None if there is no file."""
    path = path_of(target)
    try:
        with open(path, "rb") as f:
            size, head = os.fstat(f.fileno()).st_size, f.read(_HEAD_BYTES)
            damaged = Pack(path, target, size, why_not="damaged")
            if len(head) < _HEAD_BYTES or not head.startswith(MAGIC):
                return damaged
            header_bytes, dictionary_bytes, n = _LENGTHS.unpack_from(head, len(MAGIC) + KEY_BYTES)
            sizes = [header_bytes, dictionary_bytes, n * _ENTRY.size]
            if sum(sizes) > size:
                return damaged
            parts = [f.read(k) for k in sizes]
    except FileNotFoundError:
        return None
    except OSError as e:
        return Pack(path, target, why_not=f"cannot be read: {e}")
    if head[len(MAGIC) : len(MAGIC) + KEY_BYTES] != _checksum(head[-_LENGTHS.size :], *parts):
        return damaged
    import json

    header = json.loads(parts[0])  # whole, so of our making
    return Pack(path, target, size, n, header["environment"], parts[2], parts[1], _stale(header, target))


def facts(target: Target) -> dict[str, Any]:
    """The header of a pack that is made now: what the environment is, for the program and for people."""
    made_of = {"tengen": VERSION, "sources": sources(), "compiler": compiler(), "target": repr(target)}
    return {"environment": environment(target, knobs()), **made_of, "knobs": [list(k) for k in knobs()]}


def _stale(header: dict[str, Any], target: Target) -> str:
    now = facts(target)
    other = [name for name in now if name not in ("environment", "knobs") and header.get(name) != now[name]]
    return f"stale: it was made with another {' and '.join(other)}" if other else ""


@functools.cache
def _usable(mine: Target) -> Pack | None:
    """The pack of the best generic target that a target includes and for which there is one."""
    for target in runnable(mine):
        found = opened(target)
        if found is not None and not found.why_not:
            return found
    return None


def current(mine: Target) -> Pack | None:
    """The pack that a process uses now, which compiles for this target; None if there is none, or it was made with other values of
    the knobs than those of now."""
    if not config.pack:
        return None
    found = _usable(mine)
    return found if found is not None and found.environment == environment(found.target, knobs()) else None


def find(key: bytes, mine: Target) -> tuple[bytes, Target] | None:
    """What the pack has under a key, and the target that it was compiled for; None if it has nothing. mine: what this process
    compiles for."""
    pack = current(mine)
    data = None if pack is None else pack.get(key)
    return None if pack is None or data is None else (data, pack.target)


def states(mine: Target) -> list[tuple[str, str]]:
    """(target, state) of each pack that is here, for people. mine: what this process compiles for."""
    now, found = current(mine), []
    for target in generic_targets():
        p = opened(target)
        if p is not None:
            used = "in use" if now is not None and now.path == p.path else "TENGEN_PACK=0" if not config.pack else "for other processors"
            if not p.why_not and used != "in use" and config.pack and p.environment != environment(target, knobs()):
                used = "made with other knobs"
            found.append((target.name, f"{p.entries} programs, {p.bytes / 1e6:.1f} MB, {p.why_not or used}"))
    return found


def write(path: str, target: Target, entries: Mapping[bytes, bytes]) -> int:
    """Writes a pack for a target, made of this environment; returns its bytes."""
    import json
    import zlib

    header = json.dumps(facts(target)).encode()
    dictionary = _dictionary(list(entries.values()))
    index, blobs = [], []
    at = _HEAD_BYTES + len(header) + len(dictionary) + len(entries) * _ENTRY.size
    for k in sorted(entries):
        squeeze = zlib.compressobj(9, zdict=dictionary)
        blob = squeeze.compress(entries[k]) + squeeze.flush()
        index.append(_ENTRY.pack(k, at, len(blob), _checksum(k, blob)))
        blobs.append(blob)
        at += len(blob)
    body = [_LENGTHS.pack(len(header), len(dictionary), len(entries)), header, dictionary, b"".join(index)]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with replacing(path) as f:
        f.write(b"".join([MAGIC, _checksum(*body), *body, *blobs]))
    return at


def _dictionary(entries: list[bytes]) -> bytes:
    """Bytes that are like those of many entries: parts of some, evenly taken, the ones of middle size last, where they are nearest."""
    if not entries:
        return b""
    some = sorted(entries, key=len)[:: max(1, len(entries) // 8)][:8]
    share = _DICTIONARY_BYTES // len(some)
    return b"".join(e[:share] for e in some)
