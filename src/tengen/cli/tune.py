"""`tengen tune`."""

from __future__ import annotations

from pathlib import Path

import click

from tengen.cli.common import plain_errors
from tengen.cli.files import read_model
from tengen.deploy.dump import dump_model
from tengen.runtime import native
from tengen.tuning.tuner import tune as tune_model


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="How long, about.")
@click.option("--threads", type=click.IntRange(1), help="Threads that it may use; default: what the machine allows.")
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="A file for the model with what was found.")
@plain_errors
def tune(model: Path, seconds: float, threads: int | None, out: Path | None) -> None:
    """Makes the kernels of the file MODEL faster on this machine by measuring, and keeps every bit.

    What is found goes into the cache for every later program, and into the file OUT. docs/tune.md says what may change.
    """
    if threads:
        native.set_threads(threads)
    m = read_model(model)
    click.echo(repr(tune_model(m, seconds)))
    if out:
        click.echo(f"{dump_model(m, out).file}: {len(m.schedules)} schedules")
