"""Optimizers whose states are shared out among the processes, and gradients and parameters with them (stages 1, 2 and 3 of S. Rajbhandari
and others, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv 1910.02054; `units.py` has stages 2 and 3).

Of each parameter, flattened, process r of R keeps the states of the r-th of R pieces. A step updates that piece, and the processes
exchange the new pieces:

    piece of the parameter = update(piece of the parameter, piece of its gradient, states of the piece)   # n / R elements
    parameter = all pieces, gathered                                                  # stages 1 and 2
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tengen.base.errors import DistributedError
from tengen.base.record import NamedTuple
from tengen.distributed.data_parallel import DataParallel
from tengen.distributed.pipeline import Pipeline
from tengen.distributed.units import SharedTotals, Sharing, own_piece
from tengen.functional.distributed import all_reduce_max, as_row, packed, pieces, tensor_over_row
from tengen.optimizer.optimizer import Optimizer, ParamGroup
from tengen.optimizer.states import States
from tengen.runtime import native
from tengen.tensor import Parameter, Tensor
from tengen.tensor.elsewhere import local, part_of, placed_as


class Kept(NamedTuple):
    """Bytes that this process keeps for training: of parameters, of gradients, of the optimizer's states."""

    parameters: int
    gradients: int
    states: int


class _SharedOut(States):
    """In place of the states of an optimizer that was sharded."""

    def __contains__(self, p: object) -> NoReturn:
        raise DistributedError("this optimizer's states were shared out; help: use what shard() returned in its place")


class ShardedOptimizer(Optimizer):
    """An optimizer of which each process keeps and computes a part; `shard` makes it.

    Its groups hold the whole parameters, its state dict the whole states, so that a checkpoint fits any number of processes; the
    processes call `state_dict` together. Attributes: shards: this process's pieces of the parameters, and from stage 2 on of their
    gradients. stage: 1, 2 or 3; 1 where there is one process.
    """

    def __init__(self, net: DataParallel | Pipeline, optimizer: Optimizer, stage: int = 1):
        self.group, self.inner = net.copies[0].group, optimizer
        self.stage = stage if self.group.size > 1 else 1
        self.defaults, self.param_groups = optimizer.defaults, optimizer.param_groups
        self._state, self._manager = States(), None
        self.shards: list[Parameter] = []
        self._inner = copy.copy(optimizer)
        groups, states = [], States()
        for group in optimizer.param_groups:
            own = [self._shard_of(p) for p in group["params"]]
            self.shards += own
            groups.append(ParamGroup({**group, "params": own}))
            for p, s in zip(group["params"], own):
                states[s] = {k: self._piece_of(t, p) for k, t in optimizer.state[p].items()}
        vars(self._inner).update(param_groups=groups, _state=states)
        optimizer._state = _SharedOut()
        self._sharing = self._share(net) if self.stage > 1 else None
        native.trim()  # what the pool kept of whole states and parameters goes back to the system: a step needs less

    def _share(self, net: DataParallel | Pipeline) -> Sharing:
        """Gradients, and at stage 3 parameters, are shared out from now on. Errors: ValueError for a parameter that the network has not."""
        shards = {id(p): s for (p, _), s in zip(self._params(), self.shards)}
        known = {id(p) for p in net.parameters()}
        if others := [p for p, _ in self._params() if id(p) not in known]:
            raise ValueError(f"shard(stage={self.stage}): the optimizer has a parameter {others[0].shape} that the network has not")
        shards |= {id(p): self._shard_of(p) for p in net.parameters() if id(p) not in shards}
        sharing = Sharing(net.copies, self.stage, shards)
        for one in net.copies:
            one.share(lambda parallel, sizes: SharedTotals(parallel, sizes, sharing))
        net.shared_by(self)
        return sharing

    def parameters(self) -> list[Parameter]:
        """The whole parameters."""
        return [p for p, _ in self._params()]

    # -- what clipping and scaling ask, where gradients are shared out -------------------------------------------------------
    def pieces(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Of some parameters the shards, which have pieces of their gradients."""
        assert self._sharing is not None
        of = {id(p): s for u in self._sharing.units for p, s in zip(u.params, u.shards)}
        return [of[id(t)] for t in tensors if id(t) in of]

    def norms(self, tensors: Sequence[Tensor], norm: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """The norms of the whole gradients, each of which is gathered for a moment."""
        assert self._sharing is not None
        of = {id(s): p for u in self._sharing.units for p, s in zip(u.params, u.shards)}
        return [norm(self._whole(as_row(s.grad), of[id(s)])) for s in self.pieces(tensors) if s.grad is not None]

    def anywhere(self, flag: Tensor) -> Tensor:
        """Whether a 0-d bool is true in any process."""
        return all_reduce_max(flag.astype("int32"), self.group) > 0

    def kept(self) -> Kept:
        """Bytes that this process keeps now. ZeRO's formula, for float32 and an optimizer of k numbers for each of n parameters, of R
        processes: stage 1: 4 n + 4 n + 4 k n / R, stage 2: 4 n + (4 n + 4 k n) / R, stage 3: (4 n + 4 n + 4 k n) / R.

        >>> from tengen import distributed as dist, module as M, optimizer as optim
        >>> net = dist.DataParallel(M.Linear(4, 2))
        >>> dist.shard(net, optim.Adam(net.parameters(), lr=0.1)).kept().parameters
        40
        """
        states = sum(t.size * t.dtype.size for s in self._inner._state.values() for t in s.values())
        if self._sharing is not None:
            return Kept(*self._sharing.kept(), states)
        held = lambda ts: sum(local(t).size * t.dtype.size for t in ts if t is not None)
        return Kept(held(self.parameters()), held(p.grad for p in self.parameters()), states)

    def add_param_group(self, param_group: dict) -> None:
        """Errors: DistributedError always: a sharded optimizer has the parameters that it was made with."""
        raise DistributedError("add_param_group: a sharded optimizer takes no more parameters; help: add them before shard()")

    def _whole(self, piece: np.ndarray, p: Parameter) -> Tensor:
        """The tensor, placed as a parameter is, of which this process has a piece."""
        return placed_as(p, tensor_over_row(self._all(piece, [local(p).size])[0], local(p).shape))

    def _own(self, n: int) -> slice:
        return own_piece(n, self.group)

    def _shard_of(self, p: Parameter) -> Parameter:
        return Parameter(tensor_over_row(packed([as_row(local(p))[self._own(local(p).size)]])), name=p.name)

    def _piece_of(self, t: Tensor, p: Parameter) -> Tensor:
        """This process's piece of a state that has an element for each of the parameter's; other states are whole in all processes."""
        return tensor_over_row(packed([self._piece(t, p)])) if t.shape == p.shape else t

    def _piece(self, t: Tensor, p: Parameter) -> np.ndarray:
        """This process's piece of a tensor of a parameter's shape: of the part that it has of it, where it is placed on a mesh."""
        return as_row(part_of(t, p))[self._own(local(p).size)]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this process's pieces of the parameters that have a gradient, and gathers all pieces. Returns self, or what `closure`
        returned."""
        loss = None if closure is None else closure()
        for group, own in zip(self.param_groups, self._inner.param_groups):
            own.update({k: v for k, v in group.items() if k != "params"})
        if self._sharing is None:
            with_grad = [(p, s) for (p, _), s in zip(self._params(), self.shards) if p.grad is not None]
            for p, s in with_grad:
                s.grad, s.overflow = tensor_over_row(self._piece(p.grad, p)), p.overflow
        else:
            with_grad = [(p, s) for (p, _), s in zip(self._params(), self.shards) if s.grad is not None]
            if any(p.grad is not None for p, _ in self._params()):
                raise DistributedError(
                    f"shard(stage={self.stage}): a parameter has a whole gradient, which no other process knows; help: compute gradients in "
                    "for ... in net.micro_batches(...)"
                )
        if self.stage == 3:
            self._sharing.release()  # which takes what the program has changed
            self._inner.step()
            self._sharing.changed()
        else:
            for p, s in with_grad:
                s._reset(self._piece_of(p, p))  # which may have changed: a checkpoint, the program
            self._inner.step()
            self._gather([p for p, _ in with_grad], [s for _, s in with_grad])
        if self._sharing is None:
            for s in self.shards:
                s.grad = s.overflow = None
        return self if closure is None else loss

    def clear_grad(self) -> None:
        """Forgets all gradients, and this process's pieces of them."""
        super().clear_grad()
        for s in self._sharing_shards():
            s.grad = s.overflow = None

    def _sharing_shards(self) -> list[Parameter]:
        return self.shards if self._sharing is None else [s for u in self._sharing.units for s in u.shards]

    def _gather(self, params: list[Parameter], shards: list[Parameter]) -> None:
        """Gives the parameters the values of all processes' pieces, those of one dtype in one exchange."""
        for name in dict.fromkeys(p.dtype.name for p in params):
            some = [(p, s) for p, s in zip(params, shards) if p.dtype.name == name]
            rows = self._all(packed([as_row(s) for _, s in some]), [local(p).size for p, _ in some])
            for (p, _), row in zip(some, rows):
                p._reset(placed_as(p, tensor_over_row(row, local(p).shape)))
        for p, s in zip(params, shards):
            s._reset(tensor_over_row(self._piece(p, p)))  # a part of the parameter, without memory of its own

    def _all(self, mine: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
        """Arrays of these sizes, of which this process has its pieces one after another."""
        if self.group.size == 1:
            ends = np.cumsum([0, *sizes])
            return [mine[a:b] for a, b in zip(ends, ends[1:])]
        parts = np.array([pieces(n, self.group.size) for n in sizes])  # [array][process]
        text = f"pieces of {len(sizes)} arrays, {sum(sizes)} elements of {mine.dtype}"
        whole = self.group.channel.all_gather(mine, [int(n) for n in parts.sum(0)], text)
        starts = np.concatenate([[0], np.cumsum(parts.T.reshape(-1))])[:-1].reshape(self.group.size, -1)  # [process][array]
        return [packed([whole[s : s + n] for s, n in zip(starts[:, i], parts[i])]) for i in range(len(sizes))]

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
                    found["state"][i][kind] = self._whole(a, p).numpy()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` of this optimizer, sharded or not, gave with any number of processes.

        Errors: ValueError where it does not fit; nothing is changed then.
        """
        mine = {**state, "state": {}}
        for i, (p, _) in enumerate(self._params()):
            theirs = state["state"][i] if i in state["state"] else state["state"][str(i)]
            mine["state"][i] = {
                k: self._piece(Tensor(a), p) if np.shape(a) == p.shape else a for k, a in theirs.items()
            }  # fmt: skip
        self._inner.load_state_dict(mine)
        for group, own in zip(self.param_groups, self._inner.param_groups):
            group.update({k: v for k, v in own.items() if k != "params"})

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, states in {self.group.size} processes)"


def shard(net: DataParallel | Pipeline, optimizer: Optimizer, stage: int = 1) -> ShardedOptimizer:
    """The optimizer with its states shared out among the processes, with the bits of the whole one.

    Args: net: what is trained, in copies: a network, or a pipeline's stages. optimizer: of its parameters; use the result in its place.
        stage: 1: the optimizer's states; 2: gradients too; 3: parameters too.
    From stage 2 on gradients are those of `net.micro_batches`, one backward in each; they are added while the backward goes on, and a
    parameter's `grad` stays None: `clip_grad_norm`, `clip_grad_value` and `GradScaler.unscale` of parameters know where the pieces are.
    At stage 3 a module's parameters are brought before its forward, and again where the gradient needs them, while the module that
    came next the last time is on its way; all processes read a parameter (`p.numpy()`, `state_dict()`) together; no trace.
    Memory: `kept()` of the result. Errors: ValueError for another stage; DistributedError for an optimizer
    whose update of an element depends on others (LAMB, LBFGS).

    >>> from tengen import distributed as dist, module as M, optimizer as optim
    >>> net = dist.DataParallel(M.Linear(4, 2))
    >>> opt = dist.shard(net, optim.Adam(net.parameters(), lr=0.1))
    >>> sum(s.size for s in opt.shards)
    10
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"shard: stage={stage!r} must be 1 (the optimizer's states), 2 (gradients too) or 3 (parameters too)")
    if stage == 3 and isinstance(net, Pipeline) and net.traced:
        raise ValueError("shard(stage=3): parameters are brought as they are used, and no trace does; help: Pipeline(trace=False), or stage=2")
    if stage == 3 and isinstance(net, Pipeline) and net.memory_budget is not None:
        raise ValueError(
            "shard(stage=3): parameters go behind a module's forward, and a layer that is computed again would not have them; help: "
            "Pipeline(memory_budget=None), or stage=2"
        )
    if not optimizer.elementwise:
        raise DistributedError(f"shard: {type(optimizer).__name__} needs whole parameters for its update; help: Adam, SGD and their like")
    return ShardedOptimizer(net, optimizer, stage)
