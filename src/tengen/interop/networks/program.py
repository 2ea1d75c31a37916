"""A network that came from a file as one program with its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.device import default_device
from tengen.base.errors import ArgumentError, FileFormatError, TengenError, TraceError, Undecided
from tengen.deploy.dump import portable
from tengen.deploy.model import Model
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr, unguarded, var
from tengen.module import Module
from tengen.tensor import Tensor, tensor_over
from tengen.tensor.recorder import Recorder

# What code for a whole file meets in a damaged one.
DAMAGED = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError)


def program(
    net: Module, name: str, inputs: Mapping[str, TensorType], outputs: Sequence[str], weights: Mapping[str, Tensor],
    given: Mapping[str, Any] | None = None,
) -> Model:  # fmt: skip
    """Records a network's call. An open extent that has to be a number (channels beside weights) is that.

    Args:
        inputs: the types of its arguments, by the names that the model's inputs get. outputs: names. weights: names of tensors that
            the network reads. given: shapes that the user gave in place of the file's.
    Errors: TraceError where an open extent has to be a number; FileFormatError for operators that do not fit one another; with `given`,
        what the network raises.
    """
    try:
        while True:
            try:
                return _program(net, name, inputs, outputs, weights)
            except Undecided as e:
                inputs = settled(inputs, e.equal) or refused(name, inputs, e)
    except TraceError as e:
        if not (place := node_of(e)):
            raise
        raise TraceError(f"{e}; {place}; help: to_module(file) runs such a network node by node") from e
    except (FileFormatError, ArgumentError):
        raise
    except (TengenError, *DAMAGED) as e:
        if given:
            raise
        notes = "".join(f"; {note}" for note in getattr(e, "__notes__", ()))
        raise FileFormatError(f"{name}: the file's shapes and dtypes do not fit its operators: {e}{notes}") from e


def _program(net: Module, name: str, inputs: Mapping[str, TensorType], outputs: Sequence[str], weights: Mapping[str, Tensor]) -> Model:
    rec = Recorder(name, device=default_device())
    with rec:
        made = net(*[rec.argument(n, tensor_over(None, None), t) for n, t in inputs.items()])
        outs = list(made) if isinstance(made, tuple) else [made]
        recorded = rec.finish(list(zip(outputs, outs)))
    names = {id(t): n for n, t in weights.items()}
    states = [s.name for s in recorded.states.values()]
    data = {n: t.numpy() for n, t in zip(states, rec.captured)}
    given = {n: names[id(t)] for n, t in zip(states, rec.captured) if id(t) in names}
    g, arrays = portable(recorded, data, list(inputs), list(outputs), given)
    return Model(g, arrays)


def settled(inputs: Mapping[str, TensorType], pair: tuple | None) -> dict[str, TensorType] | None:
    """The types of inputs where two extents are equal, of which one is open in them and the other a number. None for other extents."""
    names = {d for t in inputs.values() for d in t.shape if isinstance(d, Expr) and d.op == "var"}
    for old, new in (pair, pair[::-1]) if pair else ():
        old, new = unguarded(old), unguarded(new)
        if old in names and isinstance(new, int):
            return {n: TensorType([new if d is old else d for d in t.shape], t.dtype) for n, t in inputs.items()}
    return None


def refused(name: str, inputs: Mapping[str, TensorType], e: Undecided) -> Any:
    """Errors: TraceError, always: which node asks, and how the user answers."""
    place = node_of(e)
    opened = sorted({str(d) for t in inputs.values() for d in t.shape if not isinstance(d, int)})
    raise TraceError(
        f"{name} needs the number of an open extent{place and f' {place}'}: {e}; help: shapes={{{opened[0]!r}: ...}} gives a number for a name"
    ) from e


def node_of(e: BaseException) -> str:
    """The node of the file that an error's notes name, or ""."""
    return next((note for note in getattr(e, "__notes__", ()) if note.startswith("in the ")), "")


def type_of(name: str, shape: Sequence[Any], dtype: Any, given: Mapping[str, Any], what: str) -> TensorType:
    """The type of an input of a program.

    Args:
        shape: numbers, names of open extents, None for one that gets a name of its own. given: numbers for names.
    Errors: ArgumentError for what is no type.
    """
    found: list[Any] = []
    for i, d in enumerate(shape):
        d = named(name, i, d)
        d = given.get(d, d) if isinstance(d, str) else d
        found.append(var(identifier(d)) if isinstance(d, str) else int(d))
    try:
        return TensorType(found, np.dtype(dtype))
    except (TengenError, TypeError) as e:
        raise ArgumentError(f"{what}: {e}") from e


def named(name: str, axis: int, d: Any) -> Any:
    """An extent of an input: a number, or a name, also where the file gives none."""
    return f"{identifier(name)}_{axis}" if d is None else d


def identifier(name: str) -> str:
    """A name of an extent that the graph language takes."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return kept if kept[:1].isalpha() else f"n_{kept}"


LONGEST_NAME = 200  # characters; the graph language takes 1,000


def printable(name: str) -> str:
    """A name of inputs, outputs and weights that the graph language takes: "?" stands for what is no text, or a backquote."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in name[:LONGEST_NAME]) or "unnamed"
