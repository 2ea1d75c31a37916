"""Parameters and gradients of which each process keeps a piece (stages 2 and 3 of ZeRO).

A *unit* is the parameters that one module has itself. Of each, flattened, process r of R keeps the r-th of R pieces, its *shard*.

    forward of the module     bring: the shards of all processes, gathered; they go again behind it, from the tape too
    backward of the module    bring once more, where the gradient asks for the values
    under autocast            what parameters were cast to goes with them, and is cast again where it is asked for
    its gradients are there   add: each process adds its pieces of all processes' gradients, in the order of the micro-batches

While a unit is used, the one that came next the last time is brought already. Processes need not do the same at the same time, since a
branch, or a round without a micro-batch, may differ: before each exchange they say what they want, and do what comes first by one rule:
the first unit that anybody wants to bring, else the gradients that all want to add. So one that waits helps the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import DistributedError, TraceError, user_line
from tengen.compiler.plans import Layout
from tengen.distributed.data_parallel import DataParallel, Totals, nothing
from tengen.functional.distributed import as_row, fold, packed, pieces, tensor_over_row
from tengen.module import Module
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor, tracing
from tengen.tensor.absent import Absent, bring, forget, let_go
from tengen.tensor.casting import casting, casts
from tengen.tensor.elsewhere import local, part_of
from tengen.tensor.nodes import new_limit, walking
from tengen.tensor.structure import flatten
from tengen.transport.channel import Gathering, as_bytes
from tengen.transport.group import Group


def own_piece(n: int, group: Group) -> slice:
    """Where this process's piece of n elements lies."""
    sizes = pieces(n, group.size)
    start = sum(sizes[: group.rank])
    return slice(start, start + sizes[group.rank])


class Unit:
    """The parameters of one module.

    Attributes: number: which one, in the order of the modules. name: for messages. params, shards: the whole parameters, and this process's
        pieces of them. whole: what was brought, while it is here. coming: what is being brought. users: how many calls of modules that
        have begun use them. version: how often the values have changed. While the parameters are away, (number, version) stands in their casts
        (`Casting.made`) for the memory that was cast.
    """

    def __init__(self, number: int, name: str, params: list[Parameter], shards: list[Parameter], group: Group):
        self.number, self.name, self.params, self.shards, self.group = number, name, params, shards, group
        self.pieces = [pieces(local(p).size, group.size) for p in params]
        self.bytes = [sum(n[r] * p.dtype.size for n, p in zip(self.pieces, params)) for r in range(group.size)]
        self.whole: list[Tensor] | None = None
        self.coming: Gathering | None = None
        self.users = self.version = 0
        self._position = {id(p): i for i, p in enumerate(params)}
        self._casts: dict[tuple[int, DType], Tensor] = {}  # made again of what was brought, while it is here

    def start(self) -> None:
        """Begins to bring the parameters."""
        self.finished()
        mine = packed([as_bytes(as_row(s)) for s in self.shards])
        self.coming = self.group.channel.start_all_gather(mine, self.bytes, f"bring {self.name}")

    def finished(self) -> np.ndarray | None:
        """What was coming; None where nothing was."""
        coming, self.coming = self.coming, None
        return None if coming is None else self.group.channel.gathered(coming)

    def cut(self, row: np.ndarray, parts: list[list[int]]) -> list[np.ndarray]:
        """The bytes of arrays of the parameters' dtypes, which lie one after another, as arrays; parts: their sizes."""
        found, at = [], 0
        for sizes in parts:
            for n, p in zip(sizes, self.params):
                found.append(row[at : at + n * p.dtype.size].view(p.dtype.numpy))
                at += n * p.dtype.size
        return found

    def put(self) -> None:
        """Gives the parameters what has come."""
        row = self.finished()
        assert row is not None
        size, count = self.group.size, len(self.params)
        found = self.cut(row, [[n[r] for n in self.pieces] for r in range(size)])
        self.whole = [tensor_over_row(packed(found[i::count]), local(p).shape) for i, p in enumerate(self.params)]
        for p, t in zip(self.params, self.whole):
            bring(local(p), t)
        for (key, d), (data, node, made) in [*casting.made.items()]:
            if type(data) is tuple and data == (self.number, self.version) and key in self._position:  # of these values
                casting.made[key, d] = self.params[self._position[key]]._data, node, made

    def cast(self, index: int, d: DType) -> Tensor:
        """A parameter that is here in another dtype, not on the tape."""
        assert self.whole is not None
        if (index, d) not in self._casts:
            with casts(None, None, None):
                self._casts[index, d] = REGISTRY["astype"](self.whole[index], d)
        return self._casts[index, d]

    def take_changes(self) -> None:
        """A parameter that the program has given another value: the shard takes its piece of it."""
        for i, (p, s) in enumerate(zip(map(local, self.params), self.shards)):
            if type(p._layout) is not Absent and (self.whole is None or p._data is not self.whole[i]._data):
                s._reset(tensor_over_row(packed([as_row(p)[own_piece(p.size, self.group)]])))
                self.version += 1
                self.finished()

    def release(self, fetch: Callable[[Unit, int, int], Callable[[], Any]], outputs: Sequence[Tensor] = (), since: int = 0) -> None:
        """Lets the parameters go, also from the tape: from the calls since then that led to the outputs. fetch: gives what brings a
        parameter again."""
        self.take_changes()
        away = [fetch(self, i, self.version) for i in range(len(self.params))]
        brought = [] if self.whole is None else [t._data for t in self.whole]  # what the program has given a parameter stays on the tape
        fetches = {id(m): f for m, f in zip(brought, away)} | self._let_casts_go(away)
        for p, f in zip(map(local, self.params), away):
            if type(p._layout) is not Absent:
                p._layout = Layout(p.shape, p.dtype)  # of what comes back, where the program has given it a view
            let_go(p, f)
        self.whole = None
        forget(outputs, since, fetches)

    def _let_casts_go(self, away: list[Callable[[], Any]]) -> dict[int, Callable[[], Any]]:
        """Lets what autocast has made of the parameters that were brought go with them. Returns what casts them again, by the identity of the
        memory. A layer that is called once more uses the same cast: its place on the tape stays, where gradients are added."""

        def again(i: int, d: DType) -> Callable[[], Any]:
            def fetch() -> Any:
                away[i]()
                return self.cast(i, d)._data

            return fetch

        found = {id(t._data): again(i, d) for (i, d), t in self._casts.items()}
        for (key, d), (data, node, made) in [*casting.made.items()]:
            i = self._position.get(key)
            if i is None or self.whole is None or data is not self.params[i]._data or local(self.params[i])._data is not self.whole[i]._data:
                continue
            if type((m := local(made))._layout) is not Absent:
                found[id(m._data)] = again(i, d)
                let_go(m, again(i, d))
            casting.made[key, d] = (self.number, self.version), node, made
        self._casts = {}
        return found


class Sharing:
    """The units of a network, and what the processes do with them. stage: 2: gradients are shared out; 3: parameters too.

    Attributes: units: of the network. most: the most bytes of whole parameters that this process had at once, at stage 3.
    """

    def __init__(self, nets: Sequence[DataParallel], stage: int, shards: dict[int, Parameter]):
        self.group, self.stage = nets[0].group, stage
        self.units: list[Unit] = []
        self.unit_of: dict[int, Unit] = {}
        self.totals: SharedTotals | None = None
        self.most = 0
        self._next: dict[tuple[bool, int], int] = {}  # (backward?, unit) -> the unit that came behind it
        self._last: dict[bool, int] = {}
        self._calls: list[tuple[Module, list[Unit], int]] = []  # of modules, that have begun
        self._recent: list[Unit] = []  # brought in the backward walk
        modules = [(name, module) for net in nets for name, module in net.module.named_modules()]
        for name, module in modules:
            own = [p for p in module.parameters(recursive=False) if id(p) not in self.unit_of]
            if own:
                unit = Unit(len(self.units), name or type(module).__name__, own, [shards[id(p)] for p in own], self.group)
                self.units.append(unit)
                self.unit_of.update({id(p): unit for p in own})
        for p in (p for net in nets for p in net.module.parameters()):
            p.register_post_accumulate_grad_hook(self._arrived)
        if stage == 3:
            for _, module in modules:
                if any(True for _ in module.parameters(recursive=False)):
                    module.register_forward_pre_hook(self._before)
                    module.register_forward_hook(self._behind)
            self.release()

    # -- what the processes do together ------------------------------------------------------------------------------------
    def do(self, kind: str, number: int = 0) -> None:
        """Does one thing, and before that what other processes want that comes first. kind: "bring" or "add" a unit, "end" a round."""
        while True:
            name = f" ({self.units[number].name})" if kind != "end" else ""
            said = self.group.channel.propose(f"{kind} {number}{name}")
            wishes = [(k, int(n)) for k, n in (one.split(" ", 2)[:2] for one in said)]
            chosen = min([w for w in wishes if w[0] == "bring"] or wishes)
            if chosen[0] != "bring" and any(w != chosen for w in wishes):
                ranks = "; ".join(f"rank {r}: {what}" for r, what in zip(self.group.proc_ranks, said))
                raise DistributedError(f"shard(stage={self.stage}): the ranks disagree about what they do together. {ranks}")
            if chosen[0] == "bring":
                self.units[chosen[1]].start()
            elif chosen[0] == "add" and self.totals is not None:
                self.totals.exchange(self.units[chosen[1]])
            if chosen == (kind, number):
                return

    # -- stage 3: parameters -----------------------------------------------------------------------------------------------
    def need(self, unit: Unit) -> None:
        """The unit's parameters are here, and those that came behind them the last time are on their way."""
        if unit.whole is not None:
            return
        unit.take_changes()
        back = walking.node is not None
        if (last := self._last.get(back)) is not None:
            self._next[back, last] = unit.number
        self._last[back] = unit.number
        if back:
            self._recent = [*(u for u in self._recent if u is not unit), unit]
            while len(self._recent) > 1:
                self.go(self._recent.pop(0))
        if unit.coming is None:
            self.do("bring", unit.number)
        ahead = self._next.get((back, unit.number))
        if ahead is not None and self.units[ahead].coming is None and self.units[ahead].whole is None:
            self.do("bring", ahead)
        unit.put()
        self.most = max(self.most, sum(sum(u.bytes) for u in self.units if u.whole is not None or u.coming is not None))

    def _fetch(self, unit: Unit, index: int, version: int) -> Callable[[], Any]:
        def fetch() -> Any:
            if unit.version != version:
                raise DistributedError(
                    f"a parameter of {unit.name} is read as it was before a step, and is not kept; help: Tensor(p) and p.numpy() at that time"
                )
            self.need(unit)
            return local(unit.params[index])._data

        return fetch

    def _before(self, module: Module, inputs: tuple) -> None:
        if tracing.recorder is not None:
            raise TraceError(f"{user_line()}: shard(stage=3) brings parameters as they are used, and no trace does; help: stage=2")
        units = list({id(u): u for p in module.parameters(recursive=False) if (u := self.unit_of[id(p)])}.values())
        for u in units:
            self.need(u)
            u.users += 1
        self._calls.append((module, units, new_limit()))

    def _behind(self, module: Module, inputs: tuple, out: Any) -> None:
        while self._calls[-1][0] is not module:  # an error has ended calls inside
            for u in self._calls.pop()[1]:
                u.users -= 1
        _, units, since = self._calls.pop()
        results: list[Tensor] = []
        flatten(out, results)
        for u in units:
            u.users -= 1
            self.go(u, results, since)

    def go(self, unit: Unit, outputs: Sequence[Tensor] = (), since: int = 0) -> None:
        """A unit's parameters go, unless a call of a module uses them."""
        if self.stage == 3 and unit.users == 0 and unit.whole is not None:
            unit.release(self._fetch, outputs, since)

    def release(self) -> None:
        """All parameters go."""
        self._calls, self._recent, self._last = [], [], {}
        for u in self.units:
            u.users = 0
            u.finished()
            u.release(self._fetch)

    def forward_ended(self) -> None:
        """What comes behind this forward is no part of it, and not to be brought for it the next time."""
        self._last = {}

    def changed(self) -> None:
        """The shards have other values now."""
        for u in self.units:
            u.version += 1
        self.release()

    # -- gradients -----------------------------------------------------------------------------------------------------------
    def _arrived(self, p: Parameter) -> None:
        if tracing.recorder is None and self.totals is not None:
            self.totals.arrived(p)

    def kept(self) -> tuple[int, int]:
        """Bytes of parameters, and of gradients, that this process holds."""
        params = [p for u in self.units for p in u.params]
        held = [t for t in params if type(local(t)._layout) is not Absent]
        if self.stage == 3:
            held += [s for u in self.units for s in u.shards]
        grads = [t.grad for u in self.units for t in (*u.params, *u.shards) if t.grad is not None]
        return sum(local(t).size * t.dtype.size for t in held), sum(local(g).size * g.dtype.size for g in grads)


class SharedTotals(Totals):
    """The gradients of one step, of which each process keeps its pieces, parameter by parameter."""

    def __init__(self, parallel: DataParallel, sizes: list[int], sharing: Sharing):
        if any(p.grad is not None for p in parallel.module.parameters()):
            raise DistributedError(
                f"shard(stage={sharing.stage}): a parameter has a gradient that was computed outside of micro_batches, and that no other "
                "process knows; help: for ... in net.micro_batches(...) around every backward"
            )
        super().__init__(parallel, sizes)
        self.sharing = sharing
        self.sums: dict[int, np.ndarray] = {}  # by the id of a parameter
        self.position = {id(p): i for i, p in enumerate(self.parameters)}
        self.units = [u for u in sharing.units if id(u.params[0]) in self.position]
        self._in_round = False

    def begin(self, present: list[bool], n: int) -> None:
        """A round begins."""
        self.sharing.totals = self
        self.present, self.factor = present, self.weight(n)
        self.due = [u.number for u in self.units]  # the last unit's gradients come first
        self.missing = {u.number: len(u.params) for u in self.units}
        self._in_round = True

    def forward_ended(self) -> None:
        """Copies of a stage leave a forward together: one that went on alone could wait for a stage that waits for another copy."""
        if self.sharing.stage == 3:
            self.sharing.do("end")
            self.sharing.forward_ended()

    def arrived(self, p: Parameter) -> None:
        """A parameter's gradient is there; those of a unit are added as soon as they all are, and those of the units behind it."""
        if not self._in_round:
            return
        unit = self.sharing.unit_of[id(p)]
        if unit.number not in self.due or self.missing[unit.number] == 0:
            raise DistributedError(
                f"shard(stage={self.sharing.stage}): a second backward in one micro-batch, where gradients of {unit.name} are added already; "
                "help: one backward of the sum of the losses"
            )
        self.missing[unit.number] -= 1
        while self.due and not self.missing[self.due[-1]]:
            self.sharing.do("add", self.due[-1])

    def exchange(self, unit: Unit) -> None:
        """Adds this process's pieces of a unit's gradients."""
        self.due.remove(unit.number)
        size, rank = self.group.size, self.group.rank
        rows = []
        for p in unit.params:
            self.seen[self.position[id(p)]] |= p.grad is not None
            g = nothing_like(p) if p.grad is None else part_of(p.grad, p)
            rows.append(as_row(g * self.factor if self.factor != 1 else g))
            p.grad = None
        ends = [np.cumsum([0, *n]) for n in unit.pieces]
        send = packed([as_bytes(row[e[r] : e[r + 1]]) for r in range(size) for row, e in zip(rows, ends)])
        text = f"gradients of {unit.name}, {send.size} bytes"
        whole = self.group.channel.all_to_all(send, unit.bytes, [unit.bytes[rank]] * size, text)
        mine = [n[rank] for n in unit.pieces]
        found = unit.cut(whole, [mine] * size)
        for i, p in enumerate(unit.params):
            parts = [found[r * len(unit.params) + i] for r in range(size) if self.present[r]]
            total = self.sums.get(id(p))
            self.sums[id(p)] = fold("add", parts if total is None else [total, *parts])
        self.sharing.go(unit)

    def add(self, present: list[bool], n: int) -> None:
        """Ends a round: adds what has not been added, and helps those that are not so far."""
        while self.due:
            self.sharing.do("add", self.due[-1])
        self.sharing.do("end")
        self._end()

    def _end(self) -> None:
        self._in_round, self.sharing.totals = False, None
        if self.sharing.stage == 3:
            self.sharing.release()

    def give_up(self) -> None:
        """The shards have the gradients of before."""
        self._end()
        for p in self.parameters:
            p.grad = None

    def give(self) -> None:
        """Gives the shards their pieces of the batch's gradient."""
        self._join_flags()
        for i, p in enumerate(self.parameters):
            unit = self.sharing.unit_of[id(p)]
            s = next(s for q, s in zip(unit.params, unit.shards) if q is p)
            row = self.sums.pop(id(p), None)
            if row is not None and self.seen[i]:
                g = tensor_over_row(self.mean(row))
                s.grad = g if s.grad is None else s.grad + g


def nothing_like(p: Parameter) -> Tensor:
    """`nothing` of a parameter whose values may be away."""
    shape = local(p).shape
    return nothing(tensor_over_row(np.zeros(shape, p.dtype.numpy).reshape(-1), shape))
