"""Pipeline parallel training: the layers of a network cut into stages, each on a process, that work on several micro-batches at once.

    stage 0   f0 f1 f2 f3 |  .  b0  . b1  . b2 b3        GPipe: all forwards (f), then all backwards (b)
    stage 1    . f0 f1 f2 f3 b0 b1 b2 b3
    stage 0   f0 f1  . b0 f2 b1 f3 b2  . b3              1F1B: a stage begins with its backwards as soon as it can, so that s
    stage 1    . f0 b0 f1 b1 f2 b2 f3 b3                 stages before the end it keeps s + 1 micro-batches, not all

Each micro-batch goes through the layers as on one process, with the random numbers that it has there, which travel with it; gradients of a
layer are added in the order of the micro-batches. So every schedule and number of stages gives the bits of one process.

Sources: Y. Huang and others, "GPipe", arXiv 1811.06965; D. Narayanan and others, "Memory-Efficient Pipeline-Parallel DNN Training", arXiv
2006.09503 (1F1B), and "Efficient Large-Scale Language Model Training on GPU Clusters", arXiv 2104.04473 (several chunks on a process).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import numpy as np

from tengen import jit
from tengen.autodiff import checkpoint
from tengen.base.errors import DistributedError, GradientError, TraceError, UnknownName, user_line
from tengen.base.record import NamedTuple
from tengen.base.sizes import byte_size
from tengen.distributed import activations
from tengen.distributed.data_parallel import (
    DRAWS,
    DataParallel,
    Statistics,
    Totals,
    agree_beside,
    beside,
    broadcast_tensors,
    digest,
)
from tengen.distributed.mail import Mail, Message
from tengen.distributed.schedules import Work, balanced, schedule
from tengen.functional.distributed import all_reduce_max
from tengen.ir.types import TensorType
from tengen.module import Module, Sequential
from tengen.module.norm import SyncBatchNorm
from tengen.ops.creation import zeros_like
from tengen.optimizer.clip import SHARED, Shared
from tengen.optimizer.optimizer import Optimizer
from tengen.random import get_state, set_state
from tengen.serialization import load, save
from tengen.tensor import Parameter, Tensor, tracing
from tengen.tensor.casting import casting
from tengen.tensor.elsewhere import Placed, whole
from tengen.tensor.hooks import called, hooks_of
from tengen.tensor.nodes import Level
from tengen.tensor.tape import Place, gradients
from tengen.tensor.tensor import tensor_on_tape
from tengen.transport.group import WORLD, Group


class Pipeline:
    """A network of layers, cut into stages, that trains in several processes with the bits of one.

    Args:
        net: a Sequential or a sequence of modules, the same in all processes; it gets the values of the group's first one, and each process
        keeps its own layers. loss: of the last layer's result and the targets, a tensor of one element. micro_batches: into how many parts a
        step's batch is cut; it decides the bits. schedule: "1f1b" or "gpipe". data: how many copies of the pipeline there are, which
        share out the micro-batches (`DataParallel`); of P processes P / data are stages, and a stage's copies are neighbours. chunks: of layers
        that each process has; with several a process waits less, and sends more. cuts: the index of the layer at which each part but
        the first begins; default: `balanced` of `costs`, a number for each layer, such as the operations that `tengen.summary`
        counts; default: its number of parameters, each part with some where there are enough such layers. group: the processes, default all;
        for layers in parts on a `Mesh` those that have the same parts, `mesh.group("pipe", "data")`. reduction: "mean" or "sum" of the
        micro-batches' gradients, as in `DataParallel`. trace: whether the forward of a chunk of layers, with the loss behind the last one, is
        one traced program in `step`, and its backward another, with the bits of eager layers. memory_budget: bytes of activations that a
        process holds at most at once, or a text as "400MB": some layers of some micro-batches are then not kept, but computed again in the
        backward (`autodiff.checkpoint`), as few operations as that takes; bits stay. See `memory_plan`. Default: all are kept.

    What passes from layer to layer is a float tensor, or a tuple of them. Attributes: parts: this process's chunks of layers. stage, stages:
    which one it is, and of how many. kept: the most micro-batches whose intermediate values it held at once in the last step.

    Errors: ValueError for numbers that do not fit, and for trace=True with layers in parts on a mesh or with a budget; DistributedError where
        the processes' networks differ. A step whose budget cannot be met is a BudgetError.

    >>> import numpy as np
    >>> from tengen import functional as F, module as M, optimizer as optim
    >>> net = Pipeline(M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2)), F.nn.cross_entropy, micro_batches=2)
    >>> opt = optim.SGD(net.parameters(), lr=0.1)
    >>> loss = net.step(np.ones((8, 4), np.float32), np.zeros(8, np.int32))
    >>> _ = opt.step().clear_grad()
    """

    def __init__(
        self, net: Sequential | Sequence[Module], loss: Callable[..., Tensor], micro_batches: int, schedule: str = "1f1b", data: int = 1,
        chunks: int = 1, cuts: Sequence[int] | None = None, costs: Sequence[float] | None = None, group: Group = WORLD, reduction: str = "mean",
        trace: bool = False, memory_budget: int | str | None = None,
    ):  # fmt: skip
        if schedule not in ("1f1b", "gpipe"):
            raise ValueError(f"Pipeline: schedule={schedule!r} must be '1f1b' or 'gpipe'")
        if data < 1 or chunks < 1 or group.size % data:
            raise ValueError(f"Pipeline(data={data}, chunks={chunks}): at least 1 each, and data divides the number of processes, {group.size}")
        net = net if isinstance(net, Sequential) else Sequential(*net)
        self.group, self.schedule, self.data, self.loss, self.count = group, schedule, data, loss, micro_batches
        self.stages, self.stage, self.copy = group.size // data, group.rank // data, group.rank % data
        n = self.stages * chunks
        self.cuts = self._cuts(net, n, cuts, costs)
        bounds = [0, *self.cuts, len(net)]
        self._check_parts([net[a:b] for a, b in zip(bounds, bounds[1:])])
        self._names = [[name for name, _ in net[a:b].named_tensors()] for a, b in zip(bounds, bounds[1:])]
        self._dtypes = [[p.dtype for p in net[a:b].parameters()] for a, b in zip(bounds, bounds[1:])]
        if group.size > 1:
            states = [f"{name}: {t._layout.type!r}" for name, t in net.named_tensors()]
            what = f"Pipeline of {len(net)} layers cut at {self.cuts}, {micro_batches} micro-batches, {schedule}, data={data}, trace={trace}"
            group.channel.agree_on(what, states)
        self._beside = beside(net, group)
        self.mesh = next((t._layout.owner for t in net.tensors() if type(t._layout) is Placed), None)
        if trace and memory_budget is not None:
            raise ValueError(
                "Pipeline(trace=True, memory_budget=...): the plan is of what eager layers keep, not programs; help: trace=False"
            )
        self.memory_budget = None if memory_budget is None else byte_size(memory_budget, "Pipeline: memory_budget")
        if trace and self.mesh is not None:
            raise ValueError(
                "Pipeline(trace=True): layers in parts on a mesh give one another parts of tensors, which no traced function takes; help: "
                "trace=False"
            )
        if group.size > 1:
            broadcast_tensors(list(net.tensors()), group)
        mine = [c * self.stages + self.stage for c in range(chunks)]
        self.parts = [net[bounds[i] : bounds[i + 1]] for i in mine]
        copies = Group([group.proc_ranks[self.stage * data + d] for d in range(data)])
        self.copies = [DataParallel(part, copies, micro_batches, reduction, overlap=False) for part in self.parts]
        self.traced = trace
        self.runs = [self._run_of(i, i == n - 1, part) for i, part in zip(mine, self.parts)]
        self._owner: Shared | None = None  # of the gradients' pieces, where the copies share them out
        self._plans: dict[tuple, activations.Plan] = {}
        self.kept = 0
        if group.size > 1:
            SHARED.update({id(p): self for p in self.parameters()})

    def _run_of(self, number: int, last: bool, part: Sequential) -> Callable[..., Any]:
        """What a part of the network makes of a micro-batch: what the next one takes, or the loss."""

        def run(value: Any, *targets: Tensor) -> Any:
            return self.loss(part(value), *targets) if last else part(value)

        run.__name__ = f"part{number}"  # of its program, in profiles
        return jit.trace(run) if self.traced else run

    def _cuts(self, net: Sequential, parts: int, cuts: Sequence[int] | None, costs: Sequence[float] | None) -> list[int]:
        if cuts is None:
            sizes = [1 + sum(p.size for p in layer.parameters()) if isinstance(layer, Module) else 1 for layer in net]
            if costs is not None and len(costs) != len(net):
                raise ValueError(f"Pipeline: {len(costs)} costs were given for {len(net)} layers")
            starts = [0, *[i for i, n in enumerate(sizes) if n > 1][1:]]  # where a part with parameters may begin
            if costs is not None or len(starts) < parts:
                return balanced(sizes if costs is None else costs, parts)
            return [starts[i] for i in balanced([sum(sizes[a:b]) for a, b in zip(starts, [*starts[1:], len(net)])], parts)]
        rising = all(a < b for a, b in zip([0, *cuts], [*cuts, len(net)]))
        if len(cuts) != parts - 1 or not rising:
            where = f"{parts - 1} rising indices from 1 to {len(net) - 1}"
            raise ValueError(f"Pipeline: cuts={list(cuts)} must be {where}, the first layer of each part but the first")
        return list(cuts)

    def _check_parts(self, parts: Sequence[Sequential]) -> None:
        """Errors: ValueError for what one stage cannot do without another: a tensor of two parts, statistics over all processes; and
        for a process without parameters, which no optimizer takes."""
        homes: dict[int, int] = {}
        for i, part in enumerate(parts):
            for name, t in part.named_tensors():
                if homes.setdefault(id(t), i) != i:
                    raise ValueError(
                        f"Pipeline: {name!r} of part {i} of the network is in part {homes[id(t)]} too, and each would train its own; help: "
                        "cuts= that leave layers which share a tensor in one part"
                    )
            if any(isinstance(m, SyncBatchNorm) for m in part.modules()) and self.group.size > 1:
                raise ValueError("Pipeline: SyncBatchNorm waits for all processes, which are in other layers; help: BatchNorm2d")
        for stage in range(self.stages if len(homes) else 0):
            if not any(True for part in parts[stage :: self.stages] for _ in part.parameters()):
                raise ValueError(f"Pipeline: the layers of stage {stage} have no parameters; help: fewer processes, or other cuts=")

    def shared_by(self, owner: Shared) -> None:
        """From now on somebody else knows where the pieces of this process's gradients are (`distributed.shard`)."""
        self._owner = owner

    def parameters(self) -> list[Parameter]:
        """The parameters of this process's layers, for its optimizer. `optimizer.clip_grad_norm` of all of them takes the norm of all
        layers' gradients."""
        return [p for part in self.parts for p in part.parameters()]

    def train(self, mode: bool = True) -> Pipeline:
        """Sets all layers to training, or to evaluation; returns self."""
        for part in self.parts:
            part.train(mode)
        return self

    def eval(self) -> Pipeline:
        """Sets all layers to evaluation; returns self."""
        return self.train(False)

    def __repr__(self) -> str:
        return f"Pipeline({self.stages} stages, this is {self.stage}: {self.parts!r}, micro_batches={self.count}, schedule={self.schedule!r})"

    def step(self, *batch: Any) -> float:
        """Computes the gradients of a batch, which all processes give whole, and adds them to the parameters'.

        Args: batch: tensors or arrays with the samples along axis 0: what the first layer takes, then the loss's targets.
        Returns: the loss of the whole batch, in every process.
        Errors: ShapeError for arrays of different lengths or without samples; GradientError for a loss of several elements; DistributedError
            where the processes' batches differ.
        """
        if tracing.recorder is not None:
            raise TraceError(
                f"{user_line()}: Pipeline.step sends values from process to process, and is no part of a trace; help: call it outside"
            )
        sizes = self.copies[0].sizes(batch)
        seed, first = map(int, get_state())
        if self.group.size > 1:
            self.group.channel.agree(f"a step on {digest(batch)}, micro-batches of {sizes}, the generator at seed {seed}, draw {first}")
        agree_beside(self._beside, batch, seed, first)
        again = {} if self.memory_budget is None else self._planned(batch, sizes).again
        totals = [p.totals(sizes) for p in self.copies]
        try:
            with Level() as level:
                run = _Step(self, batch, sizes, totals, level, again)
                try:
                    run.all()
                except BaseException:
                    run.mail.give_up()
                    raise
        except BaseException:
            for t in totals:
                t.give_up()
            raise
        set_state(np.array([seed, first + self.count * DRAWS], np.uint64))
        for t in totals:
            t.give()
        self.kept = run.most
        return self._loss_of_all(run.losses, sizes)

    def memory_plan(self, *batch: Any) -> activations.Plan:
        """The activation memory that `step` takes for a batch, in this process, counted without a step; all processes call it together.

        Activations are what the tape holds for gradients that are still to be computed, of the largest micro-batch, with what is computed again
        while it is there, what came from the stage before, and the targets. Not counted: gradients, temporaries of ops, and one message of each
        neighbour that is on its way.

        Args: batch: as of `step`; shapes and dtypes matter.
        Returns: a plan: bytes: the most at once. whole: without a budget. least: the smallest budget that this process can keep. operations:
            of the forwards that are done again; forward: of all. again: by (micro-batch, chunk) the runs of layers (first, end) that are
            computed again.
        Errors: BudgetError, in all processes, where one of them cannot keep the budget, with the least that would do; TraceError for layers
            that no trace can record, since they ask for values of tensors.

        >>> import numpy as np
        >>> from tengen import functional as F, module as M
        >>> layers = M.Sequential(M.Linear(4, 64), M.GELU(), M.Linear(64, 2))
        >>> net = Pipeline(layers, F.nn.cross_entropy, micro_batches=4, schedule="gpipe", memory_budget="24KB")
        >>> plan = net.memory_plan(np.ones((64, 4), np.float32), np.zeros(64, np.int32))
        >>> plan.bytes, plan.whole, plan.least, len(plan.again)
        (22528, 34816, 9668, 2)
        """
        return self._planned(batch, self.copies[0].sizes(batch))

    def _planned(self, batch: tuple, sizes: list[int]) -> activations.Plan:
        """The plan for a batch. Errors: those of `memory_plan`."""
        samples = [a[:1] if isinstance(a, Tensor) else Tensor(a[:1]) for a in batch]
        types = tuple(TensorType((max(sizes), *x.shape[1:]), x.dtype) for x in samples)
        modes = tuple(m.training for part in self.parts for m in part.modules())
        key = (types, tuple(sizes), modes, casting.key)
        known = np.array([key in self._plans], np.uint8)
        if self.group.size > 1:
            known = self.group.channel.all_gather(known, [1] * self.group.size, "whether the memory of a step is planned")
        if not known.all():
            rounds = -(-self.count // self.data)
            works = [
                (w.kind, m, w.chunk) for w in schedule(self.schedule, self.stage, self.stages, rounds, len(self.parts))
                if (m := w.round * self.data + self.copy) < self.count and sizes[m]
            ]  # fmt: skip
            self._plans[key] = activations.planned(self, works, types[:1], types[1:])
        return self._plans[key]

    def _loss_of_all(self, losses: np.ndarray, sizes: list[int]) -> float:
        if self.group.size > 1:
            whole = self.group.channel.all_gather(losses, [self.count] * self.group.size, "losses").reshape(self.group.size, -1)
            last = (self.stages - 1) * self.data
            losses = np.array([whole[last + m % self.data, m] for m in range(self.count)])
        if self.copies[0].reduction == "sum":
            return float(losses.sum())
        return float((losses * sizes).sum() / sum(sizes))

    def __call__(self, x: Any) -> Any:
        """The network's result, in every process, without a gradient. All processes call it, with the same argument. Random numbers are
        drawn as in one process."""
        n, at = self.stages * len(self.parts), self.stage
        value = Tensor(x) if not isinstance(x, Tensor) else x
        mail = Mail(self)
        for part in self.parts:
            if at:
                value = self._received(mail.take("f", at, 0, at - 1))
            value = part(value)
            if at < n - 1:
                mail.put("f", at + 1, 0, value)
            at += self.stages
        if self.stage == self.stages - 1:
            for s in range(self.stages - 1):
                mail.put("r", s, 0, value)
        else:
            value = self._received(mail.take("r", self.stage, 0, n - 1))
        mail.sent()
        return whole(value.detach()) if isinstance(value, Tensor) else tuple(whole(v.detach()) for v in value)

    def _received(self, message: Message) -> Any:
        set_state(np.array(message.draws, np.uint64))
        return message.value

    def pieces(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The parameters themselves, whose gradients this process has whole, or what has its pieces of them."""
        return list(tensors) if self._owner is None else self._owner.pieces(tensors)

    def anywhere(self, flag: Tensor) -> Tensor:
        """Whether a 0-d bool is true in any process; all call it together."""
        return all_reduce_max(flag.astype("int32"), self.group) > 0

    def norms(self, tensors: Sequence[Tensor], norm: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """All layers' norms of gradients, in the order of the layers, where each process gives its own parameters; all call it together.

        Errors: DistributedError for some of this process's parameters.
        """
        mine = self.parameters()
        if {id(t) for t in tensors} != {id(p) for p in mine}:
            raise DistributedError(
                "clip_grad_norm: other processes have the rest of these parameters, and wait for the norms of all; help: "
                "clip_grad_norm(pipeline.parameters(), max_norm)"
            )
        held = self.pieces(mine)
        norms = [norm(t.grad) for t in held if t.grad is not None] if self._owner is None else self._owner.norms(mine, norm)
        row = np.full((2, len(mine)), 0.0)  # whether it has a gradient, and the norm
        row[0] = [t.grad is not None for t in held]
        row[1, row[0] > 0] = [n.item() for n in norms]
        owned = [[i for i in range(len(self._dtypes)) if i % self.stages == r // self.data] for r in range(self.group.size)]
        counts = [2 * sum(len(self._dtypes[i]) for i in parts) for parts in owned]
        everything = self.group.channel.all_gather(row.reshape(-1), counts, "norms of gradients")
        found: dict[int, list[Tensor]] = {}
        for parts, n, end in zip(owned, counts, accumulate(counts)):
            there, values = everything[end - n : end].reshape(2, -1)
            at = 0
            for i in parts:
                types = self._dtypes[i]
                found[i] = [Tensor(values[at + k], dtype=t) for k, t in enumerate(types) if there[at + k]]
                at += len(types)
        return [t for i in sorted(found) for t in found[i]]

    def _from_owners(self, of_part: Callable[[int], Any]) -> list[Any]:
        """What the owner of each part of the network makes of it, in every process. of_part: of this process's own number of a part."""
        return [self.from_owner(i, of_part) for i in range(self.stages * len(self.parts))]

    def from_owner(self, i: int, of_part: Callable[[int], Any]) -> Any:
        """What the owner of the i-th part of the network makes of it, in every process."""
        mine, owner, file = i % self.stages == self.stage, i % self.stages * self.data, io.BytesIO()
        made = of_part(i // self.stages) if mine else None
        if self.group.size == 1:
            return made
        if mine:
            save(made, file)
        size = np.array([file.tell()], np.int64)
        self.group.channel.broadcast(size, owner, f"bytes of part {i}")
        content = np.frombuffer(file.getvalue(), np.uint8).copy() if mine else np.empty(int(size[0]), np.uint8)
        self.group.channel.broadcast(content, owner, f"part {i}")
        return load(io.BytesIO(content.tobytes()))

    def state_dict(self) -> dict[str, np.ndarray]:
        """The whole network's parameters and buffers, in every process; all call it together."""
        parts = self._from_owners(lambda c: {name: t.numpy() for name, t in self.parts[c].named_tensors()})
        return {name: np.asarray(a) for part in parts for name, a in part.items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Takes this process's part of a whole network's values. Errors: KeyError for names that are missing, or unknown where `strict`."""
        known = [name for names in self._names for name in names]
        missing = [name for name in known if name not in state]
        unknown = sorted(set(state) - set(known)) if strict else []
        if missing or unknown:
            raise UnknownName(f"Pipeline.load_state_dict: missing {missing[:5]}, unknown {unknown[:5]}")
        for part in self.parts:
            part.load_state_dict({name: state[name] for name, _ in part.named_tensors()})

    def states_of(self, optimizer: Optimizer) -> StageStates:
        """What a checkpoint takes in place of an optimizer of `parameters()`: the states of all layers' optimizers.

        >>> from tengen import functional as F, module as M, optimizer as optim
        >>> net = Pipeline(M.Sequential(M.Linear(4, 8), M.Linear(8, 2)), F.nn.cross_entropy, micro_batches=2)
        >>> opt = optim.Adam(net.parameters(), lr=0.1)
        >>> sorted(net.states_of(opt).state_dict()["state"])  # by the parameter's number in the whole network
        [0, 1, 2, 3]
        """
        return StageStates(self, optimizer)


class StageStates:
    """The states of the optimizers of a pipeline's stages as those of one optimizer of the whole network. `Pipeline.states_of` makes it.

    Errors: ValueError for an optimizer with several groups, or of other parameters than the pipeline's.
    """

    def __init__(self, pipeline: Pipeline, optimizer: Optimizer):
        groups = optimizer.param_groups
        if len(groups) != 1 or [id(p) for p in groups[0]["params"]] != [id(p) for p in pipeline.parameters()]:
            raise ValueError("states_of: an optimizer of one group, the pipeline's parameters(), is needed; help: optim.Adam(net.parameters())")
        self._pipeline, self._optimizer = pipeline, optimizer

    def _numbers(self) -> list[list[int]]:
        """The numbers of each part's parameters in the whole network."""
        ends = [0, *accumulate(len(types) for types in self._pipeline._dtypes)]
        return [list(range(a, b)) for a, b in zip(ends, ends[1:])]

    def state_dict(self) -> dict[str, Any]:
        """As `Optimizer.state_dict` of the whole network's; all processes call it together."""
        p, mine = self._pipeline, self._optimizer.state_dict()
        ends = [0, *accumulate(len(list(part.parameters())) for part in p.parts)]
        parts = p._from_owners(lambda c: [mine["state"][i] for i in range(ends[c], ends[c + 1])])
        group = {**mine["param_groups"][0], "params": list(range(sum(map(len, p._dtypes))))}
        state = {n: {k: np.asarray(a) for k, a in one.items()} for ns, part in zip(self._numbers(), parts) for n, one in zip(ns, part)}
        return {"param_groups": [group], "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes this process's part of what `state_dict` gave, or one optimizer of the whole network. Errors: ValueError where it does
        not fit."""
        p, numbers, saved = self._pipeline, self._numbers(), state["param_groups"]
        if len(saved) != 1 or len(saved[0]["params"]) != sum(map(len, numbers)):
            raise ValueError(f"states of {[len(g['params']) for g in saved]} parameters do not fit one group of {sum(map(len, numbers))}")
        own = [n for c in range(len(p.parts)) for n in numbers[c * p.stages + p.stage]]
        of = lambda n: state["state"][n] if n in state["state"] else state["state"][str(n)]
        group = {**saved[0], "params": list(range(len(own)))}
        self._optimizer.load_state_dict({"param_groups": [group], "state": {i: of(n) for i, n in enumerate(own)}})


class _Forward(NamedTuple):
    """A micro-batch that went through a chunk of layers: what its backward needs.

    Attributes: inputs, outputs: of the chunk; the first one's input is no one's. places: of the inputs on the tape.
    """

    inputs: list[Tensor]
    places: list[Place]
    outputs: list[Tensor]


class _Step:
    """One process's work for one batch."""

    def __init__(
        self, pipeline: Pipeline, batch: tuple, sizes: list[int], totals: list[Totals], level: Level,
        again: Mapping[tuple[int, int], Sequence[tuple[int, int]]],
    ):  # fmt: skip
        self.p, self.batch, self.sizes, self.totals, self.level, self.again = pipeline, batch, sizes, totals, level, again
        self.starts, self.last = [0, *accumulate(sizes)], pipeline.stages * len(pipeline.parts) - 1
        self.seed, self.first = map(int, get_state())
        rounds = -(-pipeline.count // pipeline.data)
        self.works = schedule(pipeline.schedule, pipeline.stage, pipeline.stages, rounds, len(pipeline.parts))
        self.mail = Mail(pipeline, [part for work in self.works if (part := self._source(work)) is not None])
        self.kept: dict[tuple[int, int], _Forward] = {}
        self.most = 0
        self.losses = np.zeros(pipeline.count, np.float64)
        self.places = [[level.start(p) for p in t.parameters] for t in totals]

    def all(self) -> None:
        """Does what the schedule says."""
        p = self.p
        for work in self.works:
            present = self._present(work)
            if not any(present):
                continue
            m = work.round * p.data + p.copy
            self.mail.look()
            if work.kind == "f":
                with Statistics(self.totals[work.chunk], present):
                    if present[p.copy]:
                        self._forward(m, work.chunk)
                    self.totals[work.chunk].forward_ended()
                self.most = max(self.most, len(self.kept))
            else:
                n = self.sizes[m] if present[p.copy] else 0
                self.totals[work.chunk].begin(present, n)
                if n:
                    self._backward(m, work.chunk)
                self.totals[work.chunk].add(present, n)
        self.mail.sent()

    def _present(self, work: Work) -> list[bool]:
        """In which copies of the pipeline there is a micro-batch to work on."""
        micro = range(work.round * self.p.data, (work.round + 1) * self.p.data)
        return [m < self.p.count and self.sizes[m] > 0 for m in micro]

    def _source(self, work: Work) -> int | None:
        """The part of the network that sends what this process works on; None where it has that itself."""
        part = work.chunk * self.p.stages + self.p.stage
        source = part - 1 if work.kind == "f" else part + 1
        return source if 0 <= source <= self.last and self._present(work)[self.p.copy] else None

    def _rows(self, m: int, arrays: tuple) -> list[Tensor]:
        return [a if isinstance(a, Tensor) else Tensor(a) for a in (a[self.starts[m] : self.starts[m + 1]] for a in arrays)]

    def _forward(self, m: int, chunk: int) -> None:
        part = chunk * self.p.stages + self.p.stage
        if part == 0:
            (value,) = self._rows(m, self.batch[:1])
            given, draws = [value], (self.seed, self.first + m * DRAWS)
        else:
            value, given, draws = (message := self.mail.take("f", part, m, part - 1)).value, message.tensors, message.draws
        set_state(np.array(draws, np.uint64))
        places = [self.level.start(x) for x in given] if part else []
        targets = self._rows(m, self.batch[1:]) if part == self.last else []
        again = self.again.get((m, chunk))
        casts = casting.begin()  # of parameters: each micro-batch has its own, since its backward lets them go
        try:
            out = self.p.runs[chunk](value, *targets) if again is None else self._in_runs(chunk, again, value, targets)
        finally:
            casting.begin(casts)
        if part < self.last:
            self.mail.put("f", part + 1, m, out)
        else:
            if not isinstance(out, Tensor) or out.size != 1:
                found = repr(out._layout.type) if isinstance(out, Tensor) else f"a {type(out).__name__}"
                raise GradientError(f"Pipeline: the loss of a micro-batch is {found}, not a tensor of one element; help: .mean() or .sum()")
            self.losses[m] = out.item()
        outputs = list(out) if isinstance(out, (tuple, list)) else [out]
        if part < self.last:  # their values go with the message; the tape has what it needs of them
            outputs = [tensor_on_tape(None, t._layout, t._node) for t in outputs]
        self.kept[m, chunk] = _Forward(given if part else [], places, outputs)

    def _in_runs(self, chunk: int, again: Sequence[tuple[int, int]], value: Any, targets: list[Tensor]) -> Any:
        """What a chunk of layers makes of a micro-batch, where the values inside of some runs of layers are not kept."""
        layers = [*self.p.parts[chunk]]
        if chunk * self.p.stages + self.p.stage == self.last:
            layers.append(lambda y: self.p.loss(y, *targets))
        through = lambda a, b, x: reduce(lambda y, layer: layer(y), layers[a:b], x)
        end = 0
        for first, after in again:
            value = checkpoint(partial(through, first, after), through(end, first, value))
            end = after
        return through(end, len(layers), value)

    def _backward(self, m: int, chunk: int) -> None:
        part = chunk * self.p.stages + self.p.stage
        inputs, own, outputs = self.kept.pop((m, chunk))
        seeds = [None] if part == self.last else self.mail.take("b", part, m, part + 1).tensors
        pairs = [(y, g) for y, g in zip(outputs, seeds) if y._node is not None]
        places = [*own, *self.places[chunk]]
        found = gradients([y for y, _ in pairs], [g for _, g in pairs], places, self.level) if pairs else [None] * len(places)
        for p, g in zip(self.totals[chunk].parameters, found[len(inputs) :]):
            for hook in list(hooks_of(p).values()) if g is not None else ():
                g = called(hook, g)
            p.grad = g
        if part:
            self.mail.put("b", part - 1, m, [zeros_like(x.detach()) if g is None else g for g, x in zip(found, inputs)])

