"""Groups of nodes that are one operator here.

    MatMul(q, k^T) -> Mul or Div by a number -> Add a mask -> Softmax -> MatMul(., v)     becomes     ATTENTION
    x / sqrt(2) -> Erf -> Add 1 -> Mul by x -> Mul by 0.5                                 becomes     Gelu
    n -> Cast to float32 or float64 -> Range from a to it by b, with whole a and b        becomes     POSITIONS

Attention then stores no scores, and leaves out keys that a causal mask hides; and n may be an extent that is open. In: a graph as it was read,
whose nodes have as many operands and results as their operators take. Out: one with a node in place of each group, which holds the group's
nodes: `ops/` runs these where shapes or dtypes are others. A Mul or Div that makes q or k, as in PyTorch's exports, belongs to attention's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tengen.base.record import record
from tengen.interop.onnx.reader import GraphOf, NodeOf, bodies, reads

ATTENTION, POSITIONS = "tengen.Attention", "tengen.Positions"
EXACT = (1, 11)  # float32 and float64, which hold every position
MOST_STEPS = 5  # between the first product and Softmax, and between Softmax and the last product


@record(frozen=True)
class Scores:
    """What Softmax reads, by the names of values. nodes: from the first product on. factors: (Mul or Div, the number)."""

    nodes: tuple[NodeOf, ...]
    q: str
    k: str
    factors: tuple[tuple[str, str], ...] = ()
    masks: tuple[str, ...] = ()


def with_groups(graph: GraphOf) -> GraphOf:
    """The graph with a node for each group, in the bodies of If, Loop and Scan too. Arrays that nothing reads any more are left out."""
    index = Index(graph)
    found: dict[int, NodeOf] = {}  # by the id of the group's last node
    gone: set[int] = set()
    for n in graph.nodes:
        rule = RULES.get(n.what)
        if rule is not None and (made := rule(index, n)) is not None:
            one, group = made
            found[id(group[-1])] = one
            gone |= {id(m) for m in group[:-1]}
    nodes = tuple(found.get(id(n)) or _with_bodies(n) for n in graph.nodes if id(n) not in gone)
    read = {name for n in nodes for name in reads(n)} | index.ends
    arrays = {name: a for name, a in graph.arrays.items() if not found or name in read or name not in index.readers}
    return replace(graph, nodes=nodes, arrays=arrays)


def _with_bodies(n: NodeOf) -> NodeOf:
    def changed(v: Any) -> Any:
        if isinstance(v, list):
            return [changed(g) for g in v]
        return with_groups(v) if isinstance(v, GraphOf) else v

    return replace(n, attributes={k: changed(v) for k, v in n.attributes.items()}) if any(True for _ in bodies(n)) else n


class Index:
    """Who makes and who reads the values of a graph."""

    def __init__(self, graph: GraphOf):
        self.makers = {o: n for n in graph.nodes for o in n.outputs if o}
        self.readers: dict[str, list[NodeOf]] = {}
        for n in graph.nodes:
            for name in reads(n):
                self.readers.setdefault(name, []).append(n)
        self.ends = {p.name for p in graph.outputs}
        given = {p.name for p in graph.inputs}
        self.arrays = {name: a for name, a in graph.arrays.items() if name not in given}

    # -- attention -------------------------------------------------------------------------------------------------------
    def attention(self, softmax: NodeOf) -> tuple[NodeOf, Sequence[NodeOf]] | None:
        """(The node that stands for all around a Softmax, these); None where that is no attention."""
        scores = self.scores(softmax.inputs[0], MOST_STEPS)
        behind = None if scores is None else self.behind(softmax)
        if scores is None or behind is None:
            return None
        steps, guarded, product = behind
        scaled = [n for n in (self.makers.get(name) for name in (scores.q, scores.k)) if n and n.what in ("Mul", "Div") and self.reader(n)]
        nodes = (*scores.nodes, softmax, *steps, product)
        group = (*scaled, *nodes)
        made = {o for n in group for o in n.outputs}
        outside = dict.fromkeys(name for n in group for name in n.inputs if name and name not in made)
        roles = {"q": scores.q, "k": scores.k, "v": product.inputs[1], "factors": scores.factors, "masks": scores.masks, "scaled": scaled}
        more = {"softmax": softmax, "guarded": guarded, "causal": len(scores.masks) == 1 and self.causal(scores.masks[0])}
        domain, op = ATTENTION.split(".")
        return NodeOf(op, domain, product.name, tuple(outside), product.outputs, {"nodes": nodes, **roles, **more}), group

    def scores(self, name: str, left: int) -> Scores | None:
        """What a value is, if it is scores that nothing else reads."""
        n = self.makers.get(name)
        if n is None or left == 0 or len(self.readers.get(name, ())) != 1 or name in self.ends:
            return None
        if n.what == "MatMul":
            return Scores((n,), *n.inputs)
        if n.what == "Cast":
            found = self.scores(n.inputs[0], left - 1)
            return found and replace(found, nodes=(*found.nodes, n))
        if n.what not in ("Add", "Mul", "Div"):
            return None
        for scores, other in (n.inputs, n.inputs[::-1])[: 1 if n.what == "Div" else 2]:
            found = self.scores(scores, left - 1)
            if found is not None and n.what == "Add":
                return replace(found, nodes=(*found.nodes, n), masks=(*found.masks, other))
            if found is not None and not found.masks:
                return replace(found, nodes=(*found.nodes, n), factors=(*found.factors, (n.what, other)))
        return None

    def behind(self, softmax: NodeOf) -> tuple[list[NodeOf], bool, NodeOf] | None:
        """(Nodes between Softmax and the product with the values, whether they put 0 in place of NaN, that product)."""
        steps: list[NodeOf] = []
        name, guarded = softmax.outputs[0], False
        for _ in range(MOST_STEPS):
            readers = self.readers.get(name, [])
            if name in self.ends or not readers:
                return None
            n = readers[0]
            if len(readers) == 1 and n.what == "MatMul" and n.inputs[0] == name:
                return steps, guarded, n
            if len(readers) == 1 and n.what == "Cast":
                steps.append(n)
            elif (pair := self.guard(name, readers)) is not None:
                steps += pair
                guarded = True
            else:
                return None
            name = steps[-1].outputs[0]
        return None

    def guard(self, name: str, readers: Sequence[NodeOf]) -> list[NodeOf] | None:
        """IsNaN and Where that put 0 in place of the NaN of a query which sees no key, as PyTorch's exporter writes them."""
        by_op = {n.what: n for n in readers}
        if len(readers) != 2 or set(by_op) != {"IsNaN", "Where"}:
            return None
        told, where = by_op["IsNaN"], by_op["Where"]
        of_told = told.outputs[0]
        if where.inputs[0] != of_told or where.inputs[2] != name:
            return None
        if len(self.readers.get(of_told, ())) != 1 or of_told in self.ends or self.number(where.inputs[1]) != 0:
            return None
        return [told, where]

    def causal(self, mask: str) -> bool:
        """Whether a mask adds 0 where key s <= query t, and else -inf: an array, or what PyTorch's exporter makes of Trilu."""
        a = self.arrays.get(mask)
        if a is not None:
            return a.ndim == 2 and np.array_equal(a, np.where(np.tri(*a.shape) == 1, 0, -np.inf))
        where, hidden, ones = (self.makers.get(mask), *[None] * 2)
        if where is not None and where.what == "Where" and [self.number(i) for i in where.inputs[1:]] == [-math.inf, 0]:
            hidden = self.makers.get(where.inputs[0])
        if hidden is not None and hidden.what == "Equal" and self.number(hidden.inputs[1]) == 0:
            ones = self.makers.get(hidden.inputs[0])
        if ones is None or ones.what != "Trilu" or len(ones.inputs) != 1 or ones.get("upper", 1):
            return False
        expand = self.makers.get(ones.inputs[0])
        return expand is not None and expand.what == "Expand" and self.number(expand.inputs[0]) == 1

    # -- GELU ------------------------------------------------------------------------------------------------------------
    def gelu(self, erf: NodeOf) -> tuple[NodeOf, Sequence[NodeOf]] | None:
        """(Gelu, the nodes around an Erf that are it); None where they are not."""
        scaled, plus = self.makers.get(erf.inputs[0]), self.reader(erf)
        if scaled is None or self.reader(scaled) is not erf or plus is None or plus.what != "Add" or self.other(plus, erf, 1.0) is None:
            return None
        x = None
        if scaled.what == "Div" and self.near(scaled.inputs[1], math.sqrt(2)):
            x = scaled.inputs[0]
        elif scaled.what == "Mul":
            x = next((i for i, j in zip(scaled.inputs, scaled.inputs[::-1]) if self.near(j, math.sqrt(0.5))), None)
        product = self.reader(plus)
        if not x or product is None or product.what != "Mul":
            return None
        rest = product.inputs[product.inputs[0] == plus.outputs[0]]
        halved = self.makers.get(rest)
        if rest == x:  # x (1 + erf) 0.5
            last = self.reader(product)
            if last is None or last.what != "Mul" or self.other(last, product, 0.5) is None:
                return None
            group = [scaled, erf, plus, product, last]
        elif halved is not None and halved.what == "Mul" and self.reader(halved) is product and self.half_of(halved, x):  # (x 0.5) (1 + erf)
            group = [halved, scaled, erf, plus, product]
        else:
            return None
        return NodeOf("Gelu", "", group[-1].name, (x,), group[-1].outputs, {"approximate": "none"}, 20), group

    def half_of(self, n: NodeOf, x: str) -> bool:
        """Whether a product is that of x and 0.5."""
        return any(i == x and self.number(j) == 0.5 for i, j in zip(n.inputs, n.inputs[::-1]))

    # -- positions -------------------------------------------------------------------------------------------------------
    def positions(self, n: NodeOf) -> tuple[NodeOf, Sequence[NodeOf]] | None:
        """(The positions up to an integer, the Cast of it and their Range), as exporters of YOLO write the places of pixels; or None."""
        cast, ends = self.makers.get(n.inputs[1]), [self.number(n.inputs[i]) for i in (0, 2)]
        if cast is None or cast.what != "Cast" or cast["to"] not in EXACT or not all(e is not None and e.is_integer() for e in ends):
            return None
        domain, op = POSITIONS.split(".")
        inputs = (n.inputs[0], cast.inputs[0], n.inputs[2])
        made = NodeOf(op, domain, n.name, inputs, n.outputs, {"nodes": (cast, n), "ends": [int(e) for e in ends]})
        return made, [cast, n] if self.reader(cast) is n else [n]

    # -- values ----------------------------------------------------------------------------------------------------------
    def reader(self, n: NodeOf) -> NodeOf | None:
        """The only node that reads the only output of a node."""
        found = self.readers.get(n.outputs[0], []) if len(n.outputs) == 1 and n.outputs[0] not in self.ends else []
        return found[0] if len(found) == 1 else None

    def other(self, n: NodeOf, of: NodeOf, number: float) -> str | None:
        """The name of the other operand of a node that reads an output, if it is this number."""
        rest = [i for i in n.inputs if i != of.outputs[0]]
        return rest[0] if len(rest) == 1 and self.number(rest[0]) == number else None

    def near(self, name: str, number: float) -> bool:
        """Whether a name stands for a number as float32 has it."""
        found = self.number(name)
        return found is not None and math.isclose(found, number, rel_tol=2e-7)

    def number(self, name: str) -> float | None:
        """The number that a name stands for, if that is known."""
        maker = self.makers.get(name)
        a = self.arrays.get(name) if maker is None else maker.get("value", maker.get("value_float")) if maker.what == "Constant" else None
        return float(np.asarray(a).reshape(-1)[0]) if isinstance(a, (np.ndarray, float)) and np.size(a) == 1 else None


RULES: dict[str, Callable[[Index, NodeOf], tuple[NodeOf, Sequence[NodeOf]] | None]] = {
    "Softmax": Index.attention, "Erf": Index.gelu, "Range": Index.positions,
}  # fmt: skip
