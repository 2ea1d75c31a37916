"""Data parallel training whose gradients do not depend on the number of processes.

A step's batch is cut into M micro-batches, whatever the number R of processes. In round j process r computes the gradients of
micro-batch j * R + r, and then all processes add what the round gave to what the rounds before gave:

    for j in range(ceil(M / R)):
        gradient = backward(micro-batch j * R + r)           # on every process r
        total = ((total + gradient of 0) + gradient of 1) + ...   # each process adds its own piece of all elements

so the sum is ((g0 + g1) + g2) + ... + g(M - 1) for every R, as one process that accumulates the micro-batches adds it, to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import DistributedError, ShapeError, UsageWarning, warn_once
from tengen.distributed.buckets import Early, Overlap
from tengen.functional.distributed import as_row, fold, packed, pieces, reduce_scatter, tensor_over_row
from tengen.jit import trace
from tengen.module import Module
from tengen.module.norm import SyncBatchNorm, running_statistics
from tengen.ops.creation import zeros_like
from tengen.ops.joining import concat
from tengen.ops.shape import reshape
from tengen.optimizer.clip import SHARED, Shared
from tengen.random import get_state, set_state
from tengen.tensor import Tensor
from tengen.tensor.elsewhere import Placed, local, part_of, placed_as
from tengen.transport.group import WORLD, Group

DRAWS = 1 << 20  # random draws that one micro-batch may make: the next one's have other numbers, in whichever process it runs


def _by_dtype(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The positions of tensors of each dtype, in their order."""
    found: dict[str, list[int]] = {}
    for i, t in enumerate(tensors):
        found.setdefault(t.dtype.name, []).append(i)
    return list(found.values())


def _packed(tensors: Sequence[Tensor]) -> np.ndarray:
    """The elements of tensors of one dtype, one after another; of placed ones those of this process's parts."""
    return packed([as_row(local(t)) for t in tensors])


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """What `_packed` gives. Traced it is one kernel, which reads gradients of filters, that lie transposed, where they lie."""
    return concat([reshape(t, (-1,)) for t in tensors])


def _unpacked(row: np.ndarray, like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of the shapes of others, and placed as they are, from their elements one after another."""
    ends = np.cumsum([0, *(local(t).size for t in like)])
    return [placed_as(t, Tensor(tensor_over_row(row[a:b], local(t).shape))) for a, b, t in zip(ends, ends[1:], like)]


def sample(a: Any) -> str:
    """16 letters that differ where two arrays do: in shape, in dtype, or in one of 64 elements."""
    row = as_row(a) if isinstance(a, Tensor) else np.ascontiguousarray(a).reshape(-1)
    at = np.linspace(0, max(row.size - 1, 0), 64).astype(np.int64)[: row.size]
    return hashlib.blake2b(repr((np.shape(a), str(row.dtype))).encode() + row[at].tobytes(), digest_size=8).hexdigest()


def digest(batch: tuple) -> str:
    """A short text that differs where two batches do."""
    return hashlib.blake2b("".join(map(sample, batch)).encode(), digest_size=6).hexdigest()


def nothing(p: Tensor) -> Tensor:
    """What changes no sum, of a parameter's shape: -0.0, also in the imaginary parts (0.0 + -0.0 is 0.0)."""
    return -zeros_like(p.detach())


def check_parts(name: str, t: Tensor, group: Group) -> None:
    """Errors: DistributedError where processes of a group, which share out samples, have different parts of a placed tensor."""
    mesh: Any = t._layout.owner if type(t._layout) is Placed else None
    if mesh is not None and (cuts := mesh.cuts(t, group)):
        raise DistributedError(
            f"{name} is cut along {cuts[0]!r} of {mesh!r}, and the processes of {group!r}, which share out the samples, have different "
            f"parts of it; help: group=mesh.group({', '.join(repr(n) for n in mesh.names if n not in cuts)})"
        )


def beside(net: Module, group: Group) -> Group | None:
    """The processes, this one among them, that compute what a process of the group has to, because they have parts of the same tensors on a
    `Mesh`; None where all of a network is here.

    Errors: DistributedError where processes of the group have different parts.
    """
    found = None
    for name, t in net.named_tensors():
        if type(t._layout) is Placed:
            check_parts(name, t, group)
            found = t._layout.owner.beside(group)
    if found is None or found.size == 1:
        return None
    if any(isinstance(m, SyncBatchNorm) and (m.group or WORLD).proc_ranks != group.proc_ranks for m in net.modules()):
        raise DistributedError("SyncBatchNorm would count the same samples several times, once for each part of a layer; help: its group=")
    return found


def broadcast_tensors(tensors: Sequence[Tensor], group: Group = WORLD) -> None:
    """Gives each tensor the value that it has in the group's first process, those of one dtype in one transfer.

    Errors: DistributedError where the processes' tensors differ in number, shape or dtype.
    """
    tensors = list(tensors)
    if group.size == 1 or not tensors:
        return
    group.channel.agree_on("broadcast", [repr(t._layout.type) for t in tensors])
    for which in _by_dtype(tensors):
        some = [tensors[i] for i in which]
        row = _packed(some)
        group.channel.broadcast(row, 0, f"{row.size} elements of {row.dtype}")
        for t, value in zip(some, _unpacked(row, some)):
            t._reset(value)


class DataParallel:
    """Trains a module in several processes with the bits of one.

    Args:
        module: the same in all processes; it gets the parameters and buffers of the group's first one. group: the processes, default
        all; for a network in parts on a `Mesh` those that have the same parts, `mesh.group("data")`. micro_batches: into how many parts a
        step's batch is cut, default one for each process; it decides the bits, so keep it when the number of processes changes.
        reduction: "mean" or "sum" of the micro-batches' gradients. A mean over micro-batches of several sizes is that over samples:
        each gradient counts as often as its micro-batch has samples. overlap: whether gradients go to the other processes while the
        backward walk goes on, in eager steps and in traced ones; it changes no bit. Default: where the processes are on several machines. On
        one machine its own cores copy what is sent, so that nothing would be gained; not for a network in parts on a `Mesh`.

    It is no module itself, so that names in checkpoints stay as they are: attributes and calls go to `module`.

    What holds for every number of processes, to the bit: gradients; running statistics of batch norm, which are updated in the order of
    the micro-batches; random draws of the default generator (each micro-batch has 2^20 numbers of its own); and what follows from
    them, such as clipping by the global norm or a `GradScaler` that unscales after the loop. `SyncBatchNorm` looks at all processes'
    samples of a round, so that its bits depend on the number of processes, and every process needs a micro-batch in every round.

    Errors: DistributedError where the processes' modules or generators differ.

    >>> import numpy as np, tengen
    >>> from tengen import autodiff, functional as F, module as M, optimizer as optim
    >>> net = DataParallel(M.Linear(4, 2), micro_batches=2)
    >>> gm = autodiff.GradManager().attach(net.parameters())
    >>> opt = optim.SGD(net.parameters(), lr=0.1)
    >>> x, y = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    >>> for xb, yb in net.micro_batches(x, y):
    ...     with gm:
    ...         gm.backward(F.nn.cross_entropy(net(xb), yb))
    >>> net.bias.grad.shape
    (2,)
    >>> _ = opt.step().clear_grad()
    """

    def __init__(
        self, module: Module, group: Group = WORLD, micro_batches: int | None = None, reduction: str = "mean", overlap: bool | None = None,
    ):  # fmt: skip
        if not isinstance(module, Module):
            raise TypeError(f"DataParallel takes a module, got a {type(module).__name__}")
        if reduction == "library":
            raise ValueError(
                "DataParallel(reduction='library'): MPI's own sum has other bits than one process, which are what DataParallel and Pipeline "
                "promise; help: GradManager().attach(..., callbacks=[make_allreduce_cb('mean', reduction='library')])"
            )
        if reduction not in ("mean", "sum"):
            raise ValueError(f"DataParallel: reduction={reduction!r} must be 'mean' or 'sum'")
        if overlap not in (None, True, False):
            raise ValueError(f"DataParallel: overlap={overlap!r} must be True, False, or None: where the processes are on several machines")
        count = group.size if micro_batches is None else micro_batches
        if count < 1:
            raise ValueError(f"DataParallel: micro_batches={micro_batches} must be at least 1")
        self.module, self.group, self.count, self.reduction = module, group, count, reduction
        self._running = False
        self._joined = trace(_joined, symbolic=True)
        self._totals: Callable[[DataParallel, list[int]], Totals] = Totals
        if group.size > 1:
            states = [f"{name}: {t._layout.type!r}" for name, t in (*module.named_parameters(), *module.named_buffers())]
            sends = {None: "by default", True: "early", False: "late"}[overlap]
            group.channel.agree_on(f"DataParallel of {type(module).__name__}, {count} micro-batches, gradients sent {sends}", states)
        self._beside, self._placed = beside(module, group), [type(p._layout) is Placed for p in module.parameters()]
        if overlap and any(self._placed):
            raise DistributedError(
                "DataParallel(overlap=True): layers in parts on a mesh send their gradients behind the backward; help: overlap=None"
            )
        self._overlap: Overlap | None = None
        if group.size > 1:
            broadcast_tensors([*module.parameters(), *module.buffers()], group)
            if (not group.is_single_machine if overlap is None else overlap) and not any(self._placed):
                self._overlap = Overlap(list(module.parameters()), group)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "module":
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        return f"DataParallel({self.module!r}, processes={self.group.size}, micro_batches={self.count})"

    def micro_batches(self, *batch: Any, local: bool = False) -> Iterator[tuple]:
        """This process's parts of a step's batch, for the body of a loop that calls backward once for each. After the loop, parameters
        have the gradient of the whole batch, in every process.

        Args: batch: tensors or arrays with the samples along axis 0: the whole batch, the same in every process. local: True where they
            hold only this process's samples, one micro-batch after another, as a sampler that shares out the samples gives them.
        Yields: a tuple of the parts.
        Errors: ShapeError for arrays of different lengths or without samples, DistributedError where the processes' loops, or their whole
            batches, differ.

        A loop that is left early (`break`, an error) adds no gradient: parameters have those of before.
        """
        if self._running:
            raise DistributedError("DataParallel.micro_batches: a loop over another batch has not ended; help: one loop at a time")
        totals = self.totals(sizes := self.sizes(batch, local))
        self._running = True
        try:
            yield from self._rounds(batch, sizes, local, totals)
        except BaseException:
            totals.give_up()
            raise
        finally:
            self._running = False

    @property
    def copies(self) -> list[DataParallel]:
        """What the processes train copies of: this. Of a `Pipeline`, its chunks of layers."""
        return [self]

    def share(self, totals: Callable[[DataParallel, list[int]], Totals]) -> None:
        """From now on gradients are added by what `totals` gives for each step (`distributed.shard`)."""
        self._totals, self._overlap = totals, None

    def shared_by(self, owner: Shared) -> None:
        """From now on somebody else knows where the pieces of the gradients are."""
        SHARED.update({id(p): owner for p in self.module.parameters()})

    def totals(self, sizes: list[int]) -> Totals:
        """What adds the gradients of a step, whose micro-batches have so many samples.

        Errors: DistributedError where parameters were put in parts behind this one's back.
        """
        found = self._totals(self, sizes)
        if self._placed != [type(p._layout) is Placed for p in found.parameters]:
            found.give_up()
            raise DistributedError("DataParallel: parameters were placed on a mesh after it was made; help: mesh.place_(net, ...) before")
        return found

    def sizes(self, batch: tuple, local: bool = False) -> list[int]:
        """The samples of each micro-batch."""
        lengths = {len(a) for a in batch}
        if len(lengths) != 1:
            raise ShapeError(f"micro_batches: arrays of one length along axis 0 are needed, got lengths {[len(a) for a in batch]}")
        n, size = lengths.pop(), self.group.size
        if n == 0:
            raise ShapeError("micro_batches: the batch has no samples, so there is no gradient; help: drop_last=True leaves out rests")
        if not local:
            return pieces(n, self.count)
        if self.count % size:
            raise DistributedError(f"micro_batches(local=True): {self.count} micro-batches cannot be shared evenly by {size} processes")
        if size == 1:
            return pieces(n, self.count)
        lengths_of_all = self.group.channel.all_gather(np.array([n]), [1] * size, "lengths of the local batches")
        parts = [pieces(int(m), self.count // size) for m in lengths_of_all]
        return [parts[i % size][i // size] for i in range(self.count)]

    def _rounds(self, batch: tuple, sizes: list[int], local: bool, totals: Totals) -> Iterator[tuple]:
        rank, size = self.group.rank, self.group.size
        seed, first = map(int, get_state())
        if size > 1:
            of = "batches of their own" if local else f"the batch {digest(batch)}"
            self.group.channel.agree(f"a step on {of}, {self.count} micro-batches of {sizes}, the generator at seed {seed}, draw {first}")
        agree_beside(self._beside, batch, seed, first)
        start = 0
        for j in range(0, self.count, size):
            present = [j + r < self.count and sizes[j + r] > 0 for r in range(size)]
            if not any(present):
                continue
            n = sizes[j + rank] if present[rank] else 0
            with Statistics(totals, present):
                totals.begin(present, n)
                if n:
                    start = start if local else sum(sizes[: j + rank])
                    set_state(np.array([seed, first + (j + rank) * DRAWS], np.uint64))
                    yield tuple(a[start : start + n] for a in batch)
                    start += n
                totals.add(present, n)
        set_state(np.array([seed, first + self.count * DRAWS], np.uint64))
        totals.give()


def agree_beside(group: Group | None, batch: tuple, seed: int, draw: int) -> None:
    """Returns when the processes that have parts of the same tensors have come to a step on the same samples."""
    if group is not None:
        group.channel.agree(f"a step of layers in parts on {digest(batch)}, the generator at seed {seed}, draw {draw}")


class Totals:
    """The gradients of one step, of which each process keeps a piece, and the running statistics, which all have."""

    def __init__(self, parallel: DataParallel, sizes: list[int]):
        module = parallel.module
        self.group, self.reduction, self.sizes, self.joined = parallel.group, parallel.reduction, sizes, parallel._joined
        self.parameters = list(module.parameters())
        self.before = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        over = parallel._overlap
        self.early = Early(over, self) if over is not None and over.begins(self.parameters) else None
        self.kinds = over.buckets if over is not None and self.early is not None else _by_dtype(self.parameters)
        self.totals: list[np.ndarray | None] = [None] * len(self.kinds)
        self.seen = np.zeros(len(self.parameters), np.uint8)
        self.statistics = [] if self.group.size == 1 else [s for m in module.modules() for s in running_statistics(m)]
        known = {id(t) for t, _ in self.statistics}
        synchronised = {id(t) for m in module.modules() if isinstance(m, SyncBatchNorm) for t in m.buffers()}
        self.others = [(n, t, t._data) for n, t in module.named_buffers() if id(t) not in known | synchronised]

    def begin(self, present: list[bool], n: int) -> None:
        """A round begins, of which this process has a micro-batch of n samples; present: which processes have one."""
        if self.early is not None:
            self.early.begin(self.weight(n), n > 0)

    def forward_ended(self) -> None:
        """The forward of a micro-batch has ended, whose backward comes later, in this process or in others alone (`Pipeline`)."""

    def weight(self, n: int) -> int:
        """How often the gradient of a micro-batch of n samples counts."""
        return n if n and self.reduction == "mean" and len(set(self.sizes)) > 1 else 1

    def add(self, present: list[bool], n: int) -> None:
        """Adds a round's gradients. n: the samples of this process's."""
        for i, p in enumerate(self.parameters):
            self.seen[i] |= p.grad is not None
        sent = None if self.early is None else self.early.end(present)
        if sent is None:
            self._sends_late()
        for k, which in enumerate(self.kinds):
            total = self.totals[k]
            if sent is None:
                row = self.row(which, [self.parameters[i].grad for i in which], self.weight(n))
                self.totals[k] = self._added(row, present, total)
            else:
                self.totals[k] = fold("add", sent[k] if total is None else [total, *sent[k]])
        for p in self.parameters:
            p.grad = None

    def _sends_late(self) -> None:
        """From now on gradients are sent once a micro-batch has ended."""
        if self.early is not None:
            self.early.overlap.ends()
            self.early = None

    def row(self, which: Sequence[int], grads: Sequence[Tensor | None], weight: int) -> np.ndarray:
        """The elements of some parameters' gradients one after another; one that is not there is -0.0, which changes no sum."""
        some = [self.parameters[i] for i in which]
        there = [nothing(local(p)) if g is None else part_of(g, p) for p, g in zip(some, grads)]
        return self.joined([local(g * weight if weight != 1 else g) for g in there]).numpy()

    def _added(self, row: np.ndarray, present: list[bool], total: np.ndarray | None) -> np.ndarray:
        """This process's piece of the gradients so far, and of those of every process that has a micro-batch."""
        size = self.group.size
        if size == 1:
            return row if total is None else fold("add", [total, row])
        text = f"gradients, {row.size} elements of {row.dtype}"
        return reduce_scatter("add", row, self.group, pieces(row.size, size), text, present, total)

    def give_up(self) -> None:
        """Gives the parameters the gradients that they had before."""
        if self.early is not None:
            self.early.give_up()
        self._sends_late()
        for p, g in zip(self.parameters, self.before):
            p.grad = g

    def give(self) -> None:
        """Gives the parameters the gradients of the whole batch."""
        self._sends_late()
        self._join_flags()
        names = [self.parameters[which[0]].dtype.name for which in self.kinds]
        for name in dict.fromkeys(names):
            some = [k for k, n in enumerate(names) if n == name and self.totals[k] is not None]
            for k, row in zip(some, self._gathered(some)):
                which = self.kinds[k]
                for i, g in zip(which, _unpacked(row, [self.parameters[i] for i in which])):
                    self.parameters[i].grad = g if self.seen[i] else None
        for p, g in zip(self.parameters, self.before):
            if g is not None:
                p.grad = g if p.grad is None else g + p.grad

    def _gathered(self, kinds: Sequence[int]) -> list[np.ndarray]:
        """The whole gradients of some kinds of one dtype, of which this process has its pieces: all in one exchange."""
        mine = [self.mean(row) for k in kinds if (row := self.totals[k]) is not None]
        size = self.group.size
        if size == 1 or not mine:
            return mine
        parts = [pieces(sum(local(self.parameters[i]).size for i in self.kinds[k]), size) for k in kinds]
        counts = [sum(column) for column in zip(*parts)]
        row = mine[0] if len(mine) == 1 else packed(mine)
        whole = self.group.channel.all_gather(row, counts, f"sums of gradients, {sum(counts)} elements of {row.dtype}")
        if len(kinds) == 1:
            return [whole]
        ends = np.cumsum([0, *(n for column in zip(*parts) for n in column)])  # [process][kind]
        cut = [whole[a:b] for a, b in zip(ends, ends[1:])]
        return [packed(cut[i :: len(kinds)]) for i in range(len(kinds))]

    def mean(self, row: np.ndarray) -> np.ndarray:
        """The gradient of the batch from the sum of those of its micro-batches."""
        divisor = 1 if self.reduction == "sum" else sum(self.sizes) if len(set(self.sizes)) > 1 else len(self.sizes)
        return row if divisor == 1 else as_row(tensor_over_row(row) / divisor)

    def _join_flags(self) -> None:
        """Every process knows which parameters have a gradient in any."""
        if self.group.size > 1:
            self._compare_other_states()
            flags = self.group.channel.all_gather(self.seen, [self.seen.size] * self.group.size, "which parameters have a gradient")
            self.seen = flags.reshape(self.group.size, -1).max(axis=0)

    def _compare_other_states(self) -> None:
        """Warns where a buffer has become another one in each process: nothing here knows how its values are to be joined."""
        digest = hashlib.blake2b(digest_size=16)
        changed = [(name, t) for name, t, data in self.others if t._data is not data]
        for name, t in changed:
            digest.update(name.encode() + as_row(t).tobytes())
        mine = np.frombuffer(digest.digest(), np.uint8)
        all_of_them = self.group.channel.all_gather(mine, [16] * self.group.size, "digests of buffers").reshape(-1, 16)
        if changed and not (all_of_them == mine).all():
            warn_once(
                f"DataParallel: the buffer {changed[0][0]!r} has another value in each process now; help: batch norm's statistics are joined, "
                "others are for the program to join (functional.distributed)",
                UsageWarning,
            )


class Statistics:
    """A block with the forward of a round's micro-batches, after which the running statistics are those of all of them, in their order."""

    def __init__(self, totals: Totals, present: list[bool]):
        self.totals, self.present = totals, present

    def __enter__(self) -> None:
        # A running statistic s becomes s * momentum + d. From -0.0 it becomes d, which the processes exchange.
        self.saved = [t.detach() for t, _ in self.totals.statistics]
        for t, _ in self.totals.statistics:
            t._reset(nothing(t))

    def __exit__(self, kind: Any, *exc: object) -> None:
        if kind is not None:  # the loop was left
            for (t, _), old in zip(self.totals.statistics, self.saved):
                t._reset(old)
        elif self.totals.statistics:
            self._join()

    def _join(self) -> None:
        statistics, group = self.totals.statistics, self.totals.group
        for which in _by_dtype([t for t, _ in statistics]):
            some = [statistics[i] for i in which]
            row = _packed([t for t, _ in some])
            whole = group.channel.all_gather(row, [row.size] * group.size, f"statistics, {row.size} elements")
            values = [self.saved[i] for i in which]
            for r in range(group.size):
                if self.present[r]:
                    news = _unpacked(whole[r * row.size : (r + 1) * row.size], [t for t, _ in some])
                    values = [v * momentum + d for v, d, (_, momentum) in zip(values, news, some)]
            for (t, _), v in zip(some, values):
                t._reset(v)
