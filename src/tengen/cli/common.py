"""What the commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import click

from tengen.base.errors import TengenError

HELP = {"help_option_names": ["-h", "--help"]}


def plain_errors(f: Callable | None = None, *, exit_code: int = 1) -> Callable:
    """Errors that Tengen and the system raise on purpose, as what they say, without the calls: all lines of it, and where it was. The
    command then ends with this exit code."""
    if f is None:
        return functools.partial(plain_errors, exit_code=exit_code)

    def told(text: str) -> click.ClickException:
        error = click.ClickException(text)
        error.exit_code = exit_code
        return error

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        try:
            return f(*args, **kwargs)
        except BrokenPipeError:  # who read the output has seen enough (`| head`): click ends without a word
            raise
        except OSError as e:
            text = f"{e.filename}: {e.strerror}" if e.filename and e.strerror else e.strerror or str(e)
            raise told(text) from e
        except (TengenError, ValueError, MemoryError) as e:
            said = [str(e).strip() or type(e).__name__, *getattr(e, "__notes__", ())]
            raise told("\n".join(said)) from e

    return wrapped


def table(rows: Sequence[tuple[str, str]]) -> None:
    """Prints rows of a name and what it stands for."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{click.style(f'{name:<{width}}', bold=True)}  {value}")


def size_of(n: int) -> str:
    """A number of bytes, for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} bytes"
