"""`tengen cache warm` and `tengen cache pack`, which run every network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tengen.cli import packing
from tengen.cli.common import plain_errors, size_of, table
from tengen.runtime.pack import FOLDER, generic_targets

_only = click.option("--only", multiple=True, metavar="TEXT", help="Only calls whose names have this text (or another's); default: all.")
_list = click.option("--list", "listed", is_flag=True, help="List the names of the calls, and do nothing.")


def _jobs(only: Sequence[str], listed: bool) -> list:
    """The jobs with one of some texts in their names, all if there are none; none after they were listed."""
    every = packing.jobs()
    if missing := [text for text in only if not any(text in job.name for job in every)]:
        raise click.BadParameter(f"no calls have {missing[0]!r} in their names; help: --list shows them", param_hint="--only")
    found = [job for job in every if not only or any(text in job.name for text in only)]
    if listed:
        click.echo("\n".join(job.name for job in found))
    return [] if listed else found


@click.command()
@_only
@_list
@plain_errors
def warm(only: Sequence[str], listed: bool) -> None:
    """Compiles what people call first into this user's cache: common ops, and first training steps of common networks.

    For an installation from sources, which comes without packs; afterwards programs start as quickly as with them. It takes some
    minutes, is stopped by Ctrl-C, and goes on where it stopped.

    \b
        tengen cache warm
        tengen cache warm --only ResNet-18 --only float32
    """
    if run := _jobs(only, listed):
        w = packing.warm(run)
        click.echo(f"{w.compiled} modules compiled, {w.found} were there, in {w.seconds:.1f} s")


@click.command()
@click.option("--target", "names", multiple=True, type=click.Choice([t.name for t in generic_targets()]), help="A target; default: all.")
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="The folder to write to; default: Tengen's own.")
@_only
@_list
@plain_errors
def pack(names: Sequence[str], out: Path | None, only: Sequence[str], listed: bool) -> None:
    """Compiles what people call first for every generic target, into the packs that come with Tengen: for who packages it.

    A process uses the pack for the best target that its processor includes, where the pack was made from the same sources and by the
    same compiler as are there; `make wheel` puts packs into the wheel.

    \b
        tengen cache pack
        tengen cache pack --target x86-64-v3 --out packs
    """
    targets = [t for t in generic_targets() if not names or t.name in names]
    if run := _jobs(only, listed):
        written = packing.write_packs(run, targets, out or Path(FOLDER))
        table([(t.name, f"{path}: {n} programs, {size_of(size)}") for t, (path, n, size) in zip(targets, written)])
        if (size := sum(size for *_, size in written)) > (most := packing.MOST_BYTES):
            raise click.ClickException(f"the packs have {size_of(size)}, more than {size_of(most)}; help: shorten the list of calls")
