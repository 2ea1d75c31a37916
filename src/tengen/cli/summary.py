"""`tengen summary`."""

from __future__ import annotations

import click

from tengen.cli.common import plain_errors
from tengen.cli.networks import network_of, shapes_of
from tengen.utils.summary import summary as summarise


@click.command()
@click.argument("network")
@click.option(
    "--shape", "shapes", multiple=True, required=True, callback=shapes_of, metavar="N,C,H,W",
    help="The shape of an input; again for more inputs.",
)
@plain_errors
def summary(network: str, shapes: list[tuple[int, ...]]) -> None:
    """Shows the modules of NETWORK: what each returns, holds and computes.

    NETWORK is a name in tengen.models, or MODULE:NAME or FILE.py:NAME of a network, or of a function or class that makes one without
    arguments. That code is run. It is called with zeros, in evaluation.

    \b
        tengen summary resnet18 --shape 1,3,224,224
        tengen summary net.py:Net --shape 8,28
    """
    click.echo(repr(summarise(network_of(network), input_shapes=shapes)))
