"""The command `tengen`, as a program and as ``python -m tengen``."""

from __future__ import annotations

import importlib
import sys

from tengen.base.version import VERSION
from tengen.cli.run import run


def main() -> None:
    """Does what the command line says. `run` and the version do not wait for what the other commands import."""
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:], prog_name="tengen run")
    elif sys.argv[1:] == ["--version"]:
        print(f"tengen {VERSION}")
    else:
        importlib.import_module("tengen.cli.main").main()
