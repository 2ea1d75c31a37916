"""`tengen compile` and `tengen verify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tengen.base.errors import ConfigError
from tengen.cli.common import plain_errors, size_of, table
from tengen.cli.extents import extent_or_range
from tengen.cli.files import read_model
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.deploy.compile import compile_model
from tengen.deploy.packages import FORMS, package
from tengen.deploy.verify import verify as verify_artifact

COULD_NOT_RUN = 3  # exit code of `verify` where nothing was compared; 2 is click's, for a wrong command line


def _target(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """The name of a target; one that is near to what was given is named where there is none of that name."""
    try:
        return None if given is None else given if Target.named(given) else None
    except ConfigError as e:
        raise click.BadParameter(str(e)) from e


def _complete_target(context: click.Context, parameter: click.Parameter, given: str) -> list[str]:
    return [name for name in TARGET_NAMES if name.startswith(given)]


@click.command("compile")
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--target", callback=_target, shell_complete=_complete_target, default="x86-64-v3", show_default=True,
    help="What to compile for; `tengen targets` lists them.",
)
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder to write to.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads that the program may use.")
@click.option("--name", help="Prefix of the C names and files; default: the model's name.")
@click.option("--pool", is_flag=True, help="Also make a function that runs with the application's threads, and may be cancelled.")
@click.option("--as", "forms", multiple=True, type=click.Choice(list(FORMS)), help="Also write it in this form; may be given several times.")
@extent_or_range
@plain_errors
def compile_(
    model: Path, target: str, out: Path, threads: int, name: str | None, pool: bool, forms: Sequence[str],
    extents: dict[str, int | range],
) -> None:  # fmt: skip
    """Compiles the file MODEL to an object file, a C header, a weights blob and an example in C.

    A model whose batch is open (tengen info shows names for such extents) is compiled for one, --extent batch=8, or for a
    range, --extent batch=1..64 or --extent height=32..512:32. MODEL may be an ONNX or TFLite file.
    """
    a = compile_model(read_model(model), target, out, name, threads, extents, pool)
    table(
        [
            ("object", f"{a.files[0]} ({size_of(a.object_bytes)}, {a.code_bytes:,} bytes of code in {a.kernels} kernels)"),
            ("header", a.files[1]),
            ("weights", f"{a.files[2]} ({size_of(a.weights_bytes)})"),
            ("example", a.files[3]),
            ("target", f"{a.target}, {a.threads} {'thread' if a.threads == 1 else 'threads'}"),
            ("workspace", size_of(a.workspace_bytes)),
            *((form, path) for form in dict.fromkeys(forms) for path in package(a, form)),
        ]
    )


@click.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="The artifact's name, where FOLDER holds several.")
@click.option("--target", callback=_target, shell_complete=_complete_target, help="What it must be for.")
@click.option("--runs", type=click.IntRange(1), default=4, show_default=True, help="Sets of random inputs to compare.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the random inputs begin.")
@plain_errors(exit_code=COULD_NOT_RUN)
def verify(model: Path, folder: Path, name: str | None, target: str | None, runs: int, seed: int) -> None:
    """Runs the artifact in FOLDER and compares its outputs with those of the file MODEL, bit by bit. Where they differ, the first op whose
    bits differ is named.

    Exit code 0 when all bits are equal, 1 when a bit differs, 3 when nothing was compared: because it cannot be run here, or there is no such
    model or artifact, or they do not belong together. It says which.
    """
    v = verify_artifact(model, folder, name=name, runs=runs, seed=seed, target=target)
    if v.status == "skipped":
        click.echo(f"{v.target}: skipped: {v.how}")
        sys.exit(COULD_NOT_RUN)
    where = "" if v.status == "different" else f" ({v.how})"
    click.echo(f"{v.target}: {v.runs} runs, {v.values} values, {v.differing} differ{where}")
    if v.status == "different":
        raise click.ClickException(f"the artifact is not the model: {v.how}")
