"""`tengen.interop.weights`: checkpoints of torchvision, timm, transformers, MegEngine and Paddle, by name, in and out.

In: a network, and a safetensors file (or shards, or a dict). Out: the network with those weights, or a file that the others load.
Files that can hold programs (pickles) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tengen.base.dtype import DType, dtype
from tengen.base.errors import FileFormatError, UsageWarning, warn_once
from tengen.base.files import File
from tengen.deploy.tensorfile import write_tensors
from tengen.interop.weights.rules import Entry, Lists, Table, entries
from tengen.interop.weights.store import read_state
from tengen.interop.weights.tables import FLAT, GENERIC, TABLES
from tengen.module import Module
from tengen.runtime import mapped
from tengen.tensor import Tensor, from_numpy

__all__ = ["layouts", "load", "options", "save", "state"]

SHOWN = 12  # names of each kind that a message lists
PIECE = 8 << 20  # bytes of an array that are looked at, or cast, together
TOGETHER = 32 << 20  # bytes of a mapped file that are turned or joined before its pages are given back


def layouts(net: Module) -> list[str]:
    """The layouts in which this network's checkpoints are known.

    >>> import tengen
    >>> tengen.interop.weights.layouts(tengen.models.lenet())
    ['megengine', 'paddle', 'tengen', 'torch']
    """
    return sorted({"tengen", *GENERIC, *_family(net)})


def load(net: Module, source: Any, layout: str = "tengen") -> Module:
    """Gives a network the weights of a checkpoint: all of them, or none where something does not fit.

    Args:
        net: a network of `tengen.models`, or for the layouts torch, megengine and paddle any other.
        source: a safetensors file, an index of shards or a folder with one of them, or a dict of arrays.
        layout: whose names and shapes they are: "torchvision", "timm", "transformers", "megengine", "paddle", or "tengen", our own;
            "torch" and "paddle" are a module of the same names there. Or lines ``ours -> theirs`` of your own, as
            tengen/interop/weights/rules.py says.

    Returns: net
    Errors: ValueError that lists at once what is missing, what is left over, and shapes that differ. FileFormatError for a file of
        another kind; for pickles (.pt, .pkl, .bin ...) it says the line that converts them.
    Numerics: values of another floating type are rounded to the network's; float16 and bfloat16 become float32 exactly. A number that the
        network's type does not hold is an error.
    Memory: arrays that stand in a file as the network has them stay the file's pages; others (of another order or type, or joined) are
        copied, and pages that were copied are given back.

    >>> import tengen
    >>> net = tengen.models.lenet()
    >>> theirs = tengen.interop.weights.state(net, "torch")
    >>> theirs["conv0.bias"].shape
    (6,)
    >>> _ = tengen.interop.weights.load(tengen.models.lenet(), theirs, "torch")
    """
    _check_options(net, _table(net, layout), layout)
    return fill(net, source, layout)


def fill(net: Module, source: Any, layout: str) -> Module:
    """`load` for who has made the network as the checkpoint's configuration says."""
    table, found = _table(net, layout), read_state(source)
    wanted = entries(net, table, _lists(net))
    given = _renamed(found, table, wanted)
    arrays, used, problems = {}, set(), []
    for e in wanted:
        names = next((n for n in e.names if all(part in given for part in n)), None)
        if names is None:
            there = max(e.names, key=lambda n: sum(part in given for part in n))
            problems += [f"  missing: {part} (for {e.ours})" for part in there if part not in given]
            used.update(part for part in there if part in given)
            continue
        used.update(names)
        parts = [given[part] for part in names]
        wrong = [f"  {n}: {a.shape} does not fit {s}" for n, a, s in zip(names, parts, e.shapes_of(parts)) if not _fits(a.shape, s)]
        problems += wrong or [f"  {n}: {why}" for n, a in zip(names, parts) if (why := _unusable(a, e.tensor.dtype))]
        if not wrong:
            arrays[e.ours] = (e, parts)
    left = sorted(given.keys() - used - _tied(given, table, used))
    left = [n for n in left if not (table.ignored and re.fullmatch(table.ignored, n))]
    heads = [n for n in left if table.heads and re.fullmatch(table.heads, n)]
    problems += [f"  unexpected: {n} {given[n].shape}" for n in left if n not in heads]
    if problems:
        kinds = [[p for p in problems if p.split(":")[0] == kind] for kind in ("  missing", "  unexpected")]
        kinds.append([p for p in problems if not any(p in k for k in kinds)])
        shown = "\n".join(line for lines in kinds for line in _few(lines))
        raise ValueError(f"the checkpoint does not fit {type(net).__name__} in the layout {_short(layout)}:\n{shown}{_wrapped(found, wanted)}")
    if heads:
        warn_once(f"load(): {type(net).__name__} has no such head: {', '.join(heads[:SHOWN])} are left out", UsageWarning)
    read = 0
    for e, parts in arrays.values():  # one after the other: what stood there goes before the next is made
        read += sum(a.nbytes for a in parts)
        if read > TOGETHER:
            mapped.trim()
            read = 0
        e.tensor._reset(_loaded(e, parts))
    mapped.trim()
    return net


def state(net: Module, layout: str = "tengen") -> dict[str, np.ndarray]:
    """A network's weights under the names and in the shapes of a layout, as `load` reads them. Arguments and errors as of `load`."""
    _check_options(net, _table(net, layout), layout)
    return stored(net, layout)


def stored(net: Module, layout: str) -> dict[str, np.ndarray]:
    """`state` for who writes a configuration beside it, which says how the network was made."""
    table = _table(net, layout)
    found: dict[str, np.ndarray] = {}
    for e in entries(net, table, _lists(net)):
        found.update(zip(e.names[0], e.stored(e.tensor.numpy())))
    return found


def save(net: Module, file: File, layout: str = "tengen") -> int:
    """Writes a network's weights as a safetensors file that the others load.

    Args: net, layout: as of `load`. file: a path, or a file that is open for writing bytes.
    Returns: the size in bytes
    Errors: those of `load` for the layout; OSError where it cannot be written.
    """
    arrays = {name: np.ascontiguousarray(a) for name, a in state(net, layout).items()}
    by_size = sorted(arrays.items(), key=lambda row: (-dtype(row[1].dtype).size, row[0]))  # each begins at a multiple of its element
    return write_tensors(file, dict(by_size), {"format": "pt"}, padded=False)


def check(net: Module, layout: str) -> None:
    """Nothing, where this network's checkpoints are known in a layout. Errors: ValueError where they are not."""
    _table(net, layout)


def options(family: str, layout: str) -> Mapping[str, object]:
    """What a network of this class must be made with to compute what the layout's does."""
    table = TABLES.get(family, {}).get(layout)
    return table.options if table is not None else {}


def _tied(given: Mapping[str, np.ndarray], table: Table, used: set[str]) -> set[str]:
    """A head that the network has not because it is the embedding, where the checkpoint has it a second time with the same values."""
    if table.tied is None or not all(name in given for name in table.tied) or table.tied[0] in used:
        return set()
    head, embedding = (given[name] for name in table.tied)
    return {table.tied[0]} if head.dtype == embedding.dtype and np.array_equal(head, embedding) else set()


def _loaded(e: Entry, parts: list[np.ndarray]) -> Tensor:
    """The parts as a tensor of the network's dtype. The caller's arrays may change, and are copied; a mapped file's are not."""
    a, d = e.loaded(parts), e.tensor.dtype.numpy
    if a.dtype != d and a.flags.c_contiguous:
        made = np.empty(a.size, d)
        for at, piece in _pieces(a):
            made[at : at + piece.size] = piece
        a = made
    a = np.ascontiguousarray(a, d).reshape(e.tensor.shape)
    return from_numpy(a, copy=not mapped.is_mapped(a) and any(np.may_share_memory(a, part) for part in parts))


def _pieces(a: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """An array's elements in pieces of 8 MB, each with the place where it begins; the pages of a mapped file are given back behind each."""
    flat, count = a.reshape(-1), PIECE // a.itemsize
    for at in range(0, flat.size, count):
        yield at, flat[at : at + count]
        if mapped.is_mapped(a):
            mapped.trim()


def _family(net: Module) -> dict[str, Table]:
    return TABLES.get(_class(net), {})


def _class(net: Module) -> str:
    """The name of the class of `tengen.models` that it is, or inherits from."""
    return next((c.__name__ for c in type(net).__mro__ if c.__module__.startswith("tengen.models")), "")


def _table(net: Module, layout: str) -> Table:
    if not isinstance(net, Module):
        raise TypeError(f"weights are those of a Module, this is a {type(net).__name__}")
    if not isinstance(layout, str):
        raise TypeError(f"layout is a {type(layout).__name__}; help: one of {', '.join(layouts(net))}, or a text of lines ours -> theirs")
    if "->" in layout:
        return Table(layout)
    if layout == "tengen":
        return Table(own_shapes=True)
    table = _family(net).get(layout) or GENERIC.get(layout)
    if table is None:
        raise ValueError(f"{type(net).__name__} has no table for the layout {layout!r}; help: one of {', '.join(layouts(net))}")
    return table


def _lists(net: Module) -> Lists:
    names = [name for name, _ in net.named_tensors()]
    family = _class(net)
    if family not in FLAT:
        return Lists(names)
    start, more = FLAT[family]
    return Lists(names, start, [depth + more for depth in net.depths])


def _check_options(net: Module, table: Table, layout: str) -> None:
    for name, value in table.options.items():
        if (mine := getattr(net, name, value)) != value:
            raise ValueError(
                f"{type(net).__name__} of the layout {layout} has {name}={value!r}, this network has {mine!r}: it would compute something "
                f"else; help: make it with {name}={value!r}"
            )


def _renamed(found: Mapping[str, np.ndarray], table: Table, wanted: list[Entry]) -> dict[str, np.ndarray]:
    """The checkpoint's arrays under the names that the table has: older spellings made new, and the prefix added where it lacks."""
    prefix = table.prefix if table.prefix and not any(n.startswith(table.prefix) for n in found) else ""
    below = {part for e in wanted for n in e.names for part in n if prefix and part.startswith(prefix)}
    given: dict[str, np.ndarray] = {}
    for name, a in found.items():
        now = name
        for old, new in table.renamed:
            now = re.sub(old, new, now)
        now = prefix + now if prefix + now in below else now
        if now in given:
            raise FileFormatError(f"the checkpoint has {now!r} twice, once as {name!r}")
        given[now] = a
    return given


def _fits(theirs: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Equal but for axes of one: MegEngine keeps vectors as (1, C, 1, 1)."""
    return theirs == want or [n for n in theirs if n != 1] == [n for n in want if n != 1]


def _unusable(a: np.ndarray, d: DType) -> str:
    """Why an array cannot be a tensor of a dtype: integers for floats, or numbers that would become infinite. Nothing if it can."""
    if dtype(a.dtype).kind != d.kind:
        return f"{a.dtype} are no weights of {d}"
    if not d.is_inexact or a.itemsize <= d.size or not a.size:
        return ""
    most = max((np.max(np.abs(part), where=np.isfinite(part), initial=0) for _, part in _pieces(a)), default=a.dtype.type(0))
    with np.errstate(over="ignore"):
        return "" if np.isfinite(most.astype(d.numpy)) else f"{most:.3g} is larger than what {d} holds"


def _few(lines: list[str]) -> list[str]:
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"  ... and {len(lines) - SHOWN} more"]


def _wrapped(found: Mapping[str, np.ndarray], wanted: list[Entry]) -> str:
    """A line of help where all names are those that are wanted, behind the name of a wrapper (DataParallel's "module.")."""
    first = next(iter(found), "")
    want = {part for e in wanted for names in e.names for part in names}
    for prefix in (first[: i + 1] for i, c in enumerate(first) if c == "."):
        if all(n.startswith(prefix) for n in found) and sum(n.removeprefix(prefix) in want for n in found) > len(found) // 2:
            shorter = f"{{n.removeprefix({prefix!r}): a for n, a in arrays.items()}}"
            return f"\n  help: all names begin with {prefix!r}; give {shorter} in place of the file"
    return ""


def _short(layout: str) -> str:
    return "of these lines" if "->" in layout else repr(layout)
