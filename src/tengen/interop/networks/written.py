"""What is written into files of others: the model of a traced function, of a graph that is taken apart, or of a quantised network."""

from __future__ import annotations

from typing import Any

from tengen.base.errors import ArgumentError
from tengen.deploy.graphs import Graph
from tengen.deploy.model import Model
from tengen.jit.trace import trace


def as_model(program: Any) -> Model:
    """The model of a traced function, of a `Graph`, or of what holds such a graph, to be written at once: its weights are not copied.

    Errors: ArgumentError for anything else.
    """
    if isinstance(program, Model):
        return program
    if isinstance(program, trace):
        return program.live_model()
    held = getattr(program, "graph", program)
    if not isinstance(held, Graph):
        raise ArgumentError(f"takes a Model, a traced function or a Graph, got a {type(program).__name__}; help: trace(net, example_input=x)")
    return held.model()
