"""The passes from graph to graph, in order.

In: a graph as it was recorded or loaded. Out: one that computes the same bits, cleaned and fused. They are the first of the
list from graph to program, `passes` of `compiler/driver.py`.
"""

from __future__ import annotations

from functools import partial

from tengen.ir.graph import Graph
from tengen.ir.text import print_graph
from tengen.ir.verify import verify
from tengen.passes.cleanup import merge_common, remove_broadcasts, remove_dead_code, remove_examples, remove_identities
from tengen.passes.codes import drop_clips, keep_codes
from tengen.passes.constants import Evaluate, fold_constants
from tengen.passes.extents import infer
from tengen.passes.fuse import fuse
from tengen.passes.narrow import narrow
from tengen.passes.regions import optimize_regions
from tengen.passes.run import Form, Pass, run_passes

GRAPH = Form(2, print_graph, lambda g: verify(g, infer))
CLEANUP = [remove_dead_code, remove_identities, remove_examples, remove_broadcasts, merge_common, keep_codes, drop_clips]


def graph_passes(evaluate: Evaluate | None = None) -> list[Pass]:
    """The passes from graph to graph. Constants are folded when there is somebody who can `evaluate` a graph."""
    folding = [] if evaluate is None else [Pass("fold_constants", partial(fold_constants, evaluate=evaluate), GRAPH)]
    before, after = ([Pass(f.__name__, f, GRAPH) for f in some] for some in ([*CLEANUP, narrow], [remove_dead_code, fuse]))
    bodies = Pass("optimize_regions", partial(optimize_regions, optimize=optimize), GRAPH)
    return [*before, *folding, *after, bodies]


def optimize(graph: Graph, evaluate: Evaluate | None = None) -> Graph:
    """What `graph_passes` make of a graph."""
    return run_passes(graph, graph_passes(evaluate))
