"""`tengen run`. It imports little: the processes that it starts import the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tengen.cli.common import HELP, plain_errors
from tengen.transport.mpiexec import run_program


@click.command(context_settings={**HELP, "ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--processes", type=click.IntRange(1), help="How many processes.  [default: 2, or MOST]")
@click.option("--elastic", metavar="LEAST[:MOST]", help="When a process is lost, start again with one less, down to LEAST.")
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@plain_errors
def run(processes: int | None, elastic: str | None, program: Path, arguments: Sequence[str]) -> None:
    """Runs a Python program in several processes of this machine, which `tengen.distributed` joins to one job.

    They share the cores. An error in one of them ends all. For several machines, start PROGRAM with MPI's `mpiexec`, or `srun`.

    \b
        tengen run -n 2 train.py --epochs 3
        tengen run --elastic 2:4 train.py          # with 4; goes on from its last checkpoint with 3 or 2
    """
    least, most = bounds(elastic) if elastic is not None else (None, None)
    if processes is not None and most is not None and processes > most:
        raise click.BadParameter(f"-n {processes} is more than the {most} of --elastic {elastic}")
    sys.exit(run_program(str(program), arguments, processes or most or 2, least))


def bounds(elastic: str) -> tuple[int, int | None]:
    """(Least, most) number of processes of "2" or "2:4". Errors: click.BadParameter."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?", elastic)
    least, most = (int(found[1]), int(found[2]) if found[2] else None) if found else (0, None)
    if least < 1 or (most is not None and most < least):
        raise click.BadParameter(f"--elastic {elastic}: the least number of processes is needed, or least:most, as 2:4")
    return least, most
