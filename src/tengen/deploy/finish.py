"""What the process in the background does (`runtime/finishing.py`): programs of models that have answered without, then good code."""

from __future__ import annotations

from functools import partial

from tengen.deploy.loader import load_graph
from tengen.deploy.unfinished import make_left
from tengen.runtime import finishing


def finish() -> None:
    """Makes all of it, and returns when nothing is left."""
    finishing.finish(partial(make_left, load_graph))
