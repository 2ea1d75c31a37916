"""Graphs and model files of functions, as a trace would make them, without compiling it first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tengen import Tensor, trace
from tengen.deploy.dump import dump
from tengen.ir.graph import Graph
from tengen.tensor.recorder import Recorder


def graph_of(f: Callable, *xs: Tensor) -> Graph:
    """The graph of a function of these tensors, which returns one, several in a row, or None.

    Errors: TraceError where it cannot be recorded.
    """
    with Recorder(getattr(f, "__name__", type(f).__name__)) as rec:
        made = f(*(rec.argument(f"arg{i}", x) for i, x in enumerate(xs)))
        outs = made if isinstance(made, (tuple, list)) else () if made is None else (made,)
        return rec.finish([(f"output{i}", y) for i, y in enumerate(outs)])


def dumped(f: Callable, xs: Sequence[Tensor], file: Path) -> None:
    """Writes the model of a function of these tensors. Errors: as `graph_of`."""
    graph = graph_of(f, *xs)
    if graph.states:  # a trace knows their names, and their values of now
        trace(f).trace(*xs).dump(file)
    else:
        dump(graph, {}, file)
