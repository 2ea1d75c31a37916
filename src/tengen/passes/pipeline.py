"""The ordered list of passes, and the check between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tengen.base.config import config
from tengen.base.errors import VerifyError
from tengen.ir.graph import Graph
from tengen.ir.text import print_graph
from tengen.ir.types import TensorType
from tengen.ir.verify import verify
from tengen.ops.define import lookup
from tengen.passes.cleanup import merge_common, remove_broadcasts, remove_dead_code, remove_examples, remove_identities
from tengen.passes.constants import Evaluate, fold_constants
from tengen.passes.fuse import fuse
from tengen.passes.narrow import narrow

CLEANUP = [remove_dead_code, remove_identities, remove_examples, remove_broadcasts, merge_common]


def infer(name: str, types: list[TensorType | None], attrs: dict[str, Any]) -> Sequence[TensorType]:
    """The types that a node's outputs must have: by the op's rule, or what the body of a fused node gives."""
    if name != "fused":
        return lookup(name).infer_types(types, attrs)
    body: Graph = attrs["body"]
    wants = [v.type for v in body.inputs]
    if wants != types:
        raise VerifyError(f"the body takes {wants}, the node gives {types}")
    return [v.type for v in body.outputs]


def optimize(graph: Graph, evaluate: Evaluate | None = None) -> Graph:
    """Runs all passes, in this order. TENGEN_DEBUG=2 prints the graph after each, TENGEN_CHECK=1 verifies it. Constants are
    folded only if `evaluate`, which computes the outputs of a graph without inputs, is given."""
    folding = [] if evaluate is None else [lambda g: fold_constants(g, evaluate)]
    for p in [*CLEANUP, narrow, *folding, remove_dead_code, fuse]:
        graph = p(graph)
        if config.check:
            verify(graph, infer)
        if config.debug >= 2:
            print(f"# after {getattr(p, '__name__', '').replace('<lambda>', 'fold_constants')}\n{print_graph(graph)}")
    return graph
