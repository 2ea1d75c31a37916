"""Tables of rows that no single process holds: what parameter servers are for, with the bits of one process.

A row belongs to the process that its key says. For each step the processes ask the owners for the rows of their micro-batches (pull), and give
them the gradients (push). An owner adds what a row gets in the order of the micro-batches, and updates the rows that were used:

    for each key of the batch: row, states = update(row, ((g of micro-batch 0 + g of micro-batch 1) + ...) / count, states)

A row is there from its first use on; its first value is a function of seed, key and column alone. So a table needs no size, and neither
values nor checkpoints depend on how many processes there are.

Sources: M. Li and others, "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014; M. Naumov and others, "Deep Learning
Recommendation Model", arXiv 1906.00091.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.autodiff.function import Function
from tengen.base.errors import DistributedError, DTypeError
from tengen.distributed.data_parallel import DataParallel
from tengen.functional.distributed import tensor_over_row
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.nodes import own_levels
from tengen.transport.group import WORLD, Group

STATES = {"sgd": (), "adagrad": ("square",), "adam": ("mean", "square")}  # beside a count of steps, of each row


def mixed(keys: np.ndarray) -> np.ndarray:
    """64 bits that look random for each of some numbers (G. Steele and others, "Fast Splittable Pseudorandom Number Generators", 2014)."""
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class _Noted(Function):
    """Rows as they are, whose gradient is noted."""

    _is_recorded = False

    def __init__(self, note: Any):
        self.note = note

    def forward(self, rows: Tensor) -> Tensor:
        return rows

    def backward(self, dy: Tensor) -> Tensor:
        self.note(dy)
        return dy


class EmbeddingTable:
    """Rows by key, shared out among processes, with an optimizer of their own.

    Args: dim: columns. optimizer: "adagrad", "adam" (each row counts its own steps) or "sgd". lr: its rate. eps: added to roots; default 1e-10,
        of Adam 1e-8. betas: Adam's. scale: first values are uniform in [-scale, scale). seed: of them. group: the processes that train.
        servers: places in the group of those that own rows; default all.
    Attributes: rows: how many this process owns.

    Errors: ValueError for an optimizer that is not there, and numbers out of range.

    >>> import numpy as np
    >>> from tengen import autodiff, functional as F, module as M
    >>> from tengen.distributed import DataParallel
    >>> net, table = DataParallel(M.Linear(4, 1), micro_batches=2), EmbeddingTable(4)
    >>> gm, keys = autodiff.GradManager().attach(net.parameters()), np.array([7, 9, 7, 10**12])
    >>> for (k,) in table.micro_batches(net, keys):
    ...     with gm:
    ...         gm.backward((net(table(k)) ** 2).mean())
    >>> table.step()
    >>> table.rows
    3
    """

    def __init__(
        self, dim: int, optimizer: str = "adagrad", lr: float = 0.01, eps: float | None = None, betas: tuple[float, float] = (0.9, 0.999),
        scale: float = 0.05, seed: int = 0, group: Group = WORLD, servers: Sequence[int] | None = None,
    ):  # fmt: skip
        if optimizer not in STATES:
            raise ValueError(f"EmbeddingTable: optimizer={optimizer!r} must be one of {', '.join(STATES)}")
        owners = list(range(group.size)) if servers is None else list(servers)
        if dim < 1 or lr < 0 or not owners or len(set(owners)) != len(owners) or not all(0 <= r < group.size for r in owners):
            what = f"a column at least, a rate >= 0, places from 0 to {group.size - 1}"
            raise ValueError(f"EmbeddingTable(dim={dim}, lr={lr}, servers={owners}): {what}")
        self.dim, self.optimizer, self.lr, self.betas, self.scale, self.seed = dim, optimizer, lr, betas, scale, seed
        self.eps = eps if eps is not None else 1e-8 if optimizer == "adam" else 1e-10
        self.group, self.owners = group, np.array(owners)
        self._at: dict[int, int] = {}  # key -> where its row is
        self._arrays = {name: np.empty((0, dim), np.float32) for name in ("value", *STATES[optimizer])}
        self._arrays["step"] = np.empty((0, 1), np.float32)
        self._pulled: tuple[np.ndarray, np.ndarray] | None = None  # keys in their order, and their rows
        self._notes: list[tuple[int, np.ndarray, np.ndarray]] = []  # (micro-batch, keys, gradients), of this step
        self._micro = 0
        self._divisor = 1

    @property
    def rows(self) -> int:
        """How many rows this process owns."""
        return len(self._at)

    def __repr__(self) -> str:
        return f"EmbeddingTable(dim={self.dim}, optimizer={self.optimizer!r}, lr={self.lr}, {self.rows} rows here, {len(self.owners)} owners)"

    # -- rows that this process owns -----------------------------------------------------------------------------------------
    def _find(self, keys: np.ndarray) -> np.ndarray:
        """Where the rows of keys are; rows that are not there are made."""
        new = [k for k in dict.fromkeys(keys.tolist()) if k not in self._at]
        if new:
            first = len(self._at)
            self._at.update({k: first + i for i, k in enumerate(new)})
            room = len(self._arrays["value"])
            if len(self._at) > room:
                more = max(len(self._at), 2 * room) - room
                self._arrays = {n: np.concatenate([a, np.zeros((more, a.shape[1]), np.float32)]) for n, a in self._arrays.items()}
            self._arrays["value"][first : len(self._at)] = self._first(np.array(new, np.int64))
        return np.array([self._at[k] for k in keys.tolist()], np.int64)

    def _first(self, keys: np.ndarray) -> np.ndarray:
        seed = mixed(np.array([self.seed], np.uint64))
        cells = mixed(keys.view(np.uint64) ^ seed)[:, None] + np.arange(self.dim, dtype=np.uint64)
        unit = (mixed(cells) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
        return unit * np.float32(self.scale)

    def _owner(self, keys: np.ndarray) -> np.ndarray:
        return self.owners[(mixed(keys.view(np.uint64)) % np.uint64(len(self.owners))).astype(np.int64)]

    # -- exchanges -----------------------------------------------------------------------------------------------------------
    def _all_to_all(self, a: np.ndarray, counts: np.ndarray, width: int, what: str) -> np.ndarray:
        """Rows of `width` numbers for each process, one after another; counts[i, j]: how many process i has for process j."""
        if self.group.size == 1:
            return a
        mine = self.group.rank
        sizes, receives = (counts[mine] * width).tolist(), (counts[:, mine] * width).tolist()
        found = self.group.channel.all_to_all(np.ascontiguousarray(a).reshape(-1), sizes, receives, f"table of {self.dim} columns: {what}")
        return found.reshape(-1, width) if width > 1 else found

    def _counts(self, owner: np.ndarray) -> np.ndarray:
        size = self.group.size
        mine = np.bincount(owner, minlength=size).astype(np.int64)
        if size == 1:
            return mine[None]
        return self.group.channel.all_gather(mine, [size] * size, f"table of {self.dim} columns: how many rows").reshape(size, size)

    def pull(self, keys: np.ndarray) -> np.ndarray:
        """The rows of some keys, (n,) of integers -> (n, dim) of float32. All processes call it together."""
        keys = _as_keys(keys)
        owner = self._owner(keys)
        order = np.argsort(owner, kind="stable")
        counts = self._counts(owner)
        asked = self._all_to_all(keys[order], counts, 1, "keys")
        at = self._find(asked)  # which may make room
        rows = self._arrays["value"][at]
        found = np.empty((len(keys), self.dim), np.float32)
        found[order] = self._all_to_all(rows, counts.T, self.dim, "rows")
        return found

    # -- a step --------------------------------------------------------------------------------------------------------------
    def micro_batches(self, net: DataParallel, *batch: Any, keys: int = 0, local: bool = False) -> Iterator[tuple]:
        """`net.micro_batches` of a batch, whose rows are pulled before. In the body of the loop, `table(k)` of a part's keys gives its rows.

        Args: keys: which of the arrays has the keys, integers of any shape behind axis 0. local: as there.
        """
        whole = _as_keys(batch[keys])
        sizes, size, rank = net.sizes(batch, local), self.group.size, self.group.rank
        if (net.group.size, net.group.rank) != (size, rank):
            raise DistributedError("EmbeddingTable.micro_batches: the network is trained by another group of processes; help: the same group=")
        ends = np.cumsum([0, *sizes])
        own = [m for m in range(rank, len(sizes), size) if sizes[m]]
        parts = [whole] if local else [whole[ends[m] : ends[m + 1]] for m in own]
        wanted = np.unique(np.concatenate([p.reshape(-1) for p in parts])) if parts else np.empty(0, np.int64)
        self._pulled, self._notes = (wanted, self.pull(wanted)), []
        self._weighted = net.reduction == "mean" and len(set(sizes)) > 1
        self._divisor = 1 if net.reduction == "sum" else sum(sizes) if self._weighted else len(sizes)
        self._sizes, numbers = sizes, iter(own)
        try:
            for part in net.micro_batches(*batch, local=local):
                self._micro = next(numbers)
                yield part
        except BaseException:
            self._notes = []
            raise
        finally:
            self._pulled = None

    def __call__(self, keys: Any) -> Tensor:
        """The rows of a micro-batch's keys: (...) of integers -> (..., dim). Errors: DistributedError for keys that were not in the batch."""
        if self._pulled is None:
            rows = _as_keys(keys)
            return Tensor(self.pull(rows.reshape(-1)).reshape(*rows.shape, self.dim))
        asked = _as_keys(keys)
        some, inverse = np.unique(asked.reshape(-1), return_inverse=True)
        known, values = self._pulled
        at = np.minimum(np.searchsorted(known, some), max(len(known) - 1, 0))
        if not len(known) or (known[at] != some).any():
            raise DistributedError("EmbeddingTable: keys are asked for that are not in this batch; help: table.micro_batches(net, ..., keys=i)")
        rows = Tensor(values[at])
        for level in own_levels():
            level.awaited.append(level.start(rows))
        noted = _Noted(functools.partial(self._note, self._micro, some))(rows)
        return noted[Tensor(inverse.reshape(asked.shape))]

    def _note(self, micro: int, keys: np.ndarray, g: Tensor) -> None:
        self._notes.append((micro, keys, g.numpy() if not self._weighted else (g * self._sizes[micro]).numpy()))

    def step(self) -> None:
        """Adds the gradients of the batch to the rows' owners, who update the rows. All processes call it together."""
        keys = np.concatenate([np.empty(0, np.int64), *(k for _, k, _ in self._notes)])
        micro = np.concatenate([np.empty(0, np.int64), *(np.full(len(k), m) for m, k, _ in self._notes)])
        grads = np.concatenate([np.empty((0, self.dim), np.float32), *(g for _, _, g in self._notes)])
        self._notes = []
        owner = self._owner(keys)
        order = np.argsort(owner, kind="stable")
        counts = self._counts(owner)
        keys, micro = (self._all_to_all(a[order], counts, 1, "keys") for a in (keys, micro))
        grads = self._all_to_all(grads[order], counts, self.dim, "gradients")
        if len(keys):
            self._update(*self._added(keys, micro, grads))

    def _added(self, keys: np.ndarray, micro: np.ndarray, grads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each key once, and its gradients added in the order of the micro-batches."""
        order = np.lexsort((micro, keys))
        keys, grads = keys[order], grads[order]
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        ends = np.r_[starts[1:], len(keys)]
        total = grads[starts]
        for i in range(1, int((ends - starts).max())):  # the i-th addend of those rows that have one
            more = np.flatnonzero(ends - starts > i)
            total[more] = (_tensor(total[more]) + _tensor(grads[starts[more] + i])).numpy()
        return keys[starts], total if self._divisor == 1 else (_tensor(total) / self._divisor).numpy()

    def _update(self, keys: np.ndarray, grads: np.ndarray) -> None:
        """Updates the rows of some keys by Tengen's own kernels."""
        at, a = self._find(keys), self._arrays
        a["step"][at] += 1
        names = ("value", *STATES[self.optimizer])
        value, *states = (_tensor(a[name][at]) for name in names)
        step, lr, g = _tensor(a["step"][at]), Tensor(np.float32(self.lr)), _tensor(grads)
        if self.optimizer == "adam":
            new = REGISTRY["adam_update"](value, g, *states, step, lr, *self.betas, self.eps, 0.0, False)
        elif self.optimizer == "adagrad":
            new = REGISTRY["adagrad_update"](value, g, *states, step, lr, 0.0, self.eps, 0.0)
        else:
            new = (value - g * lr,)
        for name, t in zip(names, new):
            a[name][at] = t.numpy()

    # -- checkpoints ---------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, np.ndarray]:
        """All rows with their states, in the order of their keys, in every process; all call it together."""
        keys = np.array(sorted(self._at), np.int64)
        at = self._find(keys) if len(keys) else np.empty(0, np.int64)
        found = {"key": keys} | {name: a[at] for name, a in self._arrays.items()}
        if self.group.size > 1:
            sizes = self.group.channel.all_gather(np.array([len(keys)]), [1] * self.group.size, "rows of a table").tolist()
            for name, a in found.items():
                width = a.size // max(len(a), 1) if len(a) else (1 if a.ndim == 1 else a.shape[1])
                flat = self.group.channel.all_gather(np.ascontiguousarray(a).reshape(-1), [n * width for n in sizes], f"{name} of a table")
                found[name] = flat if a.ndim == 1 else flat.reshape(-1, width)
        order = np.argsort(found["key"], kind="stable")
        return {name: a[order] for name, a in found.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes this process's part of what `state_dict` gave, with any number of processes. Errors: ValueError where it does not fit; nothing
        is changed then."""
        given = {name: np.asarray(a) for name, a in state.items()}
        n = len(given.get("key", ()))
        fits = given.keys() == {"key", *self._arrays} and all(given[k].shape == (n, a.shape[1]) for k, a in self._arrays.items())
        if not fits:
            shapes = {name: a.shape for name, a in given.items()}
            raise ValueError(f"EmbeddingTable of {self.dim} columns, {self.optimizer}: a state of {shapes} does not fit")
        keys = given["key"].astype(np.int64)
        own = np.flatnonzero(self._owner(keys) == self.group.rank)
        self._at = {int(k): i for i, k in enumerate(keys[own])}
        self._arrays = {name: given[name][own].astype(np.float32) for name in self._arrays}


def _tensor(a: np.ndarray) -> Tensor:
    return tensor_over_row(np.ascontiguousarray(a).reshape(-1), a.shape)


def _as_keys(keys: Any) -> np.ndarray:
    """Keys as int64. Errors: DTypeError for what is no integer."""
    a = keys.numpy() if isinstance(keys, Tensor) else np.asarray(keys)
    if a.dtype.kind not in "iu":
        raise DTypeError(f"EmbeddingTable: keys are integers, got {a.dtype}")
    return np.ascontiguousarray(a).astype(np.int64)
