"""`summary`: a network as a tree of modules, with what each returns, holds and computes. The figures are `module_stats`'."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen import module as M
from tengen.base.record import record
from tengen.tensor import Tensor
from tengen.utils.module_stats import evaluated, get_op_stats, given_inputs, sizeof_fmt, tensors_in


@record(frozen=True)
class Row:
    """One module.

    Attributes:
        name: within its parent. path: from the network on. depth: how many modules it is inside of. kind: its class, and what its
            constructor was given. outputs: the shapes of its last call's results; empty where it was not called. calls: how often it was.
        parameters: numbers that are trained, in it and below. operations: multiplications with their additions, of all its calls, and below.
        bytes: of the results of all its calls.
    """

    name: str
    path: str
    depth: int
    kind: str
    outputs: tuple[tuple[int, ...], ...]
    calls: int
    parameters: int
    operations: float
    bytes: int


class Summary:
    """What `summary` found: print it, or show it in a notebook.

    Attributes:
        rows: a `Row` for each module, as the tree is walked. parameters, buffers: how many numbers are trained, and are not. operations: of one
            call; of modules that have a rule (`utils.module_stats.register_flops`). activation_bytes: of what innermost modules returned.
        parameter_bytes: of parameters and buffers.
    """

    def __init__(self, rows: Sequence[Row], net: M.Module, inputs: Sequence[Any], leaves: set[str]):
        self.rows = tuple(rows)
        self.inputs = tuple(repr(x._layout.type) for x in tensors_in(list(inputs)))
        self.parameters, self.buffers = (sum(t.size for t in ts) for ts in (net.parameters(), net.buffers()))
        self.parameter_bytes = sum(t.size * t.dtype.size for t in net.tensors())
        self.operations = rows[0].operations
        self.activation_bytes = sum(r.bytes for r in rows if r.path in leaves)

    def totals(self) -> list[tuple[str, str]]:
        """The sums, with their names."""
        return [
            ("inputs", ", ".join(self.inputs)), ("parameters", f"{self.parameters:,} ({sizeof_fmt(self.parameter_bytes)} with buffers)"),
            ("buffers", f"{self.buffers:,}"), ("operations", sizeof_fmt(self.operations, "OPs")),
            ("activations", sizeof_fmt(self.activation_bytes)),
        ]  # fmt: skip

    def cells(self) -> list[list[str]]:
        """The table's rows as texts, the head first."""
        found = [["module", "output", "parameters", "operations"]]
        for r in self.rows:
            name = f"{'  ' * r.depth}{r.name}: {r.kind}" if r.name else r.kind
            out = " ".join("x".join(map(str, s)) or "()" for s in r.outputs) or "-"
            out += f" ({r.calls} calls)" if r.calls > 1 else ""
            found.append([name, out, f"{r.parameters:,}" if r.parameters else "", sizeof_fmt(r.operations, "OPs") if r.operations else ""])
        return found

    def __repr__(self) -> str:
        cells = self.cells()
        widths = [max(len(row[i]) for row in cells) for i in range(4)]
        lines = ["  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in cells]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule, *(f"{name:<12} {value}" for name, value in self.totals())])

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        head, *body = self.cells()
        line = lambda row, tag: "".join(
            f'<{tag} style="text-align:{"left" if i < 2 else "right"};white-space:pre">{html.escape(c)}</{tag}>' for i, c in enumerate(row)
        )
        rows = f"<tr>{line(head, 'th')}</tr>" + "".join(f"<tr>{line(r, 'td')}</tr>" for r in body)
        below = "<br>".join(f"{name}: {html.escape(value)}" for name, value in self.totals())
        return f"<table>{rows}</table><div>{below}</div>"


def summary(net: M.Module, *inputs: Any, input_shapes: Any = None) -> Summary:
    """A network's modules, in the order of their calls, with the shapes of what they return, their parameters and operations, and the
    sums. It runs once, in evaluation.

    Args:
        inputs: what it is called with: Tensors or arrays; a tuple of ints is a shape, of float32 zeros. input_shapes: in their place, a shape
            or several.

    Returns: a `Summary`, which prints itself.
    Errors: ValueError without inputs, or with both; TypeError for what is no module.

    >>> import tengen
    >>> from tengen import functional as F, module as M
    >>> print(tengen.summary(M.Sequential(M.Linear(4, 3), M.ReLU()), F.ones((2, 4))))
    module                                                 output  parameters  operations
    -------------------------------------------------------------------------------------
    Sequential()                                           2x3             15  30.000 OPs
      0: Linear(in_features=4, out_features=3, bias=True)  2x3             15  30.000 OPs
      1: ReLU()                                            2x3
    -------------------------------------------------------------------------------------
    inputs       f32[2,4]
    parameters   15 (60.000 B with buffers)
    buffers      0
    operations   30.000 OPs
    activations  48.000 B
    """
    if not isinstance(net, M.Module):
        raise TypeError(f"summary() takes a module, got a {type(net).__name__}")
    is_shape = lambda x: isinstance(x, tuple) and all(isinstance(n, int) for n in x)
    examples = [np.zeros(x, np.float32) if is_shape(x) else x for x in inputs]
    given = [x if isinstance(x, Tensor) else Tensor(x) for x in given_inputs("summary", examples or None, input_shapes)]
    seen: dict[int, list[tuple[Any, Any]]] = {}

    def look(module: M.Module, ins: Any, outs: Any) -> None:
        a, b = tensors_in(ins), tensors_in(outs)
        stats = get_op_stats(module, a, b)
        found = (tuple(t.shape for t in b), stats["flops_num"] if stats else 0.0, sum(t.size * t.dtype.size for t in b))
        seen.setdefault(id(module), []).append(found)

    hooks = [m.register_forward_hook(look) for m in net.modules()]
    try:
        with evaluated(net):
            net(*given)
    finally:
        for h in hooks:
            h.remove()
    rows: list[Row] = []
    leaves: set[str] = set()
    called = {key: at for at, key in enumerate(seen)}

    def children(m: M.Module) -> list[tuple[str, M.Module]]:
        """In the order in which they first returned; those that were not called come last."""
        return sorted(m.named_children(), key=lambda named: called.get(id(named[1]), len(called)))

    def walk(m: M.Module, name: str, path: str, depth: int) -> float:
        calls, at = seen.get(id(m), []), len(rows)
        rows.append(Row("", "", 0, "", (), 0, 0, 0.0, 0))
        below = [walk(c, n, f"{path}.{n}" if path else n, depth + 1) for n, c in children(m)]
        if not below:
            leaves.add(path)
        operations = sum(c[1] for c in calls) or sum(below)
        kind = f"{type(m).__name__}({m._module_info_string()})"
        size = sum(p.size for p in m.parameters())
        rows[at] = Row(name, path, depth, kind, calls[-1][0] if calls else (), len(calls), size, operations, sum(c[2] for c in calls))
        return operations

    walk(net, "", "", 0)
    return Summary(rows, net, given, leaves)


__all__ = ["Row", "Summary", "summary"]
