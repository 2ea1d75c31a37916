"""`tengen profile`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import click

from tengen.cli.common import plain_errors
from tengen.cli.extents import extent
from tengen.cli.files import read_model
from tengen.deploy.verify import random_inputs
from tengen.profiling.profiler import profile as profiler
from tengen.profiling.result import SORTS, Result
from tengen.runtime import native


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="How often it is run.")
@click.option("--threads", type=click.IntRange(1), help="Threads that it may use; default: what the machine allows.")
@click.option("--sort", type=click.Choice(SORTS), default="time", show_default=True, help="Which kernels come first.")
@click.option("--limit", type=click.IntRange(1), default=40, show_default=True, help="How many kernels are shown.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the random inputs begin.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="A JSON file for ui.perfetto.dev to write.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="A picture of the timeline to write; needs matplotlib.")
@extent
@plain_errors
def profile(
    model: Path, repeat: int, threads: int | None, sort: str, limit: int, seed: int, trace: Path | None, plot: Path | None,
    extents: dict[str, int],
) -> None:  # fmt: skip
    """Runs the file MODEL on random inputs and shows the time of every kernel, its arithmetic and its memory traffic.

    The columns are explained in docs/profile.md. The model runs twice before anything counts.
    """
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("--plot needs matplotlib; help: pip install matplotlib")
    if threads:
        native.set_threads(threads)
    m = read_model(model)
    inputs = random_inputs(m.at(**extents), 1, seed)[0]
    m(*inputs)
    with profiler():  # compiles what records
        m(*inputs)
    with profiler() as p:
        for _ in range(repeat):
            m(*inputs)
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _colourful(p, sort, limit)
    else:
        click.echo(p.table(sort, limit))
    if trace:
        p.save(trace)
    if plot:
        p.plot(plot)


def _colourful(p: Result, sort: str, limit: int) -> None:
    """The table of a profile in a terminal, through rich."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, body = p.cells(sort, limit)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in head:
        ends = name in (head[0], head[-1])
        table.add_column(name, justify="left" if ends else "right", overflow="fold" if ends else "ellipsis", no_wrap=not ends)
    for cells, row in zip(body, p.sorted(sort)):
        reached = row.share_of(p.roof)
        style = "green" if reached >= 0.6 else "yellow" if reached >= 0.3 else "red"
        place = Text(cells[-1], style="dim")
        if row.where and row.where.startswith("/"):  # models hold no folders
            place.stylize(f"link file://{row.where.rpartition(':')[0]}")
        table.add_row(*(Text(c, style=style if name == "roof" else "") for name, c in zip(head[:-1], cells)), place)
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(p.summary(limit)))
