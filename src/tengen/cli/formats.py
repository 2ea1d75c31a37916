"""`tengen import` and `tengen export`: files of other formats."""

from __future__ import annotations

from pathlib import Path

import click

from tengen.cli.common import plain_errors, size_of, table
from tengen.cli.extents import extent
from tengen.deploy.dump import dump_model
from tengen.deploy.loader import load_graph
from tengen.interop import onnx, tflite


@click.command("import")
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; default: SOURCE with the ending .tgn.")
@extent
@plain_errors
def import_(source: Path, out: Path | None, extents: dict[str, int]) -> None:
    """Makes a model file of the ONNX or TFLite file SOURCE. Extents that have names stay open, unless --extent batch=8 gives them a number."""
    model = (tflite.load if source.suffix == ".tflite" else onnx.load)(source, extents)
    written = dump_model(model, out or source.with_suffix(".tgn"))
    table([(written.file, f"{size_of(written.bytes)}, {written.n_nodes} nodes"), *(("input", repr(p)) for p in written.inputs)])


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; default: MODEL with the ending .onnx.")
@click.option("--opset", type=click.IntRange(7), help="Of ONNX's operators; default: the lowest that can say the model.")
@click.option("--for", "runtime", type=click.Choice(list(onnx.RUNTIMES)), help="Who will read it: what that does not take is an error.")
@click.option("--quantized", type=click.Choice(onnx.QUANTIZED), default="qdq", help="How an ONNX file says products of 8-bit integers.")
@plain_errors
def export(model: Path, out: Path | None, opset: int | None, runtime: str | None, quantized: str) -> None:
    """Writes the file MODEL as an ONNX file, which onnxruntime and others run; or, where OUT ends in .tflite, as a TFLite file."""
    target = out or model.with_suffix(".onnx")
    if target.suffix == ".tflite":
        tflite.save(load_graph(model), target)
    else:
        onnx.save(load_graph(model), target, opset, runtime=runtime, quantized=quantized)
    click.echo(f"{target}: {size_of(target.stat().st_size)}")
