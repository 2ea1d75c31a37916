"""A network in evaluation for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tengen.module.module import Module


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """A block in which a module is in evaluation; behind it each module inside is as it was. What is no module stays what it
    is."""
    was = [(m, m.training) for m in model.modules()] if isinstance(model, Module) else []
    if was:
        model.eval()
    try:
        yield
    finally:
        for m, training in was:
            m.training = training
