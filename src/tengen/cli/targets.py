"""`tengen targets`."""

from __future__ import annotations

import click

from tengen.cli.common import plain_errors, table
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.deploy.emulators import CannotRun, runner
from tengen.deploy.run import linked_by


@click.command()
@plain_errors
def targets() -> None:
    """Lists what `tengen compile --target` compiles for: what is promised of results, how that was tested, and what runs it here.

    \b
        tengen targets
    """
    names: dict[Target, list[str]] = {}
    for name in TARGET_NAMES[1:]:
        names.setdefault(Target.named(name), []).append(name)
    for target, called in names.items():
        level = target.level
        click.echo(click.style(", ".join(called), bold=True))
        try:
            here = f"{runner(target)[1]}, linked by {linked_by(target)}"
        except CannotRun as e:
            here = f"not: {e}"
        words = " ".join([level.cpu, *(f for f in level.features.split(",") if f[:1] == "+")])
        rows = [("processor", f"{words}, {target.system.name}"), ("results", level.bits), ("tested", level.tested), ("runs here", here)]
        table([(f"  {what}", text) for what, text in rows])
