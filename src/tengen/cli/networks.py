"""What commands are told about networks: their names, and the shapes of their inputs."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click

from tengen.module import Module


def shapes_of(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> list[tuple[int, ...]]:
    """``--shape 1,3,224,224`` as a tuple."""
    found = []
    for text in given:
        parts = text.replace("x", ",").split(",")
        if not all(p.strip().isdecimal() for p in parts):
            raise click.BadParameter(f"{text!r} is not of the form 1,3,224,224")
        found.append(tuple(int(p) for p in parts))
    return found


def network_of(text: str) -> Any:
    """The network that a command's argument names."""
    where, _, name = text.rpartition(":")
    try:
        if where.endswith(".py"):
            home: Any = ModuleType("network")
            home.__dict__.update(runpy.run_path(where))
        else:
            sys.path.insert(0, "")
            home = importlib.import_module(where or "tengen.models")
        found = getattr(home, name)
    except (ImportError, AttributeError) as e:
        raise click.BadParameter(f"{text!r}: {e}; help: a name in tengen.models, MODULE:NAME, or FILE.py:NAME", param_hint="NETWORK") from e
    return found if isinstance(found, Module) or not callable(found) else found()
