"""Compiles what people call first (`common_calls.py`): for this user's cache, or for the packs that come with Tengen.

In: jobs. Out: a warm cache, or a pack for each generic target. A pack is made from the patterns that this process meets when it
runs the jobs: each is lowered and compiled once more for each target, which need not be one that this machine can run.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tengen.base.config import config
from tengen.base.errors import ShapeError, TengenError, Undecided
from tengen.base.record import NamedTuple
from tengen.cli.common_calls import Job, jobs
from tengen.codegen.targets import Target
from tengen.compiler.pattern_cache import Make, entry_of, packed_entry, undecided, watching
from tengen.compiler.schedules import tuned_schedules
from tengen.runtime import native, pack
from tengen.runtime.cache import compiled
from tengen.runtime.provenance import provenance

__all__ = ["MOST_BYTES", "Job", "Warmed", "jobs", "patterns", "warm", "write_packs"]

MOST_BYTES = 10_000_000  # of all packs together
T = TypeVar("T")


def shown(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, with a progress bar on a terminal, which needs tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        click.echo(f"{what}: {total} in all; help: pip install tqdm for a progress bar", err=True)
        yield from items
        return
    yield from tqdm(items, what, total, disable=None, leave=False)


class Warmed(NamedTuple):
    """What `warm` did. compiled: modules. found: modules that were there. seconds: that it took."""

    compiled: int
    found: int
    seconds: float


def warm(jobs: Sequence[Job]) -> Warmed:
    """Runs jobs: what they need and is not there is compiled, and kept in the user's cache."""
    start, before = time.perf_counter(), provenance.counts.copy()
    for job in shown(jobs, len(jobs), "compiling"):
        job.run()
    new = provenance.counts - before
    found = new["pack"] + new["cache"]
    return Warmed(new.total() - found, found, time.perf_counter() - start)


_makes: dict[bytes, Make] = {}  # by key: workers are forked and have it, since functions do not travel


def patterns(jobs: Sequence[Job]) -> dict[bytes, Make]:
    """What makes the program of each pattern that some jobs meet, by its key in a pack. Left out are programs for the numbers of
    one call: no other call has them."""
    found: dict[bytes, Make] = {}

    def see(pattern: Any, make: Make) -> None:
        facts = None if pattern.alone else pattern.facts()
        if facts is not None:
            found[pack.key(facts)] = make

    with watching(see):
        for job in shown(jobs, len(jobs), "running"):
            job.run()
            gc.collect()  # a network is a cycle
            native.trim()  # the blocks of networks of many sizes would be gigabytes in the end
    return found


def write_packs(jobs: Sequence[Job], targets: Sequence[Target], folder: Path) -> list[tuple[Path, int, int]]:
    """Writes a pack for each target; returns (file, programs, bytes) of each.

    Errors: TengenError where the cache holds tuned schedules for one of the targets: they would be part of the packs.
    """
    for t in targets:
        if tuned_schedules(t).entries:
            raise TengenError(f"this cache has tuned schedules for {t.name}, which are not for a pack; help: set TENGEN_CACHE_DIR")
    _makes.clear()
    _makes.update(patterns(jobs))
    tasks = [(key, t.name) for key in sorted(_makes) for t in targets]
    entries: dict[str, dict[bytes, bytes]] = {t.name: {} for t in targets}
    for (key, name), data in shown(_each(_compiled, tasks), len(tasks), "compiling"):
        if data is not None:
            entries[name][key] = data
    written = []
    for t in targets:
        entries[t.name][pack.RUNTIME] = compiled(native.runtime_ir(t), t, parts=False)
        path = folder / f"{t.name}.pack"
        written.append((path, len(entries[t.name]), pack.write(str(path), t, entries[t.name])))
    return written


def _compiled(task: tuple[bytes, str]) -> tuple[tuple[bytes, str], bytes | None]:
    """(the task, the entry of a pack for a key and a target); None for a program that cannot be kept."""
    key, name = task
    target = Target.named(name)
    try:
        program, arrays = _makes[key](target)
    except (Undecided, ShapeError) as e:
        return task, packed_entry(undecided(e), b"")
    entry = entry_of(program, arrays)
    return task, None if entry is None else packed_entry(entry, compiled(program.text, target, parts=False))


def _each(f: Callable, tasks: Sequence) -> Iterator:
    """The results of a function, in any order: from as many processes as programs may have threads."""
    if config.threads == 1 or len(tasks) < 2:
        yield from map(f, tasks)
        return
    with warnings.catch_warnings():  # Python warns of forks beside threads; ours are idle, and begin anew in a child
        warnings.simplefilter("ignore", DeprecationWarning)
        workers = multiprocessing.get_context("fork").Pool(config.threads)
    with workers:
        yield from workers.imap_unordered(f, tasks, chunksize=4)
