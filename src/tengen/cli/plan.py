"""`tengen plan`: what training a network in many processes would take."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from tengen.base.files import replacing
from tengen.base.sizes import byte_size
from tengen.cli.common import HELP, plain_errors
from tengen.cli.networks import network_of, shapes_of
from tengen.utils import planning
from tengen.utils.module_stats import sizeof_fmt


def _link(text: str | None, name: str) -> planning.Network:
    if text is None:
        return planning.NETWORKS[name]
    try:
        latency, bandwidth = map(float, text.split(","))
    except ValueError as e:
        raise click.BadParameter(f"{text!r} is not of the form LATENCY,BANDWIDTH, as 2e-6,1e9", param_hint="--link") from e
    if latency < 0 or bandwidth <= 0:
        raise click.BadParameter(f"{text!r}: seconds that are not negative, and bytes a second", param_hint="--link")
    known = planning.NETWORKS[name]
    return planning.Network(known.node, known.inside, planning.Link(latency, bandwidth))


def _row(ranks: int, p: planning.Plan | None, alone: float | None) -> list[str]:
    if p is None:
        return [str(ranks), "does not fit", *[""] * 8]
    fast = "" if alone is None else f"{alone / p.seconds:.1f}"
    mesh = f"{p.data} x {p.tensor} x {p.pipeline}"
    times = [f"{1e3 * s:.3g}" for s in (p.seconds, p.compute, p.waiting, p.exchange)]
    return [str(ranks), mesh, str(p.stage), str(p.micro_batches), f"{100 * p.again:.0f} %", *times, fast, sizeof_fmt(p.memory)]


def _print(rows: list[list[str]]) -> None:
    widths = [max(len(r[i]) if i < len(r) else 0 for r in rows) for i in range(max(map(len, rows)))]
    for r in rows:
        click.echo("  ".join(c.rjust(w) for c, w in zip(r, widths)).rstrip())


@click.command(context_settings=HELP)
@click.argument("network")
@click.option("--shape", "shapes", multiple=True, required=True, callback=shapes_of, metavar="N,C,H,W", help="An input's shape, of a batch.")
@click.option("--ranks", type=click.IntRange(1), required=True, help="The most processes.")
@click.option("--network", "net", type=click.Choice(list(planning.NETWORKS)), default="ethernet-100g", show_default=True)
@click.option("--link", metavar="S,B/S", help="In place of the network's link between machines: latency and bandwidth of a process.")
@click.option("--batch", type=click.IntRange(1), help="Samples of a step, in all; default: 4 for each process.")
@click.option("--flops", type=float, help="Floating-point operations a second of a process; default: measured by steps here.")
@click.option("--memory", help="Bytes of a process, as 16GB; default: any.")
@click.option("--dtype", type=click.Choice(["float32", "int64", "int32"]), default="float32", show_default=True, help="Of the inputs.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="An SVG file to draw.")
@plain_errors
def plan(
    network: str, shapes: list[tuple[int, ...]], ranks: int, net: str, link: str | None, batch: int | None, flops: float | None,
    memory: str | None, dtype: str, picture: Path | None,
) -> None:  # fmt: skip
    """Shows the best mesh for training NETWORK with 1, 2, 4 ... processes: the time of a step, of what it consists, and memory.

    NETWORK is as for `tengen summary`. Times follow from counted operations and bytes; nothing is assumed to overlap.

    \b
        tengen plan resnet18 --shape 8,3,224,224 --ranks 1024 --network infiniband-hdr
    """
    made, given = network_of(network), [np.zeros(s, dtype) for s in shapes]
    work = planning.work_of(made, *given)
    rate = planning.measured_rate(made, *given) if flops is None else flops
    handling = planning.measured_handling(made, *given) if flops is None else float("inf")
    samples, where = batch or 4 * ranks, _link(link, net)
    limit = float("inf") if memory is None else byte_size(memory, "--memory", 1000)
    curves = planning.curves(work, where, rate, samples, ranks, limit, handling=handling)
    first = curves["best"][0].plan
    click.echo(f"{work.parameters:,} parameters, {sizeof_fmt(6 * work.operations, 'OPs')} a sample; {samples:,} samples a step")
    click.echo(f"a process: {rate:.3g} operations a second\n")
    head = ["processes", "data x tensor x pipeline", "ZeRO", "micro-batches", "again"]
    head += ["ms", "compute", "waits", "exchange", "speedup", "memory"]
    _print([head, *(_row(n, p, first.seconds if first else None) for n, p in curves["best"])])
    click.echo()
    for name, points in curves.items():
        at = planning.stops(points)
        said = "pays up to the end" if at is None else "does not fit" if at == 0 else f"stops paying at {at:,} processes"
        click.echo(f"{name:<9} {said}")
    nbytes = work.parameters * work.itemsize
    click.echo(f"\nall-reduce of the gradients, {sizeof_fmt(nbytes)}, ms")
    table = planning.all_reduce_table(where, nbytes, ranks)
    _print([["processes", *planning.ALGORITHMS], *([str(n), *(f"{1e3 * row[a]:.3g}" for a in planning.ALGORITHMS)] for n, row in table)])
    if picture is not None:
        with replacing(picture) as f:
            f.write(planning.picture(curves).encode())
        click.echo(f"\n{picture}")
