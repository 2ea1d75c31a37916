"""`tengen run`. It imports little: the processes that it starts import the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tengen.cli.common import HELP, plain_errors
from tengen.transport.mpiexec import run_program


@click.command(context_settings={**HELP, "ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--processes", type=click.IntRange(1), default=2, show_default=True, help="How many processes.")
@click.option("--elastic", type=int, metavar="LEAST", help="When a process dies, start again with one less, down to LEAST.")
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@plain_errors
def run(processes: int, elastic: int | None, program: Path, arguments: Sequence[str]) -> None:
    """Runs a Python program in several processes of this machine, which `tengen.distributed` joins to one job.

    They share the cores. An error in one of them ends all. For several machines, start PROGRAM with MPI's `mpiexec`, or `srun`.

    \b
        tengen run -n 2 train.py --epochs 3
        tengen run -n 4 --elastic 2 train.py       # goes on from its last checkpoint, with 3 or 2
    """
    sys.exit(run_program(str(program), arguments, processes, elastic))
