"""`tengen config`."""

from __future__ import annotations

import click

from tengen.cli.common import plain_errors, table
from tengen.runtime import report


@click.command()
@plain_errors
def config() -> None:
    """Shows versions, processor, threads, cache and every knob: what a bug report needs."""
    table(report.config_table())
