"""Model files of functions, with the graphs that a trace would write, without compiling the trace first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tengen import Tensor, trace
from tengen.deploy.dump import dump
from tengen.tensor.recorder import Recorder


def dumped(f: Callable, xs: Sequence[Tensor], file: Path) -> None:
    """Writes the model of a function of these tensors. Errors: TraceError where it cannot be recorded."""
    with Recorder(getattr(f, "__name__", type(f).__name__)) as rec:
        made = f(*(rec.argument(f"arg{i}", x) for i, x in enumerate(xs)))
        outs = made if isinstance(made, (tuple, list)) else (made,)
        graph = rec.finish([(f"output{i}", y) for i, y in enumerate(outs)])
    if graph.states:  # a trace knows their names, and their values of now
        trace(f).trace(*xs).dump(file)
    else:
        dump(graph, {}, file)
