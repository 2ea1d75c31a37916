"""The option ``--extent``, which several commands have."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tengen.base.errors import ConfigError
from tengen.deploy.extents import parse_range


def _extents(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, int]:
    """``--extent batch=8`` as a table."""
    found = {}
    for text in given:
        name, _, n = text.partition("=")
        if not name or not n.isdecimal():
            raise click.BadParameter(f"{text!r} is not of the form batch=8")
        found[name] = int(n)
    return found


def _ranges(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, int | range]:
    """``--extent batch=8``, or ``--extent batch=1..64``, as a table."""
    found = {}
    for text in given:
        name, _, n = text.partition("=")
        try:
            found[name] = parse_range(n)
        except ConfigError as e:
            raise click.BadParameter(f"{text!r} is not of the form batch=8 or batch=1..64") from e
    return found


extent_or_range = click.option(
    "--extent", "extents", multiple=True, callback=_ranges, metavar="NAME=N|A..B[:STEP]",
    help="A number for an extent that is open, or a range: then it is an argument of the C function.",
)  # fmt: skip

extent = click.option(
    "--extent", "extents", multiple=True, callback=_extents, metavar="NAME=N", help="A number for an extent that is open."
)
