"""Packages that are not Tengen's own, and are asked for where they are used.

In: a package's name, and a name that it has. Out: the package; or an error that says what to install, or what stands in its place.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from tengen.base.errors import ArgumentError


def package(name: str, has: str, needed_by: str) -> ModuleType:
    """A package of others.

    Args:
        name: as it is imported, which is the name of Tengen's extra too. has: a name that the package has: what lacks it is a folder or a file
            of the same name that stands before it on the path. needed_by: what needs it, for the error: "ONNX files need".
    Errors: ArgumentError where it is not installed, and where something else has its name.
    """
    try:
        found = importlib.import_module(name)
    except ImportError as e:
        raise ArgumentError(f"{needed_by} the package {name} ({e}); help: pip install 'tengen[{name}]'") from None
    if not hasattr(found, has):
        where = getattr(found, "__file__", None) or ", ".join(map(str, getattr(found, "__path__", ()))) or "somewhere"
        raise ArgumentError(
            f"{needed_by} the package {name}, and what Python imports by this name is something else, in {where}: it has no {has}; help: "
            f"another name for that folder or file, or another working directory (and pip install 'tengen[{name}]', if it is not installed)"
        )
    return found
