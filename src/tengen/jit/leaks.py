"""Lost side effects: values of a recording that something outside of it still holds when it has ended.

`kept` looks at the end of a call that may still be run in parts, and gives the line that made such a value. `warn_of_leaks` looks when
the trace has let go of its own references, and gives a `TraceWarning` for each place that made a value which a list, an attribute, a global or
a closure keeps: runs of the program will not update it. A value that only a frame holds (a caller's local variable, an exception's
traceback, a generator) gives none. So does one in an argument: another warning tells that the function changes it.
"""

from __future__ import annotations

import functools
import gc
import sys
import warnings
from collections import deque
from collections.abc import Mapping, Sequence, Set
from types import CellType, CoroutineType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType, TracebackType
from typing import Any
from weakref import ref

from tengen.autodiff import Function, GradManager
from tengen.base.errors import TraceWarning, user_line
from tengen.ir.graph import Value
from tengen.jit.arguments import Copies
from tengen.jit.dynamic import parameter_of_each, tensors_in
from tengen.jit.room import warn
from tengen.tensor import Tensor
from tengen.tensor.nodes import TapeNode
from tengen.tensor.structure import flatten

MOST_SCANS = 64  # of all objects, in search of one value's holders: what has not been seen to be garbage by then is kept

# What ends with the call that made it; the tape, which a kept tensor brings along; and who records it.
_PASSING = (FrameType, TracebackType, BaseException, GeneratorType, CoroutineType, TapeNode, GradManager)
_CONTAINERS = {list, tuple, dict, set, frozenset, deque, CellType, MethodType, functools.partial}


def warn_of_leaks(made: Sequence[ref], own: Set[int]) -> None:
    """A `TraceWarning` for each line of the user's code that made a value which is kept. made: as `Recorder.made`; own: the ids of those
    that the recording keeps itself."""
    made = [r for r in made if id(r()) not in own] if own else made
    if not any(r() is not None for r in made):
        return
    gc.collect(1)  # cycles of the recording itself
    if any(r() is not None for r in made):
        gc.collect()
    alive = [x for r in made if (x := r()) is not None]
    tensors = [x for x in gc.get_referrers(*alive) if isinstance(x, Tensor) and isinstance(x._data, Value)] if alive else []
    told = set()
    for t in tensors:
        said, where = _description(t._data)
        if said not in told and _is_kept(t, id(tensors)):
            told.add(said)
            file, _, line = (where or user_line() or "unknown:0").rpartition(":")
            text = f"the trace kept {said} outside of it; runs of the trace will not update it; help: return it"
            warnings.warn_explicit(text, TraceWarning, file, int(line))


def kept(made: Sequence[ref[Tensor]], others: Set[int], known: Mapping[int, int], results: list[Any], owners: Set[int]) -> str | None:
    """The line that made a traced tensor which outlives the call that is being recorded: which something holds that does not end with it.
    None: there is none.

    Args: made: tensors of the call; those with the ids `others` are not looked at. known: by id, references that end with the call. results:
        objects that the call returns. owners: ids of tensors that hold gradients of the call.
    """
    tensors = _traced(made, others)
    if not results and not _held_by_others(tensors, known):
        return None
    gc.collect(1)  # cycles of the recording itself
    frontier: list[Any] = tensors if results else _held_by_others(tensors, known)
    line = next((w for w in (_description(t._data)[1] for t in frontier) if w), None)
    passing, own = _locals_of_calls(sys._getframe(1))
    passing, own = passing | owners, own | known.keys()
    returned = set(map(id, results))
    seen = {id(tensors), id(frontier)}
    while frontier:
        holders = [h for h in gc.get_referrers(*frontier) if h is not frontier]
        held = {id(x) for x in gc.get_referents(*holders)}
        unheld = any(id(x) not in held and id(x) not in own for x in frontier)
        holders = [h for h in holders if id(h) not in seen and id(h) not in passing and not isinstance(h, _PASSING) and not _ours(h)]
        if unheld or any(id(h) in returned or not _holds_for_another(h) for h in holders):
            return line or "unknown:0"
        frontier = holders
        del holders
        seen.update(map(id, frontier))
    return None


def _ours(x: Any) -> bool:
    """Whether it belongs to a recording or to the tape, as objects of this package below `module` do."""
    return type(x).__module__.startswith(("tengen.jit.", "tengen.tensor.", "tengen.autodiff.", "tengen.ir.", "tengen.ops."))


def _holds_for_another(x: Any) -> bool:
    """Whether what it holds is kept only as long as something else holds it: a container, a variable of a closure, a function of this package.
    All others that still exist, now that the function has ended, are kept."""
    if isinstance(x, FunctionType):
        return (x.__module__ or "").startswith("tengen.")
    return type(x) in _CONTAINERS or isinstance(x, Function)


def references(objects: list[Any]) -> list[int]:
    """How many references there are to each object of a list besides the list's."""
    *counts, none = [sys.getrefcount(x) for x in [*objects, object()]]
    return [n - none - 1 for n in counts]


def _held_by_others(tensors: list[Tensor], known: Mapping[int, int]) -> list[Tensor]:
    """The tensors to which there are more references than are known."""
    return [t for n, t in zip(references(tensors), tensors) if n > known.get(id(t), 0)]


def _traced(made: Sequence[ref[Tensor]], others: Set[int]) -> list[Tensor]:
    alive = {id(t): t for t in (r() for r in made) if t is not None}
    return [t for key, t in alive.items() if key not in others and isinstance(t._data, Value)]


def _locals_of_calls(frame: FrameType | None) -> tuple[set[int], set[int]]:
    """Of the running functions of this package that called each other: (ids of the dicts in which a frame gives its variables, ids of the
    tensors and containers in them). No object is seen to hold what a running function holds."""
    dicts, found = set(), set()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tengen.jit."):
        values = frame.f_locals
        dicts.add(id(values))
        found |= {id(v) for v in values.values() if isinstance(v, (list, tuple, dict, Tensor, Copies))}
        frame = frame.f_back
    return dicts, found


def _description(v: Value) -> tuple[str, str | None]:
    """A traced value in words, and the user's line that made it."""
    if v.node is None:
        return f"the value of {v.name} ({v.type})", None
    return f"the result of {v.node.op} ({v.type}, made at {v.node.where})", v.node.where


def _is_kept(t: Tensor, own: int) -> bool:
    """Whether a tensor is held by something that is not itself passing: goes from holder to holder, up to a module or to what
    no object is seen to hold (so that a running function does, or the interpreter). `own`: the id of the list it came in."""
    stack: list[Any] = []
    seen = {own, id(stack), id(t)}
    _push_holders(t, stack, seen)
    for _ in range(MOST_SCANS):
        if not stack:
            return False
        x = stack.pop()
        if isinstance(x, ModuleType) or not _push_holders(x, stack, seen):
            return True
    return True


def _push_holders(x: Any, stack: list[Any], seen: set[int]) -> int:
    """Puts what holds x, is not passing, and was not seen, on the stack. Returns how many objects hold x, whatever they are."""
    holders = [h for h in gc.get_referrers(x) if h is not stack]
    for h in holders:
        if id(h) not in seen and not isinstance(h, _PASSING):
            seen.add(id(h))
            stack.append(h)
    return len(holders)


def warn_of_changed_arguments(
    name: str, before: tuple[Any, Sequence[Tensor]], now: tuple[Sequence[Any], Mapping[str, Any]], parameters: Sequence[str], told: set[str]
) -> None:
    """A `TraceWarning` for the first argument that holds other tensors, keys or elements than before the function ran.

    Args:
        before: the structure of the arguments, and their tensors. now: the lists, dicts and dataclasses of its own that the function was given.
        told: what was warned of, to which it is added.
    """
    structure, tensors = before
    found: list[Tensor] = []
    after, at = flatten(now, found), 0
    for (argument, old), (_, new) in zip(parameter_of_each(structure, parameters), parameter_of_each(after, parameters)):
        end = at + tensors_in(old)
        if old != new or any(a is not b for a, b in zip(tensors[at:end], found[at:end])):
            if (said := f"argument {argument}") not in told:
                told.add(said)
                warn(
                    f"{name} changes what its argument {argument} holds (elements, keys or attributes), and runs of its program leave the "
                    "caller's as it is; help: return what is new, and set it outside of the trace"
                )
            return
        at = end
