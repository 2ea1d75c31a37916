"""Tensors in parts on a mesh of processes: tensor parallel training that is written as for one process.

    mesh = Mesh(data=2, model=4)                     # 8 processes; process (i, j) has number 4 i + j
    w = mesh.place(w, model=Split(0))                # each has a quarter of the rows, beside the others the same

An op on placed tensors picks, for each dimension of the mesh, the way whose conversions move the fewest bytes (`placing.py` has the
ways); the conversions are collective operations, which a trace records. Gradients and updates are ops like others. Megatron's layout
(M. Shoeybi and others, arXiv 1909.08053) is the first matrix of an MLP split by rows of its weight and the second by columns;
results that are left split along the sequence (V. Korthikanti and others, arXiv 2205.05198) come from the same choice.

Sources: placements are those of OneFlow (J. Yuan and others, arXiv 2110.15032) and of PyTorch's DTensor.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import DistributedError, ShapeError, UnknownName
from tengen.base.record import NamedTuple, record
from tengen.base.tables import keep
from tengen.compiler.plans import exact_key
from tengen.distributed.data_parallel import broadcast_tensors
from tengen.distributed.placing import Way, attributes, chunk_sums, ways
from tengen.functional.distributed import all_gather, all_reduce_max, all_reduce_min, all_to_all
from tengen.ir.types import TensorType
from tengen.module import Module
from tengen.ops.define import Op, dispatch
from tengen.tensor import Tensor, tracing
from tengen.tensor.absent import bring
from tengen.tensor.elsewhere import Placed, whole
from tengen.tensor.tape import call_body
from tengen.tensor.tensor import assign, tensor_over
from tengen.transport.group import WORLD, Group, world

MOST_CALLS = 4096  # that a mesh remembers how to compute
TYPICAL = 32  # what an open extent, a batch mostly, is taken for where bytes are compared


@record(frozen=True)
class Split:
    """Each process has an equal part along an axis."""

    axis: int


@record(frozen=True)
class Broadcast:
    """Each process has all of it."""


@record(frozen=True)
class Partial:
    """Each process has some addends of each element, along a first axis more: chunks of a sum in their order."""

    chunks: int


Placement = Split | Broadcast | Partial


class _Call(NamedTuple):
    """What processes do for a call: for each dimension of the mesh how it is cut, how each operand is placed for that, the attributes of
    a part's call, and where the results are."""

    canonical: dict[str, Any]
    outs: Sequence[TensorType]
    ways: list[Way | None]
    wanted: list[tuple]
    attrs: tuple
    results: tuple


class Mesh:
    """Processes in a grid.

    Args: dims: the names of its dimensions with their extents, whose product is the number of processes; the last one varies fastest.
    Attributes: names, sizes: of the dimensions. at: where this process is. moved: bytes that conversions have brought to this process.

    Errors: DistributedError for another number of processes, and where they do not all make the same mesh.

    >>> from tengen import Tensor, functional as F
    >>> mesh = Mesh(model=1)
    >>> w = mesh.place(Tensor([[1.0, 2.0], [3.0, 4.0]]), model=Split(0))
    >>> mesh.placements(w), F.matmul(w, w).tolist()
    ({'model': Split(axis=0)}, [[7.0, 10.0], [15.0, 22.0]])
    """

    def __init__(self, **dims: int):
        here, count = world(), prod(dims.values())
        if not dims or any(n < 1 for n in dims.values()) or count != here.size:
            said = ", ".join(f"{k}={n}" for k, n in dims.items())
            raise DistributedError(
                f"Mesh({said}): {count} processes are wanted, there are {here.size}; help: dimensions whose product is {here.size}, "
                f"or `tengen run -n {max(count, 1)} program.py`"
            )
        self.names, self.sizes, self.moved = tuple(dims), tuple(dims.values()), 0
        self.at = tuple(int(i) for i in np.unravel_index(here.rank, self.sizes))
        if here.size > 1:
            WORLD.channel.agree(repr(self))
        self._groups = [self.group(name) for name in self.names]
        self._calls: dict[tuple, _Call] = {}

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{k}={n}' for k, n in zip(self.names, self.sizes))})"

    def group(self, *names: str) -> Group:
        """The processes that differ from this one along these dimensions alone; the last one varies fastest. Errors: KeyError for a
        dimension that is not there."""
        dims = [self._dim(name) for name in names]
        ranks = np.arange(prod(self.sizes)).reshape(self.sizes)
        ranks = ranks[tuple(slice(None) if d in dims else slice(a, a + 1) for d, a in enumerate(self.at))]
        rest = [d for d in range(len(self.sizes)) if d not in dims]
        return Group(ranks.transpose([*rest, *dims]).reshape(-1).tolist())

    def _dim(self, name: str) -> int:
        if name not in self.names:
            raise UnknownName(f"{self!r} has no dimension {name!r}")
        return self.names.index(name)

    def _along(self, group: Group) -> list[str]:
        """The dimensions along which the processes of a group differ."""
        places = np.unravel_index(group.proc_ranks, self.sizes)
        return [name for name, at in zip(self.names, places) if len(set(at.tolist())) > 1]

    def cuts(self, t: Tensor, group: Group) -> list[str]:
        """The dimensions along which a placed tensor is in parts, and the processes of a group differ."""
        return [name for name in self._along(group) if type(self.placements(t)[name]) is not Broadcast]

    def beside(self, group: Group) -> Group:
        """The processes that differ from this one along the dimensions along which those of a group do not."""
        along = self._along(group)
        return self.group(*(name for name in self.names if name not in along))

    # -- users' side -------------------------------------------------------------------------------------------------------
    def place(self, t: Tensor, **placements: Placement) -> Tensor:
        """The tensor, which all processes have whole, in parts; dimensions that are not named have it whole.

        Errors: ShapeError for an axis that cannot be cut so; KeyError for a dimension that is not there.
        """
        for name in placements:
            self._dim(name)
        wanted = tuple(placements.get(name, Broadcast()) for name in self.names)
        t = whole(t)
        self._check(t.shape, wanted)
        return self._to(self._over(t.detach(), t._layout.type, (Broadcast(),) * len(wanted)), wanted)

    def place_(self, net: Module, layouts: Mapping[str, Mapping[str, Placement]]) -> None:
        """Puts parameters of a network in parts, in their places, before an optimizer is made of them. All processes get the values of rank 0.

        Args: layouts: patterns of names, such as "*.up.weight", with the placements of each dimension. Parameters that no pattern
            fits, and buffers, stay whole.
        Errors: KeyError for a pattern that fits none; those of `place`.
        """
        broadcast_tensors([t for t in (*net.parameters(), *net.buffers()) if type(t._layout) is not Placed], WORLD)
        left = set(layouts)
        for name, p in net.named_parameters():
            for pattern, placements in layouts.items():
                if fnmatch.fnmatchcase(name, pattern):
                    made = self.place(p, **placements)
                    bring(p, made)
                    left.discard(pattern)
                    break
        if left:
            raise UnknownName(f"no parameter is called {sorted(left)[0]!r}; help: net.named_parameters() has the names")

    def placements(self, t: Tensor) -> dict[str, Placement]:
        """Where a tensor's parts are, by the names of the dimensions."""
        found = t._layout.placements if type(t._layout) is Placed else (Broadcast(),) * len(self.names)
        return dict(zip(self.names, found))

    def local(self, t: Tensor) -> Tensor:
        """This process's part."""
        return t._data if type(t._layout) is Placed else t

    def _check(self, shape: Sequence[int], placements: Sequence[Placement]) -> None:
        axes = [p.axis for p in placements if type(p) is Split]
        for p, name, n in zip(placements, self.names, self.sizes):
            if type(p) is Partial:
                raise DistributedError("a tensor is placed as Split(axis) or Broadcast(); Partial is what products give")
            if type(p) is Split and (not 0 <= p.axis < len(shape) or shape[p.axis] % n or axes.count(p.axis) > 1):
                raise ShapeError(f"{name}={p}: axis {p.axis} of {tuple(shape)} cannot be cut into {n} equal parts, by one dimension")

    # -- between processes that have the same parts, such as a pipeline's stages ---------------------------------------------
    def packed(self, t: Tensor) -> tuple[Tensor, str]:
        """(This process's part of a tensor, a text that says where the parts are), for a process beside which others have the other parts. Of
        a sum's addends it makes parts of the sum, or all of it where no axis can be cut."""
        t = self._placed(t)
        wanted = self._at(t)[0]
        for d, p in enumerate(wanted):
            if type(p) is Partial:
                cut = [q.axis for q in wanted if type(q) is Split]
                free = (i for i, e in enumerate(t.shape) if e and e % self.sizes[d] == 0 and i not in cut)
                wanted[d] = next(map(Split, free), Broadcast())
        t = self._to(t, tuple(wanted))
        return t._data, ",".join(str(p.axis) if type(p) is Split else "" for p in wanted)

    def part_shape(self, shape: tuple[int, ...], places: str) -> tuple[int, ...]:
        """The shape of a part of what `packed` gave."""
        extents = list(shape)
        for axis, n in zip(places.split(","), self.sizes):
            if axis:
                extents[int(axis)] //= n
        return tuple(extents)

    def unpacked(self, part: Tensor, shape: tuple[int, ...], places: str) -> Tensor:
        """The tensor of a shape whose part `packed` gave."""
        found = tuple(Split(int(axis)) if axis else Broadcast() for axis in places.split(","))
        return self._over(part, TensorType(shape, part.dtype), found)

    # -- conversions -------------------------------------------------------------------------------------------------------
    def _over(self, part: Tensor, t: TensorType, placements: tuple) -> Tensor:
        return tensor_over(part, Placed(t, part.device, self, placements))

    def like(self, t: Tensor, part: Tensor) -> Tensor:
        """A tensor of which this process has a part, placed as another one is."""
        return self._over(part, TensorType(t._layout.type.shape, part.dtype), t._layout.placements)

    def _placed(self, t: Tensor) -> Tensor:
        return t if type(t._layout) is Placed else self._over(t._off_tape(), t._layout.type, (Broadcast(),) * len(self.names))

    def whole(self, t: Tensor) -> Tensor:
        """The tensor with all of its elements in each process."""
        return self._to(t, (Broadcast(),) * len(self.names))._data

    def part(self, t: Tensor, value: Tensor) -> Tensor:
        """This process's part of a value, once it is placed as another tensor is."""
        return self._to(self._placed(value), t._layout.placements)._data

    def assign(self, target: Tensor, value: Tensor) -> None:
        """A placed tensor takes a value; its placement stays."""
        assign(target._data, self.part(target, value))

    def _to(self, t: Tensor, wanted: tuple) -> Tensor:
        """The tensor in other places. What is put together is so first, since a dimension may cut an axis that another one has cut."""
        if t._layout.moved is None and t._layout.placements == wanted:
            return t
        have, part = self._at(t)
        added = any(type(p) is Partial for p in t._layout.placements)
        steps = [(d, Broadcast()) for d, p in enumerate(have) if type(p) is Split and p != wanted[d] and self._crosses(d, have, wanted)]
        steps += [(d, w) for d, w in enumerate(wanted) if type(w) is Broadcast or type(have[d]) is Partial]
        for d, w in [*steps, *enumerate(wanted)]:
            if have[d] != w:
                part, have[d] = self._moved(part, d, have, w), w
        if added:  # nobody else has to add them once more; no program writes over such a tensor, which is no state
            t._layout.moved = tracing.recorder, have, part
        return self._over(part, t._layout.type, wanted)

    def _at(self, t: Tensor) -> tuple[list[Placement], Tensor]:
        """(Where the parts of a placed tensor are, this process's): of addends that were added already, of the sum."""
        moved = t._layout.moved
        return (list(moved[1]), moved[2]) if moved is not None and moved[0] is tracing.recorder else (list(t._layout.placements), t._data)

    def _crosses(self, d: int, have: Sequence[Placement], wanted: Sequence[Placement]) -> bool:
        """Whether another dimension is to cut the axis that one cuts, or the other way round."""
        cuts = lambda places: [p for e, p in enumerate(places) if e != d and type(p) is Split]
        return have[d] in cuts(wanted) or wanted[d] in cuts(have)

    def _moved(self, x: Tensor, d: int, have: Sequence[Placement], to: Placement) -> Tensor:
        """This process's part after a change along one dimension of the mesh."""
        n, group, was = self.sizes[d], self._groups[d], have[d]
        if type(was) is Broadcast:
            assert type(to) is Split
            size = x.shape[to.axis] // n
            return x[(slice(None),) * to.axis + (slice(self.at[d] * size, (self.at[d] + 1) * size),)]
        nbytes = _bytes(x.shape, x.dtype)
        self.moved += int(self.cost(was, to, nbytes * n if type(was) is Split else nbytes // was.chunks, d))
        if type(was) is Split:
            if type(to) is Broadcast:
                return all_gather(x, group, axis=was.axis)
            return all_to_all(x, group, split_axis=to.axis, concat_axis=was.axis)
        axis = to.axis if type(to) is Split else next((i for i, e in enumerate(x.shape[1:]) if e and e % n == 0), None)
        if axis is None:
            return _folded(all_gather(x, group, axis=0))
        own = _folded(all_to_all(x, group, split_axis=axis + 1, concat_axis=0))
        return own if type(to) is Split else all_gather(own, group, axis=axis)

    def cost(self, was: Placement, to: Placement, nbytes: int, d: int) -> float:
        """Bytes that come to a process when a tensor of `nbytes` is placed anew along a dimension of the mesh."""
        n = self.sizes[d]
        other = (n - 1) / n
        if was == to or type(was) is Broadcast:
            return 0.0
        if type(was) is Split:
            return nbytes * other if type(to) is Broadcast else nbytes * other / n
        return was.chunks * nbytes * other + (nbytes * other if type(to) is Broadcast else 0)

    # -- calls -------------------------------------------------------------------------------------------------------------
    def run(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """What a call of an op gives: of a composite what its body gives, of another op its parts."""
        types = [None if x is None else x._layout.type for x in inputs]
        operands = [None if x is None else self._placed(x) for x in inputs]
        key = op, exact_key(attrs), tuple(None if x is None else (x._layout.type, *self._at(x)[0]) for x in operands)
        how = self._calls.get(key)
        if how is None:
            canonical = op.canonical(types, attrs)
            if op.kind == "composite":
                return call_body(op, inputs, canonical)
            how = self._how(op, operands, types, canonical)
            known = all(type(n) is int for t in types if t is not None for n in t.shape)  # what a trace knows of other extents changes
            if known and not op.has_bodies:
                keep(self._calls, key, how, MOST_CALLS)
        parts = [None if x is None else self._to(x, wanted)._data for x, wanted in zip(operands, how.wanted)]
        if any(w is not None and w.combine == "chunks" for w in how.ways):
            out = chunk_sums(parts[0], parts[1], how.canonical)
            return self._over(out, how.outs[0], tuple(_result(w, out.shape[0]) for w in how.ways))
        made = dispatch.run(op, tuple(parts), how.attrs)
        found = []
        for part, t in zip(made if isinstance(made, tuple) else (made,), how.outs):
            for d, w in enumerate(how.ways):
                if w is not None and w.combine:
                    part = (all_reduce_max if w.combine == "max" else all_reduce_min)(part, self._groups[d])
            found.append(self._over(part, t, how.results))
        return tuple(found) if isinstance(made, tuple) else found[0]

    def _how(self, op: Op, operands: list, types: list, canonical: dict[str, Any]) -> _Call:
        """What processes do for a call, which follows from the operands' types and places alone."""
        outs = op.infer_types(types, canonical)
        chosen = self._choose(op, operands, types, canonical, outs)
        cut = lambda w, i: Broadcast() if w is None or w.axes[i] is None else Split(w.axes[i])
        wanted = [tuple(cut(w, i) for w in chosen) for i in range(len(operands))]
        given = {"axis": canonical.get("axes"), **canonical}
        for d, w in enumerate(chosen):
            if w is not None:
                given = attributes(op, given, w, self.sizes[d])
        results = tuple(_result(w, 0) for w in chosen)
        return _Call(canonical, outs, chosen, wanted, tuple([given[name] for name in op.attrs]), results)

    def _choose(self, op: Op, operands: list, types: list, attrs: dict, outs: Sequence[TensorType]) -> list[Way | None]:
        """For each dimension of the mesh the way whose conversions move the fewest bytes; None: every process computes all of it."""
        chosen: list[Way | None] = []
        have = [None if x is None else self._at(x)[0] for x in operands]
        for d, n in enumerate(self.sizes):
            if n == 1 or all(h is None or type(h[d]) is Broadcast for h in have):
                chosen.append(None)
                continue
            options = [(self._price(None, operands, d, chosen), 1, None)]
            if not op.has_bodies:
                for w in ways(op, types, attrs, outs, n):
                    if self._free(w, have, d, chosen):
                        options.append((self._price(w, operands, d, chosen) + self._later(w, types, outs, d), 0, w))
            chosen.append(min(options, key=lambda o: o[:2])[2])
        return chosen

    def _free(self, w: Way, have: list, d: int, chosen: list[Way | None]) -> bool:
        """Whether no other dimension cuts an axis that a way cuts."""
        for i, axis in enumerate(w.axes):
            if axis is None or have[i] is None:
                continue
            before = any(c is not None and c.axes[i] == axis for c in chosen)
            if before or any(type(p) is Split and p.axis == axis for e, p in enumerate(have[i]) if e > d):
                return False
        return not any(c is not None and (c.out == w.out is not None or (c.combine and w.combine)) for c in chosen)

    def _price(self, w: Way | None, operands: list, d: int, chosen: list[Way | None]) -> float:
        total = 0.0
        for i, x in enumerate(operands):
            if x is not None:
                to = Broadcast() if w is None or w.axes[i] is None else Split(w.axes[i])
                have = self._at(x)[0]
                shares = [n for e, n in enumerate(self.sizes) if e != d and self._is_cut(have, i, e, chosen)]
                nbytes = _bytes(x.shape, x.dtype) // prod(shares)
                total += self.cost(have[d], to, nbytes, d)
        return total

    def _is_cut(self, placements: Sequence[Placement], i: int, e: int, chosen: list[Way | None]) -> bool:
        if e < len(chosen):
            return chosen[e] is not None and chosen[e].axes[i] is not None
        return type(placements[e]) is Split

    def _later(self, w: Way, types: list, outs: Sequence[TensorType], d: int) -> float:
        """What a result costs that somebody has to put together."""
        nbytes = sum(_bytes(t.shape, t.dtype) for t in outs)
        if w.combine == "chunks":
            return self.cost(Partial(types[0].shape[w.axes[0]] // (256 * self.sizes[d])), Broadcast(), nbytes, d)
        return 2.0 * nbytes if w.combine else 0.0


def _bytes(shape: Sequence, dtype: DType) -> int:
    """The bytes of a tensor; an extent that is known when a program runs counts as `TYPICAL`."""
    return prod(n if isinstance(n, int) else TYPICAL for n in shape) * dtype.size


def _result(w: Way | None, chunks: int) -> Placement:
    """Where the result of a way is."""
    if w is None:
        return Broadcast()
    return Partial(chunks) if w.combine == "chunks" else Broadcast() if w.out is None else Split(w.out)


def _folded(x: Tensor) -> Tensor:
    """The sum along axis 0, one after another."""
    total = x[0]
    for i in range(1, x.shape[0]):
        total = total + x[i]
    return total
