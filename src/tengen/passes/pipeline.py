"""The ordered list of passes, and nothing else."""

from __future__ import annotations

from tengen.base.config import config
from tengen.ir.graph import Graph
from tengen.ir.text import print_graph
from tengen.ir.verify import verify
from tengen.passes.cleanup import merge_common, remove_dead_code, remove_identities
from tengen.passes.fuse import fuse

PASSES = [remove_dead_code, remove_identities, merge_common, remove_dead_code, fuse]


def optimize(graph: Graph) -> Graph:
    """Runs all passes; TENGEN_DEBUG=2 prints the graph after each, TENGEN_CHECK=1 verifies it."""
    for p in PASSES:
        graph = p(graph)
        if config.check:
            verify(graph)
        if config.debug >= 2:
            print(f"# after {p.__name__}\n{print_graph(graph)}")
    return graph
