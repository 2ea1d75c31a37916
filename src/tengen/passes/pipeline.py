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
from tengen.passes.cleanup import merge_common, remove_dead_code, remove_identities
from tengen.passes.fuse import fuse

PASSES = [remove_dead_code, remove_identities, merge_common, remove_dead_code, fuse]


def infer(name: str, types: list[TensorType | None], attrs: dict[str, Any]) -> Sequence[TensorType]:
    """The types that a node's outputs must have: by the op's rule, or what the body of a fused node gives."""
    if name != "fused":
        return lookup(name).infer_types(types, attrs)
    body: Graph = attrs["body"]
    wants = [v.type for v in body.inputs]
    if wants != types:
        raise VerifyError(f"the body takes {wants}, the node gives {types}")
    return [v.type for v in body.outputs]


def optimize(graph: Graph) -> Graph:
    """Runs all passes; TENGEN_DEBUG=2 prints the graph after each, TENGEN_CHECK=1 verifies it."""
    for p in PASSES:
        graph = p(graph)
        if config.check:
            verify(graph, infer)
        if config.debug >= 2:
            print(f"# after {p.__name__}\n{print_graph(graph)}")
    return graph
