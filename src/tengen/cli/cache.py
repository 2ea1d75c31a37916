"""`tengen cache`: what is on the disk. The commands that fill it lie in `packs.py`."""

from __future__ import annotations

import click

from tengen.cli.common import plain_errors, size_of, table
from tengen.cli.later import add
from tengen.runtime import cache as kernel_cache
from tengen.runtime import report


@click.group()
def cache() -> None:
    """The compiled kernels that are kept on disk: this user's, and those that come with Tengen."""


@cache.command()
@plain_errors
def info() -> None:
    """Shows where the kernels are, how many, and how large: this user's, and the packs that come with Tengen.

    A pack is in use, for other processors than this, or stale: Tengen has changed since it was made.

    \b
        tengen cache info
    """
    i = kernel_cache.info()
    rows = [("path", str(i.path)), ("kernels", str(i.entries)), ("bytes", size_of(i.bytes)), ("limit", size_of(i.limit))]
    rows += [("programs", str(i.programs)), ("tuned", f"{i.schedules} targets and numbers of threads")]
    table([*rows, *report.pack_rows()])


@cache.command()
@plain_errors
def clear() -> None:
    """Removes this user's kernels, kept programs, and what tuning found; kernels are compiled again when they are needed. Packs stay:
    they are part of Tengen.

    \b
        tengen cache clear
    """
    click.echo(f"{size_of(kernel_cache.clear())} removed")


add(cache, [
    ("warm", "packs:warm", "Compiles what people call first into this user's cache: common ops, and first training steps of common "
     "networks."),
    ("pack", "packs:pack", "Compiles what people call first for every generic target, into the packs that come with Tengen: for who "
     "packages it."),
])  # fmt: skip
