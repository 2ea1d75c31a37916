"""What tuning found, kept on disk beside the compiled kernels, for this user's later programs.

In: schedules by key (`kernels/schedule.py`). Out: the same, in every process that compiles for the same target and number of
threads. One entry of the cache holds all of them: it is believed, bounded and cleared like any other. What cannot be read
counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from tengen.base.config import config
from tengen.base.device import cpu
from tengen.base.errors import ScheduleError
from tengen.base.version import VERSION
from tengen.codegen.targets import Target
from tengen.compiler.program import target_of
from tengen.kernels.schedule import KEY_DIGITS, Schedule, Schedules, parse
from tengen.runtime import cache

MOST = 4096  # schedules that are kept; the oldest go
WRITTEN = ()  # the stamp of no entry: another process wrote while this one read

_read: dict[tuple, tuple[object, dict[str, Schedule]]] = {}  # which cache, name of an entry -> its stamp, and what it holds


def tuned_schedules(target: Target | None = None, threads: int | None = None) -> Schedules:
    """What tuning found for a target (default: what this process compiles for) and number of threads (default: that of now)."""
    target, threads = target or target_of(cpu), threads or config.threads
    return Schedules(target.key, threads, _entries(_name(target.key, threads)))


def keep(found: Schedules) -> None:
    """Keeps schedules; those that are there under other keys stay. Without a cache on disk this process alone has them."""
    name = _name(found.target, found.threads)
    with cache.locked():
        entries = {k: s for k, s in _entries(name).items() if k not in found.entries} | found.entries
        entries = dict(list(entries.items())[-MOST:])
        cache.put(name, to_text(entries).encode(), cache.SCHEDULES)
        _read[_place(name)] = cache.stamp(name, cache.SCHEDULES), entries


def _place(name: str) -> tuple:
    return config.cache, cache.directory_name(), name


def _name(target: str, threads: int) -> str:
    return f"tengen {VERSION} schedules {target} {threads}"


def _entries(name: str) -> dict[str, Schedule]:
    stamp, place = cache.stamp(name, cache.SCHEDULES), _place(name)
    if place not in _read or _read[place][0] != stamp:
        data = None if stamp is None else cache.get(name, cache.SCHEDULES)
        try:
            entries = {} if data is None else from_text(data.decode())
        except (ScheduleError, UnicodeDecodeError):
            entries = {}
        now = cache.stamp(name, cache.SCHEDULES)  # reading makes an entry young
        same = stamp is now if stamp is None or now is None else stamp[0] == now[0]
        _read[place] = now if same else WRITTEN, entries
    return _read[place][1]


def to_text(entries: Mapping[str, Schedule]) -> str:
    """Schedules as JSON: an object of texts."""
    import json  # as below: few programs have schedules of their own

    return json.dumps({k: str(s) for k, s in entries.items()}, separators=(",", ":"))


def from_text(text: str) -> dict[str, Schedule]:
    """The schedules of a text of `to_text`, less those of kinds that this Tengen does not know.

    Errors: ScheduleError for any other text.
    """
    import json

    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ScheduleError(f"schedules are not JSON: {e}") from None
    return parsed(table)


def parsed(table: object) -> dict[str, Schedule]:
    """The same of what JSON says: texts by key."""
    if not isinstance(table, dict) or len(table) > MOST or not all(isinstance(s, str) for s in table.values()):
        raise ScheduleError(f"schedules are not a table of at most {MOST} texts")
    found = {}
    for key, text in table.items():
        if len(key) != KEY_DIGITS or not set(key) <= set("0123456789abcdef"):
            raise ScheduleError(f"{key[:60]!r} is no key of a schedule")
        if (s := parse(text)) is not None:
            found[key] = s
    return found
