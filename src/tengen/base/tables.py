"""Tables that do not grow without end: of objects that are interned, which stay as long as somebody holds them, and of what can be made
again, of which the older half is forgotten when there is much. They are plain dicts, since hot paths look into them."""

from __future__ import annotations

import weakref
from typing import Any


class Interned(weakref.ref):
    """An entry of a table of interned objects: call it for the object, None if nobody holds that any more. `weakref.WeakValueDictionary`
    does the same in three times the time."""

    __slots__ = ("key", "table")
    key: Any
    table: dict


def intern(table: dict, key: Any, value: Any) -> None:
    """Enters an object into a table (key -> `Interned`), until nobody holds it any more."""
    entry = Interned(value, _forget)
    entry.key, entry.table = key, table
    table[key] = entry


def _forget(entry: weakref.ref) -> None:
    assert isinstance(entry, Interned)
    found = entry.table.pop(entry.key, None)  # keys are slow to hash: once
    if found is not entry and found is not None:  # another one has taken its place
        entry.table.setdefault(entry.key, found)


def keep(table: dict, key: Any, value: Any, most: int, fixed: int = 0) -> None:
    """Enters what can be made again. Where that would be more than `most`, the older half of the table is forgotten first, but for the first
    `fixed` entries.

    >>> table = dict.fromkeys("abcd")
    >>> keep(table, "e", None, most=4)
    >>> list(table)
    ['c', 'd', 'e']
    """
    if len(table) >= most:
        for old in list(table)[fixed : fixed + (most + 1) // 2]:
            table.pop(old, None)  # another thread may have forgotten it
    table[key] = value
