"""Eviction: values that only the tape holds are let go while memory is short, and had again when the gradient asks for them.

In: nodes of the tape as they are made, and a budget in bytes. Out: nodes whose saved values are there when their gradient is computed.
A value goes for which cost / (bytes * time since its last use) is least, as in dynamic tensor rematerialisation (Kirisame et al., arXiv
2006.09616); its cost is that of the calls which have to be run again for it. It comes back from those calls, run with the operands that
they had, so its bits are the same; or from a file, where `offload` names a folder.

Nothing can write what the tape holds: who writes a tensor in place copies memory that is shared (`assignment.own`).
"""

from __future__ import annotations

import sys
from math import inf
from threading import RLock
from typing import Any
from weakref import ref

from tengen.base.errors import BudgetError, UsageWarning, warn_once
from tengen.base.sizes import in_words
from tengen.ops.define import Op, dispatch
from tengen.runtime import native
from tengen.runtime.paging import Region, Spool
from tengen.tensor import nodes
from tengen.tensor.casting import casting, casts
from tengen.tensor.nodes import TapeNode
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Buffer, tensor_over

CONTRACTION = 16  # how much more a call of a contraction costs than moving its operands and results, about
MOST_ANCESTORS = 32  # calls that would be run again for one value: where there are more, they are not counted to the end


class Held:
    """A value that the tape holds: in one place or several, each of which has its memory, or this object while it is away.

    Attributes:
        bytes: of the value. used: when it was used last. op, attrs, inputs, index: the call that made it, and which of its results it is.
            layout: of that result; None where only views of it were seen. slots: the places: (a list of saved operands, position), or
            (a tensor, -1). file: where its elements are, if they were written out.
    """

    __slots__ = ("bytes", "used", "op", "attrs", "inputs", "index", "layout", "slots", "file")

    def __init__(self, bytes: int, node: TapeNode, index: int, used: int):
        self.index, self.op, self.attrs, self.inputs = index, node.op, node.attrs, node.saved
        self.bytes, self.used, self.layout, self.file = bytes, used, None, None
        self.slots: list[tuple[ref, int]] = []

    def places(self) -> list[tuple[Any, int, Any]]:
        """The places that are still there, and what they have."""
        self.slots = [(r, i) for r, i in self.slots if (owner := r()) is not None and (i < 0 or i < len(owner))]
        found = [(owner, i) for r, i in self.slots if (owner := r()) is not None]
        return [(owner, i, owner._data if i < 0 else owner[i][0]) for owner, i in found]

    def memory(self) -> Any:
        """The value's memory; None while it is away."""
        return next((x for _, _, x in self.places() if type(x) is Buffer), None)

    def put(self, x: Any) -> None:
        """All places have `x` from now on."""
        for owner, i, _ in self.places():
            if i < 0:
                owner._data = x
            else:
                owner[i] = (x, *owner[i][1:])

    def cost(self) -> float:
        """What it costs to have it again: the bytes that calls move, and more for contractions."""
        if self.file is not None:
            return float(self.bytes)
        total, stack, seen = 0.0, [self], set()
        while stack:
            h = stack.pop()
            if id(h) in seen:
                continue
            seen.add(id(h))
            if len(seen) > MOST_ANCESTORS:
                return total * len(seen)
            moved = h.bytes + sum(s[1].size * s[1].dtype.size for s in h.inputs if s is not None and s[1] is not None)
            total += moved * (CONTRACTION if h.op.anchors or h.op.kind == "composite" else 1)
            stack.extend(s[0] for s in h.inputs if s is not None and type(s[0]) is Held)
        return total


class _Saved(list):
    """What a node has saved, which others may refer to weakly."""

    __slots__ = ("__weakref__",)


class Keeper:
    """Keeps what tensors hold below a budget, as far as letting go of what only the tape holds can.

    Attributes:
        bytes: the budget. smallest: values with fewer bytes stay. folder: where values are written that are let go; None: they are computed
            again. evicted, restored, computed_again: how many values went and came back, and how many calls were run for that. needed: the most
            bytes that tensors held above the budget when nothing more could go; 0 while it is kept.
    """

    def __init__(self, bytes: int, smallest: int, folder: str | None):
        self.bytes, self.smallest, self.needed = bytes, smallest, 0
        self.evicted = self.restored = self.computed_again = 0
        self._held: dict[int, Held] = {}  # by the identity of the memory
        self._now = 0
        self._spool = None if folder is None else Spool(folder)
        self._largest = 0
        self._room = 1024  # so many may be known before those that are gone are forgotten
        self._lock = RLock()

    def note(self, node: TapeNode) -> None:
        """A node was made: what it holds may be let go of from now on."""
        if tracing.active is not None or node.op is None:
            return
        with self._lock:
            self._now += 1
            node.saved = _Saved(node.saved)
            for i, s in enumerate(node.saved):
                if s is not None and type(s[0]) is Buffer:
                    self._add(s[0], s[1], _producer(s[0], s[2]), (ref(node.saved), i))
            outputs = node.outputs or ()
            for i, o in enumerate(outputs):
                if type(o._data) is Buffer:
                    self._add(o._data, o._layout, (node, i, True) if type(node.op) is Op else None, (ref(o), -1))
            self.make_room()

    def _add(self, data: Any, layout: Any, producer: tuple[TapeNode, int, bool] | None, slot: tuple[ref, int]) -> None:
        size = layout.size * layout.dtype.size
        if producer is None or size < self.smallest:
            return
        node, index, whole = producer
        h = self._held.get(id(data))
        if h is None or h.memory() is not data:  # the identity of another one that is gone
            if len(self._held) > self._room:
                self._held = {k: x for k, x in self._held.items() if x.slots and x.memory() is not None}
                self._room = 2 * len(self._held) + 1024
            h = self._held[id(data)] = Held(size, node, index, self._now)
        if whole:
            h.layout = layout
        h.used = self._now
        h.slots.append(slot)
        self._largest = max(self._largest, size)

    def make_room(self) -> None:
        """Lets go of values until what tensors hold, and one more value, is within the budget."""
        while native.memory_statistics().in_use + self._largest > self.bytes:
            if not self._evict_one():
                if (held := native.memory_statistics().in_use) > self.bytes:
                    self._miss(held)
                return

    def _miss(self, held: int) -> None:
        """Nothing more can go, and tensors hold more than the budget: it warns, the first time."""
        first, self.needed = not self.needed, max(self.needed, held)
        if first:
            warn_once(
                f"the budget of {in_words(self.bytes)} cannot be kept: tensors hold {in_words(held)} ({held} bytes) that cannot go: "
                "parameters, states, the program's own variables, operands of this call and values smaller than "
                f"{self.smallest} bytes; help: a budget of at least {held} bytes for the step so far; after the step, .needed of "
                "memory.budget(...) has the number for all of it",
                UsageWarning,
                of=f"a budget of {self.bytes} bytes",
            )

    def _evict_one(self) -> bool:
        best, best_score = None, inf
        for key, h in list(self._held.items()):
            if not self._only_held(key, h):
                continue
            score = h.cost() / (h.bytes * (self._now - h.used + 1))
            if score < best_score:
                best, best_score = (key, h), score
        if best is None:
            return False
        key, h = best
        if h.memory() is None:  # it went by itself meanwhile
            return True
        if self._spool is not None and h.file is None and h.layout is not None:
            h.file = self._spool.write(native.address(h.memory()), h.bytes)
        h.put(h)
        del self._held[key]
        self.evicted += 1
        return True

    def _only_held(self, key: int, h: Held) -> bool:
        """Whether nobody else has a value's memory. A value that nobody has at all is forgotten."""
        places = h.places()
        data = next((x for _, _, x in places if type(x) is Buffer), None)
        if data is None:
            del self._held[key]
            return False
        known = sum(x is data for _, _, x in places)
        return sys.getrefcount(data) == 2 + known + len(places)  # here, as an argument, in the places, in the list of them

    def restore(self, node: TapeNode) -> None:
        """What a node has saved is there."""
        with self._lock:
            self._now += 1
            here = []  # what is there stays while the rest comes back
            for i, s in enumerate(node.saved):
                if s is not None and type(s[0]) is Held:
                    here.append(self._back(s[0]))
                    node.saved[i] = (here[-1], *s[1:])
                elif s is not None:
                    here.append(s[0])
            for o in node.outputs or ():
                if type(o._data) is Held:
                    o._data = self._back(o._data)
                here.append(o._data)

    def _back(self, wanted: Held) -> Any:
        """The memory of a value that was let go of."""
        away = lambda h: [s[0] for s in h.inputs if s is not None and type(s[0]) is Held] if h.file is None else []
        stack: list[tuple[Held, list[Held]]] = [(wanted, [])]  # values, each with the operands that came back for it
        needed: dict[int, Any] = {}  # memory that stays until what is computed of it has been
        while stack:
            h, operands = stack[-1]
            h.used = self._now
            data = needed.get(id(h)) or h.memory()
            if data is not None:
                needed[id(h)] = data
                stack.pop()
                continue
            missing = next((x for x in away(h) if id(x) not in needed), None)  # also what has gone while others came back
            if missing is not None:
                operands.append(missing)
                stack.append((missing, []))
                continue
            data = needed[id(h)] = self._computed(h, needed) if h.file is None else _read(h.file)
            h.put(data)
            if h.places():
                self._held[id(data)] = h
            self.restored += 1
            for x in operands:
                needed.pop(id(x), None)
            del data
            self.make_room()
        return needed[id(wanted)]

    def _computed(self, h: Held, needed: dict[int, Any]) -> Any:
        """The value by its call, run once more."""
        memory = [None if s is None else needed[id(s[0])] if type(s[0]) is Held else s[0] for s in h.inputs]
        inputs = tuple(None if s is None else tensor_over(x, s[1]) for s, x in zip(h.inputs, memory))
        if casting.rule is None:
            out = dispatch.run(h.op, inputs, h.attrs)
        else:
            with casts(None, None, None):
                out = dispatch.run(h.op, inputs, h.attrs)
        self.computed_again += 1
        made = out[h.index] if isinstance(out, tuple) else out
        if h.layout is not None and made._layout is not h.layout:
            raise BudgetError(f"{h.op.name} gave {h.layout!r} first, and {made._layout!r} when it was run again; help: no budget for this step")
        return made._data


def _at(owner: Any, i: int) -> Any:
    return owner._data if i < 0 else owner[i][0] if i < len(owner) and owner[i] is not None else None


def _producer(data: Any, place: Any) -> tuple[TapeNode, int, bool] | None:
    """The call that computed this memory, which of its results it is, and whether that is no view of it; None where no call that can be
    run again did."""
    whole = True
    while place is not None:
        node, index = place if isinstance(place, tuple) else (place, 0)
        if type(node.op) is not Op:
            return None
        if node.op.kind != "view":
            return node, index, whole
        whole = False
        s = node.saved[0] if node.saved else None
        if s is None or s[0] is not data:
            return None
        place = s[2]
    return None


def _read(where: Region) -> Any:
    data = native.new_buffer(where.bytes)
    where.spool.read(where, native.address(data))
    return data


keeper: Keeper | None = None  # that of the budget in force
ever = False  # whether there was one: then values of nodes may be away


def set_keeper(new: Keeper | None) -> Keeper | None:
    """Puts a budget in force, or none. Returns the one before."""
    global keeper, ever
    before, keeper, ever = keeper, new, ever or new is not None
    if before is not None:
        nodes.unwatch(before.note)
    if new is not None:
        nodes.watch(new.note)
    return before


def restored(node: TapeNode) -> None:
    """What a node has saved is there, whatever budget was in force when it went."""
    if any(s is not None and type(s[0]) is Held for s in node.saved) or any(type(o._data) is Held for o in node.outputs or ()):
        (keeper or Keeper(1 << 62, 0, None)).restore(node)




def there(saved: tuple) -> tuple:
    """A saved operand with its memory, whatever budget was in force when that went."""
    return saved if type(saved[0]) is not Held else ((keeper or Keeper(1 << 62, 0, None))._back(saved[0]), *saved[1:])
