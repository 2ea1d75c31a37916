"""`tengen info`."""

from __future__ import annotations

from pathlib import Path

import click

from tengen.cli.common import plain_errors, table
from tengen.cli.files import read_model
from tengen.ir.text import print_graph


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--graph", is_flag=True, help="Also print the whole graph.")
@click.option("--weights", is_flag=True, help="Also list every weight.")
@plain_errors
def info(model: Path, graph: bool, weights: bool) -> None:
    """Shows what the file MODEL holds: inputs, outputs, ops, weights. The file is checked whole; nothing in it is run. One that ends in
    .onnx or .tflite is shown as the model that it becomes."""
    m = read_model(model)
    ops = ", ".join(f"{n} {op}" for op, n in sorted(m.ops().items(), key=lambda r: (-r[1], r[0])))
    rows = [("model", m.name)]
    rows += [("input", repr(p)) for p in m.inputs] + [("output", repr(p)) for p in m.outputs]
    rows += [("state", f"{s.name}: {s.read.type!r}") for s in m.graph.states.values()]
    rows += [
        ("nodes", f"{len(m.graph.nodes)}: {ops}" if ops else "0"),
        ("weights", f"{m.n_parameters:,} numbers in {len(m.graph.constants) + len(m.graph.states)} tensors"),
        *([("schedules", f"{len(m.schedules)}, tuned")] if m.schedules else []),
        *([("bytes", f"{m.bytes:,}"), ("sha-256", m.checksum)] if m.checksum else []),
    ]
    table(rows)
    if weights:
        click.echo()
        table([(c.name, repr(c.value.type)) for c in m.graph.constants.values()])
    if graph:
        click.echo()
        click.echo(print_graph(m.graph))
