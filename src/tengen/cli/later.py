"""Commands that are imported when they are called, so that each waits for its own imports alone."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click


class Later(click.Command):
    """A command in a group, in the place of one whose module is not imported yet: what the group's help and completion show of it.

    Args: name: in the group. place: "module:function" of the command below `tengen.cli`. help: the first sentence of its help.
    """

    def __init__(self, name: str, place: str, help: str):
        super().__init__(name, help=help)
        self._place = place

    def command(self) -> click.Command:
        """The command itself."""
        module, _, function = self._place.partition(":")
        return getattr(importlib.import_module(f"tengen.cli.{module}"), function)

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """A context of the command itself, which click parses the command line for, completes, and runs."""
        return self.command().make_context(info_name, args, parent, **extra)


def add(group: click.Group, rows: Sequence[tuple[str, str, str]]) -> None:
    """Adds commands to a group; rows: the arguments of `Later`."""
    for name, place, help in rows:
        group.add_command(Later(name, place, help))
