"""Guards: whether everything that a recording read is still the same.

In: a traced function, the objects it was called with, and the recording of it. Out: `Guards.hold`, which is asked before each
call. It compares one number for all modules and optimizers (`base/changes.py`), and the identity of each global, closure
variable and attribute of other objects that was read (`reach.py` finds them). If one of these differs, everything is read again
and compared by value; if values differ, another recording fits, or is made.

What cannot be guarded gives a `TraceWarning` when it is recorded: contents of NumPy arrays, random numbers, the clock; and
variables that the function itself changes, which happens when it is recorded, and not when the program runs.
"""

from __future__ import annotations

import functools
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from keyword import iskeyword
from operator import is_
from typing import Any
from weakref import ref

import numpy as np

from tengen.base.changes import changes
from tengen.base.errors import TraceWarning
from tengen.ir.graph import Value
from tengen.jit.observe import Observer, Use, lines
from tengen.jit.reach import ABSENT, Code, Differs, Look, Reach, is_a, plain
from tengen.tensor import Tensor

_METADATA = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "strides", "itemsize"})
WRITTEN_OUT = 64  # elements of a list that have a term each, which takes half the time
_GROWING = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})


class Reads:
    """Where a recording may have read something: what a walk over it needs. Equal for recordings that ran the same code."""

    def __init__(self, function: Any, objects: Sequence[Any], code: Code, captured: Sequence[Tensor], numbers: set[int]):
        self.function, self.objects, self.code, self.numbers = function, objects, code, numbers
        self.captured = [ref(t) for t in captured]
        self.skip: set[str] = set()

    def walk(self, expected: Callable[[int, str, Any], bool] | None = None) -> Reach:
        """Walks over everything that the recording may have read, as it is now."""
        captured = [t() for t in self.captured]
        while True:
            known = self.code.size
            there = Reach(self.code, captured, self.numbers, self.skip, expected).start(self.function, self.objects)
            if self.code.size == known:
                return there


class Guards:
    """What has to be unchanged for one recording.

    Attributes:
        reads: where to look. facts: what was found there when it was recorded; objects are weak references, so that a recording
            that is not in use keeps no module alive. quick: whether what is compared by identity is the same; it may raise what reading
            an attribute or a variable that is gone raises. Where it is not, `hold` looks closer.
    """

    def __init__(self, reads: Reads, now: object, there: Reach):
        self.reads = reads
        self.facts = [(path, _weak(x)) for path, x in there.facts]
        self.quick: Callable[[], bool] = _unknown
        self._settle(now, there)

    def _settle(self, now: object, there: Reach) -> None:
        self.quick = _quick(now, there.looks)

    def hold(self) -> bool:
        """Whether nothing changed that the recording read."""
        try:
            if self.quick():
                return True
        except (AttributeError, KeyError, ValueError, RuntimeError):  # something is gone, or changes just now
            pass
        return self.difference() is None

    def difference(self) -> str | None:
        """A text that names the first thing that has changed; None if nothing has, and then `hold` is quick again."""
        now = changes.last
        try:
            there = self.reads.walk(self._expected)
        except Differs as e:
            return str(e)
        if len(there.facts) < len(self.facts):
            return self.facts[len(there.facts)][0]
        self._settle(now, there)
        return None

    def _expected(self, i: int, path: str, x: Any) -> bool:
        return i < len(self.facts) and self.facts[i][0] == path and _is(self.facts[i][1], x)

    def sleep(self) -> None:
        """Drops the references to all objects, until the guards hold again."""
        self.quick = _unknown

    def lost(self) -> bool:
        """Whether they can never hold again, because an object is gone that has to be the same one."""
        return any(is_a(x, ref) and x() is None for _, x in self.facts)


def _unknown() -> bool:
    return False


def _quick(now: object, looks: Sequence[Look]) -> Callable[[], bool]:
    """A function without arguments that says whether each of these is the same object, and `changes.last` is `now`. It is
    compiled from source text with one `is` for each, since calls through `map` or `itemgetter` take several times as long."""
    terms = ["changes.last is now"]
    bound: list[Any] = [changes, now]
    names = ["changes", "now"]

    def name(x: Any) -> str:
        bound.append(x)
        names.append(f"x{len(bound)}")
        return names[-1]

    for how, holder, keys, values in looks:
        at = name(holder)
        if how == "variable":
            terms.append(f"{at}.get({name(ABSENT)}) is {name(values[0])}")
            continue
        if how == "length":
            terms.append(f"len({at}) == {values[0]}")
            continue
        if how == "element":
            terms.append(f"len({at}) == {len(values)}")
            if type(holder) is list and len(values) <= WRITTEN_OUT:
                terms += [f"{at}[{i}] is {name(v)}" for i, v in enumerate(values)]
            else:
                terms.append(f"all(map(is_, {at}, {name(values)}))")
        for k, v in zip(keys, values):
            if v is ABSENT:
                terms.append(f"{k!r} not in {at}")
            elif how == "item":
                terms.append(f"{at}[{k!r}] is {name(v)}")
            else:
                terms.append((f"{at}.{k}" if k.isidentifier() and not iskeyword(k) else f"getattr({at}, {k!r})") + f" is {name(v)}")
    source = f"def make({', '.join(names)}):\n    return lambda: (\n        " + "\n        and ".join(terms) + "\n    )\n"
    return _made(source)(*bound)


@functools.lru_cache(256)
def _made(source: str) -> Callable:
    scope: dict[str, Any] = {"is_": is_}
    exec(compile(source, "<guards of a trace>", "exec"), scope)
    return scope["make"]


def _weak(x: Any) -> Any:
    """Data as it is; an object by a weak reference, where it can have one."""
    if type(x) is tuple:
        return x
    try:
        return ref(x)
    except TypeError:
        return [x]


def _is(was: Any, x: Any) -> bool:
    if type(was) is tuple:
        return type(x) is tuple and was == x
    return (was[0] if type(was) is list else was()) is x


class Watch:
    """Sees one recording being made, in a ``with`` block around it, and then says what guards it.

    Args: function, objects: what is recorded, and arguments that it may look into. told: keys of warnings that were given. appends: whether
        it is an effect that the function only appends to a list that outlives the call.
    Attributes: observer: what ran in the block.
    """

    def __init__(self, function: Any, objects: Sequence[Any], told: set[str], appends: bool = False):
        self.function, self.objects, self.told, self._appends = function, objects, told, appends
        self.observer = Observer()
        self._found: tuple[Reads, object, Reach] | None = None

    def __enter__(self) -> Watch:
        code = Code(None)
        known = -1
        while known != len(code.names):  # functions that are found bring more names
            known = len(code.names)
            before = Reach(code).start(self.function, self.objects)
        self._code, self._before = code, before
        self._states = [(name, x, _state(x)) for name, x in before.sources]
        if "random" in code.names:
            np.random  # noqa: B018  (loads it: a state that is first seen afterwards tells nothing)
        self._global_states = _global_states()
        self.observer.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.observer.__exit__()

    def guards(self, captured: Sequence[Tensor], numbers: set[int]) -> Guards:
        """The guards of the recording that was made, after the warnings of what they cannot see."""
        reads, now, there = self._walked(captured, numbers)
        skip, written, _ = self._written(there)
        for path, name in written:
            self._warn_of_write(path, name)
        if skip:
            reads.skip = skip
            now, there = changes.last, reads.walk()
        for what, where in self._chances():
            self._warn(
                where or what, f"{what} is read inside a trace: it is recorded as it is now, and stays so in all runs; help: "
                "use tengen.random, or pass it as a Tensor argument", where or None,
            )  # fmt: skip
        for name, where in self.observer.entered:
            self._warn(
                f"with {name}", f"the context manager {name} is entered inside a trace: what it does happens when the function is recorded, "
                "and not in runs of its program; help: enter it around the call, or cut the function by jit.exclude_from_trace", where,
            )  # fmt: skip
        for path, name, what in there.opaque:
            self._warn_of_contents(path, name, what)
        del self._before, self._states, self._found
        return Guards(reads, now, there)

    def _walked(self, captured: Sequence[Tensor], numbers: set[int]) -> tuple[Reads, object, Reach]:
        """(what the function read, the last change before it was looked at, what was found): as it is now, which at the end of a recording
        is what it was when `effect` looked."""
        if self._found is not None and self._found[1] is changes.last:
            before = [t() for t in self._found[0].captured]
            if len(before) == len(captured) and all(map(is_, before, captured)):
                return self._found
        executed = self.observer.executed
        reads = Reads(self.function, self.objects, self._code if executed is None else Code(executed), captured, numbers)
        self._found = reads, changes.last, reads.walk()
        return self._found

    # -- what the function changes by itself ------------------------------------------------------------------------------
    def effect(self, captured: Sequence[Tensor], numbers: set[int]) -> str | None:
        """The line of the function, which has just been recorded, that runs of its program would not repeat: where it changes a variable by
        itself, or reads a random number of Python's or NumPy's. None: there is none."""
        _, lost, grown = self._written(self._walked(captured, numbers)[2])
        for path, name in [*lost, *grown] if self._appends else lost:
            return self._line_of(name) or path
        return next((where or what for what, where in self._chances()), None)

    def _written(self, there: Reach) -> tuple[set[str], list[tuple[str, str]], list[tuple[str, str]]]:
        """Paths of variables that the function changed while it was recorded, which are not guarded: each recording would make the guards of
        the others fail. Paths and names of those whose changes are lost, and of containers to which it only appends, which it does not read."""
        skip, lost, grown = set(), [], []
        for key, x in there.values.items():
            if is_a(x, Tensor) and is_a(x._data, Value):
                skip.add(there.paths[key])  # `leaks.py` tells of it
                continue
            was = self._before.values.get(key, x)
            if was is None or _same(was, x):
                continue  # what was None is made once and kept
            skip.add(there.paths[key])
            lost.append((there.paths[key], key[1]))
        for at, (path, name, keys, elements) in there.elements.items():
            _, _, was_keys, was = self._before.elements.get(at, (path, name, keys, elements))
            if _all_same([*was_keys, *was], [*keys, *elements]):
                continue
            skip.add(path)
            if all(use.then in _GROWING for use, _ in self._uses(name)):
                grown.append((path, name))
            elif not _only_objects_came(was, elements):
                lost.append((path, name))
        return skip, lost, grown

    def _uses(self, name: str, stored: bool = False) -> list[tuple[Use, str]]:
        return list(lines(self.observer.executed or (), name, stored))

    def _line_of(self, name: str) -> str | None:
        """Where a variable is set, or else read."""
        return next((w for _, w in [*self._uses(name, True), *self._uses(name)]), None)

    def _warn_of_write(self, path: str, name: str) -> None:
        where = self._line_of(name)
        self._warn(
            path, f"{path} is changed by the traced function: that happens when it is recorded, and not in runs of its program; "
            "help: keep what changes in a Tensor, or change it outside of the trace", where,
        )  # fmt: skip

    # -- what cannot be seen -----------------------------------------------------------------------------------------------
    def _warn_of_contents(self, path: str, name: str, what: str) -> None:
        uses = self._uses(name)
        where = next((w for use, w in uses if use.then not in _METADATA), None)
        if where is None and uses:
            return  # its shape alone is read
        self._warn(
            path, f"{path} is a {what}: its contents are recorded as they are now, and later changes in place are not seen; help: "
            "make it a Tensor, which each run reads anew, pass it as an argument, or bind another one", where,
        )  # fmt: skip

    def _chances(self) -> list[tuple[str, str]]:
        """What was read that differs in each run: (what it is, the line)."""
        found = list(self.observer.calls)
        seen = any("random" in what for what, _ in found)
        now = _global_states()
        for name, said in (("random", "a random number of Python's"), ("numpy", "a random number of NumPy's")):
            was = self._global_states[name]
            if was is not None and _differ(was, now[name]) and not (name == "random" and seen):
                found.append((said, next((w for _, w in self._uses("random")), "")))
        for name, x, was in self._states:
            if _differ(was, _state(x)) and not (is_a(x, random.Random) and seen):
                found.append((f"a random number of {name}", next((w for _, w in self._uses(name)), "")))
        return found

    def _warn(self, key: str, text: str, where: str | None) -> None:
        """Warns, once for each key and trace."""
        if key in self.told:
            return
        code = getattr(self.function, "__code__", None)
        file, _, line = (where or (f"{code.co_filename}:{code.co_firstlineno}" if code else "unknown:0")).rpartition(":")
        warnings.warn_explicit(text, TraceWarning, file, int(line))
        self.told.add(key)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    value = plain(a)
    return value is not None and value == plain(b)


def _all_same(a: Sequence, b: Sequence) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _only_objects_came(was: Sequence, now: Sequence) -> bool:
    """Whether a container has everything that it had, and all that was added are objects, no plain values: such as are made
    once and stored."""
    old, new = (Counter(plain(x) or id(x) for x in some) for some in (was, now))
    return old <= new and all(is_a(x, int) for x in new - old)


def _global_states() -> dict[str, Any]:
    """The states of the generators that modules keep."""
    numpy_random = sys.modules.get("numpy.random")
    return {"random": random.getstate(), "numpy": None if numpy_random is None else _state(numpy_random.mtrand._rand)}


def _state(x: Any) -> Any:
    """The state of a random generator."""
    if is_a(x, random.Random):
        return x.getstate() if type(x) is not random.SystemRandom else None
    bits = x if is_a(x, np.random.BitGenerator) else getattr(x, "bit_generator", getattr(x, "_bit_generator", None))
    return getattr(bits, "state", None)


def _differ(a: Any, b: Any) -> bool:
    if is_a(a, dict):
        return a.keys() != b.keys() or any(_differ(a[k], b[k]) for k in a)
    if is_a(a, np.ndarray):
        return a.tobytes() != b.tobytes()
    return a != b
