"""Graphs as pictures: SVG drawn in layers, and Graphviz's language for other layouts.

In: a graph. Out: text. A node stands below all that it reads (the layers of Sugiyama, Tagawa and Toda 1981: longest paths, crossings
reduced by medians); values that lie between layers pass through points of their own. Constants and states, and what is made of
constants alone (weights of a batch norm), are lines of the nodes that read them.
"""

from __future__ import annotations

from html import escape
from typing import Any

from tengen.base.dtype import DType
from tengen.ir.graph import Graph, Node, Value, attr_graphs
from tengen.ir.text import labels
from tengen.loops.lang import Expr

MOST_NODES = 400  # that a notebook draws; more are shown as text
CHAR, LINE, PAD = 6.7, 15, 7  # of the font: width of a character, height of a line, room in a box, in pixels
ACROSS, DOWN = 26, 34  # between boxes
SWEEPS = 12
STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222}.op{font-weight:bold}.type{fill:#1a5fb4}.more{fill:#777}"
    "rect{fill:#f6f5f4;stroke:#9a9996;rx:4}.in rect{fill:#dcecfb;stroke:#62a0ea}.out rect{fill:#dff3e0;stroke:#57b36a}"
    "path{fill:none;stroke:#5e5c64}.title{font-weight:bold;font-size:13px}"
)


class _Box:
    """What is drawn at a place of a layer. kind: "in", "out", "op", or "" for a point that an edge passes through."""

    def __init__(self, kind: str, lines: list[tuple[str, str]], about: str = ""):
        self.kind, self.lines, self.about = kind, lines, about
        self.width = max((len(t) for _, t in lines), default=0) * CHAR + 2 * PAD if kind else 6
        self.height = len(lines) * LINE + PAD if kind else 0
        self.above: list[_Box] = []
        self.below: list[_Box] = []
        self.layer = self.place = 0
        self.x = self.y = 0.0


def _plain(a: Any) -> str:
    if isinstance(a, tuple):
        return f"({', '.join(map(_plain, a))})"
    if isinstance(a, (DType, Expr)):
        return str(a)
    return f"{a:g}" if isinstance(a, float) else str(a)


def _short(text: str, most: int = 38) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _held(g: Graph) -> dict[Value, str]:
    """What is not drawn as a box, with its name: constants, states, and what is made of them alone, unless a result is."""
    held = {c.value: c.name for c in g.constants.values()} | {s.read: s.name for s in g.states.values()}
    known = dict(held)
    for n in g.nodes:
        if n.inputs and all(v is None or v in known for v in n.inputs) and not attr_graphs(n.attrs):
            of = dict.fromkeys(word for v in n.inputs if v is not None for word in known[v].removeprefix("of ").split(", "))
            known.update((v, f"of {', '.join(of)}") for v in n.outputs)
    return held if any(v in known for v in g.results()) else known


def _lines(n: Node, names: dict[Value, str], held: dict[Value, str]) -> list[tuple[str, str]]:
    """What is written of a node: its op, what it reads that is no box, its attributes, its results."""
    lines = [("op", n.op)]
    lines += [("more", f"{_short(held[v], 30)}: {v.type}") for v in n.inputs if v in held]
    said = [f"{k}={_plain(a)}" for k, a in n.attrs.items() if a is not None and not attr_graphs({k: a})]
    row = ""
    for word in said:  # few attributes to a line
        if row and len(row) + len(word) > 34:
            lines.append(("more", _short(row)))
            row = ""
        row = f"{row} {word}".strip()
    lines += [("more", _short(row))] if row else []
    lines += [("more", f"with graph {inner.name}") for inner in attr_graphs(n.attrs)]
    return lines + [("type", f"{names[v]}: {v.type}") for v in n.outputs]


def _boxes(g: Graph) -> list[_Box]:
    """The boxes of a graph, connected, with their layers, every edge from one layer to the next."""
    names = labels(g)
    held = _held(g)
    made: dict[Value, _Box] = {v: _Box("in", [("op", v.name), ("type", str(v.type))]) for v in g.inputs}
    found = list(made.values())
    edges: list[tuple[_Box, _Box]] = []
    for n in g.nodes:
        if n.outputs and all(v in held for v in n.outputs):
            continue
        box = _Box("op", _lines(n, names, held), n.where or "")
        edges += [(made[v], box) for v in dict.fromkeys(n.inputs) if v in made]
        made.update(dict.fromkeys(n.outputs, box))
        found.append(box)
    written = [(f"state {s.name} becomes", s.written) for s in g.states.values() if s.written is not None]
    for name, v in [*zip(g.output_names, g.outputs), *written]:
        box = _Box("out", [("op", name), ("type", str(v.type))])
        edges += [(made[v], box)] if v in made else []
        found.append(box)
    for a, b in edges:  # in the order of the nodes: what a reads has its layer
        b.layer = max(b.layer, a.layer + 1)
    for a in (b for b in found if b.kind == "in"):  # inputs stand just above their first reader
        below = [b.layer for x, b in edges if x is a]
        a.layer = max(0, min(below) - 1) if below else 0
    for a, b in edges:
        for layer in range(a.layer + 1, b.layer):
            point = _Box("", [])
            point.layer = layer
            found.append(point)
            a.below.append(point)
            point.above.append(a)
            a = point
        a.below.append(b)
        b.above.append(a)
    return found


def _placed(g: Graph) -> tuple[list[_Box], float, float]:
    """The boxes at their places, and the width and height of the whole."""
    found = _boxes(g)
    layers: list[list[_Box]] = [[] for _ in range(max((b.layer for b in found), default=-1) + 1)]
    for b in found:
        layers[b.layer].append(b)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            for i, b in enumerate(layer):
                b.place = i
            beside = [b.above if sweep % 2 == 0 else b.below for b in layer]
            middle = {id(b): sorted(x.place for x in near)[len(near) // 2] if near else b.place for b, near in zip(layer, beside)}
            layer.sort(key=lambda b: middle[id(b)])
            for i, b in enumerate(layer):
                b.place = i
    y = 0.0
    for layer in layers:
        x = 0.0
        for b in layer:
            b.x, b.y = x + b.width / 2, y
            x += b.width + ACROSS
        y += max(b.height for b in layer) + DOWN
    for sweep in range(2 * SWEEPS):  # towards the mean of the neighbours, as far as the order allows
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _straighten(layer, above=sweep % 2 == 0)
    left = min((b.x - b.width / 2 for b in found), default=0.0)
    for b in found:
        b.x -= left
    return found, max((b.x + b.width / 2 for b in found), default=0.0), max(y - DOWN, 0.0)


def _straighten(layer: list[_Box], above: bool) -> None:
    """Moves the boxes of a layer below (above) the mean of those that they are connected to, in the order they have."""
    wanted = []
    for b in layer:
        near = b.above if above else b.below
        near = near or b.above or b.below
        wanted.append(sum(x.x for x in near) / len(near) if near else b.x)
    right, left = list(wanted), list(wanted)
    for i in range(1, len(layer)):
        right[i] = max(right[i], right[i - 1] + (layer[i - 1].width + layer[i].width) / 2 + ACROSS)
    for i in range(len(layer) - 2, -1, -1):
        left[i] = min(left[i], left[i + 1] - (layer[i].width + layer[i + 1].width) / 2 - ACROSS)
    for b, p, q in zip(layer, right, left):
        b.x = (p + q) / 2


def _edge(a: _Box, b: _Box, dx: float, dy: float) -> str:
    x0, y0, x1, y1 = a.x + dx, a.y + a.height + dy, b.x + dx, b.y + dy
    bend = max((y1 - y0) / 2, 8)
    tip = ' marker-end="url(#tip)"' if b.kind else ""
    down = f" L{x1:.1f} {y1 - 6:.1f}" if b.kind else ""
    y2 = y1 - 6 if b.kind else y1
    return f'<path d="M{x0:.1f} {y0:.1f} C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y2 - bend:.1f} {x1:.1f} {y2:.1f}{down}"{tip}/>'


def _panel(g: Graph, title: str, dx: float, dy: float) -> tuple[list[str], float, float]:
    """A graph's drawing at a place, its width and height."""
    found, width, height = _placed(g)
    out = [f'<text class="title" x="{dx:.1f}" y="{dy + 12:.1f}">{escape(title)}</text>']
    dy += 24
    deep: dict[int, float] = {}  # where a layer ends: edges leave a short box's layer straight down
    for b in found:
        deep[b.layer] = max(deep.get(b.layer, 0.0), b.y + b.height)
    for b in found:
        for x in b.below:
            if b.kind and deep[b.layer] - b.y - b.height > 1:
                out.append(f'<path d="M{b.x + dx:.1f} {b.y + b.height + dy:.1f} V{deep[b.layer] + dy:.1f}"/>')
            start = _Box("", [])
            start.x, start.y = b.x, deep[b.layer]
            if not b.kind:
                out.append(f'<path d="M{b.x + dx:.1f} {b.y + dy:.1f} V{deep[b.layer] + dy:.1f}"/>')
            out.append(_edge(start, x, dx, dy))
    for b in found:
        if b.kind:
            x, y = b.x - b.width / 2 + dx, b.y + dy
            about = f"<title>{escape(b.about)}</title>" if b.about else ""
            out.append(f'<g class="{b.kind}">{about}<rect x="{x:.1f}" y="{y:.1f}" width="{b.width:.1f}" height="{b.height:.1f}" rx="4"/>')
            for i, (kind, text) in enumerate(b.lines):
                out.append(f'<text class="{kind}" x="{x + PAD:.1f}" y="{y + (i + 1) * LINE - 1:.1f}">{escape(text)}</text>')
            out.append("</g>")
    return out, max(width, len(title) * 8.0), height + 24


def svg(graph: Graph) -> str:
    """A drawing of a graph, with those inside of it below."""
    parts: list[str] = []
    right, down = 0.0, 12.0
    for i, g in enumerate(graph.graphs()):
        found, width, height = _panel(g, f"graph {g.name}" if i == 0 else f"inside: graph {g.name}", 12, down)
        parts += found
        right, down = max(right, width + 24), down + height + 24
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#5e5c64;stroke:none"/></marker>'
    )
    size = f'width="{right:.0f}" height="{down:.0f}" viewBox="0 0 {right:.0f} {down:.0f}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style><defs>{tip}</defs>\n{body}\n</svg>'


def dot(graph: Graph) -> str:
    """A graph in Graphviz's language, with those inside of it as clusters."""
    out = [f"digraph {_text(graph.name)} {{", '  node [shape=box, fontname="monospace", fontsize=10];']
    for i, g in enumerate(graph.graphs()):
        names, at = labels(g), {v: f"g{i}_in{j}" for j, v in enumerate(g.inputs)}
        out += [f"  subgraph cluster{i} {{ label={_text(g.name)};"]
        out += [f"    {at[v]} [style=filled, label={_text(f'{v.name}: {v.type}')}];" for v in g.inputs]
        held = _held(g)
        for j, n in enumerate(g.nodes):
            if n.outputs and all(v in held for v in n.outputs):
                continue
            label = "\\l".join(_text(t)[1:-1] for _, t in _lines(n, names, held))
            out.append(f'    g{i}_{j} [label="{label}\\l"];')
            out += [f"    {at[v]} -> g{i}_{j};" for v in dict.fromkeys(n.inputs) if v in at]
            at.update(dict.fromkeys(n.outputs, f"g{i}_{j}"))
        for j, (name, v) in enumerate(zip(g.output_names, g.outputs)):
            out.append(f"    g{i}_out{j} [style=filled, label={_text(name)}];")
            out += [f"    {at[v]} -> g{i}_out{j};"] if v in at else []
        out.append("  }")
    return "\n".join([*out, "}"]) + "\n"


def _text(s: str) -> str:
    escaped = s.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


__all__ = ["MOST_NODES", "dot", "escape", "svg"]
