"""Direct calls: a traced function that is called again with tensors of the same layouts runs its program after a few checks.

In: a recording that has run, and the arguments that it ran on. Out: a `DirectCall`, which runs it again for tensors of the same
layouts. Before that it checks what layouts do not show: that what the function read is unchanged (guards), the layouts of
states, which gradients exist, what is on the tape. If a check fails, the call takes the long way, which finds another recording
or makes one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tengen.runtime import native
from tengen.tensor import Tensor
from tengen.tensor.assignment import own
from tengen.tensor.casting import casting
from tengen.tensor.nodes import leaf_of
from tengen.tensor.quantised import meaning
from tengen.tensor.structure import builder

if TYPE_CHECKING:
    from tengen.jit.recording import Recording


TOGETHER = 16  # buffers of one call of `sole`: CPython passes more than 30 arguments in a tuple, which holds them too


@functools.lru_cache(256)
def _made(names: tuple[str, ...], lines: str) -> Callable:
    """A function of these names that gives the function `f` of the lines. What is asked in each call is source text with one term for each
    tensor, since a loop takes three times the time."""
    scope: dict = {}
    exec(compile(f"def make({', '.join(names)}):\n{lines}\n    return f\n", "<a call of a trace>", "exec"), scope)
    return scope["make"]


def _numbered(letter: str, n: int) -> list[str]:
    return [f"{letter}{i}" for i in range(n)]


def _list_of(tensors: Sequence[str]) -> str:
    return ", ".join(f"{t}._data" for t in tensors)


def _gradients(guards: Sequence[tuple[Tensor, bool | None, Tensor | None]]) -> Callable[[], bool]:
    """A function that says whether the gradients of tensors are there as they were when they were recorded."""
    bound: dict[str, Any] = {}
    terms = []
    for i, (t, there, overflow) in enumerate(guards):
        bound[f"t{i}"] = t
        has, name = hasattr(t, "_grad"), "_grad"
        if there is not None:
            terms.append(f"{f't{i}._grad' if has else f'getattr(t{i}, {name!r}, None)'} is {'not ' * there}None")
        if hasattr(t, "overflow"):
            bound[f"o{i}"] = overflow
            terms.append(f"t{i}.overflow is o{i}")
    return _made(tuple(bound), f"    f = lambda: {' and '.join(terms) or True}")(*bound.values())


def is_argument(written: Sequence[Tensor], args: Sequence[Tensor]) -> bool:
    """Whether a state that a run writes is an argument too. A program would compute with the argument as it was before; in the function both
    are one tensor."""
    ids = set(map(id, args))
    return any(id(t) in ids for t in written)


def _take_own(written: Sequence[Tensor], args: Sequence[Tensor]) -> bool:
    """Gives states that a run writes memory of their own. Returns false, and does nothing, where one is an argument."""
    if is_argument(written, args):
        return False
    for t in written:
        own(t)
    return True


class DirectCall:
    """A recording, called with arguments of certain layouts, which are all tensors and dense in logical order.

    Attributes:
        recording: what is run. extents: the numbers of its open extents.
        grads: as a recording's, but for those that a run leaves as its guards found them.
        single: whether a call returns the program's only output as it is. build: of the program's outputs, the result; None where a call
            does more than return it.
        buffers: of a call's arguments, the buffers of the program's inputs and states; None if the recording may not fit. Nothing has an
            effect then. It may raise AttributeError or ValueError for other arguments, and what a guard raises where an object is gone.
        run: buffers, extents -> outputs.
    """

    __slots__ = ("recording", "extents", "grads", "single", "build", "buffers", "run")

    def __init__(self, recording: Recording, leaves: Sequence[Tensor], extents: tuple[int, ...]):
        assert recording.run is not None
        self.recording, self.extents = recording, extents
        none = {(id(t), id(overflow)) for t, there, overflow in recording.guards if there is False}
        self.grads = [(t, there, o) for t, there, o in recording.grads if there or (id(t), id(o)) not in none]
        plain = not self.grads and recording.ended is None
        self.single = recording.result == ("T",) and plain
        self.build = builder(recording.result) if plain else None
        self.run = recording.run.run  # a bound method: calling it costs half of what calling the object does
        self.buffers: Callable[[Sequence[Any]], list[Any] | None] = self._checks(leaves)

    def _checks(self, leaves: Sequence[Tensor]) -> Callable[[Sequence[Any]], list[Any] | None]:
        r, n = self.recording, len(leaves)
        bound: dict[str, Any] = {f"l{i}": x._layout for i, x in enumerate(leaves)}
        bound |= {"casting": casting, "key": casting.key, "read": r.read, "meaning": meaning}
        args = _numbered("x", n)
        terms = [f"{x}._layout is l{i} and {x}._node is None" for i, x in enumerate(args)]
        terms += [f"(not meaning.begun or getattr({a}, '_qparams', None) is None)" for a, x in zip(args, leaves) if x._layout.dtype.is_int]
        terms += ["casting.key == key", "(read.quick() or read.hold())"]
        if r.guards:
            bound["gradients"] = _gradients(r.guards)
            terms.append("gradients()")
        if r.managers:
            versions = [(m, m.version) for m in r.managers]
            bound["managed"] = lambda args: not any(m.version != v or any([m.callbacks_of(x) is not None for x in args]) for m, v in versions)
            terms.append("managed(args)")
        states = _numbered("t", len(r.states))
        for i, t in enumerate(r.states):
            bound |= {f"t{i}": t, f"k{i}": t._layout} | ({f"n{i}": t._node} if t._node is not None else {})
            terms.append(f"t{i}._layout is k{i} and t{i}._node is {'None' if t._node is None else f'n{i}'}")
        memory = f"[{_list_of([*args, *states])}]"
        if written := [states[i] for i in r.run.written]:
            # an argument that is such a state too is held twice by `a`, and found by that
            terms.append(f"(a := [{_list_of(args)}]) is not None")
            bound |= {"sole": native.sole, "take_own": functools.partial(_take_own, [r.states[i] for i in r.run.written])}
            sole = " and ".join(f"sole({_list_of(written[i : i + TOGETHER])})" for i in range(0, len(written), TOGETHER))
            terms.append(f"(({sole}) or take_own(args))")
            memory = f"[*a, {_list_of(states)}]"
        unpack = f"        {', '.join(args)}, = args\n" if args else "        () = args\n"
        text = f"    def f(args):\n{unpack}        if {' and '.join(terms)}:\n            return {memory}\n"
        return _made(tuple(bound), text)(*bound.values())

    @staticmethod
    def serves(r: Recording, leaves: Sequence[Tensor]) -> bool:
        """Whether a recording can be called directly: none of its states or gradients belongs to an argument, and nothing is on
        the tape."""
        n = len(leaves)
        taped = any(r.taped[:n]) or any(there and leaf_of(t) is None for there, t in zip(r.taped[n:], r.states))
        named = any(isinstance(t, int) for t, _, _ in (*r.grads, *r.guards))
        named = named or any(a is not None for known in r.attached for a in known[: len(leaves)])
        return not (r.open or r.gradient is not None or named or r.owners or taped) and all(x._layout.contiguous for x in leaves)
