"""Optimizers whose states are shared out among the processes (stage 1 of S. Rajbhandari and others, "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", arXiv 1910.02054).

Of each parameter, flattened, process r of R keeps the states of the r-th of R pieces. A step updates that piece, and the processes
exchange the new pieces:

    piece of the parameter = update(piece of the parameter, piece of its gradient, states of the piece)   # n / R elements
    parameter = all pieces, gathered
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from tengen.base.errors import DistributedError
from tengen.distributed.data_parallel import DataParallel
from tengen.functional.distributed import as_row, pieces, tensor_over_row
from tengen.optimizer.optimizer import Optimizer, ParamGroup
from tengen.tensor import Parameter, Tensor


def _bounds(n: int, parts: int, which: int) -> slice:
    """Where a piece of n elements lies."""
    sizes = pieces(n, parts)
    return slice(sum(sizes[:which]), sum(sizes[: which + 1]))


class _SharedOut(dict):
    """In place of the states of an optimizer that was sharded."""

    def __missing__(self, key: int) -> NoReturn:
        raise DistributedError("this optimizer's states were shared out; help: use what shard() returned in its place")


class ShardedOptimizer(Optimizer):
    """An optimizer of which each process keeps and computes a part; `shard` makes it.

    Its groups hold the whole parameters, its state dict the whole states, so that a checkpoint fits any number of processes; the
    processes call `state_dict` together. Attributes: shards: this process's pieces of the parameters.
    """

    def __init__(self, parallel: DataParallel, optimizer: Optimizer):
        self.group, self.inner = parallel.group, optimizer
        self.defaults, self.param_groups = optimizer.defaults, optimizer.param_groups
        self._state, self._manager = {}, None
        self.shards: list[Parameter] = []
        self._inner = copy.copy(optimizer)
        groups, states = [], {}
        for group in optimizer.param_groups:
            own = [self._shard_of(p) for p in group["params"]]
            self.shards += own
            groups.append(ParamGroup({**group, "params": own}))
            for p, s in zip(group["params"], own):
                states[id(s)] = {k: self._piece_of(t, p) for k, t in optimizer._state[id(p)].items()}
        vars(self._inner).update(param_groups=groups, _state=states)
        optimizer._state = _SharedOut()

    def add_param_group(self, param_group: dict) -> None:
        """Errors: DistributedError always: a sharded optimizer has the parameters that it was made with."""
        raise DistributedError("add_param_group: a sharded optimizer takes no more parameters; help: add them before shard()")

    def _own(self, n: int) -> slice:
        return _bounds(n, self.group.size, self.group.rank)

    def _shard_of(self, p: Parameter) -> Parameter:
        return Parameter(as_row(p)[self._own(p.size)].copy(), name=p.name)

    def _piece_of(self, t: Tensor, p: Parameter) -> Tensor:
        """This process's piece of a state that has an element for each of the parameter's; other states are whole in all processes."""
        return tensor_over_row(as_row(t)[self._own(p.size)].copy()) if t.shape == p.shape else t

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this process's pieces of the parameters that have a gradient, and gathers all pieces. Returns self, or what `closure`
        returned."""
        loss = None if closure is None else closure()
        for group, own in zip(self.param_groups, self._inner.param_groups):
            own.update({k: v for k, v in group.items() if k != "params"})
        with_grad = []
        for (p, _), s in zip(self._params(), self.shards):
            if p.grad is not None:
                own_part = self._own(p.size)
                s._reset(tensor_over_row(as_row(p)[own_part]))  # which may have changed: a checkpoint, the program
                s.grad, s.overflow = tensor_over_row(as_row(p.grad)[own_part]), p.overflow
                with_grad.append((p, s))
        self._inner.step()
        for s in self.shards:
            s.grad = s.overflow = None
        self._gather([p for p, _ in with_grad], [s for _, s in with_grad])
        return self if closure is None else loss

    def _gather(self, params: list[Parameter], shards: list[Parameter]) -> None:
        """Gives the parameters the values of all processes' pieces, those of one dtype in one exchange."""
        for name in dict.fromkeys(p.dtype.name for p in params):
            some = [(p, s) for p, s in zip(params, shards) if p.dtype.name == name]
            rows = self._all(np.concatenate([as_row(s) for _, s in some]), [p.size for p, _ in some])
            for (p, _), row in zip(some, rows):
                p._reset(tensor_over_row(row, p.shape))

    def _all(self, mine: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
        """Arrays of these sizes, of which this process has its pieces one after another."""
        if self.group.size == 1:
            ends = np.cumsum([0, *sizes])
            return [mine[a:b] for a, b in zip(ends, ends[1:])]
        parts = np.array([pieces(n, self.group.size) for n in sizes])  # [array][process]
        text = f"pieces of {len(sizes)} arrays, {sum(sizes)} elements of {mine.dtype}"
        whole = self.group.channel.all_gather(mine, [int(n) for n in parts.sum(0)], text)
        starts = np.concatenate([[0], np.cumsum(parts.T.reshape(-1))])[:-1].reshape(self.group.size, -1)  # [process][array]
        return [np.concatenate([whole[s : s + n] for s, n in zip(starts[:, i], parts[i])]) for i in range(len(sizes))]

    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors that this process keeps: its pieces."""
        own = {id(s): names[id(p)] for (p, _), s in zip(self._params(), self.shards) if id(p) in names}
        return self._inner.named_states(own)

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Hyperparameters and whole states by position of the parameter. All processes call it together, and each gets all.

        Errors: ValueError for keep_var, since no tensor holds a whole state.
        """
        if keep_var:
            raise ValueError("a sharded optimizer's states lie in several processes; help: state_dict() gathers them as arrays")
        found = self._inner.state_dict()
        for i, (p, _) in enumerate(self._params()):
            s = self.shards[i]
            for kind, a in found["state"][i].items():
                if a.shape == s.shape:
                    found["state"][i][kind] = self._all(a, [p.size])[0].reshape(p.shape)
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` of this optimizer, sharded or not, gave with any number of processes.

        Errors: ValueError where it does not fit; nothing is changed then.
        """
        mine = {**state, "state": {}}
        for i, (p, _) in enumerate(self._params()):
            theirs = state["state"][i] if i in state["state"] else state["state"][str(i)]
            mine["state"][i] = {
                k: np.asarray(a).reshape(-1)[self._own(p.size)] if np.shape(a) == p.shape else a for k, a in theirs.items()
            }  # fmt: skip
        self._inner.load_state_dict(mine)
        for group, own in zip(self.param_groups, self._inner.param_groups):
            group.update({k: v for k, v in own.items() if k != "params"})

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, states in {self.group.size} processes)"


def shard(net: DataParallel, optimizer: Optimizer, stage: int = 1) -> ShardedOptimizer:
    """The optimizer with its states shared out among the processes, with the bits of the whole one.

    Args: net: what is trained. optimizer: of its parameters; use the result in its place. stage: 1, the optimizer's states. Stages 2 and
        3, gradients and parameters too, are not here.
    Memory: of each state with an element for each of the parameter's, a process keeps 1 / R.
    Errors: ValueError for another stage; DistributedError for an optimizer whose update of an element depends on others (LAMB, LBFGS).

    >>> from tengen import distributed as dist, module as M, optimizer as optim
    >>> net = dist.DataParallel(M.Linear(4, 2))
    >>> opt = dist.shard(net, optim.Adam(net.parameters(), lr=0.1))
    >>> sum(s.size for s in opt.shards)
    10
    """
    if stage != 1:
        raise ValueError(f"shard: stage={stage!r} is not here; help: stage=1 shares out the optimizer's states")
    if not optimizer.elementwise:
        raise DistributedError(f"shard: {type(optimizer).__name__} needs whole parameters for its update; help: Adam, SGD and their like")
    return ShardedOptimizer(net, optimizer)
