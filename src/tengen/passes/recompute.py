"""Recompute: values that a later node needs are not kept until then, but computed once more, so that a program needs less memory.

In: units (`units.py`) and a limit in bytes. Out: the order in which they run, some of them several times, such that what is alive at the
same time stays below the limit. Bits stay the same: what is computed again is computed of the same values in the same way.

Where a store of files is given, a value may be written there, too, in place of being computed again, where that costs less.

The plan is found by running the units in thought, as dynamic tensor rematerialisation does (Kirisame et al., arXiv 2006.09616), but with
the future known: where memory is short, the value goes for which cost / (bytes * time to its next use) is least. The cost of a value
is that of computing it again, with all its neighbours that are not there either: so what is kept spreads over a chain of layers, which
then trains in much less memory. Where a plan may only keep what lies between segments of the program (`segments`), memory grows with
the square root of their number (Chen et al., arXiv 1604.06174).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tengen.passes.units import DISK_FLOPS, ONCE, PAGE_FLOPS, SMALL_BYTES, Run, Units

NEVER = 1 << 60  # the position of a use that does not come
MOST_ANCESTOR_NODES = 64  # values without a later use that are computed again for one
MOST_RECOMPUTED_COST = 8  # times the cost of all units: a plan that computes more than that again is none


class Short(Exception):
    """There is no plan within the limit."""


def plan(u: Units, order: Sequence[int], limit: int, keep: Collection[int] = (), far: float = 1.0) -> list[Run]:
    """The runs of all units in this order, with what is computed again between them, within a limit in bytes.

    Args:
        keep: values that go only when nothing else can. far: the power of the time to its next use by which a value is sooner let go:
            1 for a chain of layers, each of which is as good to compute again; 0 where layers differ, and the best of each should go.

    Errors: Short where a unit's operands and results do not fit, or too much would have to be computed again.
    """
    return _Plan(u, order, limit, keep, far).made()


def segments(u: Units, order: Sequence[int], count: int) -> set[int]:
    """The values that lie between segments of a program, from which all that is in them can be computed: those that cross one of
    `count` cuts on the way to where most memory is needed. Cuts are spread evenly over the bytes that are held there, and moved
    to where the fewest cross."""
    made, last = {}, {}
    for at, i in enumerate(order):
        made.update((v, at) for v in u.outs[i])
        last.update((v, at) for v in u.ins[i])
    change = np.zeros(len(order) + 1, np.int64)
    for v, at in last.items():
        change[made[v]] += u.size[v]
        change[at] -= u.size[v]
    top = int(np.cumsum(change).argmax())
    place = {i: at for at, i in enumerate(order)}
    held, crossing = np.zeros(top + 1, np.int64), np.zeros(top + 2, np.int64)
    ahead: list[tuple[int, int, int]] = []  # when a value is made, when it is read last before the top, the value
    for v, at in made.items():
        if at > top or v not in last:
            continue
        if last[v] > top:
            held[at] += u.size[v]
        until = max((x for i in u.readers[v] if (x := place[i]) <= top), default=at)
        crossing[at] += u.size[v]
        crossing[until] -= u.size[v]
        ahead.append((at, until, v))
    so_far, width = np.cumsum(held), np.cumsum(crossing)
    kept: set[int] = set()
    for k in range(1, count + 1):
        low, high = (int(np.searchsorted(so_far, so_far[-1] * (k + d) / (count + 1))) for d in (-0.4, 0.4))
        cut = low + int(width[low : max(high, low + 1)].argmin())
        kept.update(v for at, until, v in ahead if at <= cut < until and u.size[v] > SMALL_BYTES)
    return kept


class _Plan:
    """Units that are run in thought.

    Attributes:
        bytes: of each value, 0 for what stays. there: whether a value is in memory. kept: whether it goes only when nothing else can.
            next: the position of its next use, NEVER if there is none. used: bytes. locks: for each value how many runs that are
            under way need it. far: as `plan` has it. again: what computing it again would cost, when that was counted last. group: the group of
            neighbours that a value belongs to that was dropped though it will be used; -1 for others. group_cost: of each.
            on_disk: whether a value was written to a file.
            gone: states that have been overwritten. left: what may still be computed again. runs: so far.
    """

    def __init__(self, u: Units, order: Sequence[int], limit: int, keep: Collection[int], far: float):
        n, self.far = len(u.values), far
        self.kept = np.zeros(n, bool)
        self.kept[list(keep)] = True
        self.u, self.order, self.limit = u, order, limit
        self.bytes = [n if n > SMALL_BYTES else 0 for n in u.size]
        self.size = np.array(self.bytes, np.int64)
        self.there = np.zeros(n, bool)
        self.on_disk = np.zeros(n, bool)
        self.locks = np.zeros(n, np.int32)
        self.next = np.full(n, NEVER, np.int64)
        self.again = np.zeros(n)
        self.fixed = np.array(u.held, bool) | (self.size == 0)
        self.used = 0
        self.group = [-1] * n
        self.group_cost: list[float] = []
        self.parent: list[int] = []
        self.gone: set = {ONCE}  # states that have been overwritten
        self.runs: list[Run] = []
        self.uses: list[list[int]] = [[] for _ in range(n)]  # later ones, the next one last
        for at in reversed(range(len(order))):
            for v in u.ins[order[at]]:
                self.uses[v].append(at)
        self.left = MOST_RECOMPUTED_COST * sum(u.cost)

    def made(self) -> list[Run]:
        u = self.u
        for now, unit in enumerate(self.order):
            ins = u.ins[unit]
            for v in sorted(ins):
                self._bring(v, now)
                self.locks[v] += 1
            self._run(unit, u.outs[unit], now, self._given_up(unit, now))
            self.gone |= u.overwritten[unit]
            for v in ins:
                self.locks[v] -= 1
                while self.uses[v] and self.uses[v][-1] <= now:
                    self.uses[v].pop()
                self.next[v] = self.uses[v][-1] if self.uses[v] else NEVER
            for v in (*ins, *u.outs[unit]):
                self._drop_if_dead(v)
        return self.runs

    # -- running ---------------------------------------------------------------------------------------------------------
    def _read(self, v: int, now: int) -> None:
        """Reads a value from the file that it was written to."""
        self._make_room(self.bytes[v], now)
        self.runs.append(Run(self.u.page(v)[1], (v,)))
        self.there[v] = True
        self.used += self.bytes[v]
        self.again[v] = self._page_cost(v)

    def _page_cost(self, v: int) -> float:
        """What it costs to have a value in a file and read it again."""
        if v not in self.u.order:
            return np.inf
        return float((PAGE_FLOPS + DISK_FLOPS * self.u.size[v]) * (1 if self.on_disk[v] else 2))

    def _given_up(self, unit: int, now: int) -> int:
        """Bytes of an operand over which a unit computes its result, as nobody reads it later."""
        x = self.u.over.get(unit)
        return 0 if x is None or self.u.held[x] or self.uses[x] != [now] else self.bytes[x]

    def _run(self, unit: int, wanted: Sequence[int], now: int, over: int = 0) -> None:
        """Runs a unit. over: bytes of its results that lie over an operand."""
        u = self.u
        self._make_room(sum(self.bytes[v] for v in wanted) + u.work[unit] - over, now)
        self.runs.append(Run(unit, tuple(wanted)))
        for v in wanted:
            self.there[v] = True
            self.used += self.bytes[v]
            self.next[v] = self.uses[v][-1] if self.uses[v] else NEVER
            if self.group[v] >= 0:
                root = self._root(self.group[v])
                self.group_cost[root] = max(0.0, self.group_cost[root] - u.cost[u.maker[v]])
                self.group[v] = -1
            self.again[v] = u.cost[u.maker[v]]

    def _bring(self, wanted: int, now: int) -> None:
        """Computes a value that is not there, and first what that needs."""
        u = self.u
        frames: list[tuple[int, list[int], list[int]]] = []  # a value, its operands that are still to be brought, those that are locked

        def need(v: int) -> None:
            if self.on_disk[v]:
                self._read(v, now)
            else:
                frames.append((v, sorted(u.needs[v][0], reverse=True), []))

        if not self.there[wanted]:
            need(wanted)
        while frames:
            v, left, locked = frames[-1]
            if left:
                x = left[-1]
                if not self.there[x]:
                    need(x)
                    continue
                left.pop()
                self.locks[x] += 1
                locked.append(x)
                continue
            frames.pop()
            unit = u.maker[v]
            self.left -= u.cost[unit]
            if self.left < 0:
                raise Short
            self._run(unit, (v,), now)
            for x in locked:
                self.locks[x] -= 1
            self.locks[v] += 1
            for x in locked:
                self._drop_if_dead(x)
            self.locks[v] -= 1

    def _drop_if_dead(self, v: int) -> None:
        if self.there[v] and self.next[v] == NEVER and not self.locks[v] and not self.u.held[v] and self.bytes[v]:
            self.there[v] = False
            self.used -= self.bytes[v]

    # -- room ------------------------------------------------------------------------------------------------------------
    def _make_room(self, bytes: int, now: int) -> None:
        while self.used + bytes > self.limit:
            v = self._victim(now)
            if v is None:
                raise Short
            if not self.on_disk[v] and (cost := self._page_cost(v)) < np.inf and cost < self._computed_again(v):
                unit = self.u.page(v)[0]
                self.runs.append(Run(unit, self.u.outs[unit]))
                self.on_disk[v] = True
            self.there[v] = False
            self.used -= self.bytes[v]
            if not self.on_disk[v]:
                self._group(v)

    def _victim(self, now: int) -> int | None:
        """The value whose place is had at the least cost."""
        some = np.flatnonzero(self.there & (self.locks == 0) & ~self.fixed & (self.next < NEVER))
        if len(others := some[~self.kept[some]]):
            some = others
        if not len(some):
            return None
        worth = self.size[some] * (self.next[some] - now + 1.0) ** self.far
        score = self.again[some] / worth
        for _ in range(16):  # costs were counted at other times: those of the best are counted now
            i = int(score.argmin())
            if score[i] == np.inf:
                return None
            v = int(some[i])
            known, self.again[v] = self.again[v], self._cost_again(v)
            if self.again[v] <= known * 1.01:
                break
            score[i] = self.again[v] / worth[i]
        return None if self.again[v] == np.inf else v

    def _cost_again(self, v: int) -> float:
        """What it costs to have a value again."""
        return min(self._page_cost(v), np.inf if self.on_disk[v] else self._computed_again(v))

    def _computed_again(self, v: int) -> float:
        """What it costs to compute a value, with its neighbours that are not there."""
        total, roots, _ = self._around(v)
        return total + sum(self.group_cost[r] for r in roots)

    def _around(self, v: int) -> tuple[float, set[int], set[int]]:
        """(the cost of a value and of those it is computed of that have no later use, the groups beside them, those values)."""
        u, roots, total = self.u, set(), 0.0
        seen, stack = {v}, [v]
        while stack:
            x = stack.pop()
            needs, states = u.needs[x]
            total += u.cost[u.maker[x]]
            if len(seen) > MOST_ANCESTOR_NODES or not self.gone.isdisjoint(states):
                return np.inf, set(), set()
            for y in needs:
                if self.there[y] or y in seen:
                    continue
                if self.on_disk[y]:
                    total += self._page_cost(y)
                    continue
                if self.group[y] >= 0:
                    roots.add(self._root(self.group[y]))
                else:
                    seen.add(y)
                    stack.append(y)
        for i in u.readers[v]:
            roots.update(self._root(self.group[y]) for y in u.outs[i] if self.group[y] >= 0)
        return total, roots, seen

    def _group(self, v: int) -> None:
        """Joins a value that was dropped with its neighbours that were."""
        total, roots, members = self._around(v)
        new = len(self.parent)
        self.parent.append(new)
        self.group_cost.append(total + sum(self.group_cost[r] for r in roots))
        for r in roots:
            self.parent[r] = new
        for x in members:
            self.group[x] = new

    def _root(self, g: int) -> int:
        while self.parent[g] != g:
            self.parent[g] = self.parent[self.parent[g]]
            g = self.parent[g]
        return g
