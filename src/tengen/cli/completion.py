"""`tengen completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Prints what SHELL needs to complete this command's words.

    \b
        eval "$(tengen completion bash)"        in ~/.bashrc
        tengen completion fish > ~/.config/fish/completions/tengen.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "tengen", "_TENGEN_COMPLETE").source())
