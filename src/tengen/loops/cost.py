"""What a run of a kernel costs, computed from its loops: floating-point operations, and bytes moved to and from memory.

In: a `Kernel` and numbers for its integer parameters. Out: a `Cost`. Loops are analysed, not run. If no bound, condition or
count in a loop depends on its variable, the loop multiplies the cost of its body. Otherwise all its iterations are evaluated at
once, as arrays, and iterations in which all bounds, conditions and counts are equal are counted once. So the count is exact,
edges of tiles included, unless the control flow depends on data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tengen.base.record import record
from tengen.loops.calls import expand
from tengen.loops.interp import evaluate
from tengen.loops.lang import LANES, Expr, const
from tengen.loops.ranges import ANY, Range, of_operation
from tengen.loops.rewriting import map_expr
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Store

_FLOPS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "fma": 2, "min": 1, "max": 1, "neg": 1, "abs": 1, "sqrt": 1}
_FLOPS |= {"dot2": 4, "dot2i": 4, "dot4i": 8, "dot4n": 8, "dot4u": 8, "dot4s": 8, "dot2h": 8, "quad4i": 16, "quad4u": 16}
_FLOPS |= dict.fromkeys(("floor", "ceil", "trunc", "rint"), 1)
MOST_ITERATIONS = 1 << 18  # iterations that are evaluated at once; of more, a regular sample


@record(frozen=True)
class Cost:
    """What one run of a kernel does.

    Attributes:
        flops: operations on floats. A fused multiply-add counts as two, a comparison as none; lanes of a vector that are not
            stored count too.
        bytes: how many are read and written at least, if each element of each buffer is moved once; scratch memory not at all.
        exact: false if control flow depends on data (then the longer branch is counted, and a loop once), or if there were too
            many iterations to evaluate all.
    """

    flops: int
    bytes: int
    exact: bool = True


def cost(kernel: Kernel, ints: Mapping[str, int] | Sequence[int] = ()) -> Cost:
    """The cost of all pieces of a kernel for these integer parameters, by name or in order."""
    names = [str(v.attr) for v in kernel.ints]
    values = ints if isinstance(ints, Mapping) else dict(zip(names, ints, strict=True))
    env = {v: np.array([values[str(v.attr)]]) for v in kernel.ints}
    pieces = int(np.ravel(evaluate(kernel.pieces, env))[0])
    if pieces <= 0:
        return Cost(0, 0)
    w = _Walk(kernel)
    w.ranges.update({v: (int(x[0]), int(x[0])) for v, x in env.items()})
    pieces_loop = For(kernel.piece, const(0), kernel.pieces, 1, kernel.body)
    w.loop(pieces_loop, np.zeros(1, np.int64), np.array([pieces]), env, np.ones(1), set())
    moved = sum(min(w.moved[b], w.span(b)) for b in w.moved)
    return Cost(round(w.flops), round(moved), w.exact)


class _Walk:
    """Adds up the costs of one kernel. An environment has the values of the variables that control flow depends on, as arrays
    of one length, with an element for each iteration; a weight is how many equal iterations such an element stands for."""

    def __init__(self, kernel: Kernel):
        self.flops = 0.0
        self.exact = True
        self.buffers = set(kernel.buffers)
        self.moved: dict[Buffer, float] = {}  # bytes loaded and stored, each time that they are
        self.reach: dict[Buffer, Range] = {}  # the least and the greatest index that is loaded or stored
        self.ranges: dict[Expr, Range] = {}
        self._free: dict[Expr, frozenset[Expr]] = {}
        self._live: dict[int, list[frozenset[Expr]]] = {}  # by the identity of a block
        self._changing: set[Expr] = set()
        self._calls: dict[Expr, Expr] = {}
        self._note_changing(kernel.body)

    def _note_changing(self, body: list) -> None:
        for s in body:
            if isinstance(s, Declare):
                self._changing.add(s.var)
            for inner in _inside(s):
                self._note_changing(inner)

    # -- what decides
    def free(self, e: Expr) -> frozenset[Expr]:
        """The variables of an expression."""
        return map_expr(e, lambda x, args: frozenset([x]) if x.op == "var" else frozenset().union(*args), self._free)

    def needs(self, body: list) -> frozenset[Expr]:
        """The variables from outside on which bounds, conditions and counts in a block depend."""
        return self.live(body)[0]

    def live(self, body: list) -> list[frozenset[Expr]]:
        """What `needs` gives for the rest of a block, from each of its statements on."""
        if id(body) in self._live:
            return self._live[id(body)]
        found: frozenset[Expr] = frozenset()
        lives = [found]
        for s in reversed(body):
            match s:
                case Let() | Declare() if s.var in found:
                    found = (found - {s.var}) | self.free(s.value)
                case Load() | Store():
                    found |= frozenset() if s.count is None else self.free(s.count)
                case For():
                    found |= (self.needs(s.body) - {s.var}) | self.free(s.start) | self.free(s.stop)
                case If():
                    found |= self.needs(s.body) | self.needs(s.orelse) | self.free(s.cond)
            lives.append(found)
        lives.reverse()
        self._live[id(body)] = lives
        return lives

    # -- walking
    def loop(self, s: For, start: np.ndarray, stop: np.ndarray, env: dict, weight: np.ndarray, seen: set[Expr]) -> None:
        """All iterations of a loop, for every environment."""
        v, step, body = s.var, s.step, s.body
        trips = np.maximum(0, -(-(stop - start) // step))
        alive = trips > 0
        if not alive.any():
            return
        needs = self.needs(body)
        outer = [k for k in env if k in needs and k is not v]
        (start, trips, *values), weight = _merge([x[alive] for x in (start, trips, *(env[k] for k in outer))], weight[alive])
        env = dict(zip(outer, values))
        low, high = float(start.min()), float((start + (trips - 1) * step).max())
        before = self.ranges.get(v)
        self.ranges[v] = (low, high) if before is None else (min(low, before[0]), max(high, before[1]))
        if v not in needs:
            return self.block(body, env, weight * trips, seen)
        total = int(trips.sum())
        at = np.arange(total)
        scale = 1.0
        if total > MOST_ITERATIONS:
            at = np.unique(np.linspace(0, total - 1, MOST_ITERATIONS).astype(np.int64))
            scale, self.exact = total / len(at), False
        ends = np.cumsum(trips)
        which = np.searchsorted(ends, at, side="right")
        inner = {k: x[which] for k, x in env.items()}
        inner[v] = start[which] + (at - (ends - trips)[which]) * step
        self.block(body, inner, weight[which] * scale, seen)

    def block(self, body: list, env: dict, weight: np.ndarray, counted: set[Expr]) -> None:
        """The statements of a block; what was `counted` around it is not computed again."""
        total, seen = float(weight.sum()), set(counted)
        for s, live in zip(body, self.live(body)[1:]):
            match s:
                case Let() | Declare() | Assign():
                    self.arithmetic(s.value, total, seen)
                    self.ranges[s.var] = self.range(s.value) if s.var not in self._changing else ANY
                    if s.var in live and s.var not in self._changing:  # else its value depends on data
                        value = self.value(s.value, env, len(weight))
                        env |= {} if value is None else {s.var: value}
                case Load():
                    self.memory(s, s.var.lanes * s.group, env, weight)
                    self.ranges[s.var] = ANY
                case Store():
                    self.arithmetic(s.value, total, seen)
                    self.memory(s, max(s.value.lanes, s.index.lanes), env, weight)
                case External():  # nobody knows what it costs
                    self.exact = False
                    self.ranges[s.var] = ANY
                case For() if self.costless(s.body):
                    pass
                case For():
                    start, stop = self.value(s.start, env, len(weight)), self.value(s.stop, env, len(weight))
                    if start is None or stop is None:  # they depend on data: one iteration is counted
                        self.exact = False
                        self.ranges[s.var] = ANY
                        self.block(s.body, dict(env), weight, seen)
                    else:
                        self.loop(s, start, stop, env, weight, seen)
                case If():
                    self.branch(s, env, weight, seen)

    def costless(self, body: list) -> bool:
        """Whether a block neither touches memory nor computes with floats, as one that prefetches: how often it runs need not be known."""
        for s in body:
            if isinstance(s, (Load, Store, External)) or any(not self.costless(inner) for inner in _inside(s)):
                return False
            if isinstance(s, (Let, Declare, Assign)) and map_expr(s.value, lambda x, args: x.dtype.is_float or any(args), {}):
                return False
        return True

    def branch(self, s: If, env: dict, weight: np.ndarray, seen: set[Expr]) -> None:
        """Both ways of a condition, each with the iterations that take it."""
        cond = self.value(s.cond, env, len(weight))
        if cond is None:
            self.exact = False
            return self.block(s.body if len(s.body) >= len(s.orelse) else s.orelse, dict(env), weight, seen)
        for body, taken in ((s.body, cond.astype(bool)), (s.orelse, ~cond.astype(bool))):
            if body and taken.any():
                self.block(body, {k: x[taken] for k, x in env.items()}, weight[taken], seen)

    def value(self, e: Expr, env: dict, n: int) -> np.ndarray | None:
        """The values of an expression in the environments; None if it depends on data."""
        free = self.free(e)
        if not free <= env.keys():
            return None
        return np.broadcast_to(evaluate(e, {v: env[v] for v in free}), (n,))

    # -- counting
    def arithmetic(self, e: Expr, times: float, seen: set[Expr]) -> None:
        """Counts what an expression computes that was not computed before in this block."""
        here: set[Expr] = set()
        stack = [expand(e, self._calls)]
        while stack:
            x = stack.pop()
            if x in seen or x in here:
                continue
            (here if self.free(x) & self._changing else seen).add(x)
            if x.dtype.is_float:
                self.flops += _FLOPS.get(x.op, LANES - 1 if x.op == "fold" else 0) * x.lanes * times
            stack.extend(x.args)

    def memory(self, s: Load | Store, lanes: int, env: dict, weight: np.ndarray) -> None:
        """Counts the elements that a load or store touches."""
        if s.buffer not in self.buffers:
            return
        each: np.ndarray | float = float(lanes)
        if s.count is not None and lanes > 1:
            count = self.value(s.count, env, len(weight))
            self.exact = self.exact and count is not None
            each = float(LANES) if count is None else np.clip(count, 0, LANES)
        self.moved[s.buffer] = self.moved.get(s.buffer, 0.0) + float((weight * each).sum()) * s.buffer.dtype.size
        low, high = self.range(s.index)
        if lanes > 1 and s.index.lanes == 1:
            high += float(np.max(each)) - 1
        before = self.reach.get(s.buffer, (low, high))
        self.reach[s.buffer] = min(low, before[0]), max(high, before[1])

    def span(self, b: Buffer) -> float:
        """Bytes between the first and the last element touched."""
        low, high = self.reach[b]
        return (high - low + 1) * b.dtype.size

    def range(self, e: Expr) -> Range:
        """Bounds of an index."""
        return map_expr(e, self._range, {})

    def _range(self, e: Expr, args: tuple[Range, ...]) -> Range:
        return self.ranges.get(e, ANY) if e.op == "var" else of_operation(e, args)


def _merge(columns: list[np.ndarray], weight: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Equal rows as one, their weights added."""
    if len(weight) < 64:
        return columns, weight
    key, size = np.zeros(len(weight), np.int64), 1
    for x in columns:
        low, width = int(x.min()), int(x.max()) - int(x.min()) + 1
        if size * width >= 1 << 62:
            return columns, weight
        key, size = key * width + (x - low), size * width
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return [x[first] for x in columns], np.bincount(group, weight)


def _inside(s) -> list[list]:
    match s:
        case For(): return [s.body]  # fmt: skip
        case If(): return [s.body, s.orelse]  # fmt: skip
    return []
